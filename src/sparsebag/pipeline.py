"""The walk from a fitted ensemble to a small model: read, teach or weigh, judge, compile."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import LEAST_FLOOR, finished_votes
from sparsebag.calibration.fit import Calibration, fit_calibration
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import collapses_into_one, compile_members
from sparsebag.deploy.rows import as_numbers
from sparsebag.evidence.collect import (
    GivenRows,
    check_weights_are_given,
    collect_evidence,
    evenly_out_of_bag,
    read_training_rows,
    row_weights,
)
from sparsebag.evidence.evidence import OOBEvidence, warn_uncovered
from sparsebag.evidence.members import MemberPool
from sparsebag.fit_weights import solve_weights
from sparsebag.judge.choose import SHARES, Judged, choose_size, judge_rehearsal, margin
from sparsebag.judge.curve import SAME_SIZE, RiskCurve
from sparsebag.judge.out_of_bag import calibrate_members, judge_members
from sparsebag.judge.rehearsal import TrainingRows, rehearse
from sparsebag.judge.selection import Selection, Size
from sparsebag.local.fit import Localisation, fit_gate
from sparsebag.progress import Progress
from sparsebag.settings import Settings
from sparsebag.solvers.base import Solution
from sparsebag.student.student import Student, are_scores, students
from sparsebag.student.teacher import Lesson, Recipe, Teacher, recipes_for

SHARE_WITHOUT_REHEARSAL = 0.1
"""Of the nodes, where neither a rehearsal nor a budget says how many are needed."""
BYTES_TRIES = 6
"""Students made, at most, until one's file fits into the budget."""
BYTES_A_NODE, BYTES_A_VALUE = 1.5, 0.5
"""Of a file; a first guess."""
LEAST_BYTES_A_NODE = 0.5
"""Of any ensemble's file: a model of fewer bytes is smaller, whatever the whole's file has."""
BEYOND_NOISE = 2.0
"""Standard errors by which weights must beat the ensemble's own where they save nothing."""
PICKLED = 10
"""Trees that tell how large a pickle of all is."""
SURE = 0.95
"""Confidence of the choice where one class is rarely out of bag."""


@dataclass(frozen=True)
class Compressed:
    """A small model, and how it came about.

    Attributes
    ----------
    pool : MemberPool
        The kept members, as they vote.
    weights : ndarray of shape (N,)
        Of all members of the ensemble, on the simplex, with exact zeros.
    compiled : CompiledEnsemble
    selection : Selection
    calibration : Calibration or None
        None where nothing is calibrated.
    recipe : Recipe or None
        How the leaves were taught; None where they are the ensemble's own.
    solution : Solution or None
        Of the penalised objective, where ``lam`` is a number.
    verified_by : str or None
        What proved that these are the training rows.
    local : Localisation or None
        Whether and how weights depend on the row; None where that was not asked for.
    """

    pool: MemberPool
    weights: np.ndarray
    compiled: CompiledEnsemble
    selection: Selection
    calibration: Calibration | None
    recipe: Recipe | None = None
    solution: Solution | None = None
    verified_by: str | None = None
    local: Localisation | None = None


def compress_pool(
    pool: MemberPool,
    X: Any,
    y: Any,
    settings: Settings,
    sample_weight: Any = None,
    *,
    verify: bool = True,
    solution: Solution | None = None,
) -> Compressed:
    """Compress the members of an ensemble.

    Trees are pruned and taught by the whole ensemble. Other members, and trees that ``lam``,
    ``refine`` or ``local`` asks to leave as they are, get weights.

    Parameters
    ----------
    pool : MemberPool
    X, y : array-like
        Training rows of the ensemble, or held-out ones.
    settings : Settings
    sample_weight : array-like of shape (M,), optional
    verify : bool, default True
        Prove that X and y are the training rows, in order.
    solution : Solution, optional
        Penalised weights that were fitted elsewhere, on more rows than these.

    Returns
    -------
    Compressed
    """
    progress = Progress(settings.listener)
    progress.say("reading the ensemble and its rows")
    if sample_weight is None and settings.source == "oob":
        check_weights_are_given(pool, y)
    settings = _in_bytes(pool, settings)
    if settings.lam is None and settings.local is None and _can_be_taught(pool, settings):
        given = read_training_rows(
            pool, X, y, source=settings.source, sample_weight=sample_weight, verify=verify
        )
        return _checked(_teach(pool, given, settings, progress), settings)
    evidence = collect_evidence(
        pool,
        X,
        y,
        source=settings.source,
        sample_weight=sample_weight,
        class_votes=settings.class_votes,
        dtype=settings.evidence_dtype,
        n_jobs=settings.n_jobs,
        verify=verify,
    )
    return _checked(_weigh(pool, X, evidence, settings, progress, solution), settings)


