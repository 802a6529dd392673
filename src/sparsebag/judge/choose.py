"""The choice: budgets, tolerance, and the recipe and size that answer them."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.stats import norm

from sparsebag.calibration.calibrator import LEAST_FLOOR, finished_votes
from sparsebag.calibration.fit import Calibration, calibrated_votes, fit_calibration
from sparsebag.calibration.temperature import Temperature
from sparsebag.judge.curve import RiskCurve, expected
from sparsebag.judge.rehearsal import Rehearsal, Votes
from sparsebag.student.teacher import Recipe

SHARES = 0.4 * 0.5 ** np.arange(10)
"""Sizes that are rehearsed, as shares of the ensemble's nodes."""
DEFAULT_TOLERANCE = 0.01
ERRORS_FOR_PICKING = 0.65
"""The smallest size that seems good enough seems so a little by luck: this many standard errors."""


@dataclass(frozen=True)
class Budget:
    """The most that may be kept: numbers, or shares of the whole.

    Attributes
    ----------
    max_estimators, max_nodes, max_bytes : int, float or None
        An int counts; a float between 0 and 1 is a share.
    """

    max_estimators: float | None = None
    max_nodes: float | None = None
    max_bytes: float | None = None

    @property
    def is_named(self) -> bool:
        """Whether there is any limit."""
        return any(limit is not None for limit in vars(self).values())

    def most_members(self, whole: int) -> int | None:
        """The most members, of so many."""
        return _count(self.max_estimators, whole)

    def most_nodes(self, whole: int) -> int | None:
        """The most nodes, of so many."""
        return _count(self.max_nodes, whole)

    def most_bytes(self, whole: int) -> int | None:
        """The most bytes of the file, of so many."""
        return _count(self.max_bytes, whole)

    def __str__(self) -> str:
        limits = ((name, limit) for name, limit in vars(self).items() if limit is not None)
        return ", ".join(f"{name}={limit:g}" for name, limit in limits)


def check_tolerance(tolerance: Any, budget: Budget) -> float | None:
    """``tolerance=`` once it is a fraction; None with a budget alone, which is then spent.

    Parameters
    ----------
    tolerance : float or None
    budget : Budget

    Returns
    -------
    float or None

    Examples
    --------
    >>> check_tolerance(None, Budget()), check_tolerance(None, Budget(max_nodes=0.1))
    (0.01, None)
    """
    if tolerance is None:
        return None if budget.is_named else DEFAULT_TOLERANCE
    if not (_is_number(tolerance) and 0 <= tolerance < 1):
        raise ValueError(
            f"tolerance={tolerance!r} must be a fraction, at least 0 and below 1: 0.01 accepts a "
            f"loss that is 1% higher."
        )
    return float(tolerance)


@dataclass(frozen=True)
class Judged:
    """A rehearsal with the best recipe of each size.

    Attributes
    ----------
    curve : RiskCurve
        Sizes rising, the whole ensemble last.
    recipe : tuple of Recipe
        The best one, by size, without the whole.
    calibration : tuple of Calibration or None
        By size, the whole ensemble's last; None where nothing is calibrated.
    """

    curve: RiskCurve
    recipe: tuple[Recipe, ...]
    calibration: tuple[Calibration | None, ...]

    def nearest(self, share: float) -> tuple[Recipe, Calibration | None, float]:
        """Recipe and calibration of the rehearsed size that is nearest, and that size."""
        size = int(np.argmin(np.abs(np.log(self.curve.share[:-1] / share))))
        return self.recipe[size], self.calibration[size], float(self.curve.share[size])


