"""From evidence to a choice: path, judgement, guard, and the sentence that explains it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.full_vote_risk import FullVoteRisk, NoPairsError, PairRisk
from sparsebag.objective.vote_disagreement import VoteDisagreement
from sparsebag.selection.budget import Budget, Prices
from sparsebag.selection.calibration_effect import CalibrationEffect
from sparsebag.selection.cross_fit import cross_fit
from sparsebag.selection.explain import Facts, changed, explain, score_of, table_notes
from sparsebag.selection.guard import (
    SMALLEST_RISK,
    Choice,
    best_within,
    choose,
    upper_bound,
)
from sparsebag.selection.interval import risk_interval
from sparsebag.selection.judged_path import CrossFittedPath
from sparsebag.selection.path import PathPoint
from sparsebag.selection.refit import RefitBy, refit
from sparsebag.selection.selection import Selection
from sparsebag.selection.table import PathTable
from sparsebag.selection.tolerance import SPEND_BUDGET
from sparsebag.solvers.base import one_blas_thread

MOST_MEMBERS, MOST_EQUAL_MEMBERS = 200, 4000
"""Longest path of fitted weights, and of equal ones beyond, when no budget says more."""
FEWEST_ROWS = 3.0
"""Rows of equal weight below which nothing is said of any size."""
MOST_REFITS = 6
"""How many sizes are refitted and measured on the way to the smallest that keeps the promise."""

MOST_FOR_LOSS = 0.02
"""How much of the risk weights refitted on another loss may cost: few rows can prefer a handful of
members that are sure of themselves."""


class RegretWarning(UserWarning):
    """No ensemble within the budget is sure to stay within the tolerance."""


class RefittedMembers(Protocol):
    """What selection must know of members whose leaves will be refitted before they vote."""

    def as_deployed(self, path: CrossFittedPath) -> CrossFittedPath:
        """The path with the risk of refitted members, against the whole ensemble as it was."""

    def measure(self, point: PathPoint) -> float | None:
        """Refit the point's members; the concentration found, or None where it is as expected."""


