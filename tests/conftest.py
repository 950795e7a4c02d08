import matplotlib
from hypothesis import settings

matplotlib.use("Agg")
settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.load_profile("reproducible")
