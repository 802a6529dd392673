"""Calibration of the vote, and the choice of members in its light.

Most of what an unsure ensemble loses, a calibrator gives back, to few members and to all of them. A
few sharp members would beat the whole ensemble as it is and be no match for it calibrated; so both
are compared calibrated.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, lost_class
from sparsebag.refine.calibrate import fit_calibrator, held_out_rows, needs_its_own
from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.calibration_kinds import is_auto
from sparsebag.refine.refitted_trees import RefittedTrees
from sparsebag.refine.size_matched import (
    DRAWS,
    MOST_ROWS,
    SizeMatched,
    dense_votes,
    finished_votes,
    size_matched_evidence,
    size_matched_votes,
)
from sparsebag.refine.strength import MOST_VOTES_MATCHED
from sparsebag.refine.temperature import Tempered, at_deployed_size
from sparsebag.selection.calibration_effect import CalibratedShare, CalibrationEffect
from sparsebag.selection.guard import SMALLEST_RISK
from sparsebag.selection.select import MemberSelector
from sparsebag.selection.selection import Selection
from sparsebag.settings import Settings
from sparsebag.solvers.base import one_blas_thread

LEAST_FLOOR = 1e-6
"""Of votes a calibrator is fitted on: it reads their logarithms."""
ROWS_FOR_EFFECT = 2000
"""Rows that tell what a calibrator leaves of the risk; the one that is deployed sees more."""
ERRORS_OUT_OF_BAG, MOST_FOR_FEWER = 1.0, 1.07
"""Standard errors that survivors must gain by a calibrator of their own; and how many times the
risk of as many others that of as few as vote out of bag may be."""
MOST_CHOICES, SHARE_MADE_UP = 4, 1.01
"""How often members are chosen again for what calibration leaves of their own risk, and how much
more of it must be left for that."""
FEWER, FEW = 4.0, 9.0
"""How many times fewer voters the second measurement of that has, and how many at most: the line
through two sizes far apart is the surer one."""


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
        if self.is_wanted and is_auto(settings.calibration):
            # Fitted to the other classes alone it would do away with the one that is left out.
            self.is_wanted = lost_class(evidence) is None
        self._last: tuple[np.ndarray, Calibrated] | None = None
        self._given_last: tuple[np.ndarray, dict[str, Any]] | None = None
        self._whose = "others"

    def of_plain_members(self) -> VoteCalibration:
        """The same for members whose leaves are not refitted after all.

        Returns
        -------
        VoteCalibration
        """
        plain = VoteCalibration(self.evidence, self.settings, self.whole_weights)
        if "_plain_share" in vars(self) and self._sample is None:
            vars(plain)["_plain_share"] = self._plain_share  # is the same, and was not cheap
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
            with one_blas_thread():  # thousands of tiny products: threads would only wait
                found = fit_calibrator(**self.votes_of(weights), kind=self.settings.calibration)
                found = self._of_survivors(weights, replace(found, whose=self._whose))
            self._last = weights, found
        return self._last[1]

    def votes_of(self, weights: np.ndarray) -> dict[str, Any]:
        """What the calibrator of members with weights is fitted to.

        Parameters
        ----------
        weights : ndarray of shape (N,)

        Returns
        -------
        dict
            ``votes``, ``target``, ``row`` and ``sample_weight``, as `fit_calibrator` takes them;
            draws are stacked, each with the same rows.
        """
        if self._given_last is None or not np.array_equal(self._given_last[0], weights):
            active = weights[weights > 0]
            votes = self._votes(active, self.trees, self._size(active, self.trees))
            given = self._given(votes)
            self._whose = "all" if len(active) == len(weights) else "others"
            if self.all_vote_everywhere:
                # Others stand in for the survivors where members are alike. Experts are not.
                own = self._given(self._survivors_votes(weights)[0])
                if needs_its_own(own, given, self.settings.calibration):
                    given, self._whose = own, "survivors"
            self._given_last = weights, given
        return self._given_last[1]

    def _of_survivors(self, weights: np.ndarray, found: Calibrated) -> Calibrated:
        """The calibrator, made to measure where survivors vote unlike others out of bag.

        Trees of a level or two do. Fewer of the survivors vote on a row than are deployed; what
        that does to a temperature is seen on as many others.
        """
        kept_all = np.count_nonzero(weights) == len(weights)
        if self.all_vote_everywhere or self.trees is not None or kept_all:
            return found
        if found.temperature is None:
            return found
        votes, voters = self._survivors_votes(weights)
        own, like = self._given(votes), self._given(self._votes(None, None, voters))
        if _brier(like) > MOST_FOR_FEWER * _brier(self.votes_of(weights)):
            return found  # deep trees: so few votes say little, and members are much alike
        if not needs_its_own(own, like, found.kind, ERRORS_OUT_OF_BAG):
            return found
        of_own, of_like = (fit_calibrator(**given, kind=found.kind) for given in (own, like))
        few, others_few, others = (of.calibrator for of in (of_own, of_like, found))
        assert isinstance(few, Tempered)
        assert isinstance(others_few, Tempered)
        assert isinstance(others, Tempered)
        calibrator = at_deployed_size(few, others_few, others)
        return replace(of_own, calibrator=calibrator, whose="own")

    def own_share(self, weights: np.ndarray) -> float:
        """What calibration leaves of these members' risk, over what it leaves of others'.

        Parameters
        ----------
        weights : ndarray of shape (N,)

        Returns
        -------
        float
            1 where others can stand in for them.
        """
        found = self.fit(weights)
        if found is None or found.whose not in ("survivors", "own"):
            return 1.0
        _, voters = self._survivors_votes(weights)
        usual = float(self.effect.small.of(1.0 / voters))
        return found.brier_after / max(found.brier_before * usual, SMALLEST_RISK)

    @property
    def all_vote_everywhere(self) -> bool:
        """Whether every member, as it is deployed, votes on every row of the evidence."""
        return self.evidence.oob_mask is None and self.trees is None

    def _survivors_votes(self, weights: np.ndarray) -> tuple[SizeMatched, float]:
        """Their votes on rows that they have not seen, and how many vote on a row, in effect."""
        rows = np.arange(self.evidence.n_rows)
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        active = np.flatnonzero(weights)
        mask, votes = dense_votes(self.evidence.take_members(active).take(rows))
        share = mask * weights[active]
        judged = share.sum(axis=1) > 0.0
        share = share[judged] / share[judged].sum(axis=1, keepdims=True)
        voters = 1.0 / float(np.mean(np.sum(share**2, axis=1)))
        return SizeMatched(np.einsum("ij,ijc->ic", share, votes[judged]), rows[judged]), voters

    @cached_property
    def effect(self) -> CalibrationEffect:
        """What calibration leaves of the risk of members, however many, and of the whole's."""
        small = self._share(self.trees) if self.trees is not None else self._plain_share
        weights = self.whole_weights
        return CalibrationEffect(small, self._plain_share, float(weights @ weights))

    @cached_property
    def _plain_share(self) -> CalibratedShare:
        return self._share(None)

    @property
    def _sample(self) -> np.ndarray | None:
        """The rows that judge refitted trees, where these are not all of them.

        The ensemble as it is must then be judged by the same: what is left after calibration is
        the errors of a few rows, and other rows have other ones.
        """
        if self.trees is None or len(self.trees.honest.rows) == self.evidence.n_rows:
            return None
        return self.trees.honest.rows

    def _share(self, trees: RefittedTrees | None) -> CalibratedShare:
        """Measured with all voters a row has, and with few of them."""
        voters = self._voters(trees)
        most = float(np.mean(voters))
        if trees is not None:
            most = min(most, float(MOST_VOTES_MATCHED))
        sizes = most, max(1.0, min(most / FEWER, FEW))
        given = [self._given_by(trees, size) for size in sizes]
        n_rows = self.evidence.n_rows
        with one_blas_thread():
            many = held_out_rows(**given[0], kind=self.settings.calibration)
            few = None if many is None else held_out_rows(**given[1], kind=many.kind)
        if many is None or few is None:
            return CalibratedShare.none(n_rows)
        low, high = (float(np.mean(1.0 / np.minimum(voters, size))) for size in sizes)
        weight = many.weight
        scores = np.stack([many.after, few.after, many.before, few.before], axis=1)
        means = weight @ scores
        unneeded = is_auto(self.settings.calibration) and means[0] > means[2]
        if not (high > low and means.min() > SMALLEST_RISK) or unneeded:
            return CalibratedShare.none(n_rows)
        rows = np.zeros((n_rows, 4))
        rows[many.row] = weight[:, None] * (scores - means)
        return CalibratedShare((low, high), means, rows).possible()

    def _given_by(self, trees: RefittedTrees | None, size: float) -> dict[str, Any]:
        """Votes of so many members about the rows that tell what calibration leaves."""
        return self._given(self._votes(None, trees, size, draws=1, most_rows=ROWS_FOR_EFFECT))

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
        active: np.ndarray | None,
        trees: RefittedTrees | None,
        size: float,
        draws: int = DRAWS,
        most_rows: int = MOST_ROWS,
    ) -> SizeMatched:
        if trees is None:
            sample = self._sample
            given = self.evidence if sample is None else self.evidence.take(sample)
            matched = size_matched_evidence(
                given, size, weights=active, draws=draws, most_rows=most_rows
            )
            return matched if sample is None else SizeMatched(matched.votes, sample[matched.row])
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
    if not calibration.is_wanted or selector.path is None or calibration.effect.is_none:
        return selector.choose()
    chosen, share = selector.choose(calibration.effect), 1.0
    if calibration.all_vote_everywhere:
        alike = calibration.own_share(chosen.weights) == 1.0
        # What calibration leaves of random members' risk says nothing of experts.
        return chosen if alike else selector.choose()
    for _ in range(MOST_CHOICES):
        # Where others cannot stand in for those that were chosen, these are asked themselves.
        found = calibration.own_share(chosen.weights)
        if found <= SHARE_MADE_UP * share:
            break
        share = found
        chosen = selector.choose(calibration.effect.with_more_left(share))
    return chosen


def _brier(given: dict[str, Any]) -> float:
    """Brier score of votes."""
    votes, weight = given["votes"], given["sample_weight"]
    hot = given["target"][:, None] == np.arange(votes.shape[1])
    return float(np.average(np.sum((votes - hot) ** 2, axis=1), weights=weight))