class MemberSelector:
    """Chooses the smallest ensemble no worse than the tolerance, within the budget.

    The path is fitted and judged once; choosing from it, again with a calibrator, costs little.

    Parameters
    ----------
    evidence : OOBEvidence
        With ``class_votes`` where there are more than two classes.
    prices : Prices
        Nodes and bytes of each member.
    budget : Budget
        Limits on members, nodes, bytes.
    tolerance : float
        Relative increase of the risk over the whole ensemble's that is accepted; `SPEND_BUDGET`:
        the best within the budget, whatever its size.
    refit_by : RefitBy, optional
        Another loss the chosen members' weights may be refitted on.
    refitted : RefittedMembers, optional
        How the members will be refitted before they vote; ``evidence`` is then theirs.
    whole_weights : ndarray of shape (N,), optional
        What the whole ensemble, to which all is compared, weighs its members by. Default: equally.
    disagreement : VoteDisagreement, optional
        How the members' votes differ on rows without labels, where such rows can be made.
    whole_is_one : bool, default False
        All members are deployed as one model, so that nothing is saved by dropping any.
    risk : PairRisk, optional
        Pairs of members compared on more rows than the evidence's; default: on those.
    floor : float, default 0
        Share of the uniform class distribution in each vote, as deployed.
    noun : str
        What members are called in the explanation.
    seed : int, default 0
        Of folds and bootstrap. The result does not depend on threads.
    verbose : int, default 0
        Progress on standard error.
    """

    def __init__(
        self,
        evidence: OOBEvidence,
        prices: Prices,
        *,
        budget: Budget,
        tolerance: float,
        refit_by: RefitBy | None = None,
        refitted: RefittedMembers | None = None,
        whole_weights: np.ndarray | None = None,
        disagreement: VoteDisagreement | None = None,
        whole_is_one: bool = False,
        risk: PairRisk | None = None,
        floor: float = 0.0,
        noun: str = "members",
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        budget.check(prices)
        self.whole_is_one = whole_is_one
        self.evidence, self.prices, self.budget = evidence, prices, budget
        self.tolerance, self.refitted, self.refit_by = tolerance, refitted, refit_by
        self.whole_weights, self.noun, self.seed = whole_weights, noun, seed
        self.whole = prices.of(np.arange(evidence.n_members))
        self._why_unjudged, self._calibrated = "", False
        self.path = self._judged_path(disagreement, risk, floor, verbose)
        self._last: tuple[PathPoint, tuple[PathPoint, str | None]] | None = None

    def choose(self, calibration: CalibrationEffect | None = None) -> Selection:
        """The choice, and what is expected of it.

        Parameters
        ----------
        calibration : CalibrationEffect, optional
            What calibration leaves of the risks. Both the few members and the whole ensemble they
            are compared with are then calibrated.

        Returns
        -------
        Selection
        """
        if self.path is None:
            return _unjudged(self.whole, self.tolerance, self.noun, self._why_unjudged)
        path, tolerance, prices = self.path, self.tolerance, self.prices
        self._calibrated = calibration is not None
        if calibration is not None:
            path = path.calibrated(calibration)
        n, judged_at = self.evidence.n_members, max(tolerance, 0.0)
        whole_allowed = self.budget.allows(self.whole) or self.whole_is_one
        costs = [prices.of(point.members) for point in path.points]
        allowed = np.array([self.budget.allows(cost) for cost in costs])
        if self.whole_is_one:
            choice = Choice(None, True, 0.0)
        elif tolerance == SPEND_BUDGET:
            choice = best_within(path, allowed, full_allowed=whole_allowed, seed=self.seed)
        else:
            choice = choose(path, tolerance, allowed, full_allowed=whole_allowed, seed=self.seed)
        measured, on_loss = None, None
        plain = self.path.full_risk
        if self.refitted is not None and choice.position is not None:
            choice, measured = _measured(self.refitted, path, choice, tolerance, allowed)
            if not choice.meets_tolerance and whole_allowed and tolerance != SPEND_BUDGET:
                choice = Choice(None, True, 0.0)
        if choice.position is None:
            weights = np.full(n, 1.0 / n) if self.whole_weights is None else self.whole_weights
            facts = Facts(path.full_risk, path.full_error, 0.0, 0.0, self.whole)
        else:
            point = path.points[choice.position]
            facts = _facts(path.only(point, measured), judged_at, choice, costs[choice.position])
            again, on_loss = self._refitted_weights(point)
            judged = _facts(path.only(again), judged_at, choice, prices.of(again.members))
            if choice.meets_tolerance and judged.bound > tolerance:
                on_loss = None  # another loss gains, but the promise would be broken
            if judged.expected > (1.0 + MOST_FOR_LOSS) * facts.expected:
                on_loss = None
            if measured is not None:
                path = path.as_measured(point, measured)
            if on_loss is not None:
                point, facts = again, judged
            plain = float(self.path.only(point, measured).expected()[0]) + choice.optimism
            weights = point.spread(n)
        table = _table(path, choice, [*costs, self.whole], facts)
        notes = table_notes(
            score_of(self.evidence.task),
            calibrated=calibration is not None,
            refitted=self.refitted is not None,
            picked=choice.optimism > 0.0,
        )
        table = replace(table, notes=notes)
        before = self.path.full_risk if calibration is not None else None
        return Selection(
            weights=weights,
            expected_risk=facts.expected,
            standard_error=facts.standard_error,
            interval=risk_interval(facts.expected, facts.standard_error, path.degrees_of_freedom()),
            full_risk=path.full_risk,
            increase=facts.increase,
            bound=facts.bound,
            tolerance=tolerance,
            meets_tolerance=choice.meets_tolerance,
            random_members=path.random.members_needed(facts.expected),
            refitted_on=on_loss,
            table=table,
            explanation=explain(
                facts,
                path,
                choice,
                table,
                self.whole,
                tolerance,
                self.budget,
                on_loss,
                self.evidence.task,
                self.noun,
                equal=self.whole_weights is None,
                whole_is_one=self.whole_is_one,
                uncalibrated=before,
                own_leaves=self.refitted is None,
            ),
            uncalibrated_risk=plain,
        )

    def warn_of_regret(self, selection: Selection) -> None:
        """Say so where nothing within the budget is sure to stay within the tolerance.

        Parameters
        ----------
        selection : Selection
        """
        if selection.meets_tolerance or self.tolerance == SPEND_BUDGET:
            return
        score = score_of(self.evidence.task)
        whole = "calibrated likewise" if self._calibrated else "as it is"
        but = "and" if selection.increase > 0.0 else "but"
        warn_caller(
            f"within {self.budget} no ensemble is sure to stay within the {self.tolerance:.1%} you "
            f"accept: the best one's {score} is expected to be {changed(selection.increase)} than "
            f"that of the whole ensemble, {whole}, {but} may be up to {selection.bound:.1%} higher "
            "(95% confidence). Allow more, or raise tolerance.",
            RegretWarning,
        )

    def _refitted_weights(self, point: PathPoint) -> tuple[PathPoint, str | None]:
        """Weights refitted on the loss, remembered: the same point is often chosen again."""
        if self._last is None or self._last[0] is not point:
            self._last = point, _refit(self.evidence, point, self.refit_by, self.seed)
        return self._last[1]

    def _judged_path(
        self,
        disagreement: VoteDisagreement | None,
        risk: PairRisk | None,
        floor: float,
        verbose: int,
    ) -> CrossFittedPath | None:
        """None where nothing tells how members vote together, and all of them may be kept."""
        n = self.evidence.n_members
        with one_blas_thread():
            try:
                risk = risk or FullVoteRisk(self.evidence, floor=floor)
            except NoPairsError:
                if not self.budget.allows(self.whole):
                    raise
                self._why_unjudged = "no two of them have a row out of bag together"
                return None
            counted = 1.0 / float(np.sum((risk.row_weight / risk.row_weight.sum()) ** 2))
            if counted < FEWEST_ROWS and self.budget.allows(self.whole):
                self._why_unjudged = "fewer than three rows judge them"
                return None
            most = int(self.budget.max_estimators or 0)
            path = cross_fit(
                risk,
                min(n - 1, most or MOST_MEMBERS),  # all: see `choose`
                most=min(n - 1, most or MOST_EQUAL_MEMBERS),
                price=self.budget.price_for_search(self.prices),
                trees=bool(np.all(self.prices.nodes)),
                disagreement=disagreement,
                seed=self.seed,
                verbose=verbose,
            )
        if self.whole_weights is not None:
            rows = replace(path.rows, full=risk.row_risk(self.whole_weights))
            path = replace(path, rows=rows)
        return path if self.refitted is None else self.refitted.as_deployed(path)


def select_members(evidence: OOBEvidence, prices: Prices, **options: Any) -> Selection:
    """`MemberSelector`'s choice, without a calibrator.

    Parameters
    ----------
    evidence : OOBEvidence
    prices : Prices
    **options
        As `MemberSelector` has them.

    Returns
    -------
    Selection
    """
    selector = MemberSelector(evidence, prices, **options)
    selection = selector.choose()
    selector.warn_of_regret(selection)
    return selection


def _unjudged(whole: tuple[int, int, int], tolerance: float, noun: str, why: str) -> Selection:
    """The whole ensemble, where nothing tells how its members vote together."""
    n, unknown = whole[0], float("nan")
    columns = (*whole, unknown, unknown, unknown, True)
    return Selection(
        weights=np.full(n, 1.0 / n),
        expected_risk=unknown,
        standard_error=unknown,
        interval=(unknown, unknown),
        full_risk=unknown,
        increase=0.0,
        bound=0.0,
        tolerance=tolerance,
        meets_tolerance=True,
        random_members=float(n),
        refitted_on=None,
        table=PathTable(*(np.array([value]) for value in columns)),
        explanation=f"Kept all {n} {noun}, with equal weights: {why}, so nothing tells how fewer "
        "would do. Use more rows, more of them, or held-out rows (evidence='holdout').",
        uncalibrated_risk=unknown,
    )


def _facts(
    judged: CrossFittedPath, tolerance: float, choice: Choice, cost: tuple[int, int, int]
) -> Facts:
    """What is expected of one point, the optimism of its choice included."""
    full = max(judged.full_risk, SMALLEST_RISK)
    expected = float(judged.expected()[0]) + choice.optimism
    return Facts(
        expected=expected,
        standard_error=float(judged.error_of()[0]),
        increase=(expected - judged.full_risk) / full,
        bound=float(upper_bound(judged, tolerance)[0]) + choice.optimism / full,
        cost=cost,
    )


def _measured(
    refitted: RefittedMembers,
    path: CrossFittedPath,
    choice: Choice,
    tolerance: float,
    allowed: np.ndarray,
) -> tuple[Choice, float | None]:
    """Refit the chosen members; more of them where the promise is broken, fewer where they will do.

    What one size turns out to be tells how many are needed; those are refitted next, until no size
    between too few and enough is left that seems to be enough.
    """
    full, sizes = max(path.full_risk, SMALLEST_RISK), path.sizes
    following = choice.position
    enough: int | None = None
    too_few = 0
    for _ in range(MOST_REFITS):
        assert following is not None
        position, point = following, path.points[following]
        measured = refitted.measure(point)
        facts = _facts(path.only(point, measured), tolerance, choice, (0, 0, 0))
        kept = facts.bound <= tolerance
        if measured is None or not choice.meets_tolerance:
            return replace(choice, position=position, meets_tolerance=kept), measured
        if kept:
            enough = position
        else:
            too_few = sizes[position]
        bounds = upper_bound(path.as_measured(point, measured), tolerance) + choice.optimism / full
        between = allowed & (sizes > too_few) & (bounds <= tolerance)
        if enough is not None:
            between &= sizes < sizes[enough]
        if not between.any():
            break
        following = int(np.argmax(between))
    if enough is not None:
        position, kept = enough, True
        measured = refitted.measure(path.points[enough])  # mostly remembered
    return replace(choice, position=position, meets_tolerance=kept), measured


def _refit(
    evidence: OOBEvidence, point: PathPoint, by: RefitBy | None, seed: int
) -> tuple[PathPoint, str | None]:
    if by is None or len(point.members) < 2:
        return point, None
    again = refit(evidence.take_members(point.members), point.weights, by, seed=seed)
    if not again.helps:
        return point, None
    kept = again.weights > 0
    return PathPoint(point.members[kept], again.weights[kept]), by.loss.name


def _table(
    path: CrossFittedPath, choice: Choice, costs: list[tuple[int, int, int]], facts: Facts
) -> PathTable:
    """Every size; of the one that was kept, what is finally expected."""
    k, nodes, size = np.array(costs).T
    at = len(k) - 1 if choice.position is None else choice.position
    chosen = np.arange(len(k)) == at
    k[at], nodes[at], size[at] = facts.cost
    expected = np.append(path.expected(), path.full_risk)
    error = np.append(path.error_of(), path.full_error)
    expected[at], error[at] = facts.expected, facts.standard_error
    return PathTable(
        k=k,
        nodes=nodes,
        bytes=size,
        expected_risk=expected,
        standard_error=error,
        random_risk=np.asarray(path.random.random_k(k)),
        chosen=chosen,
    )
