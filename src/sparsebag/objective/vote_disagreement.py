"""What the members' votes alone, without any label, tell of the risk matrix.

With f the whole ensemble's vote, d_j = f_j − f what member j says differently, and y − f what the
ensemble gets wrong, the risk matrix is exactly::

    G_jl = E(y − f)² + u_j + u_l + C_jl        C_jl = E d_j·d_l       u_j = −E d_j·(y − f)

C needs no label: rows made up at will give it nearly free of noise, where rows out of bag for both
give next to nothing. It is all that is particular about a pair, and nearly all of how a member does
alone. Labels are left to tell one number a member, u. And u too has a known shape: it is linear in
what a member says differently, so members that vote alike have nearly the same u. Where the
ensemble errs in wide regions rather than row by row, u lies mostly along C's leading directions:
its prior covariance is taken as C². Noise is nearly the same in all directions, so what
was measured along the leading ones is kept, the rest is shrunk away.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sparsebag.objective.pair_shrinkage import (
    COMPANY_SD,
    Effects,
    pair_share,
    real_and_noise,
)

SD_OF_LOG_SD = 0.7
"""Of u's standard deviation around `COMPANY_SD`: it varies threefold either way."""
LARGEST_LOG_SD, SDS_TRIED = 2.5, 26
"""How far from it the best standard deviation is looked for, and in how many steps."""
SCALE_SD = 0.2
"""How well made-up rows stand for real ones: standard deviation of C's scale around 1."""
UNTOLD_PAIR_SD = 0.02
"""Pairs' effects that C does not tell, in units of what averaging two members saves."""
SMALLEST_VALUE = 1e-6
"""Of the mean eigenvalue: members that repeat each other exactly have none."""


@dataclass(frozen=True)
class VoteDisagreement:
    """How members' votes differ from the whole ensemble's, pair by pair.

    Attributes
    ----------
    matrix : ndarray of shape (N, N)
        C in units of what averaging two members saves; its rows sum to zero.
    left_over : float, default 0
        Share of the targets' spread that the members' leaves leave in their own bags: 0 of trees
        that are grown out.

    Examples
    --------
    >>> votes = np.array([[1.0, 0.0, 1.0], [2.0, 2.0, 0.0]])  # rows × members
    >>> away = votes - votes.mean(axis=1, keepdims=True)
    >>> VoteDisagreement.of(away.T @ away / 2).matrix.round(2).tolist()
    [[0.33, 0.13, -0.47], [0.13, 0.53, -0.67], [-0.47, -0.67, 1.13]]
    """

    matrix: np.ndarray
    left_over: float = 0.0

    @classmethod
    def of(cls, products: np.ndarray) -> VoteDisagreement | None:
        """From mean products of deviations; None where all members say the same.

        Parameters
        ----------
        products : ndarray of shape (N, N)
            In any unit.

        Returns
        -------
        VoteDisagreement or None
        """
        n = len(products)
        rows = products.mean(axis=0)
        centred = products - rows[:, None] - rows[None, :] + rows.mean()
        # Rows sum to zero, so a mean diagonal of m makes the mean off it −m/(n−1).
        saved = float(np.trace(centred)) / max(n - 1, 1)
        if not (n > 2 and np.isfinite(saved) and saved > 0):
            return None
        return cls(centred / saved)

    @cached_property
    def own(self) -> np.ndarray:
        """Its diagonal, about its mean: who disagrees most."""
        diagonal = np.diag(self.matrix)
        return np.asarray(diagonal - diagonal.mean())

    @cached_property
    def pair(self) -> np.ndarray:
        """What is particular about pairs; zero diagonal, as in `Effects`."""
        n, own = len(self.matrix), self.own
        # A row sums to zero, so its mean off the diagonal is known from the diagonal.
        company = -own / (n - 2)
        mean = -float(np.trace(self.matrix)) / (n * (n - 1))
        pair = self.matrix - mean - company[:, None] - company[None, :]
        np.fill_diagonal(pair, 0.0)
        return np.asarray(pair)

    @cached_property
    def directions(self) -> tuple[np.ndarray, np.ndarray]:
        """Eigenvalues in units of their mean, and eigenvectors (columns)."""
        values, vectors = np.linalg.eigh(self.matrix)
        return np.maximum(values / max(values.mean(), 1e-300), SMALLEST_VALUE), vectors


