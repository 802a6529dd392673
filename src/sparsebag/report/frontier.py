"""The frontier: what every size costs in members, bytes and time, and is expected to lose."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.members import MemberPool, take_rows
from sparsebag.selection.table import PathTable

TIMED_ROWS = 1000
TIMED_REPEATS = 5
TIMED_SIZES = 7
"""Sizes that are compiled and timed; between them time is drawn along a line."""
SLOW_MS = 200.0
"""A whole ensemble slower than this, for a thousand rows, is timed at two sizes only."""
GAP = 1.3
"""A size more than so many times its neighbour leaves a stretch between them that nobody judged;
the path itself grows by less, see `selection.cross_fit.GROWTH`."""


@dataclass(frozen=True)
class Frontier:
    """The path of sizes with measured latency.

    Attributes
    ----------
    table : PathTable
    latency : ndarray or None
        Milliseconds for a thousand rows, one thread; None where no rows were given.
    measured : ndarray of bool
        Sizes that were timed, not drawn between two that were.
    score : str
        What the risk is: Brier score or squared error.
    bytes_are : {"in memory", "pickled"}
        What the table's bytes count: trees' arrays, or other members' pickles.
    """

    table: PathTable
    latency: np.ndarray | None
    measured: np.ndarray
    score: str
    bytes_are: str = "in memory"

    @property
    def chosen(self) -> int:
        """Position of the size that was kept."""
        return int(np.flatnonzero(self.table.chosen)[0])

    @property
    def gaps(self) -> list[int]:
        """Positions after which sizes were left out."""
        k = self.table.k.astype(float)
        return np.flatnonzero(k[1:] > GAP * k[:-1] + 1.0).tolist()

    def runs(self) -> list[np.ndarray]:
        """Positions of sizes that lie close together, a stretch an array.

        Returns
        -------
        list of ndarray of int
        """
        return np.split(np.arange(len(self.table)), np.array(self.gaps, dtype=int) + 1)

    def stands_alone(self) -> np.ndarray:
        """Sizes beside which one was left out: only they need a mark of their own.

        Returns
        -------
        ndarray of bool
        """
        leaps: np.ndarray = np.diff(self.table.k) > 1
        return np.asarray(np.append(False, leaps) | np.append(leaps, False))

    def left_out(self, gap: int) -> str:
        """Which sizes a gap holds.

        Parameters
        ----------
        gap : int
            One of `gaps`.

        Returns
        -------
        str
        """
        first, last = int(self.table.k[gap]) + 1, int(self.table.k[gap + 1]) - 1
        sizes = f"Sizes {first} to {last} were" if last > first else f"Size {first} was"
        return f"{sizes} not judged"

    def members_at(self, i: int) -> str:
        """How many members a size has, in words.

        Parameters
        ----------
        i : int

        Returns
        -------
        str
        """
        k = int(self.table.k[i])
        return f"{k:,} member" if k == 1 else f"{k:,} members"


def measured_frontier(
    table: PathTable,
    pool: MemberPool,
    X: Any,
    deployed_ms: float | None = None,
    whole_ms: float | None = None,
) -> Frontier:
    """The path with what its sizes take to predict, compiled, on these rows.

    A size is timed on as many of the ensemble's first members; which ones they are hardly matters
    for time.

    Parameters
    ----------
    table : PathTable
    pool : MemberPool
        The whole ensemble.
    X : array-like or None
        Rows to time on; None: nothing is timed.
    deployed_ms : float, optional
        What was measured for the size that was kept.
    whole_ms : float, optional
        What was measured for the whole ensemble, compiled.

    Returns
    -------
    Frontier
    """
    score = "squared error" if pool.classes is None else "Brier score"
    bytes_are = "in memory" if all(member.is_tree for member in pool.members) else "pickled"
    nothing = np.zeros(len(table), dtype=bool)
    if X is None:
        return Frontier(table, None, nothing, score, bytes_are)
    k = table.k.astype(int)
    whole_ms = _first_ms(pool, int(k[-1]), X) if whole_ms is None else whole_ms
    wanted = np.geomspace(k[0], k[-1], TIMED_SIZES if whole_ms < SLOW_MS else 2)
    at = {int(np.argmin(np.abs(k - size))) for size in wanted}
    found = {i: _first_ms(pool, int(k[i]), X) for i in at if i != len(k) - 1}
    found[len(k) - 1] = whole_ms
    chosen = int(np.flatnonzero(table.chosen)[0])
    if deployed_ms is not None:
        found[chosen] = deployed_ms
    measured = nothing.copy()
    measured[list(found)] = True
    sizes = sorted(found)
    # Load can only slow a call down, so a larger size that seems faster is a slower smaller one.
    times = np.minimum.accumulate(np.array([found[i] for i in sizes])[::-1])[::-1]
    latency = np.interp(k, k[sizes], times)
    if deployed_ms is not None:
        latency[chosen] = deployed_ms
    return Frontier(table, latency, measured, score, bytes_are)


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


def compiled_milliseconds(pool: MemberPool, X: Any) -> float:
    """What members take compiled, whatever they are served as.

    Parameters
    ----------
    pool : MemberPool
    X : array-like

    Returns
    -------
    float
        Milliseconds for a thousand rows.
    """
    n = len(pool.members)
    compiled = compile_members(pool, np.full(n, 1.0 / n))
    return milliseconds(compiled.predict if pool.classes is None else compiled.predict_proba, X)


def _first_ms(pool: MemberPool, k: int, X: Any) -> float:
    return compiled_milliseconds(pool.keep(np.arange(min(k, len(pool.members)))), X)
