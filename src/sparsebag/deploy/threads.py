"""How many threads a prediction takes."""

from __future__ import annotations

import operator
import os

MOST_THREADS = 1024
"""More are never of use; the kernel starts no more than it has blocks of rows."""


def resolve_threads(n_jobs: int | None) -> int:
    """Threads that ``n_jobs`` asks for, counted as joblib does.

    Parameters
    ----------
    n_jobs : int or None
        None is one; -1 is one a processor, -2 one fewer.

    Returns
    -------
    int

    Examples
    --------
    >>> resolve_threads(None), resolve_threads(3)
    (1, 3)
    """
    if n_jobs is None:
        return 1
    try:
        n_jobs = operator.index(n_jobs)
    except TypeError:
        raise TypeError(
            f"n_jobs={n_jobs!r} is no whole number; use None for one thread, -1 for all."
        ) from None
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning; use None for one thread, -1 for all.")
    if n_jobs > 0:
        return min(n_jobs, MOST_THREADS)
    return max(1, (os.cpu_count() or 1) + 1 + n_jobs)
