"""Calibration of the vote, and the choice of members in its light.

Most of what an unsure ensemble loses, a calibrator gives back, to few members and to all of them. A
few sharp members would beat the whole ensemble as it is and be no match for it calibrated; so both
are compared calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.refine.calibrate import (
    PREFERRED,
    Calibrated,
    HeldOutRows,
    fit_calibrator,
    held_out_rows,
)
from sparsebag.refine.refitted_trees import RefittedTrees
from sparsebag.refine.size_matched import (
    DRAWS,
    MOST_ROWS,
    SizeMatched,
    finished_votes,
    size_matched_evidence,
    size_matched_votes,
)
from sparsebag.refine.strength import MOST_VOTES_MATCHED
from sparsebag.selection.guard import SMALLEST_RISK
from sparsebag.selection.select import MemberSelector
from sparsebag.selection.selection import CalibrationEffect, Selection, Share
from sparsebag.settings import Settings
from sparsebag.solvers.base import one_blas_thread

LEAST_FLOOR = 1e-6
"""Of votes a calibrator is fitted on: it reads their logarithms."""
ROWS_FOR_EFFECT = 2000
"""Rows that tell what a calibrator leaves of the risk; the one that is deployed sees more."""
FAR_BEYOND = 0.005
"""Concentration by which the votes a row has may differ from what is wanted, and count for it."""
FIRST_SIZE = 20
MOST_ROUNDS = 4
"""A calibrator is fitted at a size, and the size chosen in its light; they soon agree."""


class VoteCalibration:
    """Calibrators fitted on honest votes of as many members as will be deployed.

    Parameters
    ----------
    evidence : OOBEvidence
        Of the members as they are.
    settings : Settings
    whole_weights : ndarray of shape (N,), optional
        Those of the whole ensemble; default: equal.
    trees : RefittedTrees, optional
        The members, where their leaves will be refitted.
    """

    def __init__(
        self,
        evidence: OOBEvidence,
        settings: Settings,
        whole_weights: np.ndarray | None = None,
        trees: RefittedTrees | None = None,
    ) -> None:
        self.evidence, self.settings, self.trees = evidence, settings, trees
        n = evidence.n_members
        self.whole_weights = np.full(n, 1.0 / n) if whole_weights is None else whole_weights
        self.is_wanted = settings.calibration is not None and evidence.n_classes is not None
        self._last: tuple[np.ndarray, Calibrated] | None = None

    def of_plain_members(self) -> VoteCalibration:
        """The same for members whose leaves are not refitted after all.

        Returns
        -------
        VoteCalibration
        """
        plain = VoteCalibration(self.evidence, self.settings, self.whole_weights)
        if "_whole_effect" in vars(self):
            vars(plain)["_whole_effect"] = self._whole_effect  # is the same, and was not cheap
        return plain

    def fit(self, weights: np.ndarray) -> Calibrated | None:
        """The calibrator of members with weights, and what it is worth; None where none is wanted.

        Parameters
        ----------
        weights : ndarray of shape (N,)

        Returns
        -------
        Calibrated or None
        """
        if not self.is_wanted:
            return None
        if self._last is None or not np.array_equal(self._last[0], weights):
            active = weights[weights > 0]
            votes = self._votes(active, self.trees, self._size(active, self.trees))
            with one_blas_thread():  # thousands of tiny products: threads would only wait
                found = fit_calibrator(**self._given(votes), kind=self.settings.calibration)
            self._last = weights, found
        return self._last[1]

    def effect(self, weights: np.ndarray) -> CalibrationEffect:
        """What calibration leaves of the risk of members with weights, and of the whole's.

        Parameters
        ----------
        weights : ndarray of shape (N,)

        Returns
        -------
        CalibrationEffect
        """
        small, whole = self._effect(weights[weights > 0], self.trees), self._whole_effect
        return CalibrationEffect(small.share, whole.share, _error_of_ratio(small, whole))

    @cached_property
    def _whole_effect(self) -> _Effect:
        return self._effect(self.whole_weights[self.whole_weights > 0], None)

    def _effect(self, active: np.ndarray, trees: RefittedTrees | None) -> _Effect:
        """Measured at the size, or at what a row has voters for and half of it, and continued.

        The risk is linear in the concentration of the votes, calibrated or not.
        """
        wanted, voters = self._size(active, trees), self._voters(trees)
        at = float(np.mean(1.0 / np.minimum(voters, wanted)))
        found = self._held_out(active, trees, wanted)
        beyond = at - 1.0 / wanted
        if beyond > FAR_BEYOND and trees is None:  # fitted to each other, trees do not add up
            fewer = max(1.0, 0.5 / at)
            step = beyond / (float(np.mean(1.0 / np.minimum(voters, fewer))) - at)
            found = found.continued(self._held_out(active, trees, fewer), step)
        return _Effect.of(found, gated=self.settings.calibration == "auto")

    def _held_out(
        self, active: np.ndarray, trees: RefittedTrees | None, size: float
    ) -> HeldOutRows:
        kind = self.settings.calibration
        votes = self._votes(active, trees, size, draws=1, most_rows=ROWS_FOR_EFFECT)
        with one_blas_thread():
            return held_out_rows(**self._given(votes), kind=PREFERRED if kind == "auto" else kind)

    def _size(self, active: np.ndarray, trees: RefittedTrees | None) -> float:
        """Votes the members are worth."""
        if trees is None:
            return float(len(active))
        return min(len(active) * trees.votes_a_member, float(MOST_VOTES_MATCHED))

    def _voters(self, trees: RefittedTrees | None) -> np.ndarray:
        """Members that can be asked about each row."""
        if trees is not None:
            voters = trees.honest.mask.sum(axis=1)
        elif self.evidence.oob_mask is None:
            return np.array([self.evidence.n_members])
        else:
            voters = on_host(self.evidence.oob_mask).sum(axis=1)
        return np.asarray(voters[voters > 0])

    def _votes(
        self,
        active: np.ndarray,
        trees: RefittedTrees | None,
        size: float,
        draws: int = DRAWS,
        most_rows: int = MOST_ROWS,
    ) -> SizeMatched:
        if trees is None:
            return size_matched_evidence(
                self.evidence, size, weights=active, draws=draws, most_rows=most_rows
            )
        as_votes = trees.targets.as_votes(trees.strength.votes(trees.honest))
        votes, at = size_matched_votes(as_votes, trees.honest.mask, size, draws=draws)
        return SizeMatched(votes, trees.honest.rows[at])

    def _given(self, matched: SizeMatched) -> dict[str, Any]:
        """Votes, targets, rows and weights as a calibrator is fitted to them."""
        votes, row = matched
        given = self.evidence.sample_weight
        return {
            "votes": finished_votes(votes, max(self.settings.floor, LEAST_FLOOR)),
            "target": on_host(self.evidence.target)[row],
            "row": row,
            "sample_weight": None if given is None else on_host(given)[row],
        }


@dataclass(frozen=True)
class _Effect:
    """What calibration leaves of a risk, and what each row has to do with it."""

    share: Share
    row: np.ndarray
    influence: np.ndarray

    @classmethod
    def of(cls, rows: HeldOutRows, *, gated: bool) -> _Effect:
        before, after = float(rows.weight @ rows.before), float(rows.weight @ rows.after)
        if not min(before, after) > SMALLEST_RISK or (gated and after > before):
            return cls(Share(), rows.row, np.zeros(len(rows.row)))  # "auto" need not calibrate
        away, away_before = rows.after - after, rows.before - before
        spread = float(np.linalg.norm(rows.weight * away))
        spread /= max(float(np.linalg.norm(rows.weight * away_before)), SMALLEST_RISK)
        influence = rows.weight * (away / after - away_before / before)
        return cls(Share(after / before, spread), rows.row, influence)


def _error_of_ratio(one: _Effect, other: _Effect) -> float:
    """Standard error of the logarithm of one share over another; rows in both count once."""
    rows = np.zeros(1 + max(int(one.row.max()), int(other.row.max())))
    rows[one.row] += one.influence
    rows[other.row] -= other.influence
    return float(np.linalg.norm(rows))


def choose_calibrated(selector: MemberSelector, calibration: VoteCalibration) -> Selection:
    """A choice that holds when both it and the whole ensemble are calibrated.

    Parameters
    ----------
    selector : MemberSelector
    calibration : VoteCalibration

    Returns
    -------
    Selection
    """
    if not calibration.is_wanted or selector.path is None:
        return selector.choose()
    n = selector.evidence.n_members
    size = min(FIRST_SIZE, n, selector.budget.max_estimators or n)
    weights = np.where(np.arange(n) < size, 1.0 / size, 0.0)
    for _ in range(MOST_ROUNDS):
        selection = selector.choose(calibration.effect(weights))
        if np.array_equal(selection.weights, weights):
            break
        weights = selection.weights
    return selection
