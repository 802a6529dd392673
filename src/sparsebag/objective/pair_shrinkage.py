"""What of the risk matrix is real: shrinkage towards members all alike, its strength from data.

An entry of the risk matrix is what members all alike would have, plus what is particular::

    G_jl = pair + a_j + a_l + c_jl   (j ≠ l)          G_jj = own + b_j

a: how well a member does in company; c: how well a pair complements each other; b: how well a
member does alone. Each was measured on a few hundred rows and is mostly noise. What is real shows
in every fold of the rows, noise does not: the products of two folds' estimates average to the
variance of what is real. Each kind is then shrunk by its own reliability, real variance over
measured variance. This is the posterior mean under a normal prior, so the risk it gives to members
*chosen because it is low* is not flattered by the choice; its posterior variance is known too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from sparsebag.objective.full_vote_risk import PairMoments


@dataclass(frozen=True)
class Effects:
    """What is particular about members and pairs; each kind has mean zero.

    Attributes
    ----------
    company : ndarray of shape (N,)
    pair : ndarray of shape (N, N)
        Zero diagonal.
    alone : ndarray of shape (N,)
    """

    company: np.ndarray
    pair: np.ndarray
    alone: np.ndarray


@dataclass(frozen=True)
class Reliability:
    """How much of one kind of effect is real.

    Attributes
    ----------
    share : float
        Real variance over measured variance, between 0 (noise) and 1 (exact).
    variance : float
        Of the true effect around its shrunk estimate.
    """

    share: float
    variance: float


@dataclass(frozen=True)
class Shrinkage:
    """How much of each kind of effect is real, and what is left unknown.

    Attributes
    ----------
    company, pair, alone : Reliability
    """

    company: Reliability
    pair: Reliability
    alone: Reliability

    @classmethod
    def none(cls) -> Shrinkage:
        """Effects as they were measured."""
        return cls(Reliability(1.0, 0.0), Reliability(1.0, 0.0), Reliability(1.0, 0.0))

    def deviation_matrix(self, effects: Effects) -> np.ndarray:
        """The shrunk effects as a matrix to add to the exchangeable one.

        Parameters
        ----------
        effects : Effects

        Returns
        -------
        ndarray of shape (N, N)
        """
        company = self.company.share * effects.company
        matrix = company[:, None] + company[None, :] + self.pair.share * effects.pair
        np.fill_diagonal(matrix, self.alone.share * effects.alone)
        return np.asarray(matrix)

    def variance_at(self, weights: np.ndarray, n_members: int) -> float:
        """Posterior variance of the deviation ``wᵀ Δ w`` that the weights collect.

        Effects average to zero over the ensemble, so what counts is how far the weights are from
        equal ones: all members with equal weights collect nothing, surely.

        Parameters
        ----------
        weights : ndarray of shape (k,)
            The positive weights.
        n_members : int
            N, of the ensemble they were chosen from.

        Returns
        -------
        float
        """
        squares, equal = float(weights @ weights), 1.0 / n_members
        fourth = float(np.sum(weights**4))
        others = weights * (1.0 - weights)  # in company a member meets the others' weight only
        company = 4.0 * max(float(others @ others) - equal * (1.0 - squares) ** 2, 0.0)
        pair = 2.0 * max(squares**2 - fourth - equal**2 * (1.0 - equal), 0.0)
        alone = max(fourth - equal * squares**2, 0.0)
        return (
            self.company.variance * company
            + self.pair.variance * pair
            + self.alone.variance * alone
        )


def effects_of(moments: PairMoments, shares: np.ndarray | None = None) -> Effects:
    """Split the measured deviations into the three kinds.

    Parameters
    ----------
    moments : PairMoments
    shares : ndarray of shape (N, N), optional
        See `PairMoments.deviations`.

    Returns
    -------
    Effects
    """
    deviations = moments.deviations(shares)
    n = len(deviations)
    alone = np.diag(deviations) - np.diag(deviations).mean()
    np.fill_diagonal(deviations, 0.0)
    deviations -= deviations.sum() / max(n * (n - 1), 1)
    np.fill_diagonal(deviations, 0.0)
    company = deviations.sum(axis=1) / max(n - 2, 1)
    company = company - company.mean()
    pair = deviations - company[:, None] - company[None, :]
    np.fill_diagonal(pair, 0.0)
    return Effects(company, pair, alone)


def measure_shrinkage(folds: list[Effects]) -> Shrinkage:
    """What of the effects is real, from estimates on disjoint rows.

    Parameters
    ----------
    folds : list of Effects

    Returns
    -------
    Shrinkage
        For the mean over the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = rng.normal(size=200)
    >>> def fold():
    ...     return Effects(real + rng.normal(size=200), np.zeros((200, 200)), rng.normal(size=200))
    >>> shrinkage = measure_shrinkage([fold() for _ in range(9)])
    >>> 0.85 < shrinkage.company.share < 0.95, shrinkage.pair.share
    (True, 0.0)
    """
    return Shrinkage(
        company=_reliability([fold.company for fold in folds]),
        pair=_reliability([fold.pair for fold in folds]),
        alone=_reliability([fold.alone for fold in folds]),
    )


def _reliability(estimates: list[np.ndarray]) -> Reliability:
    """Products between folds average to the real variance; the rest within a fold is noise."""
    n_folds = len(estimates)
    if n_folds < 2:
        return Reliability(0.0, 0.0)
    total = reduce(np.add, estimates)
    squares = sum(float(np.mean(estimate**2)) for estimate in estimates)
    real = (float(np.mean(total**2)) - squares) / (n_folds * (n_folds - 1))
    noise = max(squares / n_folds - real, 0.0) / n_folds
    real = max(real, 0.0)
    share = real / (real + noise) if real + noise > 0 else 0.0
    return Reliability(share, real * (1.0 - share))
