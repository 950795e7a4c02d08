import gc
import os
from importlib import metadata
from pathlib import Path

import matplotlib
import pytest
from hypothesis import settings

matplotlib.use("Agg")
settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.load_profile("reproducible")
MAPS = Path("/proc/self/maps")
# Linux ends a process with more than 65,530 memory maps; compiled functions keep some each.
MANY_MAPS = 20_000
LIGHT_COMPILATION = "--xla_backend_optimization_level=0"
# XLA ends a process at a flag that it does not know: this one, which saves as much again, where it is known to be there
if metadata.version("jaxlib").startswith("0.10."):
    LIGHT_COMPILATION += " --xla_cpu_use_fusion_emitters=false"


def pytest_configure(config):
    """Fast tests compile lightly, without optimisation or fused loops; the full set runs as a user's program."""
    if config.option.markexpr == "not slow":
        os.environ["XLA_FLAGS"] = f"{LIGHT_COMPILATION} {os.environ.get('XLA_FLAGS', '')}".strip()


@pytest.fixture(autouse=True, scope="module")
def _room_for_compiled_functions():
    """Let go of compiled functions between modules, before a process has too many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        import jax

        jax.clear_caches()
        gc.collect()
