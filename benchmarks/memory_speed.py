"""How fast so many threads of this machine read memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
from threadpoolctl import threadpool_limits

BLOCK_ENTRIES = 32_000_000
MOST_ENTRIES = 256_000_000
"""Of `bandwidth`: 128 MB for a thread or two, more for more, up to 1 GB, which no cache holds."""
READ_ENTRIES = 8_000_000
SHORTEST_SECONDS = 4e-3
"""Of a measurement, about what `bandwidth` takes for a read: shorter work is repeated for as long,
and its mean counts, so that neither has more chances to be lucky."""


def bandwidth(n_threads: int = 1) -> float:
    """Bytes a second so many threads read from memory; best of five."""
    with reads_of_memory(n_threads) as speed:
        return max(speed() for _ in range(5))


@contextmanager
def reads_of_memory(n_threads: int) -> Iterator[Callable[[], float]]:
    """A function that reads memory by so many threads and returns the bytes a second."""
    entries = min(MOST_ENTRIES, BLOCK_ENTRIES * max(1, n_threads // 2))
    block = np.ones(entries, dtype=np.float32)
    with _readers(n_threads) as read:
        yield lambda: block.nbytes / _measured(lambda: read(block))


def long_read(votes: np.ndarray, n_rows: int, n_threads: int) -> float:
    """Seconds so many threads take to read that many rows of votes once, as a pass has to."""
    flat, left = votes.reshape(-1), n_rows * votes.shape[1]
    with _readers(n_threads) as read:
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
def _readers(n_threads: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that reads an array once, in pieces that the threads share."""

    def read(flat: np.ndarray) -> None:
        # As many pieces for each thread: none waits for another's last.
        n_pieces = n_threads * -(-len(flat) // (READ_ENTRIES * n_threads))
        pieces = np.array_split(flat, n_pieces)
        for _ in pool.map(lambda piece: piece.dot(piece), pieces):
            pass

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(n_threads) as pool:
        yield read
