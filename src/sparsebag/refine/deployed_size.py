"""What a gain out of bag is worth when all members vote.

A row is out of bag for 37 % of the members. The global vote of so few has by chance more of those
who know the row's side, or fewer, and a gate puts that right; among all of them there is less to
put right. So a gate gains more out of bag than it does deployed, and by how much differs.

A log-loss of votes that nobody cast cannot be had, but a Brier score can: that of all members is
known from pairs of them (`full_vote_risks`). It stays so when votes are stretched about the uniform
one, which is what a temperature does to first order. Each side stretched as is best for it, at
either size, the Brier score tells which share of the gain is left at the deployed one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sparsebag.refine.full_vote import full_vote_risks
from sparsebag.refine.local_choice import mean_and_error
from sparsebag.refine.local_weights import LocalEvidence
from sparsebag.refine.temperature import SHARPEST


class Stretched(NamedTuple):
    """Rows' Brier scores of votes ``1/C + b (p - 1/C)``, quadratic in b.

    Attributes
    ----------
    constant, slope, curve : ndarray of shape (R,)
    """

    constant: np.ndarray
    slope: np.ndarray
    curve: np.ndarray

    def best(self, weight: np.ndarray) -> float:
        """The stretch of least mean score; 1 where the scores are no bowl.

        Parameters
        ----------
        weight : ndarray of shape (R,)

        Returns
        -------
        float

        Examples
        --------
        >>> Stretched(np.ones(1), np.array([-4.0]), np.ones(1)).best(np.ones(1))
        2.0
        """
        slope, curve = float(weight @ self.slope), float(weight @ self.curve)
        return float(np.clip(-0.5 * slope / curve, 0.0, 1.0 / SHARPEST)) if curve > 0.0 else 1.0

    def at_best(self, weight: np.ndarray) -> np.ndarray:
        """Each row's score at the stretch that is best for all.

        Parameters
        ----------
        weight : ndarray of shape (R,)

        Returns
        -------
        ndarray of shape (R,)
        """
        b = self.best(weight)
        return self.constant + b * self.slope + b**2 * self.curve


def out_of_bag(evidence: LocalEvidence, weights: np.ndarray) -> Stretched:
    """Scores of the members that have a row out of bag.

    Parameters
    ----------
    evidence : LocalEvidence
        Of a classification problem.
    weights : ndarray of shape (R, k)

    Returns
    -------
    Stretched
    """
    votes = evidence.voted(weights)
    beside = _uniform_residual(evidence)
    apart = votes - 1.0 / votes.shape[1]
    return Stretched(
        np.sum(beside**2, axis=1), 2.0 * np.sum(beside * apart, axis=1), np.sum(apart**2, axis=1)
    )


def deployed(evidence: LocalEvidence, weights: np.ndarray) -> tuple[Stretched, np.ndarray]:
    """Scores of all members, and the rows that they can be heard on.

    Parameters
    ----------
    evidence : LocalEvidence
        Of a classification problem.
    weights : ndarray of shape (R, k)

    Returns
    -------
    scores : Stretched
    heard : ndarray of bool of shape (R,)
    """
    uniform = 1.0 / evidence.votes.shape[2]
    doubled = replace(evidence, votes=uniform + 2.0 * (evidence.votes - uniform))
    once, heard = full_vote_risks(evidence, weights)
    twice, _ = full_vote_risks(doubled, weights)
    none = np.sum(_uniform_residual(evidence) ** 2, axis=1)
    curve = 0.5 * (twice - 2.0 * once + none)
    return Stretched(none, once - none - curve, curve), heard


def at_deployed_size(
    evidence: LocalEvidence, weights: np.ndarray, saved: np.ndarray
) -> tuple[float, float]:
    """Log-loss that is saved out of bag, as far as that is left when all members vote.

    Parameters
    ----------
    evidence : LocalEvidence
        Of a classification problem, with a row that two members can be heard on.
    weights : ndarray of shape (R, k)
        Each row's, from other rows.
    saved : ndarray of shape (R,)
        By the calibrated out-of-bag vote.

    Returns
    -------
    gain, error : float
        As out of bag where nothing is gained there, or no less when all vote. Members were chosen
        on these rows for their global vote, which flatters it: rather too little than too much.
    """
    own = np.tile(evidence.base, (evidence.n_rows, 1))
    (before, heard), (after, also) = (deployed(evidence, w) for w in (own, weights))
    if not (heard.any() and also.any()):
        return mean_and_error(saved, evidence.weight)
    # Each side on all rows that it can be heard on: those that few of a gate's trusted members can
    # be asked about are the ones on which the global vote out of bag is worst.
    global_rows, gated_rows = (_shares(evidence, rows) for rows in (heard, also))
    all_rows = evidence.weight
    full = _centred(before.at_best(global_rows), global_rows)
    gated = _centred(after.at_best(gated_rows), gated_rows)
    few = _centred(
        out_of_bag(evidence, own).at_best(all_rows)
        - out_of_bag(evidence, weights).at_best(all_rows),
        all_rows,
    )
    gain, of_all, of_few = float(all_rows @ saved), full.mean - gated.mean, few.mean
    if gain <= 0.0 or of_few <= 0.0 or of_all >= of_few:
        return mean_and_error(saved, evidence.weight)
    share = max(of_all / of_few, -1.0)
    # A ratio to first order, for the error of all three means together.
    terms = share * _centred(saved, all_rows).terms
    terms += (gain / of_few) * (full.terms - gated.terms - share * few.terms)
    return share * gain, float(np.sqrt(np.sum(terms**2)))


class _Mean(NamedTuple):
    mean: float
    terms: np.ndarray
    """What each row adds to the mean's error."""


def _centred(by_row: np.ndarray, share: np.ndarray) -> _Mean:
    mean = float(share @ by_row)
    return _Mean(mean, share * (by_row - mean))


def _shares(evidence: LocalEvidence, rows: np.ndarray) -> np.ndarray:
    weight = np.where(rows, evidence.weight, 0.0)
    return np.asarray(weight / weight.sum())


def _uniform_residual(evidence: LocalEvidence) -> np.ndarray:
    n_classes = evidence.votes.shape[2]
    return np.asarray(1.0 / n_classes - np.eye(n_classes)[evidence.target])
