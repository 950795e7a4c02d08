"""What is added to the scores of a row: ALiBi and its relatives, clamps, casts, constants."""

from critattn.biases.alibi import Alibi as Alibi
from critattn.biases.alibi import LogDistance as LogDistance
from critattn.biases.base import DistanceBias as DistanceBias
from critattn.biases.buckets import T5Buckets as T5Buckets
from critattn.biases.casts import Cast as Cast
from critattn.biases.casts import round_to as round_to
from critattn.biases.kernels import KerpleLog as KerpleLog
from critattn.biases.kernels import KerplePower as KerplePower
from critattn.biases.kernels import Sandwich as Sandwich
from critattn.biases.modifiers import Clamp as Clamp
from critattn.biases.modifiers import NtkScaled as NtkScaled
from critattn.biases.shift import Shift as Shift
from critattn.biases.slopes import RULES as RULES
from critattn.biases.slopes import alibi_slopes as alibi_slopes
from critattn.biases.slopes import check_slopes as check_slopes
from critattn.biases.slopes import robust_slopes as robust_slopes
