"""Which local map, if any: chosen on one part of the rows, judged on another.

A gate is flexible, and the rows it is fitted on flatter it. So what it is worth is read off rows
that had no part in it: on each fold, a map fitted to the others, with its kind's shape and strength
chosen on a part of *those*. The folds judge the whole procedure, its choices included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np

from sparsebag.refine.local_design import FittedMap

FOLDS = 5
HELD_FOR_CHOICE = 0.3
"""Share of the rows that choose among candidates."""


@dataclass(frozen=True)
class Candidate:
    """A shape and a strength.

    Attributes
    ----------
    kind : {"linear", "regions"}
    spread : float
        Scale of a row's deviation, in nats: small ones stay near the global model. Of weights what
        a member's logit moves by at most, one unit along a direction; of a temperature its prior
        standard deviation.
    regions : int
        At most; of kind "regions".
    rank : int
        Directions in which the members' weights may move apart.
    steepness : float
        Prior standard deviation of a row's position along a direction; of kind "linear". At one
        most rows are where the change from one side to the other is smooth, at more it is a step.
    oblique : bool
        Whether regions may also be split along a fitted direction of the features.
    """

    kind: str
    spread: float
    regions: int = 0
    rank: int = 1
    steepness: float = 1.0
    oblique: bool = False


class LocalProblem(Protocol):
    """Rows to fit a map to."""

    @property
    def n_rows(self) -> int:
        """Rows that can be split."""

    @property
    def row_weight(self) -> np.ndarray:
        """Weights of the rows, summing to one."""

    def take(self, rows: np.ndarray) -> Self:
        """The same for some rows."""

    def fit(self, candidate: Candidate) -> FittedMap:
        """The map of least penalised loss."""

    def losses(self, deviation: FittedMap | None) -> np.ndarray:
        """Each row's loss; None: without a map."""


def choose(
    problem: LocalProblem, candidates: Sequence[Candidate], *, forced: bool, seed: int = 0
) -> Candidate | None:
    """The candidate of least loss on rows it was not fitted on.

    Parameters
    ----------
    problem : LocalProblem
    candidates : sequence of Candidate
    forced : bool
        Whether one must be taken even where none is better than none.
    seed : int, default 0
        Of the rows that choose.

    Returns
    -------
    Candidate or None
    """
    order = np.random.default_rng([seed, 2]).permutation(problem.n_rows)
    held = int(HELD_FOR_CHOICE * problem.n_rows)
    judges, others = problem.take(np.sort(order[:held])), problem.take(np.sort(order[held:]))

    def score(deviation: FittedMap | None) -> float:
        return float(judges.row_weight @ judges.losses(deviation))

    scores = [score(others.fit(candidate)) for candidate in candidates]
    best = int(np.argmin(scores))
    return candidates[best] if forced or scores[best] < score(None) else None


@dataclass(frozen=True)
class Held:
    """A fold's rows, and the map that was fitted without them (None: no map was better)."""

    rows: np.ndarray
    deviation: FittedMap | None


def cross_fit(
    problem: LocalProblem, candidates: Sequence[Candidate], *, forced: bool, seed: int = 0
) -> list[Held]:
    """On each fold, what the others would choose and fit.

    Parameters
    ----------
    problem : LocalProblem
    candidates : sequence of Candidate
    forced : bool
    seed : int, default 0
        Of the folds.

    Returns
    -------
    list of Held
    """
    order = np.random.default_rng([seed, 1]).permutation(problem.n_rows)
    fold = np.argsort(order) % FOLDS
    found = []
    for f in range(FOLDS):
        others = problem.take(np.flatnonzero(fold != f))
        chosen = choose(others, candidates, forced=forced, seed=seed + f + 1)
        deviation = None if chosen is None else others.fit(chosen)
        found.append(Held(np.flatnonzero(fold == f), deviation))
    return found


def mean_and_error(by_row: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted mean of rows and its standard error, infinite where one row has all the weight.

    Deviations from a mean of few rows are too small, by as much as one over their number.

    Parameters
    ----------
    by_row : ndarray of shape (R,)
    weight : ndarray of shape (R,)

    Returns
    -------
    mean, error : float

    Examples
    --------
    >>> mean_and_error(np.array([1.0, 3.0]), np.ones(2))
    (2.0, 1.0)
    """
    share = weight / weight.sum()
    mean = float(share @ by_row)
    rest = 1.0 - 1.0 / effective_rows(weight)
    if rest <= 0.0:
        return mean, float("inf")
    return mean, float(np.sqrt(np.sum((share * (by_row - mean)) ** 2) / rest))


def effective_rows(weight: np.ndarray) -> float:
    """How many rows of equal weight say as much (Kish 1965).

    Parameters
    ----------
    weight : ndarray of shape (R,)

    Returns
    -------
    float

    Examples
    --------
    >>> effective_rows(np.ones(8)), round(effective_rows(np.array([1e6, 1.0, 1.0])), 3)
    (8.0, 1.0)
    """
    return float(weight.sum() ** 2 / np.sum(weight**2))