def _can_be_taught(pool: MemberPool, settings: Settings) -> bool:
    is_tree = all(member.is_tree for member in pool.members) and pool.own_weights is None
    known = settings.source == "holdout" or pool.can_be_refitted or settings.rehearsal is False
    return settings.refine is not None and is_tree and known


# -- trees: a student --------------------------------------------------------------------------


def _teach(
    pool: MemberPool, given: GivenRows, settings: Settings, progress: Progress
) -> Compressed:
    rows = _weighted_rows(pool, given, settings)
    limit = _limit(pool, settings)
    judged = None
    if settings.rehearsal is not False:
        # The same sizes whatever the budget, so that all budgets are judged by one curve.
        near = (1.0 - SAME_SIZE) * SHARES[-1] < limit.share < (1.0 + SAME_SIZE) * SHARES[0]
        sizes = SHARES if near or limit.whole_fits else np.append(SHARES, limit.share)
        made = rehearse(
            pool,
            rows,
            np.sort(sizes)[::-1],
            folds=None if settings.rehearsal == "auto" else int(settings.rehearsal),
            most_trees=limit.trees,
            scores=isinstance(settings.calibration, str),
            n_jobs=settings.n_jobs,
            n_threads=settings.n_threads,
            progress=progress,
        )
        judged = judge_rehearsal(made, settings.calibration, settings.floor, len(pool.members))
        if pool.is_calibrated:
            judged = replace(judged, curve=judged.curve.against_calibrated())
        judged = replace(judged, curve=_said_weighted(judged.curve, rows.weight, given))
    share = _choose(judged, limit, settings)
    if judged is not None and share == 1.0:
        return _whole(pool, settings, judged, given.verified_by)
    progress.say("pruning and refitting")
    knows_bags = not rows.held_out
    given_to = (pool, rows.X, rows.target, rows.weight)
    teacher = Teacher(*given_to, knows_bags=knows_bags, n_threads=settings.n_threads)
    if judged is None:
        recipes = recipes_for(pool, rows.target, rows.weight, knows_bags=knows_bags)
        recipe, calibration = recipes[len(recipes) // 2], None
        if settings.calibration is not None and teacher.oob_vote is not None:
            # The ensemble's own out-of-bag votes stand for the small model's.
            proba = finished_votes(teacher.oob_vote, max(settings.floor, LEAST_FLOOR))
            labels = rows.target.argmax(axis=1)
            calibration = fit_calibration(settings.calibration, proba, labels, rows.weight)
        rehearsed = share
    else:
        recipe, calibration, rehearsed = judged.nearest(share)
    is_free = judged is not None and settings.tolerance is not None and limit.whole_fits
    can_read = calibration is not None and isinstance(settings.calibration, str)
    student, kept, calibration = _student(
        teacher.lesson(recipe),
        np.append(SHARES[share < SHARES], share),
        limit.trees,
        pool,
        settings,
        calibration,
        scores=can_read and are_scores(rehearsed, len(pool.members)),
        never_larger=not is_free,
    )
    curve, position = None, 0
    if judged is not None:
        made_share = student.n_nodes / sum(_nodes(member) for member in pool.members)
        # Far below, by more than a split, only where the file had to be smaller.
        is_as_planned = student.n_nodes + 2 >= 0.9 * student.n_nodes * share / made_share
        curve, position = judged.curve.at(share if is_as_planned else made_share)
    weights = np.zeros(len(pool.members))
    weights[teacher.trees[student.trees]] = 1.0 / len(student.trees)
    found = _finished(
        pool,
        kept,
        weights,
        settings,
        curve=curve,
        position=position,
        done=f"pruned, leaves refitted to the vote of {_some(len(teacher.trees), pool)} trees",
        calibration=calibration,
        recipe=recipe,
        verified_by=given.verified_by,
    )
    if judged is not None and is_free and _is_larger(found.selection.after.nbytes, pool, settings):
        why = "not pruned: the pruned model's file would be larger"
        return _whole(pool, settings, judged, given.verified_by, why)
    return found


def _weighted_rows(pool: MemberPool, given: GivenRows, settings: Settings) -> TrainingRows:
    held_out = settings.source == "holdout"
    weight = row_weights(pool, given.target, given.sample_weight, held_out=held_out)
    target = given.target[:, None].astype(np.float64)
    if pool.classes is not None:
        target = np.asarray(given.target[:, None] == np.arange(len(pool.classes)), dtype=float)
    X = given.X.to_numpy(np.float32) if hasattr(given.X, "iloc") else given.X
    return TrainingRows(X, target, weight, given.sample_weight, held_out)


def _student(
    lesson: Lesson,
    share: np.ndarray,
    most_trees: int | None,
    pool: MemberPool,
    settings: Settings,
    calibration: Calibration | None,
    *,
    scores: bool,
    never_larger: bool,
) -> tuple[Student, MemberPool, Calibration | None]:
    """The student of the last share, made smaller until its file fits into the budget.

    Where it is ``never_larger``, the whole ensemble's file is a budget too.
    Its trees as members, and the calibration that reads their votes.
    """
    allowed = share * sum(_nodes(member) for member in pool.members)
    most_bytes = settings.budget.max_bytes

    def made(allowed: np.ndarray) -> tuple[Student, MemberPool, Calibration | None]:
        *_, student = students(lesson, allowed, most_trees)
        student = student.polished(lesson, max(1, int(allowed[-1])))
        student = student.scored(lesson) if scores else student
        kept = replace(pool.keep(np.arange(0)), members=student.members(pool, lesson))
        if calibration is None or student.scale is None:
            return student, kept, calibration
        found = calibration.calibrator
        known = found if isinstance(found, Temperature) else Temperature(1.0, settings.floor)
        return student, kept, replace(calibration, calibrator=replace(known, scale=student.scale))

    def nbytes(kept: MemberPool, calibration: Calibration | None) -> int:
        calibrator = None if calibration is None else _storable(calibration.calibrator)
        equal = np.full(len(kept.members), 1.0 / len(kept.members))
        compiled = compile_members(kept, equal, _floor(settings, calibrator), calibrator)
        return _named(compiled, pool).file_bytes

    found = made(allowed)
    if most_bytes is None and never_larger and _is_larger(nbytes(*found[1:]), pool, settings):
        most_bytes = _uniform_bytes(pool, settings)
    if most_bytes is None:
        return found
    one_leaf = made(np.append(allowed, 1.0))
    least = nbytes(*one_leaf[1:])
    for _ in range(BYTES_TRIES):
        mine = nbytes(*found[1:])
        if mine <= most_bytes:
            return found
        if most_bytes <= least:
            break
        fewer = 0.95 * found[0].n_nodes * (most_bytes - least) / (mine - least)
        found = made(np.append(allowed[allowed > fewer], fewer))
    return one_leaf


@dataclass(frozen=True)
class _Limit:
    """The most that a budget allows: a share of the nodes, 1 for the whole ensemble, and trees."""

    share: float
    trees: int | None

    @property
    def whole_fits(self) -> bool:
        return self.share >= 1.0


def _limit(pool: MemberPool, settings: Settings) -> _Limit:
    n_trees = len(pool.members)
    nodes = sum(_nodes(member) for member in pool.members)
    budget, most = settings.budget, 1.0
    most_nodes, most_trees = budget.most_nodes(nodes), budget.most_members(n_trees)
    if most_nodes is not None:
        most = min(most, most_nodes / nodes)
    if most_trees is not None:
        most = min(most, most_trees / n_trees)
    fits = budget.max_bytes is None or _uniform_bytes(pool, settings) <= budget.max_bytes
    if budget.max_bytes is not None and not fits:
        outputs = 1 if pool.classes is None else max(1, len(pool.classes) - 1)
        guess = budget.max_bytes / ((BYTES_A_NODE + BYTES_A_VALUE * outputs) * nodes)
        most = min(most, guess, SHARES[0])
    elif settings.rehearsal is False and not budget.is_named:
        most = SHARE_WITHOUT_REHEARSAL
    return _Limit(float(most), most_trees)


def _choose(judged: Judged | None, limit: _Limit, settings: Settings) -> float:
    """Share of the nodes that is kept; 1 is the whole ensemble as it is."""
    if judged is None:
        return limit.share
    curve = judged.curve
    if settings.tolerance is not None:
        wanted = curve.share[choose_size(curve, settings.tolerance, settings.confidence)]
        return float(min(wanted, limit.share))
    if not limit.whole_fits:
        return limit.share
    student, whole = curve.ratio_calibrated[-2:]
    return 1.0 if whole <= student else float(curve.share[-2])


def _whole(
    pool: MemberPool,
    settings: Settings,
    judged: Judged,
    verified_by: str | None,
    done: str = "not pruned",
) -> Compressed:
    """Every tree as it is, calibrated."""
    n = len(pool.members)
    return _finished(
        pool,
        pool.keep(np.arange(n)),
        np.full(n, 1.0 / n),
        settings,
        curve=judged.curve,
        position=len(judged.curve) - 1,
        done=done,
        calibration=judged.calibration[-1],
        verified_by=verified_by,
    )


# -- members as they are: weights --------------------------------------------------------------


def _weigh(
    pool: MemberPool,
    X: Any,
    evidence: OOBEvidence,
    settings: Settings,
    progress: Progress,
    solution: Solution | None,
) -> Compressed:
    curve: RiskCurve | None = None
    position = 0
    if settings.lam is not None:
        progress.say("fitting weights")
        solution = solution or solve_weights(evidence, settings)
        weights = np.asarray(solution.weights)
        done = f"simplex weights on the out-of-bag loss, lam={settings.lam:g}"
    else:
        if evidence.n_members < 2:
            raise ValueError("there is only one member; there is nothing to choose from.")
        progress.say("fitting and judging weights at every size")
        target, as_given = np.asarray(evidence.target), evidence
        held_out = evidence.oob_mask is None
        nodes = np.array([_nodes(member) for member in pool.members])
        weight = row_weights(pool, target, evidence.sample_weight, held_out=held_out)
        in_units = weight * _squared_units(pool, evidence)
        every = replace(evidence, sample_weight=in_units)
        evidence = evenly_out_of_bag(every)
        warn_uncovered(replace(every, sample_weight=as_given.sample_weight))
        if evidence is not every:  # few rows judge: a size must do well beyond their noise
            settings = replace(settings, confidence=settings.confidence or SURE)
        if settings.budget.max_nodes is not None and not nodes.any():
            raise ValueError(
                "max_nodes counts tree nodes, and these members are not trees; use "
                "max_estimators or max_bytes."
            )
        most, equal = settings.budget.most_members(len(nodes)), _are_alike(pool)
        path = judge_members(
            evidence, settings.floor, pool.own_weights, nodes, most=most, equal=equal
        )
        curve = replace(path.curve, whole_risk=path.curve.whole_risk * float(in_units.mean()))
        position = _choose_members(pool, path.weights, curve, settings)
        curve = _said_weighted(curve, weight, as_given)
        weights = path.weights[position]
        done = f"members selected, {'equal votes' if equal else 'simplex weights'}"
    local: Localisation | None = None
    if settings.local is not None:
        progress.say("fitting and judging weights that depend on the row")
        asked, room = "auto" if settings.local == "auto" else True, settings.budget.max_bytes
        local = fit_gate(evidence, _numbers(X), weights, local=asked, floor=settings.floor)
        if room is not None and _weighted_bytes(pool, weights, settings, local.gate) > room:
            local = replace(local, gate=None, reason="max_bytes leaves no room for a gate")
        if curve is not None and not local.used and collapses_into_one(pool):
            position = _choose_members(pool, path.weights, curve, replace(settings, local=None))
            weights = path.weights[position]
    progress.say("calibrating")
    calibration = calibrate_members(settings.calibration, evidence, weights, settings.floor)
    if curve is not None and calibration is not None:  # judged without it, and deployed with it
        gain, noise = calibration.brier_ratio, calibration.brier_error
        error = np.hypot(gain * curve.error, noise * curve.ratio)
        curve = replace(curve, ratio=gain * curve.ratio, error=error)
    return _finished(
        pool,
        pool.keep(np.flatnonzero(weights)),
        weights,
        settings,
        curve=curve,
        position=position,
        done=done,
        calibration=_regated(calibration, local),
        solution=solution,
        verified_by=evidence.verified_by,
        local=local,
    )


def _squared_units(pool: MemberPool, evidence: OOBEvidence) -> np.ndarray:
    """Of each row, a squared error in the user's units over that of the vote as it is."""
    target = np.asarray(evidence.target)
    if pool.wrapping is None or pool.classes is not None:
        return np.ones(len(target))
    mask: Any = np.ones_like(evidence.votes) if evidence.oob_mask is None else evidence.oob_mask
    heard = mask.sum(axis=1)
    vote = np.where(heard > 0, evidence.votes.sum(axis=1) / np.maximum(heard, 1), target)
    return np.asarray(pool.wrapping.fitted().slope(target, vote) ** 2)


def _said_weighted(
    curve: RiskCurve, weight: np.ndarray, given: GivenRows | OOBEvidence
) -> RiskCurve:
    """A report's scores are not weighted, and these may be."""
    if np.ptp(weight) == 0.0:
        return curve
    kind = "class-weighted" if given.sample_weight is None else "weighted"
    return replace(curve, score=f"{kind} {curve.score}", is_weighted=True)


def _are_alike(pool: MemberPool) -> bool:
    """Bagged trees on the same columns, to which weights add nothing (``make bench-members``)."""
    alike = all(member.is_tree and member.features is None for member in pool.members)
    return alike and pool.in_bag is not None


def _numbers(X: Any) -> Any:
    return X.tocsr() if hasattr(X, "tocsr") else as_numbers(X)


def _regated(calibration: Calibration | None, local: Localisation | None) -> Calibration | None:
    """A temperature for the gate's vote, which is surer or less sure than the global one."""
    if calibration is None or local is None or local.gate is None:
        return calibration
    found = calibration.calibrator
    if not isinstance(found, Temperature):
        return calibration
    changed = replace(found, temperature=found.temperature * local.temperature_ratio)
    return replace(calibration, calibrator=changed)


def _choose_members(
    pool: MemberPool, weights: tuple[np.ndarray, ...], curve: RiskCurve, settings: Settings
) -> int:
    """Position of the size that the budget or the tolerance asks for."""
    # All members together are one model, whatever the weights, unless a gate weighs them.
    if collapses_into_one(pool) and not (settings.local and settings.budget.is_named):
        pays = curve.ratio[-2] + BEYOND_NOISE * curve.error[-2] < 1.0
        return len(curve) - 1 - int(pays)
    budget = settings.budget
    most_nodes = budget.most_nodes(int(curve.n_nodes[-1]))
    fits = curve.n_members <= (budget.most_members(len(pool.members)) or np.inf)
    fits &= curve.n_nodes <= (most_nodes or np.inf)
    if budget.max_bytes is not None:
        fits &= [_weighted_bytes(pool, w, settings) <= budget.max_bytes for w in weights]
    if most_nodes is not None and curve.n_nodes[0] > most_nodes:
        raise ValueError(
            f"the smallest choice of whole trees has {curve.n_nodes[0]:,.0f} nodes, more than "
            f"max_nodes allows ({most_nodes:,}); refine='auto' prunes inside trees."
        )
    fits[0] = True
    if settings.tolerance is None:  # the best within the budget, the larger of two alike
        ratio = np.where(fits, curve.ratio, np.inf)
        return int(np.flatnonzero(ratio == ratio.min())[-1])
    wanted = choose_size(curve, settings.tolerance, settings.confidence)
    return min(wanted, int(np.flatnonzero(fits)[-1]))


# -- sizes and words ---------------------------------------------------------------------------


def _in_bytes(pool: MemberPool, settings: Settings) -> Settings:
    """``max_bytes`` counted, where it is a share of the whole ensemble's file."""
    limit: Any = settings.budget.max_bytes
    if limit is None or isinstance(limit, Integral):
        return settings
    most = settings.budget.most_bytes(_uniform_bytes(pool, settings))
    return replace(settings, budget=replace(settings.budget, max_bytes=most))


def _checked(found: Compressed, settings: Settings) -> Compressed:
    """Refused where even the smallest model's file is too large."""
    most, nbytes = settings.budget.max_bytes, found.selection.after.nbytes
    if most is not None and nbytes > most:
        raise ValueError(
            f"no file of at most {most:,} bytes can be made: the smallest has {nbytes:,}. Raise "
            "max_bytes."
        )
    return found


def _named(compiled: CompiledEnsemble, pool: MemberPool) -> CompiledEnsemble:
    """With the columns' names, which the file holds too."""
    names = getattr(pool.source, "feature_names_in_", None)
    return compiled if names is None else replace(compiled, feature_names=tuple(map(str, names)))


def _some(n: int, pool: MemberPool) -> str:
    every = len(pool.members)
    return f"{n}" if n == every else f"{n} of the {every}"


def _nodes(member: Any) -> int:
    return int(member.estimator.tree_.node_count) if member.is_tree else 0


def _weighted_bytes(pool: MemberPool, weights: Any, settings: Settings, gate: Any = None) -> int:
    """Of the file of some members, with a temperature where one will be fitted."""
    kept = np.flatnonzero(weights)
    calibrator = None if settings.calibration is None else Temperature(1.0)
    compiled = compile_members(pool.keep(kept), weights[kept], settings.floor, calibrator, gate)
    return _named(compiled, pool).file_bytes


def _is_larger(nbytes: int, pool: MemberPool, settings: Settings) -> bool:
    """Whether a file of so many bytes is larger than the whole ensemble's.

    Leaves that hold one class compress to nothing, refitted ones with many classes do not.
    """
    nodes = sum(_nodes(member) for member in pool.members)
    return nbytes >= LEAST_BYTES_A_NODE * nodes and nbytes > _uniform_bytes(pool, settings)


def _uniform_bytes(pool: MemberPool, settings: Settings) -> int:
    n = len(pool.members)
    return _weighted_bytes(pool, np.full(n, 1.0 / n), settings)


def _finished(
    pool: MemberPool,
    kept: MemberPool,
    weights: np.ndarray,
    settings: Settings,
    *,
    curve: RiskCurve | None,
    position: int,
    done: str,
    calibration: Calibration | None,
    **how: Any,
) -> Compressed:
    """Compile the kept members, weigh the file, say what was done."""
    share = weights[weights > 0.0]
    is_equal = np.ptp(share) == 0.0
    share = np.full(len(share), 1.0 / len(share)) if is_equal else share / share.sum()
    calibrator = None if calibration is None else calibration.calibrator
    gate = None if how.get("local") is None else how["local"].gate
    compiled = compile_members(kept, share, _floor(settings, calibrator), calibrator, gate)
    if calibration is not None and calibrator is not None:
        done += f"; {calibration.name}"
    nodes = sum(_nodes(member) for member in pool.members)
    before = Size(
        members=len(pool.members),
        nodes=nodes,
        nbytes=_pickled_bytes(pool, nodes),
        comparisons=_comparisons(pool),
    )
    after = Size(
        members=compiled.n_models,
        nodes=sum(_nodes(member) for member in kept.members),
        nbytes=_named(replace(compiled, calibrator=_storable(calibrator)), pool).file_bytes,
        comparisons=_comparisons(kept),
    )
    noun = "trees" if all(member.is_tree for member in pool.members) else "members"
    is_part = pool.wrapping is not None
    if curve is not None:
        curve = replace(curve, margin=margin(settings.confidence))
    selection = Selection(before, after, curve, position, settings.tolerance, done, noun, is_part)
    return Compressed(kept, weights, compiled, selection, calibration, **how)


def _pickled_bytes(pool: MemberPool, nodes: int) -> int:
    """Of the pickled trees, from some of them; 0 where there are none."""
    some = [member.estimator for member in pool.members[:PICKLED] if member.is_tree]
    of_some = sum(tree.tree_.node_count for tree in some)
    return round(len(pickle.dumps(some, protocol=5)) * nodes / of_some) if some else 0


def _storable(calibrator: Any) -> Any:
    """One that a file can hold; a temperature, which weighs as little, in place of the user's."""
    return calibrator if isinstance(calibrator, Temperature | None) else Temperature(1.0)


def _floor(settings: Settings, calibrator: Any) -> float:
    """Of the vote; scores need none."""
    return 0.0 if getattr(calibrator, "scale", 0.0) else settings.floor


def _comparisons(pool: MemberPool) -> float:
    """Mean number of splits that a training row meets in all trees together."""
    total = 0.0
    for member in pool.members:
        if member.is_tree:
            tree = member.estimator.tree_
            inner = tree.children_left >= 0
            weight = tree.weighted_n_node_samples
            total += float(weight[inner].sum() / weight[0])
    return total