@dataclass(frozen=True)
class DisagreementShrinkage:
    """The effects to expect, given the votes' disagreement and what labels say of u.

    Has the methods of `pair_shrinkage.Shrinkage`.

    Attributes
    ----------
    disagreement : VoteDisagreement
    scale, scale_error : float
        What C counts, in the risk's unit, and its standard error.
    kept : ndarray of shape (N,)
        Share of what was measured of u that is real, a direction.
    unknown : ndarray of shape (N,)
        Posterior variance of u, a direction.
    of_pair, pair_variance : float
        Share that is real of what pairs have beyond C, and its posterior variance.
    """

    disagreement: VoteDisagreement
    scale: float
    scale_error: float
    kept: np.ndarray
    unknown: np.ndarray
    of_pair: float
    pair_variance: float

    def deviation_matrix(self, effects: Effects) -> np.ndarray:
        """The expected effects as a matrix to add to the exchangeable one.

        Parameters
        ----------
        effects : Effects

        Returns
        -------
        ndarray of shape (N, N)
        """
        said, (_, vectors) = self.disagreement, self.disagreement.directions
        n, own = len(said.own), self.scale * said.own
        found = _label_effect(effects.company, own)
        u = vectors @ (self.kept * (vectors.T @ found))
        company = u - u.mean() - own / (n - 2)
        pair = self.scale * said.pair
        pair = pair + self.of_pair * (effects.pair - pair)
        matrix = company[:, None] + company[None, :] + pair
        np.fill_diagonal(matrix, 2.0 * (u - u.mean()) + own)
        return np.asarray(matrix)

    def variance_of(self, members: np.ndarray, weights: np.ndarray, n_members: int) -> float:
        """Posterior variance of the deviation that some members' weights collect.

        Parameters
        ----------
        members, weights : ndarray of shape (k,)
        n_members : int

        Returns
        -------
        float
        """
        said, (_, vectors) = self.disagreement, self.disagreement.directions
        along = weights @ vectors[members]
        of_labels = 4.0 * float(along**2 @ self.unknown)  # u_j + u_l, each weight met twice
        away = weights @ said.matrix[np.ix_(members, members)] @ weights
        squares, equal = float(weights @ weights), 1.0 / n_members
        of_scale = self.scale_error * (float(away) - squares + equal)  # beyond members all alike
        apart = squares**2 - float(np.sum(weights**4)) - equal**2 * (1.0 - equal)
        return of_labels + of_scale**2 + 2.0 * max(apart, 0.0) * self.pair_variance


def measure_disagreement(
    folds: list[Effects], spread: float, disagreement: VoteDisagreement, overlap: float
) -> DisagreementShrinkage:
    """What labels add to the votes' disagreement, from estimates on disjoint rows.

    Parameters
    ----------
    folds : list of Effects
        Two at least.
    spread : float
        A member's mean own risk less a pair's.
    disagreement : VoteDisagreement
    overlap : float
        Share of a member's rows that another has too: how far their noise is the same.

    Returns
    -------
    DisagreementShrinkage
        For the mean over the folds.
    """
    scale, scale_error = _scale([fold.pair for fold in folds], spread, disagreement.pair)
    own, (values, vectors) = scale * disagreement.own, disagreement.directions
    found = [_label_effect(fold.company, own)[None, :] for fold in folds]
    mean = np.mean(found, axis=0)[0]
    noise = float(real_and_noise(found)[1][0, 0])
    # A row's noise is shared by those who vote alike, where both have the row out of bag.
    noises = noise * (overlap * values + (1.0 - overlap))
    shape = values**2 / np.mean(values**2)
    real = _variance(vectors.T @ mean, noises, shape, COMPANY_SD * spread) * shape
    kept = real / np.maximum(real + noises, 1e-300)
    # C's leading directions do not tell all: each member may have as much again of its own.
    untold = np.where(values > SMALLEST_VALUE, (COMPANY_SD * spread) ** 2, 0.0)
    beyond = [fold.pair - scale * disagreement.pair for fold in folds]
    of_pair, pair_variance = pair_share(beyond, spread, UNTOLD_PAIR_SD)
    return DisagreementShrinkage(
        disagreement, scale, scale_error, kept, real * (1.0 - kept) + untold, of_pair, pair_variance
    )


def _label_effect(company: np.ndarray, own: np.ndarray) -> np.ndarray:
    """u, as measured: the company effect less what disagreement alone gives it."""
    u = company + own / (len(own) - 2)
    return np.asarray(u - u.mean())


def _scale(pairs: list[np.ndarray], spread: float, told: np.ndarray) -> tuple[float, float]:
    """What pairs' effects are of those C tells: the folds' word, with ``spread`` as the prior's."""
    size = float(np.sum(told**2))
    if not (size > 0 and spread > 0):
        return spread, 0.0
    each = np.array([float(np.sum(pair * told)) for pair in pairs]) / (size * spread)
    variance = float(each.var(ddof=1)) / len(each)
    trust = SCALE_SD**2 / (SCALE_SD**2 + variance)
    return spread * (1.0 + trust * (each.mean() - 1.0)), spread * float(np.sqrt(trust * variance))


def _variance(along: np.ndarray, noises: np.ndarray, shape: np.ndarray, usual: float) -> float:
    """Mean variance of u: the likeliest, given what was found along each direction."""
    logs = np.linspace(-LARGEST_LOG_SD, LARGEST_LOG_SD, SDS_TRIED)
    tried = (usual * np.exp(logs)) ** 2
    total = np.maximum(tried[:, None] * shape + noises, 1e-300)
    likelihood = -0.5 * np.sum(np.log(total) + along**2 / total, axis=1)
    return float(tried[int(np.argmax(likelihood - 0.5 * (logs / SD_OF_LOG_SD) ** 2))])
