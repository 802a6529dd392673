"""One BLAS thread a test process: on shared cores several wait for each other."""

import os

# Read when NumPy and SciPy are imported; processes that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hypothesis import settings

# No test is timed: what a busy machine takes says nothing of the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
