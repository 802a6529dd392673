"""How many threads a pass over the evidence takes.

Passes are bound by memory, which one thread of most machines cannot keep busy. As the numerical
libraries do, they take every processor the process may use, or what ``OMP_NUM_THREADS`` says:
worker processes of joblib and Dask have it set, since they share the machine. The sums have the
same bits whatever the number; small evidence is read by one thread in any case
(``kernel/parts.h``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

from joblib import cpu_count

MOST_THREADS = 64
"""As many as the parts that evidence is cut into at most."""

_limit: ContextVar[int] = ContextVar("pass_threads", default=MOST_THREADS)


def pass_threads() -> int:
    """Threads a pass may take here and now.

    Returns
    -------
    int

    Examples
    --------
    >>> with at_most_pass_threads(1):
    ...     pass_threads()
    1
    """
    return min(_limit.get(), _asked() or _processors())


@contextmanager
def at_most_pass_threads(n_threads: int) -> Iterator[None]:
    """Keep passes made inside to so many threads.

    Parameters
    ----------
    n_threads : int
        For work that is one of several at a time, as a task on a cluster.
    """
    token = _limit.set(min(n_threads, _limit.get()))
    try:
        yield
    finally:
        _limit.reset(token)


def _asked() -> int | None:
    """What the environment asks for; its first number, where nested regions have one each."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    is_number = first.isdecimal() and len(first) < 10
    return int(first) if is_number and int(first) > 0 else None


def _processors() -> int:
    """Processors the process may use: affinity, which may change, and a container's share."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:  # not on every system
        allowed = MOST_THREADS
    return max(1, min(allowed, _counted()))


@lru_cache(maxsize=1)
def _counted() -> int:
    return int(cpu_count())
