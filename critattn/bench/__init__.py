"""Benchmarks: ratios of the package to its alternatives and to the machine's own rates, all in one run."""

from critattn.bench.cases import run as run
from critattn.bench.cases import training_steps as training_steps
