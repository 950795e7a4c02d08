"""Normalisers: the map from a row of logits to a row of weights, with its row Jacobian [docs/theory.md section 6]."""

from critattn.normalisers.elementwise import Relu as Relu
from critattn.normalisers.elementwise import Sigmoid as Sigmoid
from critattn.normalisers.entmax import Entmax as Entmax
from critattn.normalisers.entmax import Hardmax as Hardmax
from critattn.normalisers.entmax import Sparsemax as Sparsemax
from critattn.normalisers.ratios import Power as Power
from critattn.normalisers.ratios import SigmoidL1 as SigmoidL1
from critattn.normalisers.ratios import SoftplusL1 as SoftplusL1
from critattn.normalisers.registry import get as get
from critattn.normalisers.registry import names as names
from critattn.normalisers.registry import options as options
from critattn.normalisers.registry import register as register
from critattn.normalisers.registry import stages as stages
from critattn.normalisers.reweighting import FirstStage as FirstStage
from critattn.normalisers.reweighting import ReluPower as ReluPower
from critattn.normalisers.softmax import Softmax as Softmax
