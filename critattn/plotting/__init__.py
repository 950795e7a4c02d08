"""Figures: style and labels, maps, the facts of captions, and files that carry where they come from."""

from critattn.plotting.data import counts_phrase as counts_phrase
from critattn.plotting.data import dimensions_phrase as dimensions_phrase
from critattn.plotting.data import draws_phrase as draws_phrase
from critattn.plotting.data import grid_sentence as grid_sentence
from critattn.plotting.data import over_draws as over_draws
from critattn.plotting.data import tokens_phrase as tokens_phrase
from critattn.plotting.data import width_sentence as width_sentence
from critattn.plotting.files import FORMATS as FORMATS
from critattn.plotting.files import Provenance as Provenance
from critattn.plotting.files import fingerprint as fingerprint
from critattn.plotting.files import parse_formats as parse_formats
from critattn.plotting.files import provenance as provenance
from critattn.plotting.files import save as save
from critattn.plotting.maps import phase_map as phase_map
from critattn.plotting.maps import rho_gamma_maps as rho_gamma_maps
from critattn.plotting.style import COLUMN as COLUMN
from critattn.plotting.style import DOUBLE as DOUBLE
from critattn.plotting.style import HALO as HALO
from critattn.plotting.style import THEORY as THEORY
from critattn.plotting.style import Look as Look
from critattn.plotting.style import canvas as canvas
from critattn.plotting.style import categories as categories
from critattn.plotting.style import label as label
from critattn.plotting.style import sequence as sequence
from critattn.plotting.style import style as style
from critattn.plotting.style import styled as styled
