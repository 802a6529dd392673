"""A sample of the rows of a stream whose length nobody knows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import NOT_TO_BE_SUMMED, OOBEvidence
from sparsebag.evidence.row_stream import concatenate

SLACK = 1.25
"""Rows held before the surplus is dropped, as a multiple of those wanted."""
PART_ROWS = 1 << 16
"""Rows whose weights are looked at together."""
TINY = 1e-12
"""Below it x / (1 - exp(-x)) is 1 to double precision."""


def draw_by_weight(weight: Any, n_rows: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Rows drawn with a chance that grows with their weight, and what each then counts for.

    Parameters
    ----------
    weight : array of shape (M,)
        Read by slices, so that it may stand in a file.
    n_rows : int
        How many; all with weight where they are not more.
    rng : Generator

    Returns
    -------
    rows : ndarray of ascending indices
    counts : ndarray
        Weights of these rows: sums over them estimate those over all, as in `Reservoir`.

    Examples
    --------
    >>> rows, counts = draw_by_weight(np.array([1e9, 1.0, 0.0, 1.0]), 2, np.random.default_rng(0))
    >>> len(rows), int(rows[0]), float(counts[0])
    (2, 0, 1000000000.0)
    """
    parts = [slice(first, first + PART_ROWS) for first in range(0, int(weight.shape[0]), PART_ROWS)]
    largest, n_weighing = 0.0, 0
    for part in parts:
        values = np.asarray(weight[part])
        largest = max(largest, float(values.max(initial=0.0)))
        n_weighing += int(np.count_nonzero(values > 0))
    if n_rows >= n_weighing:
        rows = [part.start + np.flatnonzero(np.asarray(weight[part]) > 0) for part in parts]
        counts = [np.asarray(weight[part])[np.asarray(weight[part]) > 0] for part in parts]
        return np.concatenate([np.zeros(0, np.intp), *rows]), np.concatenate([np.zeros(0), *counts])
    drawn = _SmallestKeys(n_rows)
    for part in parts:
        share = np.asarray(weight[part]) / largest  # of tiny weights the keys would overflow
        with np.errstate(divide="ignore", over="ignore"):
            drawn.add(rng.exponential(size=len(share)) / share, share, part.start)
    threshold = drawn.threshold()
    if np.isinf(threshold):  # all others are as good as weightless beside these
        return drawn.rows, drawn.share * largest
    return drawn.rows, counted(drawn.share, threshold) * largest


class _SmallestKeys:
    """Rows with the smallest keys of all that come, and the smallest key that is left out."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows
        self.rows, self.share = np.zeros(0, dtype=np.intp), np.zeros(0)
        self._keys = np.zeros(0)
        self._next = np.inf

    def add(self, keys: np.ndarray, share: np.ndarray, first_row: int) -> None:
        chosen = np.flatnonzero(keys < self._next)
        self._keys = np.concatenate([self._keys, keys[chosen]])
        self.rows = np.concatenate([self.rows, first_row + chosen])
        self.share = np.concatenate([self.share, share[chosen]])
        if len(self._keys) > SLACK * self.n_rows + 1:
            self.threshold()

    def threshold(self) -> float:
        """Leave the surplus out; infinite where there was none."""
        if len(self._keys) > self.n_rows:
            self._next = float(np.partition(self._keys, self.n_rows)[self.n_rows])
            stay = self._keys < self._next
            self._keys, self.rows, self.share = self._keys[stay], self.rows[stay], self.share[stay]
        return self._next


def counted(weight: np.ndarray, threshold: float) -> np.ndarray:
    """What drawn rows count for: one sure to stay for itself, an unlikely one for those that went.

    Parameters
    ----------
    weight : ndarray of shape (n,)
    threshold : float
        The smallest key of a row that was not drawn.

    Returns
    -------
    ndarray of shape (n,)
    """
    expected = weight * threshold
    return np.where(expected > TINY, weight / -np.expm1(-expected), 1.0 / threshold)


class Reservoir:
    """Keeps ``n_rows`` of all rows seen so far, each with a chance that grows with its weight.

    Each row draws a key, exponential with its ``sample_weight`` for a rate; the rows with the
    smallest keys stay (Efraimidis and Spirakis 2006). With τ the smallest key that went, a row of
    weight w stays with probability 1 - exp(-w τ), and is given the weight w / (1 - exp(-w τ)), so
    that weighted sums over the sample estimate those over all rows (Cohen and Kaplan 2007). Rows
    without a weight have equal chances and keep none. Which rows stay depends on the seed and the
    order of the rows alone.

    Parameters
    ----------
    n_rows : int
        How many to keep.
    seed : int, default 0

    Examples
    --------
    >>> reservoir = Reservoir(5)
    >>> for _ in range(10):
    ...     reservoir.add(OOBEvidence(np.ones((4, 2)), None, np.ones(4), "regression"))
    >>> reservoir.evidence().n_rows, reservoir.n_seen
    (5, 40)
    """

    def __init__(self, n_rows: int, seed: int = 0) -> None:
        self.n_rows = n_rows
        self.n_seen = 0
        self._rng = np.random.default_rng(seed)
        self._parts: list[OOBEvidence] = []
        self._keys = np.zeros(0)
        self._marks = np.zeros(0, dtype=np.intp)
        self._threshold = np.inf

    def add(self, block: OOBEvidence, mark: int = 0) -> None:
        """Offer the rows of a block.

        Parameters
        ----------
        block : OOBEvidence
        mark : int, default 0
            What `marks` has for those of its rows that stay.
        """
        keys = self._rng.exponential(size=block.n_rows)
        if block.sample_weight is not None:
            with np.errstate(divide="ignore", over="ignore"):  # as good as no weight
                keys /= on_host(block.sample_weight)
        self.n_seen += block.n_rows
        chosen = np.flatnonzero((keys < self._threshold) | np.isinf(self._threshold))
        if not len(chosen):
            return
        self._parts.append(block.take(chosen))  # a copy: the block itself can go
        self._keys = np.concatenate([self._keys, keys[chosen]])
        self._marks = np.concatenate([self._marks, np.full(len(chosen), mark, dtype=np.intp)])
        if len(self._keys) > SLACK * self.n_rows:
            self._drop_surplus()

    def evidence(self) -> OOBEvidence:
        """The sample, in the order its rows came.

        Returns
        -------
        OOBEvidence
        """
        if not self._parts:
            raise ValueError("the stream gave no rows; there is nothing to sample.")
        if len(self._keys) > self.n_rows:
            self._drop_surplus()
        if len(self._parts) > 1:
            self._parts = [concatenate(self._parts)]
        kept = self._parts[0]
        if kept.sample_weight is None or np.isinf(self._threshold):
            return kept
        return replace(kept, sample_weight=counted(on_host(kept.sample_weight), self._threshold))

    @property
    def marks(self) -> np.ndarray:
        """Ndarray of shape (n,): the marks of the rows of `evidence`."""
        if len(self._keys) > self.n_rows:
            self._drop_surplus()
        return self._marks

    @property
    def is_complete(self) -> bool:
        """Whether every row seen is in the sample."""
        return self.n_seen <= self.n_rows

    def _drop_surplus(self) -> None:
        self._threshold = float(np.partition(self._keys, self.n_rows)[self.n_rows])
        stay = self._keys < self._threshold
        if not stay.any():  # keys of weights below 1e-307 are infinite
            raise ValueError(NOT_TO_BE_SUMMED)
        whole = concatenate(self._parts)
        self._parts = []
        self._parts = [whole.take(np.flatnonzero(stay))]
        self._keys, self._marks = self._keys[stay], self._marks[stay]
