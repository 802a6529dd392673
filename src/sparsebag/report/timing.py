"""How long predictions take here."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsebag.evidence.members import take_rows

TIMED_ROWS = 1000
TIMED_REPEATS = 5


def milliseconds(predict: Callable[[Any], Any], X: Any) -> float:
    """Milliseconds for a thousand rows, one thread: the best of five calls.

    A busy machine stretches long calls more than short ones and would flatter the small model, so
    the processor's time counts where it is less than the clock's (it is more where a member uses
    threads of its own).

    Parameters
    ----------
    predict : callable
    X : array-like

    Returns
    -------
    float
    """
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    block = take_rows(X, np.resize(np.arange(n_rows), TIMED_ROWS))
    predict(block)  # the first call pays for imports, caches and threads
    seconds = []
    for _ in range(TIMED_REPEATS):
        clock, processor = time.perf_counter(), time.process_time()
        predict(block)
        seconds.append(min(time.perf_counter() - clock, time.process_time() - processor))
    return 1e3 * min(seconds)
