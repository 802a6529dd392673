"""What of the risk matrix is real: shrinkage towards members all alike, its strength from data.

An entry of the risk matrix is what members all alike would have, plus what is particular::

    G_jl = pair + a_j + a_l + c_jl   (j ≠ l)          G_jj = own + b_j

a: how well a member does in company; c: how well a pair complements each other; b: how well a
member does alone. Each was measured on a few hundred rows and is mostly noise. What is real shows
in every fold of the rows, noise does not: the products of two folds' estimates average to the
covariance of what is real. A hundred members tell that covariance badly, so it is combined with
what trees of many forests have (`python -m benchmarks.member_effects` measures that on test
rows). The effects' posterior mean is then not flattered by choosing the members it favours, and
its variance is known too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from sparsebag.objective.full_vote_risk import PairMoments

COMPANY_SD, ALONE_SD, CORRELATION, PRIOR_PAIR_SD = 0.016, 0.07, 0.6, 0.02
"""Real differences between a forest's trees, in units of what averaging two trees saves: about the
same on every data set of the suite."""
PRIOR_COVARIANCE = np.array(
    [
        [COMPANY_SD**2, CORRELATION * COMPANY_SD * ALONE_SD],
        [CORRELATION * COMPANY_SD * ALONE_SD, ALONE_SD**2],
    ]
)


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
class Shrinkage:
    """How much of the effects is real, and what is left unknown.

    Attributes
    ----------
    of_member : ndarray of shape (2, 2)
        Maps a member's measured (company, alone) effects to their posterior mean. Off the
        diagonal: who does well alone tends to do well in company.
    of_pair : float
        Share of a pair's measured effect that is real.
    member_variance : ndarray of shape (2, 2)
        Posterior covariance of (company, alone).
    pair_variance : float
        Posterior variance of a pair's effect.
    """

    of_member: np.ndarray
    of_pair: float
    member_variance: np.ndarray
    pair_variance: float

    @classmethod
    def none(cls) -> Shrinkage:
        """Effects as they were measured."""
        return cls(np.eye(2), 1.0, np.zeros((2, 2)), 0.0)

    def deviation_matrix(self, effects: Effects) -> np.ndarray:
        """The shrunk effects as a matrix to add to the exchangeable one.

        Parameters
        ----------
        effects : Effects

        Returns
        -------
        ndarray of shape (N, N)
        """
        company, alone = self.of_member @ np.stack([effects.company, effects.alone])
        matrix = company[:, None] + company[None, :] + self.of_pair * effects.pair
        np.fill_diagonal(matrix, alone)
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
        both = np.zeros((2, n_members))
        both[0, : len(weights)] = 2.0 * weights * (1.0 - weights)  # it meets the others' weight
        both[1, : len(weights)] = weights**2
        both -= both.mean(axis=1, keepdims=True)
        member = float(np.einsum("aj,ab,bj->", both, self.member_variance, both))
        pair = 2.0 * max(squares**2 - fourth - equal**2 * (1.0 - equal), 0.0)
        return max(member, 0.0) + self.pair_variance * pair


def effects_of(
    moments: PairMoments,
    shares: np.ndarray | None = None,
    kept: tuple[float, float] = (1.0, 1.0),
) -> Effects:
    """Split the measured deviations into the three kinds.

    Parameters
    ----------
    moments : PairMoments
    shares : ndarray of shape (N, N), optional
        See `PairMoments.deviations`.
    kept : tuple of float
        See `FullVoteRisk.kept_effects`; the effects are divided by it.

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
    return Effects(company / kept[0], pair, alone / kept[1])


def measure_shrinkage(
    folds: list[Effects],
    spread: float,
    *,
    prior: np.ndarray = PRIOR_COVARIANCE,
    prior_pair: float = PRIOR_PAIR_SD,
) -> Shrinkage:
    """What of the effects is real, from estimates on disjoint rows and from experience.

    Parameters
    ----------
    folds : list of Effects
    spread : float
        A member's mean own risk less a pair's: the unit the prior is in.
    prior : ndarray of shape (2, 2)
        Covariance of (company, alone) to expect, in units of ``spread`` squared.
    prior_pair : float
        Standard deviation of pairs' effects to expect, in units of ``spread``.

    Returns
    -------
    Shrinkage
        For the mean over the folds.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = rng.normal(size=3000)
    >>> def fold():
    ...     noise = rng.normal(size=(2, 3000))
    ...     return Effects(real + noise[0], np.zeros((2, 2)), noise[1])
    >>> shrinkage = measure_shrinkage([fold() for _ in range(9)], spread=1.0)
    >>> 0.85 < float(shrinkage.of_member[0, 0]) < 0.95, float(shrinkage.of_member[1, 1]) < 0.2
    (True, True)
    """
    if len(folds) < 2:
        return Shrinkage(np.zeros((2, 2)), 0.0, np.zeros((2, 2)), 0.0)
    unit = spread**2
    members = [np.stack([fold.company, fold.alone]) for fold in folds]
    real, noise = _with_prior(*_components(members), unit * prior, members[0].shape[1])
    known = real @ np.linalg.pinv(real + noise, hermitian=True)
    pairs = [fold.pair.reshape(1, -1) for fold in folds]
    of_pair = np.array([[unit * prior_pair**2]])
    pair, pair_noise = _with_prior(*_components(pairs), of_pair, pairs[0].shape[1])
    total = float(pair[0, 0] + pair_noise[0, 0])
    share = float(pair[0, 0]) / total if total > 0 else 0.0
    unknown = float(pair[0, 0]) * (1.0 - share)
    return Shrinkage(known, share, _positive(real - known @ real), unknown)


def _with_prior(
    found: np.ndarray, noise: np.ndarray, prior: np.ndarray, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The covariance found on the rows, where they can tell; the prior, where they cannot.

    Of n effects' variance the rows' noise leaves an error of about noise·√(2/n) + 2√(variance·
    noise/n). The less that is beside the variance itself, the more what was found is trusted.
    """
    at, level = np.maximum(np.diag(found), 0.0), np.diag(noise)
    error = level * np.sqrt(2.0 / n) + 2.0 * np.sqrt(at * level / n)
    size = np.maximum(at, np.diag(prior))
    trust = np.divide(size**2, size**2 + error**2, out=np.zeros_like(size), where=size > 0)
    both = np.sqrt(np.outer(trust, trust))
    return _positive(both * found + (1.0 - both) * prior), noise


def _components(estimates: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of what is real (unbiased, maybe negative), and of the noise in the folds' mean.

    ``estimates`` holds, a fold, one row a kind of effect. Products between different folds average
    to the first; what products within a fold have more is noise.
    """
    n_folds, n = len(estimates), estimates[0].shape[1]
    total = reduce(np.add, estimates)
    within = reduce(np.add, (e @ e.T for e in estimates)) / n
    real = (total @ total.T / n - within) / (n_folds * (n_folds - 1))
    return real, _positive((within / n_folds - real) / n_folds)


def _positive(matrix: np.ndarray) -> np.ndarray:
    """The nearest covariance matrix: negative eigenvalues are noise around zero."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
