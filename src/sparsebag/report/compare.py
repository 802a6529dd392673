"""Before and after on the same rows: the full ensemble, its survivors, as many random members."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparsebag.deploy.artifact import dumps
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import COLLAPSED, collapses_into_one
from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.collect import encode_target
from sparsebag.report import metrics
from sparsebag.report.compression_report import (
    COMPILED,
    PICKLED,
    RANDOM_DRAWS,
    SPEED,
    CompressionReport,
)
from sparsebag.report.coverage import Coverage
from sparsebag.report.details import (
    MOSTLY_SEEN,
    Details,
    cautions,
    seen_before,
    shown_settings,
    versions,
)
from sparsebag.report.frontier import compiled_milliseconds, measured_frontier, milliseconds
from sparsebag.report.prediction_changes import prediction_changes
from sparsebag.report.score_changes import explained, reliability, score_changes
from sparsebag.report.seen_rows import share_seen
from sparsebag.report.trusted_members import trusted_members
from sparsebag.selection.selection import Selection

MUCH_MENDED = 1.01
"""How many times its log-loss with a floor the full ensemble's own must be for a note on it."""


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves that a report tells of.

    Attributes
    ----------
    weights : ndarray of shape (N,)
    selection : Selection or None
    coverage : Coverage or None
        None in objects pickled before it was kept.
    verified_by : str or None
    params : dict
        The estimator's parameters.
    """

    weights: np.ndarray
    selection: Selection | None
    coverage: Coverage | None
    verified_by: str | None
    params: dict[str, Any]


def compare(
    full: WeightedVote,
    small: WeightedVote,
    X: Any,
    y: Any,
    deployed: CompiledEnsemble | None = None,
    fitted: Fitted | None = None,
) -> CompressionReport:
    """Score the full ensemble, the survivors and random members of the same number.

    Where the survivors' leaves were refitted or their vote calibrated, also as they were before.

    Parameters
    ----------
    full, small : WeightedVote
        Before and after.
    X, y : array-like or None
        Test rows; None: sizes only.
    deployed : CompiledEnsemble, optional
        What serves the survivors; timed in their place.
    fitted : Fitted, optional
        What the page tells beside the table.

    Returns
    -------
    CompressionReport
    """
    k, n = len(small.weights), len(full.weights)
    notes: tuple[str, ...] = ()
    size = _size(small)
    if collapses_into_one(small.pool) and small.gate is None:
        notes, size = (COLLAPSED,), {**size, "members": 1.0}
    if X is None:
        rows = {f"full ensemble ({n})": _size(full), f"sparsebag ({k})": size}
        report = CompressionReport(_with_common_columns(rows), n_rows=0, notes=notes)
        return replace(report, details=_details(full, fitted, 0, deployed=deployed))
    target = encode_target(full.pool, y)
    X = X.tocsr() if sp.issparse(X) else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows != len(target):
        raise ValueError(f"X has {n_rows} rows but y has {len(target)}.")
    coverage = None if fitted is None else fitted.coverage
    share = 0.0 if coverage is None else share_seen(coverage.seen, X)
    if share >= MOSTLY_SEEN:
        notes = (*notes, seen_before(share, n_rows))
    said_before, said_after = _says(full, X), _says(small, X)
    draws = []
    for seed in range(RANDOM_DRAWS):
        members = np.sort(np.random.default_rng(seed).choice(n, k, replace=False))
        random_k = WeightedVote(full.pool.keep(members), np.full(k, 1.0 / k), small.floor)
        draws.append(_score(_says(random_k, X), target))
    mean = {name: float(np.mean([d[name] for d in draws])) for name in draws[0]}
    rows = {
        f"full ensemble ({n})": {
            **_size(full),
            **_speed(full, X),
            **_score(said_before, target),
        },
        f"sparsebag ({k})": {
            **size,
            **_speed(small, X, deployed),
            **_score(said_after, target),
        },
    }
    notes = (*notes, *_without_floor(said_before, target, small.floor))
    plain = _as_they_were(small)
    if plain is not None:
        scores = _score(_says(plain, X), target)
        rows[f"its members as they were ({k})"] = {**_size(plain), **_speed(plain, X), **scores}
    halfway = _not_calibrated(small)
    if halfway is not None:
        scores = _score(_says(halfway, X), target)
        speed = _speed(halfway, X)
        rows[f"leaves refitted, not calibrated ({k})"] = {**_size(halfway), **speed, **scores}
    rows[f"random ({k})"] = {**_size(random_k), **_speed(random_k, X), **mean}
    report = CompressionReport(
        rows=_with_common_columns(rows),
        n_rows=n_rows,
        notes=notes,
        changes=score_changes(target, said_before, said_after),
        rows_are="training rows" if share >= MOSTLY_SEEN else "test rows",
    )
    times = rows[f"sparsebag ({k})"][SPEED], rows[f"full ensemble ({n})"][COMPILED]
    details = _details(full, fitted, n_rows, X, times, share, deployed)
    if details is None:
        return report
    is_vote = full.pool.classes is not None
    curves = tuple(reliability(target, said) for said in (said_before, said_after) if is_vote)
    changed = prediction_changes(target, said_before, said_after, full.pool.classes)
    return replace(
        report,
        details=replace(
            details,
            changed=changed,
            reliability=(curves[0], curves[1]) if is_vote else None,
            trusted=trusted_members(small, X, np.flatnonzero(details.weights)),
        ),
    )


def _details(
    full: WeightedVote,
    fitted: Fitted | None,
    n_rows: int,
    X: Any = None,
    times: tuple[float | None, float | None] = (None, None),
    share: float = 0.0,
    deployed: CompiledEnsemble | None = None,
) -> Details | None:
    if fitted is None:
        return None
    chosen = fitted.selection
    trees = all(member.is_tree for member in full.pool.members)
    return Details(
        file_bytes=_file_bytes(deployed),
        weights=fitted.weights,
        noun="trees" if trees else "members",
        selection=chosen,
        frontier=None if chosen is None else measured_frontier(chosen.table, full.pool, X, *times),
        reliability=None,
        changed=None,
        coverage=fitted.coverage,
        cautions=cautions(chosen, fitted.coverage, fitted.verified_by, n_rows, share),
        settings=shown_settings(fitted.params),
        versions=versions(),
    )


def _file_bytes(deployed: CompiledEnsemble | None) -> int | None:
    try:
        return None if deployed is None else len(dumps(deployed))
    except NotExportable:
        return None


def _as_they_were(vote: WeightedVote) -> WeightedVote | None:
    """The survivors with their own leaves, no calibrator and no gate, where they have any."""
    own_leaves = all(m.leaf_values is None for m in vote.pool.members)
    if vote.calibrator is None and vote.gate is None and own_leaves:
        return None
    members = tuple(replace(member, leaf_values=None) for member in vote.pool.members)
    pool = replace(vote.pool, members=members)
    return replace(vote, pool=pool, calibrator=None, gate=None)


def _not_calibrated(vote: WeightedVote) -> WeightedVote | None:
    """The survivors with refitted leaves alone, where a calibrator follows: who gained what."""
    own_leaves = all(m.leaf_values is None for m in vote.pool.members)
    if vote.calibrator is None or vote.gate is not None or own_leaves:
        return None
    return replace(vote, calibrator=None)


def _says(vote: WeightedVote, X: Any) -> np.ndarray:
    return vote.predict(X) if vote.pool.classes is None else vote.predict_proba(X)


def _without_floor(said: np.ndarray, target: np.ndarray, floor: float) -> tuple[str, ...]:
    """How much of the full ensemble's log-loss a floor alone would mend, where that is much."""
    if said.ndim == 1 or floor == 0.0:
        return ()
    own, floored = (
        metrics.log_loss(target, vote, labels=np.arange(said.shape[1]))
        for vote in (said, (1.0 - floor) * said + floor / said.shape[1])
    )
    if own <= MUCH_MENDED * floored:
        return ()
    return (
        f"The full ensemble gives some true classes no probability at all, and its log-loss pays "
        f"for that: with the floor that every other vote has ({floor:g}, shared out equally to all "
        f"classes) it would be {floored:.4g}, not {own:.4g}.",
    )


