"""One BLAS thread a test process: on shared cores several wait for each other."""

from __future__ import annotations

import os

# Read when NumPy and SciPy are imported; processes that tests start inherit it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
