"""From evidence to a choice: path, judgement, guard, and the sentence that explains it."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.full_vote_risk import FullVoteRisk, NoPairsError
from sparsebag.objective.vote_disagreement import VoteDisagreement
from sparsebag.selection.budget import Budget, Prices
from sparsebag.selection.cross_fit import CrossFittedPath, cross_fit
from sparsebag.selection.explain import Facts, explain
from sparsebag.selection.guard import SMALLEST_RISK, Choice, choose, upper_bound
from sparsebag.selection.interval import risk_interval
from sparsebag.selection.path import PathPoint
from sparsebag.selection.refit import RefitBy, refit
from sparsebag.selection.table import PathTable
from sparsebag.solvers.base import one_blas_thread

MOST_MEMBERS = 200
"""Longest path that is searched when no budget says more."""
GROWTH = 1.25
MOST_GROWTHS = 6
"""How often, and by how much, members are added where a measured risk breaks the promise."""

SPEND_BUDGET = -1.0
"""The tolerance of None: no risk falls by all of itself, so the best within the budget is kept."""


class RegretWarning(UserWarning):
    """No ensemble within the budget is sure to stay within the tolerance."""


class RefittedMembers(Protocol):
    """What selection must know of members whose leaves will be refitted before they vote."""

    def as_deployed(self, path: CrossFittedPath) -> CrossFittedPath:
        """The path with the risk of refitted members, against the whole ensemble as it was."""

    def measure(self, point: PathPoint) -> float | None:
        """Refit the point's members; the concentration found, or None where it is as expected."""


@dataclass(frozen=True)
class Selection:
    """What was kept, what it is expected to cost, and why. ``print`` it.

    Attributes
    ----------
    weights : ndarray of shape (N,)
        On the simplex; zero for members dropped.
    expected_risk, standard_error : float
        Expected Brier score (classification) or squared error (regression) on new rows, of the
        vote before it is calibrated. The optimism of having been chosen is in it.
    interval : tuple of float
        Where that risk is with 95 % confidence; see `selection.interval`. It is wider above than
        below, as risks are.
    full_risk : float
        That of the whole ensemble, as it votes itself.
    increase, bound : float
        Expected relative increase over ``full_risk``, and its upper 95 % confidence bound.
    tolerance : float
        The increase that was accepted.
    meets_tolerance : bool
        Whether the bound is within it.
    random_members : float
        How many members drawn at random would be expected to do as well; infinite where no
        number would.
    refitted_on : str or None
        The loss the weights were refitted on, where cross-fitting said it helps.
    table : PathTable
        Every size that was considered.
    explanation : str
        The choice in words.
    calibrated_risk : float or None
        Expected Brier score of the calibrated vote, as deployed: ``expected_risk`` times what
        calibration leaves of it on held-out rows. None where the vote is not calibrated.
    """

    weights: np.ndarray
    expected_risk: float
    standard_error: float
    interval: tuple[float, float]
    full_risk: float
    increase: float
    bound: float
    tolerance: float
    meets_tolerance: bool
    random_members: float
    refitted_on: str | None
    table: PathTable
    explanation: str
    calibrated_risk: float | None = None

    def __str__(self) -> str:
        return self.explanation


