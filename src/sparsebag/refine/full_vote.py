"""The risk of all members, from those that have each row out of bag."""

from __future__ import annotations

import numpy as np

from sparsebag.refine.local_weights import LocalEvidence

LEAST_PAIRS = 1e-2
"""Weight of pairs of members that must have a row out of bag together, to be heard on it."""


def full_vote_risks(evidence: LocalEvidence, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each row's squared error or Brier score of *all* members under weights of its own.

    The mean product of two members' residuals, and the mean square of one's, over those that have
    the row out of bag; together as they enter the square of the weighted mean of all members.

    Parameters
    ----------
    evidence : LocalEvidence
    weights : ndarray of shape (R, k)

    Returns
    -------
    risks : ndarray of shape (R,)
    heard : ndarray of bool of shape (R,)
        Rows that two members can be heard on.
    """
    w = np.where(evidence.mask, weights, 0.0)
    votes = np.where(evidence.mask[:, :, None], evidence.votes, 0.0).astype(np.float64)
    if evidence.classifies:
        truth = np.eye(votes.shape[2])[evidence.target]
        votes = (1.0 - evidence.floor) * votes + evidence.floor / votes.shape[2]
    else:
        truth = evidence.target[:, None].astype(np.float64)
    residual = votes - truth[:, None, :]
    sums = np.einsum("ij,ijc->ic", w, residual)
    squares = np.einsum("ij,ijc->i", w**2, residual**2)
    together, alone = w.sum(axis=1) ** 2, np.sum(w**2, axis=1)
    pairs = together - alone
    heard = pairs > LEAST_PAIRS
    pair = (np.sum(sums**2, axis=1) - squares) / np.where(heard, pairs, 1.0)
    own = squares / np.where(alone > 0.0, alone, 1.0)
    concentration = np.sum(weights**2, axis=1)
    return np.asarray((1.0 - concentration) * pair + concentration * own), heard
