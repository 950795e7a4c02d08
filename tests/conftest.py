import os

import matplotlib
from hypothesis import settings

matplotlib.use("Agg")
settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.load_profile("reproducible")


def pytest_configure(config):
    """Fast tests compile without optimisation, which is most of their time; the full set runs as a user's program."""
    if config.option.markexpr == "not slow":
        os.environ["XLA_FLAGS"] = f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}".strip()
