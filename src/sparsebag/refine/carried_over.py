"""A calibrator for a gated vote of all members, where only few of them can be heard on a row.

Out of bag a row has a third of the voters. A gate trusts a few of those, and the two to four that
are left are sure and wrong more often than all of them will be: what corrects their vote is wrong
for the vote that is deployed, its floor most of all. The global vote is known at its full size,
from as many other members. So its calibrator is the one that is kept, and only the change of
temperature from global to gated weights is read off votes out of bag.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.refine.calibrate import fit_family
from sparsebag.refine.calibrator import Calibrator, logarithm, positive_votes, softmax_rows
from sparsebag.refine.local_weights import LocalEvidence
from sparsebag.refine.temperature import (
    SHARPEST,
    SOFTEST,
    TemperedFloor,
    fit_tempered_floor,
)

GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)
"""Multiples of it fill the unit interval evenly."""


def change_of_temperature(evidence: LocalEvidence, held_out: np.ndarray) -> float:
    """By how much the logarithm of the best temperature changes from global to local weights.

    Parameters
    ----------
    evidence : LocalEvidence
        Of a classification problem.
    held_out : ndarray of shape (R, k)
        Each row's weights, from other rows.

    Returns
    -------
    float
    """
    own = np.tile(evidence.base, (evidence.n_rows, 1))
    n_rows = max(1, round(evidence.effective_rows))
    # Beside a floor, which answers the rows that all of few voters are sure of and wrong about:
    # without one these would set both temperatures, and hide the change.
    before, after = (
        fit_tempered_floor(
            positive_votes(evidence.voted(weights)), evidence.target, evidence.weight, n_rows
        )
        for weights in (own, held_out)
    )
    return float(np.log(after.temperature / before.temperature))


def carried_over(given: dict[str, Any], kind: Any, change: float) -> Calibrator:
    """A calibrator of any kind for the gated vote, from global votes of the deployed size.

    The votes are made as sure as the gated vote is. What they say class by class, or along a curve,
    is true of the global vote and may not be of another: half of what the calibrator is fitted to
    are the targets, half is what the tempered floor says, which knows only how sure votes are.

    Parameters
    ----------
    given : dict
        ``votes``, ``target``, ``row`` and ``sample_weight`` of the global vote, as
        `fit_calibrator` takes them.
    kind : str or object
        Of calibrator; not "auto" and not None.
    change : float
        Of the temperature's logarithm.

    Returns
    -------
    Calibrator

    Examples
    --------
    >>> votes = np.array([[0.6, 0.4]] * 9000 + [[0.4, 0.6]] * 9000)
    >>> target = np.repeat([0, 1, 0], [8100, 9000, 900])  # right nine times of ten
    >>> given = {"votes": votes, "target": target, "row": np.arange(18000), "sample_weight": None}
    >>> carried_over(given, "isotonic", 0.0).transform(votes[:1]).round(1).tolist()
    [[0.9, 0.1]]
    """
    votes, target = given["votes"], np.asarray(given["target"], np.intp)
    weight = given["sample_weight"]
    weight = np.ones(len(votes)) if weight is None else np.asarray(weight, dtype=np.float64)
    votes, target, row = votes[weight > 0.0], target[weight > 0.0], given["row"][weight > 0.0]
    weight, n_rows = weight[weight > 0.0], len(np.unique(row))
    usual = fit_tempered_floor(votes, target, weight, n_rows)
    temperature = float(np.clip(usual.temperature * np.exp(change), SHARPEST, SOFTEST))
    as_sure = positive_votes(softmax_rows(logarithm(votes) * temperature / usual.temperature))
    told = _evenly_drawn(TemperedFloor(temperature, usual.share).transform(as_sure))
    return fit_family(
        *(kind, np.concatenate([as_sure, as_sure]), np.concatenate([target, told])),
        weight=np.concatenate([weight, weight]),
        n_rows=n_rows,
    )


def _evenly_drawn(proba: np.ndarray) -> np.ndarray:
    """A class for each row, so that any rows alike have each as often as they say.

    Classes and not shares of rows: an object of the user's need not take weights.
    """
    place = np.empty(len(proba))
    place[np.argsort(proba[:, -1], kind="stable")] = (0.5 + GOLDEN * np.arange(len(proba))) % 1.0
    below = np.cumsum(proba, axis=1)[:, :-1] <= place[:, None]
    return np.asarray(below.sum(axis=1), np.intp)
