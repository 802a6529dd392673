"""What local weights are worth on rows that had no part in them.

Two estimates, for each is blind to something. Out-of-bag votes give the loss that is deployed,
each side with the calibrator it would have (a gate must not be paid for sureness that a temperature
gives as well), but they hear 37 % of the members. The full-vote risk is that of all of them, for
squared error and Brier score only; of a calibrated gain it tells the share that all leave
(`deployed_size`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsebag.refine.calibrator import positive_votes
from sparsebag.refine.deployed_size import at_deployed_size
from sparsebag.refine.full_vote import full_vote_risks
from sparsebag.refine.local_choice import mean_and_error
from sparsebag.refine.local_weights import LocalEvidence
from sparsebag.refine.localisation import LocalGain
from sparsebag.refine.recalibration import Recalibration
from sparsebag.refine.temperature import fit_tempered_floor


def calibrated_losses(evidence: LocalEvidence, weights: np.ndarray) -> np.ndarray:
    """Each row's log-loss out of bag under weights of its own, after its best calibrator.

    Parameters
    ----------
    evidence : LocalEvidence
        Of a classification problem.
    weights : ndarray of shape (R, k)

    Returns
    -------
    ndarray of shape (R,)
    """
    votes = positive_votes(evidence.voted(weights))
    proba = fit_tempered_floor(votes, evidence.target, evidence.weight).transform(votes)
    return np.asarray(-np.log(proba[np.arange(len(proba)), evidence.target]))


def plain_losses(evidence: LocalEvidence, weights: np.ndarray) -> np.ndarray:
    """The same of the vote as it is.

    Parameters
    ----------
    evidence : LocalEvidence
    weights : ndarray of shape (R, k)

    Returns
    -------
    ndarray of shape (R,)
    """
    votes = evidence.voted(weights)[np.arange(evidence.n_rows), evidence.target]
    return np.asarray(-np.log(positive_votes(votes, evidence.votes.shape[2])))


def judged_weights(
    evidence: LocalEvidence,
    held_out: np.ndarray,
    kind: str,
    *,
    calibrates: bool,
    recalibration: Recalibration | None = None,
) -> LocalGain:
    """What weights that were fitted without each row gain on it.

    Rows are those that the global weights can be judged on, whatever the gate. Where the gate
    leaves too little weight to those who can be asked, it neither gains nor loses.

    Parameters
    ----------
    evidence : LocalEvidence
        With a row that two members can be heard on.
    held_out : ndarray of shape (R, k)
        Each row's weights, from other rows.
    kind : str
        Of the map.
    calibrates : bool
        Whether the deployed vote is calibrated. Out of bag a temperature and a floor stand in for
        whatever calibrator that is: others would be fitted to few sure voters.
    recalibration : Recalibration, optional
        What corrects the deployed vote, with a gate as without one, and each its own; where all
        members vote on every row.

    Returns
    -------
    LocalGain
        In log-loss, or for regression in squared error of all members.
    """
    own = np.tile(evidence.base, (evidence.n_rows, 1))
    (before, heard), (after, also) = (full_vote_risks(evidence, w) for w in (own, held_out))
    weight = evidence.weight[heard]
    saved = np.where(also, before - after, 0.0)
    full_vote, full_vote_error = mean_and_error(saved[heard], weight)
    if not evidence.classifies:
        mean = float(weight @ before[heard]) / float(weight.sum())
        return LocalGain(kind, mean, mean - full_vote, full_vote, full_vote_error)
    if recalibration is not None:
        first, second = (recalibration.losses(evidence, w) for w in (own, held_out))
    elif not calibrates:
        first, second = (plain_losses(evidence, w) for w in (own, held_out))
    else:
        first = calibrated_losses(evidence, own)
        second = calibrated_losses(evidence, held_out)
    gain, error = mean_and_error(first - second, evidence.weight)
    mean = float(evidence.weight @ first)
    found = LocalGain(
        *(kind, mean, mean - gain, gain, error, full_vote), full_vote_error=full_vote_error
    )
    if not calibrates:  # a gate then sharpens too, and all members leave more of that, not less
        return found
    if bool(evidence.mask.all()):  # all members vote on these rows: nothing is to be foretold
        return replace(found, deployed_gain=gain, deployed_error=error)
    left, left_error = at_deployed_size(evidence, held_out, first - second)
    return replace(found, deployed_gain=left, deployed_error=left_error)
