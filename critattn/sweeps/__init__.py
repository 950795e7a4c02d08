"""Sweeps: what is asked for (`SweepSpec`), one unit of work (`evaluate`), and the run over all of them."""

from critattn.sweeps.evaluation import evaluate as evaluate
from critattn.sweeps.evaluation import layout_of as layout_of
from critattn.sweeps.evaluation import make_tokens as make_tokens
from critattn.sweeps.evaluation import token_key as token_key
from critattn.sweeps.forecast import Forecast as Forecast
from critattn.sweeps.refining import Refinement as Refinement
from critattn.sweeps.refining import refine_sweep as refine_sweep
from critattn.sweeps.running import run_sweep as run_sweep
from critattn.sweeps.spec import AttentionSpec as AttentionSpec
from critattn.sweeps.spec import Axes as Axes
from critattn.sweeps.spec import SweepSpec as SweepSpec
from critattn.sweeps.spec import TokenSpec as TokenSpec
from critattn.sweeps.studies import Study as Study
from critattn.sweeps.studies import load_study as load_study
from critattn.sweeps.studies import store_path as store_path
from critattn.sweeps.studies import studies as studies
