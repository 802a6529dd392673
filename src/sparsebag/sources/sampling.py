"""Rows drawn at random, each with a chance that grows with its weight."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import NOT_TO_BE_SUMMED, OOBEvidence, concatenate

SLACK = 1.25
"""Rows held before the surplus is dropped, as a multiple of those wanted."""


def draw_rows(
    total: int, weight: np.ndarray | None, n_rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray | None]:
    """Rows drawn without replacement; by their weight, where they have any.

    Parameters
    ----------
    total : int
        How many there are.
    weight : ndarray of shape (M,) or None
    n_rows : int
        How many are wanted; all where there are no more.
    rng : Generator

    Returns
    -------
    rows : ndarray of ascending indices
    counts : ndarray or None
        What each counts for; None: all alike.

    Examples
    --------
    >>> draw_rows(3, None, 5, np.random.default_rng(0))
    (array([0, 1, 2]), None)
    """
    if n_rows >= total:
        return np.arange(total), weight
    if weight is None:
        return np.sort(rng.choice(total, n_rows, replace=False)), None
    return draw_by_weight(weight, n_rows, rng)


def draw_by_weight(
    weight: np.ndarray, n_rows: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Rows drawn with a chance that grows with their weight, and what each then counts for.

    Parameters
    ----------
    weight : ndarray of shape (M,)
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
    rows = np.flatnonzero(weight > 0)
    if n_rows >= len(rows):
        return rows, weight[rows]
    largest = float(weight.max())
    share = weight[rows] / largest  # of tiny weights the keys would overflow
    with np.errstate(divide="ignore", over="ignore"):
        keys = rng.exponential(size=len(share)) / share
    threshold = float(np.partition(keys, n_rows)[n_rows])
    stay = keys < threshold
    if np.isinf(threshold):  # all others are as good as weightless beside these
        return rows[stay], weight[rows[stay]]
    return rows[stay], counted(share[stay], threshold) * largest


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
    # Below 1e-12 x / (1 - exp(-x)) is 1 to double precision.
    return np.where(expected > 1e-12, weight / -np.expm1(-expected), 1.0 / threshold)


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
    >>> reservoir.evidence().n_rows
    5
    """

    def __init__(self, n_rows: int, seed: int = 0) -> None:
        self.n_rows = n_rows
        self._rng = np.random.default_rng(seed)
        self._parts: list[OOBEvidence] = []
        self._keys = np.zeros(0)
        self._threshold = np.inf

    def add(self, block: OOBEvidence) -> None:
        """Offer the rows of a block.

        Parameters
        ----------
        block : OOBEvidence
        """
        keys = self._rng.exponential(size=block.n_rows)
        if block.sample_weight is not None:
            with np.errstate(divide="ignore", over="ignore"):  # as good as no weight
                keys /= on_host(block.sample_weight)
        chosen = np.flatnonzero((keys < self._threshold) | np.isinf(self._threshold))
        if not len(chosen):
            return
        self._parts.append(block.take(chosen))  # a copy: the block itself can go
        self._keys = np.concatenate([self._keys, keys[chosen]])
        if len(self._keys) > SLACK * self.n_rows:
            self._drop_surplus()

    def evidence(self) -> OOBEvidence:
        """The sample, in the order its rows came.

        Returns
        -------
        OOBEvidence
        """
        if not self._parts:
            raise ValueError("the stream gave no rows to sample.")
        if len(self._keys) > self.n_rows:
            self._drop_surplus()
        if len(self._parts) > 1:
            self._parts = [concatenate(self._parts)]
        kept = self._parts[0]
        if kept.sample_weight is None or np.isinf(self._threshold):
            return kept
        return replace(kept, sample_weight=counted(on_host(kept.sample_weight), self._threshold))

    def _drop_surplus(self) -> None:
        self._threshold = float(np.partition(self._keys, self.n_rows)[self.n_rows])
        stay = self._keys < self._threshold
        if not stay.any():  # keys of weights below 1e-307 are infinite
            raise ValueError(NOT_TO_BE_SUMMED)
        whole = concatenate(self._parts)
        self._parts = []
        self._parts = [whole.take(np.flatnonzero(stay))]
        self._keys = self._keys[stay]
