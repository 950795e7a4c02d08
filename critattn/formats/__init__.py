"""Number formats: what their exponents and significands do to the weights of attention."""

from critattn.formats.stated import FORMATS as FORMATS
from critattn.formats.stated import KINDS as KINDS
from critattn.formats.stated import Format as Format
from critattn.formats.stated import Thresholds as Thresholds
from critattn.formats.stated import get as get
from critattn.formats.stated import names as names
