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

COMPANY_SD, ALONE_SD, CORRELATION, PRIOR_PAIR_SD = 0.023, 0.106, 0.65, 0.029
"""Real differences between a forest's trees, in units of what averaging two trees saves: medians
over 32 data sets (`python -m benchmarks.member_effects`), which vary threefold either way."""
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

    def variance_of(self, members: np.ndarray, weights: np.ndarray, n_members: int) -> float:
        """`variance_at`: whichever members they are, all are as well known."""
        return self.variance_at(weights, n_members)

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
    prior: np.ndarray | None = PRIOR_COVARIANCE,
    prior_pair: float = PRIOR_PAIR_SD,
) -> Shrinkage:
    """What of the effects is real, from estimates on disjoint rows and from experience.

    Parameters
    ----------
    folds : list of Effects
    spread : float
        A member's mean own risk less a pair's: the unit the prior is in.
    prior : ndarray of shape (2, 2) or None
        Covariance of (company, alone) to expect, in units of ``spread`` squared. The default is
        that of trees; None: the rows alone decide.
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
    of_member = None if prior is None else unit * prior
    real, noise = _with_prior(*real_and_noise(members), of_member, members[0].shape[1])
    known = real @ np.linalg.pinv(real + noise, hermitian=True)
    share, unknown = pair_share(
        [fold.pair for fold in folds], spread, None if prior is None else prior_pair
    )
    return Shrinkage(known, share, _positive(real - known @ real), unknown)


def pair_share(
    pairs: list[np.ndarray], spread: float, prior_sd: float | None
) -> tuple[float, float]:
    """What share of pairs' effects is real, and what variance is left unknown of them.

    Parameters
    ----------
    pairs : list of ndarray of shape (N, N)
        One a fold.
    spread : float
        The unit of the prior.
    prior_sd : float or None
        Standard deviation to expect; None: the rows alone decide.

    Returns
    -------
    tuple of float
    """
    flat = [pair.reshape(1, -1) for pair in pairs]
    prior = None if prior_sd is None else np.array([[(spread * prior_sd) ** 2]])
    real, noise = _with_prior(*real_and_noise(flat), prior, flat[0].shape[1])
    total = float(real[0, 0] + noise[0, 0])
    share = float(real[0, 0]) / total if total > 0 else 0.0
    return share, float(real[0, 0]) * (1.0 - share)


def _with_prior(
    found: np.ndarray, noise: np.ndarray, prior: np.ndarray | None, n: int
) -> tuple[np.ndarray, np.ndarray]:
    """The covariance found on the rows, where they can tell; the prior, where they cannot.

    Were the prior true, the rows' noise would leave an error of about noise·√(2/n) +
    2√(prior·noise/n) in a variance of n effects. How much that is beside the prior decides whom to
    trust; the variance found does not, or lucky ones would be trusted more. Only where it is
    beyond any luck are the members at hand of another kind than the prior's.
    """
    if prior is None:
        return _positive(found), noise
    size, level = np.diag(prior), np.diag(noise)
    error = np.maximum(level * np.sqrt(2.0 / n) + 2.0 * np.sqrt(size * level / n), 1e-150)
    beyond_luck = np.clip(((np.diag(found) - size) / error - 3.0) / 3.0, 0.0, 1.0)
    trust = np.maximum(1.0 / (1.0 + (error / np.maximum(size, 1e-150)) ** 2), beyond_luck)
    both = np.sqrt(np.outer(trust, trust))
    return _positive(both * found + (1.0 - both) * prior), noise


def real_and_noise(estimates: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of what is real (unbiased, maybe negative), and of the noise in the folds' mean.

    ``estimates`` holds, a fold, one row a kind of effect. Products between different folds average
    to the first; what products within a fold have more is noise.

    Parameters
    ----------
    estimates : list of ndarray of shape (kinds, n)

    Returns
    -------
    tuple of ndarray of shape (kinds, kinds)
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
