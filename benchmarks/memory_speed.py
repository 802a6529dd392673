"""How fast this machine reads memory, with as many threads as a pass over the evidence takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

from sparsebag.objective.pass_threads import pass_threads

BLOCK_ENTRIES = 32_000_000
READ_ENTRIES = 8_000_000
SHORTEST_SECONDS = 4e-3
"""Of a measurement, about what `bandwidth` takes for a read: shorter work is repeated for as long,
and its mean counts, so that neither has more chances to be lucky."""


def bandwidth() -> float:
    """Bytes a second read from memory by the threads of a pass; best of five."""
    block = np.ones(BLOCK_ENTRIES, dtype=np.float32)
    with _readers() as read:
        return block.nbytes / best_of(lambda: read(block), 5)


def long_read(votes: np.ndarray, n_rows: int) -> float:
    """Seconds the threads of a pass take to read that many rows of votes once, as it has to."""
    flat, left = votes.reshape(-1), n_rows * votes.shape[1]
    with _readers() as read:
        start = time.perf_counter()
        while left > 0:
            read(flat[: min(left, len(flat))])
            left -= len(flat)
        return time.perf_counter() - start


def best_of(work: Callable[[], object], repeats: int) -> float:
    """Seconds, the least of so many measurements of at least `SHORTEST_SECONDS`."""
    return min(_measured(work) for _ in range(repeats))


def _measured(work: Callable[[], object]) -> float:
    start, n = time.perf_counter(), 0
    while True:
        work()
        n += 1
        seconds = time.perf_counter() - start
        if seconds >= SHORTEST_SECONDS:
            return seconds / n


@contextmanager
def _readers() -> Iterator[Callable[[np.ndarray], None]]:
    """A function that reads an array once, in pieces that the threads share."""
    n_threads = pass_threads()

    def read(flat: np.ndarray) -> None:
        size = min(READ_ENTRIES, -(-len(flat) // n_threads))
        pieces = (flat[first : first + size] for first in range(0, len(flat), size))
        for _ in pool.map(lambda piece: piece.dot(piece), pieces):
            pass

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        yield read