def _score(said: np.ndarray, target: np.ndarray) -> dict[str, float]:
    if said.ndim == 1:
        mse = np.mean((said - target) ** 2)
        return {"MSE": float(mse), "R²": float(explained(mse, np.var(target)))}
    labels = np.arange(said.shape[1])
    return {
        "log-loss": metrics.log_loss(target, said, labels=labels),
        "ECE": metrics.expected_calibration_error(target, said, labels=labels),
        "Brier": metrics.brier_score(target, said, labels=labels),
        "accuracy": float(np.mean(np.argmax(said, axis=1) == target)),
    }


def _size(vote: WeightedVote) -> dict[str, float]:
    estimators = [member.estimator for member in vote.pool.members]
    size: dict[str, float] = {"members": float(len(estimators))}
    if all(member.is_tree for member in vote.pool.members):
        size["nodes"] = float(sum(e.tree_.node_count for e in estimators))
    size[PICKLED] = len(pickle.dumps(estimators, protocol=5)) / 1000
    return size


def _with_common_columns(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Without the column of nodes where trees stand among others: there is no number for all."""
    if all("nodes" in row for row in rows.values()):
        return rows
    return {name: {c: v for c, v in row.items() if c != "nodes"} for name, row in rows.items()}


def _speed(
    vote: WeightedVote, X: Any, deployed: CompiledEnsemble | None = None
) -> dict[str, float]:
    """As it is served, and compiled: what compiling gains is not what dropping members gains."""
    served: WeightedVote | CompiledEnsemble = vote if deployed is None else deployed
    ms = milliseconds(served.predict if vote.pool.classes is None else served.predict_proba, X)
    return {SPEED: ms, COMPILED: compiled_milliseconds(vote.pool, X) if deployed is None else ms}
