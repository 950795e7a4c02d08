"""Where additive biases make keys invisible: distances, fractions, quantised positions, certificates."""

from critattn.blindness.certification import Certificate as Certificate
from critattn.blindness.certification import amplitude_is_safe as amplitude_is_safe
from critattn.blindness.certification import certify as certify
from critattn.blindness.certification import safe_bias as safe_bias
from critattn.blindness.distances import CONVENTIONS as CONVENTIONS
from critattn.blindness.distances import blind_length as blind_length
from critattn.blindness.distances import blindness_distance as blindness_distance
from critattn.blindness.distances import log10_distance as log10_distance
from critattn.blindness.distances import log_partition as log_partition
from critattn.blindness.distances import visible_window as visible_window
from critattn.blindness.fractions import blind_fraction as blind_fraction
from critattn.blindness.fractions import counted_fraction as counted_fraction
from critattn.blindness.fractions import normalised_fraction as normalised_fraction
from critattn.blindness.positions import RECIPES as RECIPES
from critattn.blindness.positions import PositionError as PositionError
from critattn.blindness.positions import position_error as position_error
from critattn.blindness.positions import resolution_onset as resolution_onset
from critattn.blindness.positions import rounded_bias as rounded_bias
from critattn.blindness.redistribution import absorption_distance as absorption_distance
from critattn.blindness.redistribution import flushed_bound as flushed_bound
from critattn.blindness.redistribution import flushed_mass as flushed_mass
from critattn.blindness.redistribution import flushed_row as flushed_row
