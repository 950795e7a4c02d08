"""Number formats: what their exponents and significands do to the weights of attention."""

from critattn.formats.emulation import Emulated as Emulated
from critattn.formats.emulation import Zeros as Zeros
from critattn.formats.emulation import emulate as emulate
from critattn.formats.emulation import zeros as zeros
from critattn.formats.losses import Loss as Loss
from critattn.formats.losses import absorbed as absorbed
from critattn.formats.losses import blind_count as blind_count
from critattn.formats.losses import exact_weights as exact_weights
from critattn.formats.losses import leaked as leaked
from critattn.formats.losses import leaking as leaking
from critattn.formats.losses import lost_mass as lost_mass
from critattn.formats.losses import redistributed as redistributed
from critattn.formats.losses import redistributing as redistributing
from critattn.formats.masks import MaskFacts as MaskFacts
from critattn.formats.masks import mask_facts as mask_facts
from critattn.formats.measured import Measured as Measured
from critattn.formats.measured import kind_of as kind_of
from critattn.formats.measured import measure_backend as measure_backend
from critattn.formats.stated import FORMATS as FORMATS
from critattn.formats.stated import KINDS as KINDS
from critattn.formats.stated import Format as Format
from critattn.formats.stated import Thresholds as Thresholds
from critattn.formats.stated import get as get
from critattn.formats.stated import names as names