def select_members(
    evidence: OOBEvidence,
    prices: Prices,
    *,
    budget: Budget,
    tolerance: float,
    refit_by: RefitBy | None = None,
    refitted: RefittedMembers | None = None,
    whole_weights: np.ndarray | None = None,
    disagreement: VoteDisagreement | None = None,
    floor: float = 0.0,
    noun: str = "members",
    seed: int = 0,
    verbose: int = 0,
) -> Selection:
    """Choose the smallest ensemble no worse than the tolerance, within the budget.

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
    floor : float, default 0
        Share of the uniform class distribution in each vote, as deployed.
    noun : str
        What members are called in the explanation.
    seed : int, default 0
        Of folds and bootstrap. The result does not depend on threads.
    verbose : int, default 0
        Progress on standard error.

    Returns
    -------
    Selection
    """
    budget.check(prices)
    n, judged_at = evidence.n_members, max(tolerance, 0.0)
    whole = prices.of(np.arange(n))
    with one_blas_thread():
        try:
            risk = FullVoteRisk(evidence, floor=floor)
        except NoPairsError:
            if not budget.allows(whole):
                raise
            return _unjudged(whole, tolerance, noun)  # bags only, which vote equally
        path = cross_fit(
            risk,
            min(n - 1, int(budget.max_estimators or MOST_MEMBERS)),  # all of them: see below
            price=budget.price_for_search(prices),
            trees=bool(np.all(prices.nodes)),
            disagreement=disagreement,
            seed=seed,
            verbose=verbose,
        )
    if whole_weights is not None:
        rows = replace(path.rows, full=risk.row_risk(whole_weights))
        path = replace(path, rows=rows)
    if refitted is not None:
        path = refitted.as_deployed(path)
    costs = [prices.of(point.members) for point in path.points]
    allowed = np.array([budget.allows(cost) for cost in costs])
    choice = choose(path, tolerance, allowed, full_allowed=budget.allows(whole), seed=seed)
    measured = None
    if refitted is not None and choice.position is not None:
        choice, measured = _measured(refitted, path, choice, tolerance, allowed)
        if not choice.meets_tolerance and budget.allows(whole):
            choice = Choice(None, True, 0.0)
    if choice.position is None:
        weights = np.full(n, 1.0 / n) if whole_weights is None else whole_weights
        facts = Facts(path.full_risk, path.full_error, 0.0, 0.0, whole)
        on_loss = None
    else:
        point = path.points[choice.position]
        facts = _facts(path.only(point, measured), judged_at, choice, costs[choice.position])
        again, on_loss = _refit(evidence, point, refit_by, seed)
        judged = _facts(path.only(again), judged_at, choice, prices.of(again.members))
        if choice.meets_tolerance and judged.bound > tolerance:
            on_loss = None  # another loss gains, but the promise would be broken
        if on_loss is not None:
            point, facts = again, judged
        weights = point.spread(n)
    table = _table(path, choice, [*costs, whole], facts)
    if not choice.meets_tolerance and tolerance != SPEND_BUDGET:
        warnings.warn(
            f"no ensemble within {budget} is sure to lose at most {tolerance:.1%}; the best is "
            f"expected to change the risk by {facts.increase:+.1%} against the whole ensemble (up "
            f"to {facts.bound:+.1%}). Allow more, or raise tolerance.",
            RegretWarning,
            stacklevel=6,
        )
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
            whole,
            tolerance,
            budget,
            on_loss,
            evidence.task,
            noun,
            equal=whole_weights is None,
        ),
    )


def _unjudged(whole: tuple[int, int, int], tolerance: float, noun: str) -> Selection:
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
        explanation=f"Kept all {n} {noun}, with equal weights: no two of them have a row out of "
        "bag together, so nothing tells how fewer would do. Use more rows, more of them, or "
        "held-out rows (evidence='holdout').",
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
    """Refit the chosen members, and more of them where what is found breaks the promise."""
    position = choice.position
    for growth in range(MOST_GROWTHS + 1):
        assert position is not None
        point = path.points[position]
        measured = refitted.measure(point)
        facts = _facts(path.only(point, measured), tolerance, choice, (0, 0, 0))
        kept = facts.bound <= tolerance
        larger = np.flatnonzero(allowed & (path.sizes >= GROWTH * len(point.members)))
        if kept or not choice.meets_tolerance or not len(larger) or growth == MOST_GROWTHS:
            break
        position = int(larger[0])
    meets = choice.meets_tolerance and kept
    return replace(choice, position=position, meets_tolerance=meets), measured


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


def check_tolerance(tolerance: object, budget: Budget | None = None) -> float:
    """The tolerance as a number, or one sentence on what it must be.

    Parameters
    ----------
    tolerance : object
    budget : Budget, optional
        What a tolerance of None spends.

    Returns
    -------
    float

    Examples
    --------
    >>> check_tolerance(0.02)
    0.02
    """
    if tolerance is None:
        if budget is not None and not budget.named():
            raise ValueError(
                "tolerance=None spends a whole budget, and there is none; set max_estimators, "
                "max_nodes or max_bytes, or say what loss you accept."
            )
        return SPEND_BUDGET
    number = isinstance(tolerance, (int, float, np.integer, np.floating))
    if not number or isinstance(tolerance, bool) or not math.isfinite(tolerance) or tolerance < 0:  # type: ignore[arg-type,operator]
        raise ValueError(
            f"tolerance must be a finite number that is not negative (0.01 accepts one percent), "
            f"or None to spend the whole budget; got {tolerance!r}."
        )
    return float(tolerance)  # type: ignore[arg-type]


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
