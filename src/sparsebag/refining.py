"""From evidence to survivors: selection on what will be deployed, refitted leaves, a calibrator."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.calibrating import VoteCalibration, choose_calibrated
from sparsebag.deploy.from_members import collapses_into_one
from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller, warnings_held_back
from sparsebag.evidence.evidence import OOBEvidence, lost_class
from sparsebag.evidence.members import MemberPool
from sparsebag.gate_within_budget import gate_of_survivors
from sparsebag.objective.full_vote_risk import PairRisk
from sparsebag.refine.calibrated import Calibrated
from sparsebag.refine.localisation import Localisation
from sparsebag.refine.refinement import Refinement
from sparsebag.refine.refitted_trees import RefittedTrees, why_no_refitting
from sparsebag.selection.budget import Budget, member_prices
from sparsebag.selection.path import PathPoint
from sparsebag.selection.selection import Selection
from sparsebag.selection.tolerance import SPEND_BUDGET
from sparsebag.settings import Settings
from sparsebag.solvers.base import Solution
from sparsebag.telling import NOT_ASKED, of_other_classes, with_all_told
from sparsebag.weighting import chosen_weights, member_selector, solve_weights

GLOBAL = Localisation(reason="local is None")
FOR_FIXED_WEIGHTS = (
    "they would be fitted together for fixed weights, and local={!r} asks for others"
)
ONE_IS_BETTER = (
    "all members together are one linear regressor, which the budget allows, and the few that a "
    "gate could weigh were not better"
)
NOT_SURE = "no smaller ensemble with refitted leaves is sure to stay within the tolerance"


@dataclass(frozen=True)
class Survivors:
    """What is left of an ensemble, and how it came about.

    Attributes
    ----------
    pool : MemberPool
        The survivors, with refitted leaves where these help.
    solution : Solution
        Their weights among all members.
    selection : Selection or None
        None where a penalty chose them.
    refinement : Refinement
    calibrated : Calibrated or None
        None where calibration was not asked for.
    local : Localisation
        Whether the weights depend on the row.
    """

    pool: MemberPool
    solution: Solution
    selection: Selection | None
    refinement: Refinement
    calibrated: Calibrated | None
    local: Localisation = GLOBAL


def find_survivors(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    *,
    budget: Budget,
    tolerance: float,
    n_jobs: int | None = None,
    verbose: int = 0,
    solution: Solution | None = None,
    risk: PairRisk | None = None,
) -> Survivors:
    """Choose members as they will be deployed, refit their leaves, calibrate their vote.

    Parameters
    ----------
    evidence : OOBEvidence
    pool : MemberPool
    X : array-like
        The rows of the evidence.
    settings : Settings
    budget : Budget
    tolerance : float
    n_jobs : int, optional
    verbose : int, default 0
    solution : Solution, optional
        Weights that were fitted elsewhere, on more rows than these.
    risk : PairRisk, optional
        Pairs of members compared elsewhere, on more rows than these.

    Returns
    -------
    Survivors
    """
    if settings.local is None and tolerance != SPEND_BUDGET:  # a gate is paid for, too
        prices = member_prices(pool)
        budget.check(prices)
        whole = prices.of(np.arange(len(pool.members)))
        budget = Budget() if budget.allows(whole) else budget  # one that binds nothing is none
    how: dict[str, Any] = {"budget": budget, "tolerance": tolerance, "n_jobs": n_jobs}
    how |= {"verbose": verbose, "solution": solution, "risk": risk}
    one = collapses_into_one(pool)
    if one and settings.local is not None:
        found = _lines_or_one(evidence, pool, X, settings, **how)
    else:
        found = _with_gate_paid_for(evidence, pool, X, settings, one=one, **how)
    if settings.local not in (None, "auto") and found.local.weights is None:
        alone = "One member has all the weight. " * found.local.used
        warn_caller(f"local={settings.local!r} was asked for. {alone}{found.local}")
    return found


def _lines_or_one(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    *,
    budget: Budget,
    **how: Any,
) -> Survivors:
    """Linear regressors: several of them with a gate, or all of them, as one, without."""
    how["budget"] = budget
    if budget.allows(member_prices(pool).of(np.arange(len(pool.members)))):
        found = _find(evidence, pool, X, settings, one=True, **how)
        if found.local.dropped is None:
            return found
    # Under a gate linear regressors are many models: the budget is for them.
    with warnings_held_back() as told:
        found = _with_gate_paid_for(evidence, pool, X, settings, one=False, **how)
    if settings.local == "auto" or not found.local.used:
        whole = _find(evidence, pool, X, replace(settings, local=None), one=True, **how)
        if not found.local.used:  # what the attempt had to say of its members does not count
            return replace(whole, local=found.local)
        # Without a gate all of them are deployed, as one model: that is what it must beat.
        gain, alone = found.local.weights, whole.selection
        if gain is None or alone is None or gain.loss_after >= alone.expected_risk:
            return replace(whole, local=Localisation(reason=ONE_IS_BETTER))
    for warning in told:
        warn_caller(str(warning.message), warning.category)
    return found


# -- a gate within max_bytes -----------------------------------------------------------------


def _with_gate_paid_for(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    *,
    budget: Budget,
    **how: Any,
) -> Survivors:
    """Survivors; where they and their gate are too large together, fewer of them with a gate.

    For "auto" only if these are expected to do better than the more of them without one.
    """
    with warnings_held_back() as told:
        found = _find(evidence, pool, X, settings, budget=budget, **how)
    if found.local.dropped is not None:
        with warnings_held_back() as of_fewer:
            fewer = _fewer_with_a_gate(evidence, pool, X, settings, found, budget, how)
        if fewer is not None:
            found, told = fewer, of_fewer
    for warning in told:
        warn_caller(str(warning.message), warning.category)
    return found


def _fewer_with_a_gate(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    found: Survivors,
    budget: Budget,
    how: dict[str, Any],
) -> Survivors | None:
    """As few members as leave room for a gate like the one that was dropped."""
    dropped, most = found.local.dropped, budget.max_bytes
    assert dropped is not None
    assert most is not None
    left = most - dropped.nbytes
    if left < member_prices(pool).bytes.min():
        return None
    less = replace(budget, max_bytes=left, of_gate=dropped.nbytes)
    try:
        fewer = _find(evidence, pool, X, settings, budget=less, **how)
    except ValueError:  # so few that there is nothing to weigh
        return None
    if not fewer.local.used or (settings.local == "auto" and not _is_better(fewer.local, dropped)):
        return None
    return fewer


def _is_better(gated: Localisation, dropped: Localisation) -> bool:
    """Whether fewer members with a gate beat the global weights of as many as the budget pays."""
    after, before = gated.weights or gated.temperature, dropped.weights or dropped.temperature
    return after is not None and before is not None and after.loss_after < before.loss_before


# -- the walk --------------------------------------------------------------------------------


def _find(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    *,
    budget: Budget,
    tolerance: float,
    n_jobs: int | None,
    verbose: int,
    solution: Solution | None,
    risk: PairRisk | None,
    one: bool,
) -> Survivors:
    """The survivors; ``one``: all members together are one model, whatever their number."""
    if settings.refine is not None:
        _say(verbose, "[refinement] refitted leaves judged on held-out rows")
    trees, refinement = _consider(evidence, pool, X, settings, budget, tolerance, n_jobs)
    found, calibration = None, VoteCalibration(evidence, settings, pool.own_weights, trees)
    if trees is not None:
        _say(verbose, "[refinement] members chosen as they would be with refitted leaves")
        with warnings_held_back() as told:
            found = _with_refitted_leaves(
                trees,
                calibration,
                settings,
                budget=budget,
                tolerance=tolerance,
                verbose=verbose,
                solution=solution,
            )
        if found.refinement.used:
            for warning in told:
                warn_caller(str(warning.message), warning.category)
        else:  # what the attempt had to say does not count
            refinement, found = found.refinement, None
            calibration = calibration.of_plain_members()
    if found is None:
        selection, solution = _weights(
            evidence,
            pool,
            settings,
            calibration,
            budget=budget,
            tolerance=tolerance,
            verbose=verbose,
            X=X,
            solution=solution,
            risk=risk,
            one=one,
        )
        active = np.flatnonzero(on_host(solution.weights))
        found = Survivors(pool.keep(active), solution, selection, refinement, None)
    weights = on_host(found.solution.weights)
    if calibration.is_wanted:
        _say(verbose, f"[calibration] of {len(found.pool.members)} members")
    calibrated, local = calibration.fit(weights), found.local
    if settings.local is not None:
        corrected_by = None if calibrated is None else calibrated.calibrator
        local = gate_of_survivors(
            *(settings, calibration, pool, X, weights, corrected_by),
            budget=budget,
            verbose=verbose,
        )
        calibrated = local.calibrated or calibrated
    selection = with_all_told(found.selection, found.refinement, calibrated, local, one)
    lost = lost_class(evidence)
    if selection is not None and lost is not None:
        uncalibrated = calibrated is None and settings.calibration is not None
        selection = of_other_classes(selection, lost, uncalibrated=uncalibrated)
    return replace(found, calibrated=calibrated, selection=selection, local=local)


def _weights(
    evidence: OOBEvidence,
    pool: MemberPool,
    settings: Settings,
    calibration: VoteCalibration,
    *,
    budget: Budget,
    tolerance: float,
    verbose: int,
    trees: RefittedTrees | None = None,
    X: Any = None,
    solution: Solution | None = None,
    risk: PairRisk | None = None,
    one: bool = False,
) -> tuple[Selection | None, Solution]:
    if settings.lam is not None:
        return None, solution or solve_weights(evidence, settings, verbose=verbose)
    started = time.perf_counter()
    selector = member_selector(
        evidence if trees is None else trees.refitted_evidence(),
        pool,
        settings,
        budget=budget,
        tolerance=tolerance,
        X=X,
        refitted=trees,
        risk=risk,
        whole_is_one=one,
        verbose=verbose,
    )
    selection = choose_calibrated(selector, calibration)
    selector.warn_of_regret(selection)
    return selection, chosen_weights(selection, evidence, time.perf_counter() - started)


# -- refitted leaves -------------------------------------------------------------------------


def _consider(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    budget: Budget,
    tolerance: float,
    n_jobs: int | None,
) -> tuple[RefittedTrees | None, Refinement]:
    """Refitted trees, where they are wanted, possible and (for "auto") better."""
    if settings.refine is None:
        return None, Refinement(False, reason=NOT_ASKED)
    reason = why_no_refitting(pool, evidence)
    if reason is None and settings.refine == "auto" and settings.local not in (None, "auto"):
        return None, Refinement(False, reason=FOR_FIXED_WEIGHTS.format(settings.local))
    if reason is not None:
        if settings.refine == "leaves":
            raise ValueError(
                f"refine='leaves' cannot refit leaves, because {reason}; use refine='auto' or None."
            )
        return None, Refinement(False, reason=reason)
    size = _affordable(budget, pool)
    trees = RefittedTrees(
        pool,
        X,
        evidence,
        members=size,
        floor=settings.floor,
        n_jobs=n_jobs,
    )
    if settings.refine == "auto" and trees.strength.score >= trees.strength.plain_score:
        reason = f"refitted ones are not expected to have a lower {_score_of_leaves(pool)}"
        return None, Refinement(False, reason=reason)
    guarded = settings.lam is None and tolerance != SPEND_BUDGET and not budget.named()
    if settings.refine == "auto" and guarded and trees.cannot_keep(tolerance):
        return None, Refinement(False, reason=NOT_SURE)
    return trees, Refinement(True)


def _score_of_leaves(pool: MemberPool) -> str:
    return "squared error" if pool.classes is None else "calibrated log-loss"


def _affordable(budget: Budget, pool: MemberPool) -> int | None:
    """About how many members the budget pays for; None without one."""
    if not budget.named():
        return None
    prices = member_prices(pool)
    most = [float(budget.max_estimators or np.inf)]
    most += [(budget.max_nodes or np.inf) / max(prices.nodes.mean(), 1.0)]
    most += [(budget.max_bytes or np.inf) / max(prices.bytes.mean(), 1.0)]
    return max(1, round(min(most)))


def _with_refitted_leaves(
    trees: RefittedTrees, calibration: VoteCalibration, settings: Settings, **options: Any
) -> Survivors:
    """Survivors with refitted leaves, or word that none of them keeps the promise."""
    pool = trees.pool
    selection, solution = _weights(
        trees.evidence, pool, settings, calibration, trees=trees, **options
    )
    weights = on_host(solution.weights)
    active = np.flatnonzero(weights)
    kept_all = selection is not None and bool(selection.table.chosen[-1])
    if kept_all:  # what was judged is the ensemble as it is, so that is what is kept
        return Survivors(pool, solution, selection, Refinement(False, reason=NOT_SURE), None)
    trees.measure(PathPoint(active, weights[active]))
    refinement = Refinement(
        used=True,
        twicing=trees.strength.twicing,
        smoothing=trees.strength.lam,
        distilled=trees.distils,
        n_synthetic=trees.n_synthetic,
        risk_before=trees.strength.plain_score,
        risk_after=trees.strength.score,
        judged_members=trees.judged_members,
        score=_score_of_leaves(pool),
        reason=trees.why_not_distilled,
        judged_rows=(len(trees.honest.rows), trees.evidence.n_rows),
    )
    return Survivors(trees.survivors(active), solution, selection, refinement, None)


def _say(verbose: int, text: str) -> None:
    if verbose:
        print(text, file=sys.stderr, flush=True)
