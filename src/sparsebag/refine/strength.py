"""How strongly to refit leaves: (a, λ) by the honest risk at the size that will be deployed.

Regression is judged by squared error, in closed form: with E the residual at a = 0 and D what one
unit of a adds to it, the risk of k members is ``R(E,E) + 2a R(E,D) + a² R(D,D)``. Classification
is judged by the log-loss of the votes of as many members as will be deployed, after the best
temperature and floor, for these will be calibrated too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.refine.honest_votes import HonestVotes
from sparsebag.refine.size_matched import finished_votes
from sparsebag.refine.targets import Targets
from sparsebag.refine.temperature import prior_loss

LAMS = np.array([0.0, 0.5, 2.0, 8.0])
"""Pseudo-rows of the parent in each node: strengths of smoothing that are tried."""
TWICINGS = np.arange(-0.75, 1.76, 0.25)
"""Below 0 the targets are moved towards the ensemble's prediction (less noise), above 0 away from
it (less bias)."""
MOST_TWICING_OF_CLASSES = 1.0
MOST_VOTES_MATCHED = 36
"""Of 100 trees about 37 have a row out of bag."""
POWERS = np.exp(np.linspace(-1.0, 1.2, 12))
FLOORS = np.array([3e-4, 2e-3, 1e-2, 3e-2, 0.1])
"""Inverse temperatures and floors tried for the log-loss of a strength."""


@dataclass(frozen=True)
class Strength:
    """A strength, and the score it was chosen by.

    Attributes
    ----------
    twicing : float
        a: what is added to a target per unit of the ensemble's residual.
    lam : float
        λ: pseudo-rows of the parent in each node.
    score, plain_score : float
        Mean squared error, or calibrated log-loss, that is expected of as many members with
        refitted leaves, and with their own.
    """

    twicing: float
    lam: float
    score: float
    plain_score: float


@dataclass(frozen=True)
class RowMoments:
    """Each judged row's mean square, and mean product of two members, of a pair of residuals."""

    own: np.ndarray
    pair: np.ndarray

    def at(self, concentration: float, weight: np.ndarray) -> float:
        """Mean over the rows, for weights with this sum of squares."""
        return float(weight @ (self.pair + (self.own - self.pair) * concentration))


def row_moments(mask: np.ndarray, first: np.ndarray, second: np.ndarray) -> RowMoments:
    """Moments of two residuals over the members that have each row out of bag.

    Parameters
    ----------
    mask : ndarray of bool of shape (R, T)
    first, second : ndarray of shape (R, T, D)

    Returns
    -------
    RowMoments
        Summed over the D columns.
    """
    kept = mask[:, :, None]
    first, second = np.where(kept, first, 0.0), np.where(kept, second, 0.0)
    squares = np.einsum("rtd,rtd->r", first, second, dtype=np.float64)
    sums = np.einsum("rd,rd->r", first.sum(axis=1), second.sum(axis=1), dtype=np.float64)
    n = mask.sum(axis=1)
    return RowMoments(squares / np.maximum(n, 1), (sums - squares) / np.maximum(n * (n - 1), 1))


def judged_weight(honest: HonestVotes, sample_weight: np.ndarray | None) -> np.ndarray:
    """Weights of the judged rows, summing to one; 0 for rows fewer than two trees can judge.

    Parameters
    ----------
    honest : HonestVotes
    sample_weight : ndarray of shape (M,) or None

    Returns
    -------
    ndarray of shape (R,)
    """
    weight = (honest.mask.sum(axis=1) >= 2).astype(np.float64)
    if sample_weight is not None:
        weight = weight * sample_weight[honest.rows]
    return np.asarray(weight / max(weight.sum(), 1e-300))


def choose_strength(
    honest: HonestVotes,
    targets: Targets,
    weight: np.ndarray,
    *,
    size: float,
    plain_size: float,
    floor: float,
    seed: int = 0,
) -> Strength:
    """The strength of least honest risk.

    Parameters
    ----------
    honest : HonestVotes
    targets : Targets
    weight : ndarray of shape (R,)
        Of the judged rows.
    size : float
        Number of votes the deployed trees are worth.
    plain_size : float
        Number of votes they are worth with their own leaves.
    floor : float
        Share of the uniform class distribution in each vote.
    seed : int, default 0
        Of the members drawn for each row (classification).

    Returns
    -------
    Strength
    """
    if targets.n_classes is None:
        return _by_squared_error(honest, targets, weight, size, plain_size)
    return _by_log_loss(honest, targets, weight, size, plain_size, floor, seed)