def judge_rehearsal(made: Rehearsal, calibration: Any, floor: float, n_members: int) -> Judged:
    """Calibrate every size on held-out votes, pick its recipe, draw the curve.

    A recipe is judged by its log-loss or squared error at a size and its neighbours, so that none
    is picked for the noise of one. (The Brier score hardly sees what the wrong one costs.)

    Parameters
    ----------
    made : Rehearsal
    calibration : {"auto", "temperature"}, object or None
    floor : float
        Share of the uniform class distribution in each vote, as deployed.
    n_members : int
        Of the whole ensemble.

    Returns
    -------
    Judged
    """
    is_vote, labels = made.target.shape[1] > 1, made.target.argmax(axis=1)
    share = made.weight / made.weight.sum()

    def losses(votes: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum((votes - made.target) ** 2, axis=1))

    def finished(
        votes: np.ndarray, start: Any, floor: float = floor
    ) -> tuple[np.ndarray, Calibration | None]:
        if not is_vote:
            return votes, None
        if calibration is None:
            return finished_votes(votes, floor), None
        proba = finished_votes(votes, max(floor, LEAST_FLOOR))
        found = fit_calibration(calibration, proba, labels, made.weight, start)
        if found.calibrator is not None:
            known = (proba, labels, made.weight)
            proba = calibrated_votes(calibration, found.calibrator, *known)
        return proba, found

    def score(proba: np.ndarray) -> float:
        if not is_vote:
            return float(np.log(share @ losses(proba) + 1e-300))
        of_truth = np.sum(proba * made.target, axis=1)
        return float(np.log(share @ -np.log(np.maximum(of_truth, LEAST_FLOOR)) + 1e-300))

    def more_trees(of_copies: Votes, found: Calibration | None, part: float = 1.0) -> float:
        """The loss of as many trees as the ensemble has, over that of the copies' trees."""

        def loss(votes: np.ndarray) -> float:
            said = finished_votes(votes, LEAST_FLOOR) if is_vote else votes
            transform = None if found is None or found.calibrator is None else found.calibrator
            return float(share @ losses(transform.transform(said) if transform else said))

        whole, *halves = map(loss, of_copies)
        saved = made.missing * (float(np.mean(halves)) / max(whole, 1e-300) - 1.0)
        return 1.0 - part * float(np.clip(saved, 0.0, 1.0))

    said = made.whole[0]
    calibrated_whole, of_whole = finished(said, None)
    as_is = finished_votes(made.as_is) if is_vote else made.as_is
    as_is = more_trees(made.whole, None) * losses(as_is)
    best_whole = more_trees(made.whole, of_whole) * losses(calibrated_whole)
    credit = [
        more_trees(votes, finished(votes[0], None)[1], made.followed) for votes in made.teachers
    ]
    by_recipe: list[list[tuple[np.ndarray, Calibration | None]]] = []
    for sizes in made.votes:
        start, column = of_whole, []
        for votes, is_score in zip(sizes, made.scored, strict=True):
            known = None if start is None else start.calibrator
            known = known if isinstance(known, Temperature) else None
            proba, start = finished(votes, known, 0.0 if is_score else floor)
            column.append((proba, start))
        by_recipe.append(column)
    scores = np.array([[score(proba) for proba, _ in column] for column in by_recipe])
    recipe = tuple(int(r) for r in _with_neighbours(scores).argmin(axis=0))
    chosen = [by_recipe[r][size] for size, r in enumerate(recipe)][::-1]
    taught = [credit[r] * losses(by_recipe[r][size][0]) for size, r in enumerate(recipe)][::-1]
    risks = [*taught, best_whole]
    ratio, error = expected(risks, as_is, made.weight)
    ratio_calibrated, error_calibrated = expected(risks, best_whole, made.weight)
    whole_nodes = made.n_nodes[0] / made.share[0]
    return Judged(
        curve=RiskCurve(
            share=np.append(made.share[::-1], 1.0),
            n_nodes=np.append(made.n_nodes[::-1], whole_nodes),
            n_members=np.append(made.n_trees[::-1], n_members),
            ratio=ratio,
            error=made.widening * error,
            ratio_calibrated=ratio_calibrated,
            error_calibrated=made.widening * error_calibrated,
            whole_risk=float(share @ as_is),
            score="Brier score" if is_vote else "squared error",
            judged_by=made.judged_by,
        ),
        recipe=tuple(made.recipes[r] for r in recipe[::-1]),
        calibration=(*(found for _, found in chosen), of_whole),
    )


def choose_size(curve: RiskCurve, tolerance: float, confidence: float | None) -> int:
    """Position of the smallest size whose expected loss is within the tolerance.

    Calibration is a gift, and not to be spent on size: a calibrated model is compared with the
    calibrated ensemble, which is at least as good as the ensemble as it is.

    Parameters
    ----------
    curve : RiskCurve
    tolerance : float
    confidence : float or None
        None: the expected loss, and a little for having picked it. A number:
        the upper bound at this confidence.

    Returns
    -------
    int
        The last one, the whole ensemble, where no smaller size will do.
    """
    worst = curve.ratio_calibrated + margin(confidence) * curve.error_calibrated
    good = worst <= 1.0 + tolerance
    good[-1] = True
    return int(np.argmax(good))


def margin(confidence: float | None) -> float:
    """Standard errors by which a size must be better than the tolerance."""
    return ERRORS_FOR_PICKING if confidence is None else float(norm.ppf(confidence))


def _with_neighbours(values: np.ndarray) -> np.ndarray:
    """Means of each column and its neighbours, the middle one twice."""
    padded = np.pad(values, ((0, 0), (1, 1)), mode="edge")
    return np.asarray((padded[:, :-2] + 2.0 * padded[:, 1:-1] + padded[:, 2:]) / 4.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _count(limit: Any, whole: int) -> int | None:
    if limit is None:
        return None
    return int(limit) if isinstance(limit, Integral) else max(1, int(limit * whole))
