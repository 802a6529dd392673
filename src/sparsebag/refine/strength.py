"""How strongly to refit leaves: (a, λ) by the honest risk at the size that will be deployed.

Regression is judged by squared error, in closed form: with E the residual at a = 0 and D what one
unit of a adds to it, the risk of k members is ``R(E,E) + 2a R(E,D) + a² R(D,D)``. Classification
is judged by the log-loss of the votes of as many members as will be deployed, after the best
temperature and floor, for these will be calibrated too.

The least of fifty noisy scores flatters. So each fold of the judged rows also gets the strength
that the other folds would choose; what refitting is said to be worth is read off there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
FOLDS = 5


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
        refitted leaves, and with their own: each fold scored by what the others chose.
    fold : int ndarray of shape (R,)
        Of the judged rows.
    of_fold : tuple of (float, float)
        The strength (a, λ) that the rows outside each fold choose.
    """

    twicing: float
    lam: float
    score: float
    plain_score: float
    fold: np.ndarray
    of_fold: tuple[tuple[float, float], ...]

    def votes(self, honest: HonestVotes) -> np.ndarray:
        """Votes on the judged rows, each at the strength that the other folds choose.

        Parameters
        ----------
        honest : HonestVotes

        Returns
        -------
        ndarray of shape (R, T, D)
        """
        votes = np.empty(honest.plain.shape, dtype=honest.of_targets.dtype)
        for f, strength in enumerate(self.of_fold):
            votes[self.fold == f] = honest.votes(*strength, at=self.fold == f)
        return votes


@dataclass(frozen=True)
class RowMoments:
    """Each judged row's mean square, and mean product of two members, of a pair of residuals."""

    own: np.ndarray
    pair: np.ndarray

    def at(self, concentration: float, weight: np.ndarray) -> float:
        """Mean over the rows, for weights with this sum of squares."""
        return float(weight @ self.of_rows(concentration))

    def of_rows(self, concentration: float) -> np.ndarray:
        """Each row's, for weights with this sum of squares."""
        return np.asarray(self.pair + (self.own - self.pair) * concentration)


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
    order = np.random.default_rng(seed).permutation(len(weight))
    folds = _Folds(np.argsort(order) % min(FOLDS, max(len(weight), 1)), weight)
    if targets.n_classes is None:
        return _by_squared_error(honest, targets, folds, size, plain_size)
    return _by_log_loss(honest, targets, folds, size, plain_size, floor, seed)


@dataclass(frozen=True)
class _Folds:
    """Which fold each judged row is in, and its weight."""

    of: np.ndarray
    weight: np.ndarray

    def sums(self, losses: np.ndarray) -> np.ndarray:
        """Weighted losses of each fold."""
        return np.bincount(self.of, self.weight * losses)

    @property
    def rows(self) -> int:
        """Rows with weight."""
        return int(np.count_nonzero(self.weight))

    def choose(self, tried: list[tuple[float, float]], losses: np.ndarray) -> Strength:
        """The strength of least loss, and what the folds say of such a choice.

        ``losses`` has shape (strengths, settings of the calibrator, folds); the settings are
        chosen along, and cost what their prior says.
        """
        prior = _prior_losses(self.rows) if losses.shape[1] > 1 else np.zeros(1)
        shares = self.sums(np.ones(len(self.of)))
        inside = losses.sum(axis=2) + prior
        best = int(np.argmin(inside.min(axis=1)))
        score, of_fold = 0.0, []
        for f, share in enumerate(shares):
            rest = (losses.sum(axis=2) - losses[..., f]) / max(1.0 - share, 1e-300) + prior
            at, setting = np.unravel_index(np.argmin(rest), rest.shape)
            score += float(losses[at, setting, f])
            of_fold.append(tried[int(at)])
        return Strength(*tried[best], score, np.nan, self.of, tuple(of_fold))


def _by_squared_error(
    honest: HonestVotes, targets: Targets, folds: _Folds, size: float, plain_size: float
) -> Strength:
    observed = targets.observed[honest.rows][:, None, :]
    plain = row_moments(honest.mask, observed - honest.plain, observed - honest.plain)
    tried: list[tuple[float, float]] = []
    losses = []
    for at, lam in enumerate(honest.lams):
        residual = observed - honest.of_targets[..., at]
        slope = honest.of_predictions[..., at] - honest.of_targets[..., at]
        pairs = ((residual, residual), (residual, slope), (slope, slope))
        level, linear, square = (
            folds.sums(row_moments(honest.mask, *pair).of_rows(1.0 / size)) for pair in pairs
        )
        for twicing in TWICINGS:
            tried.append((float(twicing), float(lam)))
            losses.append([level + 2.0 * twicing * linear + twicing**2 * square])
    unit = targets.multiplicity
    chosen = folds.choose(tried, unit * np.array(losses))
    return replace(chosen, plain_score=unit * plain.at(1.0 / plain_size, folds.weight))


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
    folds: _Folds,
    size: float,
    plain_size: float,
    floor: float,
    seed: int,
) -> Strength:
    position = true_classes(honest, targets)

    def score(columns: np.ndarray) -> np.ndarray:
        return calibrated_log_losses(
            finished_votes(targets.as_votes(columns), floor), position, folds.sums
        )

    drawn = equal_shares(honest.mask, size, seed)
    first = np.einsum("rt,rtdl->rdl", drawn, honest.of_targets, optimize=True)
    second = np.einsum("rt,rtdl->rdl", drawn, honest.of_predictions, optimize=True)
    tried: list[tuple[float, float]] = []
    losses = []
    for at, lam in enumerate(honest.lams):
        for twicing in TWICINGS[TWICINGS <= MOST_TWICING_OF_CLASSES]:
            tried.append((float(twicing), float(lam)))
            losses.append(score((1.0 + twicing) * first[..., at] - twicing * second[..., at]))
    own = equal_shares(honest.mask, plain_size, seed)
    plain = score(np.einsum("rt,rtd->rd", own, honest.plain))
    of_plain = folds.choose([(0.0, 0.0)], plain[None]).score
    return replace(folds.choose(tried, np.array(losses)), plain_score=of_plain)


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


def calibrated_log_losses(
    proba: np.ndarray, position: np.ndarray, sums: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Log-losses after each of a small grid of temperatures and floors.

    Parameters
    ----------
    proba : ndarray of shape (rows, C)
    position : ndarray of shape (rows,)
        Of the true class.
    sums : callable
        What makes the losses of the rows F numbers.

    Returns
    -------
    ndarray of shape (temperatures × floors, F)
    """
    n_classes = proba.shape[1]
    logs = np.log(np.maximum(proba, 1e-12))
    logs -= logs[np.arange(len(logs)), position][:, None]
    found = []
    for power in POWERS:
        true = 1.0 / np.exp(np.minimum(power * logs, 700.0)).sum(axis=1)
        found += [-sums(np.log((1.0 - floor) * true + floor / n_classes)) for floor in FLOORS]
    return np.array(found)


def _prior_losses(rows: int) -> np.ndarray:
    """What the grid's settings cost, as when the calibrator is fitted.

    Without it, a strength that is sure of a few hundred easy rows looks better than it is.
    """
    rows = max(rows, 1)
    return np.array([prior_loss(float(np.log(p)), float(f), rows) for p in POWERS for f in FLOORS])