def _by_squared_error(
    honest: HonestVotes, targets: Targets, weight: np.ndarray, size: float, plain_size: float
) -> Strength:
    observed = targets.observed[honest.rows][:, None, :]
    plain = row_moments(honest.mask, observed - honest.plain, observed - honest.plain)
    best: tuple[float, float, float] | None = None
    for at, lam in enumerate(honest.lams):
        residual = observed - honest.of_targets[..., at]
        slope = honest.of_predictions[..., at] - honest.of_targets[..., at]
        pairs = ((residual, residual), (residual, slope), (slope, slope))
        level, linear, square = (
            row_moments(honest.mask, *pair).at(1.0 / size, weight) for pair in pairs
        )
        for twicing in TWICINGS:
            risk = level + 2.0 * twicing * linear + twicing**2 * square
            if best is None or risk < best[0]:
                best = risk, float(twicing), float(lam)
    assert best is not None
    unit = targets.multiplicity
    return Strength(best[1], best[2], unit * best[0], unit * plain.at(1.0 / plain_size, weight))


def true_classes(honest: HonestVotes, targets: Targets) -> np.ndarray:
    """Position of the true class of each judged row.

    Parameters
    ----------
    honest : HonestVotes
    targets : Targets

    Returns
    -------
    ndarray of shape (R,)
    """
    return np.asarray(targets.position[honest.rows])


def _by_log_loss(
    honest: HonestVotes,
    targets: Targets,
    weight: np.ndarray,
    size: float,
    plain_size: float,
    floor: float,
    seed: int,
) -> Strength:
    position = true_classes(honest, targets)

    def score(columns: np.ndarray) -> float:
        return calibrated_log_loss(
            finished_votes(targets.as_votes(columns), floor), position, weight
        )

    drawn = equal_shares(honest.mask, size, seed)
    first = np.einsum("rt,rtdl->rdl", drawn, honest.of_targets, optimize=True)
    second = np.einsum("rt,rtdl->rdl", drawn, honest.of_predictions, optimize=True)
    best: tuple[float, float, float] | None = None
    for at, lam in enumerate(honest.lams):
        for twicing in TWICINGS[TWICINGS <= MOST_TWICING_OF_CLASSES]:
            loss = score((1.0 + twicing) * first[..., at] - twicing * second[..., at])
            if best is None or loss < best[0]:
                best = loss, float(twicing), float(lam)
    assert best is not None
    own = equal_shares(honest.mask, plain_size, seed)
    plain = score(np.einsum("rt,rtd->rd", own, honest.plain))
    return Strength(best[1], best[2], best[0], plain)


def equal_shares(mask: np.ndarray, size: float, seed: int) -> np.ndarray:
    """Equal shares of the vote for random members that have each row out of bag.

    Parameters
    ----------
    mask : ndarray of bool of shape (R, T)
    size : float
        How many of them; all a row has, if fewer.
    seed : int

    Returns
    -------
    float32 ndarray of shape (R, T)
        Rows sum to one.
    """
    most = int(max(1, min(round(size), MOST_VOTES_MATCHED, mask.shape[1])))
    key = np.where(mask, np.random.default_rng(seed).random(mask.shape), 2.0)
    cut = np.partition(key, most - 1, axis=1)[:, most - 1 : most]
    drawn = mask & (key <= cut)
    return np.asarray((drawn / np.maximum(drawn.sum(axis=1, keepdims=True), 1)).astype(np.float32))


def calibrated_log_loss(proba: np.ndarray, position: np.ndarray, weight: np.ndarray) -> float:
    """Least weighted log-loss over a small grid of temperatures and floors.

    Their prior is part of it, as when the calibrator is fitted: without it, a strength that is
    sure of a few hundred easy rows looks better than it is.

    Parameters
    ----------
    proba : ndarray of shape (rows, C)
    position : ndarray of shape (rows,)
        Of the true class.
    weight : ndarray of shape (rows,)
        Summing to one.

    Returns
    -------
    float
    """
    n_classes, rows = proba.shape[1], max(int(np.count_nonzero(weight)), 1)
    logs = np.log(np.maximum(proba, 1e-12))
    logs -= logs[np.arange(len(logs)), position][:, None]
    best = np.inf
    for power in POWERS:
        true = 1.0 / np.exp(np.minimum(power * logs, 700.0)).sum(axis=1)
        for floor in FLOORS:
            loss = -float(weight @ np.log((1.0 - floor) * true + floor / n_classes))
            best = min(best, loss + prior_loss(float(np.log(power)), floor, rows))
    return best
