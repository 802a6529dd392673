"""From evidence to survivors: selection on what will be deployed, refitted leaves, a calibrator."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import MemberPool
from sparsebag.refine.calibrate import Calibrated, fit_calibrator
from sparsebag.refine.refinement import Refinement
from sparsebag.refine.refitted_trees import RefittedTrees, why_no_refitting
from sparsebag.refine.size_matched import (
    finished_votes,
    size_matched_evidence,
    size_matched_votes,
)
from sparsebag.refine.strength import MOST_VOTES_MATCHED
from sparsebag.selection.budget import Budget, member_prices
from sparsebag.selection.guard import SMALLEST_RISK
from sparsebag.selection.path import PathPoint
from sparsebag.selection.select import Selection
from sparsebag.settings import Settings
from sparsebag.solvers.base import Solution
from sparsebag.weighting import select_weights, solve_weights

LEAST_FLOOR = 1e-6
"""Of votes a calibrator is fitted on: it reads their logarithms."""


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
    """

    pool: MemberPool
    solution: Solution
    selection: Selection | None
    refinement: Refinement
    calibrated: Calibrated | None


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

    Returns
    -------
    Survivors
    """
    trees, refinement = _consider(evidence, pool, X, settings, budget, n_jobs)
    found = None
    if trees is not None:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = _with_refitted_leaves(trees, settings, budget, tolerance, verbose)
        if found.refinement.used:
            for warning in told:
                warnings.warn(warning.message, warning.category, stacklevel=3)
        else:  # what the attempt had to say does not count
            trees, refinement, found = None, found.refinement, None
    if found is None:
        selection, solution = _weights(evidence, pool, settings, budget, tolerance, verbose, X=X)
        active = np.flatnonzero(on_host(solution.weights))
        found = Survivors(pool.keep(active), solution, selection, refinement, None)
    calibrated = _calibrate(evidence, found.solution, trees, settings)
    selection = _told(found.selection, found.refinement, calibrated)
    return replace(found, calibrated=calibrated, selection=selection)


def _weights(
    evidence: OOBEvidence,
    pool: MemberPool,
    settings: Settings,
    budget: Budget,
    tolerance: float,
    verbose: int,
    trees: RefittedTrees | None = None,
    X: Any = None,
) -> tuple[Selection | None, Solution]:
    if settings.lam is not None:
        return None, solve_weights(evidence, settings, verbose=verbose)
    return select_weights(
        evidence if trees is None else trees.refitted_evidence(),
        pool,
        settings,
        budget=budget,
        tolerance=tolerance,
        X=X,
        refitted=trees,
        verbose=verbose,
    )


# -- refitted leaves -------------------------------------------------------------------------


def _consider(
    evidence: OOBEvidence,
    pool: MemberPool,
    X: Any,
    settings: Settings,
    budget: Budget,
    n_jobs: int | None,
) -> tuple[RefittedTrees | None, Refinement]:
    """Refitted trees, where they are wanted, possible and (for "auto") better."""
    if settings.refine is None:
        return None, Refinement(False, reason="refine is None")
    reason = why_no_refitting(pool, evidence)
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
        reason = "refitted ones are not expected to do better"
        return None, Refinement(False, reason=reason)
    return trees, Refinement(True)


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
    trees: RefittedTrees, settings: Settings, budget: Budget, tolerance: float, verbose: int
) -> Survivors:
    """Survivors with refitted leaves, or word that these do not help."""
    pool = trees.pool
    selection, solution = _weights(
        trees.evidence, pool, settings, budget, tolerance, verbose, trees
    )
    weights = on_host(solution.weights)
    active = np.flatnonzero(weights)
    kept_all = selection is not None and bool(selection.table.chosen[-1])
    if kept_all and settings.refine == "auto":
        reason = "no smaller ensemble of refitted ones is sure to keep the promise"
        return Survivors(pool, solution, selection, Refinement(False, reason=reason), None)
    point = PathPoint(active, weights[active])
    measured = trees.measure(point)
    before, after = trees.risks(point, measured)
    if after >= before and settings.refine == "auto":
        reason = "refitted ones were measured to do no better"
        return Survivors(pool, solution, selection, Refinement(False, reason=reason), None)
    refinement = Refinement(
        used=True,
        twicing=trees.strength.twicing,
        smoothing=trees.strength.lam,
        distilled=trees.distils,
        n_synthetic=trees.n_synthetic,
        risk_before=before,
        risk_after=after,
        score="squared error" if pool.classes is None else "Brier score",
        reason=trees.why_not_distilled,
    )
    return Survivors(trees.survivors(active), solution, selection, refinement, None)


def _told(
    selection: Selection | None, refinement: Refinement, calibrated: Calibrated | None
) -> Selection | None:
    """The explanation, with what was done to leaves and vote, and the calibrated vote's risk."""
    if selection is None:
        return None
    done, risk = [str(refinement)] if refinement.used else [], None
    if calibrated is not None and calibrated.calibrator is not None:
        # Votes of the deployed size stand for the survivors', so what counts is the ratio.
        kept = calibrated.brier_after / max(calibrated.brier_before, SMALLEST_RISK)
        risk = selection.expected_risk * kept
        change = risk / max(selection.full_risk, SMALLEST_RISK) - 1.0
        done += [
            f"{calibrated} With it the expected Brier score is {risk:.4g}, {change:+.1%} against "
            "the whole ensemble as it is."
        ]
    words = "\n".join([selection.explanation, *done])
    return replace(selection, explanation=words, calibrated_risk=risk)


# -- calibration -----------------------------------------------------------------------------


def _calibrate(
    evidence: OOBEvidence, solution: Solution, trees: RefittedTrees | None, settings: Settings
) -> Calibrated | None:
    """A calibrator fitted on honest votes of as many members as will be deployed."""
    if settings.calibration is None or evidence.n_classes is None:
        return None
    weights = on_host(solution.weights)
    active = weights[weights > 0]
    if trees is None:
        matched = size_matched_evidence(evidence, len(active), weights=active)
        votes, row = matched
    else:
        said = trees.honest.votes(trees.strength.twicing, trees.strength.lam)
        size = min(trees.votes_a_member * len(active), float(MOST_VOTES_MATCHED))
        votes, at = size_matched_votes(trees.targets.as_votes(said), trees.honest.mask, size)
        row = trees.honest.rows[at]
    given = evidence.sample_weight
    return fit_calibrator(
        finished_votes(votes, max(settings.floor, LEAST_FLOOR)),
        on_host(evidence.target)[row],
        row,
        kind=settings.calibration,
        sample_weight=None if given is None else on_host(given)[row],
    )
