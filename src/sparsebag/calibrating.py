"""Calibration of the vote, and the choice of members in its light.

Most of what an unsure ensemble loses, a calibrator gives back, to few members and to all of them. A
few sharp members would beat the whole ensemble as it is and be no match for it calibrated; so both
are compared calibrated.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.refine.calibrate import PREFERRED, Calibrated, fit_calibrator
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
from sparsebag.selection.selection import CalibrationEffect, Selection
from sparsebag.settings import Settings
from sparsebag.solvers.base import one_blas_thread

LEAST_FLOOR = 1e-6
"""Of votes a calibrator is fitted on: it reads their logarithms."""
ROWS_FOR_EFFECT = 2000
"""Rows that tell what a calibrator leaves of the risk; the one that is deployed sees more."""
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
        if "_whole_share" in vars(self):
            vars(plain)["_whole_share"] = self._whole_share  # is the same, and was not cheap
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
            votes = self._votes(weights[weights > 0])
            self._last = weights, self._fitted(votes, self.settings.calibration)
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
        votes = self._votes(weights[weights > 0], draws=1, most_rows=ROWS_FOR_EFFECT)
        return CalibrationEffect(self._share(votes), self._whole_share)

    @cached_property
    def _whole_share(self) -> float:
        active = self.whole_weights[self.whole_weights > 0]
        return self._share(
            size_matched_evidence(
                self.evidence, len(active), weights=active, draws=1, most_rows=ROWS_FOR_EFFECT
            )
        )

    def _share(self, matched: SizeMatched) -> float:
        kind = self.settings.calibration
        found = self._fitted(matched, PREFERRED if kind == "auto" else kind)
        if not found.brier_before > SMALLEST_RISK:
            return 1.0
        share = found.brier_after / found.brier_before
        return min(share, 1.0) if kind == "auto" else share  # "auto" need not calibrate

    def _votes(
        self, active: np.ndarray, draws: int = DRAWS, most_rows: int = MOST_ROWS
    ) -> SizeMatched:
        trees = self.trees
        if trees is None:
            return size_matched_evidence(
                self.evidence, len(active), weights=active, draws=draws, most_rows=most_rows
            )
        said = trees.honest.votes(trees.strength.twicing, trees.strength.lam)
        size = min(trees.votes_a_member * len(active), float(MOST_VOTES_MATCHED))
        as_votes = trees.targets.as_votes(said)
        votes, at = size_matched_votes(as_votes, trees.honest.mask, size, draws=draws)
        return SizeMatched(votes, trees.honest.rows[at])

    def _fitted(self, matched: SizeMatched, kind: Any) -> Calibrated:
        votes, row = matched
        given = self.evidence.sample_weight
        with one_blas_thread():  # thousands of tiny products: threads would only wait
            return fit_calibrator(
                finished_votes(votes, max(self.settings.floor, LEAST_FLOOR)),
                on_host(self.evidence.target)[row],
                row,
                kind=kind,
                sample_weight=None if given is None else on_host(given)[row],
            )


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
