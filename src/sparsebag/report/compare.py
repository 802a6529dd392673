"""Before and after on the same rows: the full ensemble, the small one, random members."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import COLLAPSED, collapses_into_one, compile_members
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.collect import encode_target
from sparsebag.evidence.training_rows import check_row_count, prove_training_rows
from sparsebag.judge.selection import Selection
from sparsebag.report import metrics
from sparsebag.report.compression_report import (
    COMPILED,
    FILE,
    PICKLED,
    RANDOM_DRAWS,
    SPEED,
    CompressionReport,
)
from sparsebag.report.details import TRAINING_ROWS, Details, cautions, shown_settings, versions
from sparsebag.report.prediction_changes import prediction_changes
from sparsebag.report.score_changes import explained, score_changes
from sparsebag.report.timing import milliseconds
from sparsebag.report.trusted_members import trusted_members


@dataclass(frozen=True)
class Fitted:
    """What a fit leaves that a report tells of.

    Attributes
    ----------
    weights : ndarray of shape (N,)
    selection : Selection
    verified_by : str or None
        What proved that the rows were the training rows.
    params : dict
        The estimator's parameters.
    """

    weights: np.ndarray
    selection: Selection
    verified_by: str | None
    params: dict[str, Any]


def compare(
    full: WeightedVote,
    small: WeightedVote,
    X: Any,
    y: Any,
    deployed: CompiledEnsemble,
    fitted: Fitted,
) -> CompressionReport:
    """Score the full ensemble, the small one and random members of the same number.

    Parameters
    ----------
    full, small : WeightedVote
        Before and after.
    X, y : array-like or None
        Test rows; None: sizes only.
    deployed : CompiledEnsemble
        What serves the small one.
    fitted : Fitted
        What the page tells beside the table.

    Returns
    -------
    CompressionReport
    """
    k, n = len(small.weights), len(full.weights)
    whole = compile_members(full.pool, full.weights)
    rows = {
        f"full ensemble ({n})": _size(full, whole),
        f"sparsebag ({k})": _size(small, deployed),
    }
    before, after = rows.values()
    notes: tuple[str, ...] = ()
    if collapses_into_one(small.pool) and small.gate is None:
        notes, after["members"] = (COLLAPSED,), 1.0
    unverified = fitted.params.get("evidence") == "oob" and fitted.verified_by is None
    details = Details(
        selection=fitted.selection,
        cautions=cautions(fitted.selection, is_unverified=unverified, n_test_rows=0),
        settings=shown_settings(fitted.params),
        versions=versions(),
    )
    if X is None:
        return CompressionReport(_common_columns(rows), 0, notes, details=details)
    target = encode_target(full.pool, y)
    X = X.tocsr() if sp.issparse(X) else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows != len(target):
        raise ValueError(f"X has {n_rows} rows but y has {len(target)}.")
    trained_on = _are_training_rows(full, X, target)
    notes += (TRAINING_ROWS,) if trained_on else ()
    said_before, said_after = _says(full, X), _says(small, X)
    before |= {SPEED: _time(full, X), COMPILED: _time(whole, X)} | _score(said_before, target)
    ms = _time(deployed, X)
    after |= {SPEED: ms, COMPILED: ms} | _score(said_after, target)
    rows[f"random ({k})"] = _random_members(full, small, X, target)
    labels = None if full.pool.classes is None else np.arange(len(full.pool.classes))
    curve = partial(metrics.reliability_curve, target, labels=labels)
    told = cautions(
        fitted.selection, is_unverified=unverified, n_test_rows=n_rows, trained_on=trained_on
    )
    details = replace(
        details,
        cautions=told,
        reliability=None if labels is None else (curve(said_before), curve(said_after)),
        changed=prediction_changes(target, said_before, said_after, full.pool.classes),
        trusted=trusted_members(small, X, np.flatnonzero(fitted.weights)),
    )
    return CompressionReport(
        rows=_common_columns(rows),
        n_rows=n_rows,
        notes=notes,
        changes=score_changes(target, said_before, said_after),
        details=details,
        rows_are="training rows" if trained_on else "test rows",
    )


def _random_members(
    full: WeightedVote, small: WeightedVote, X: Any, target: np.ndarray
) -> dict[str, float]:
    """As many members, equally weighted, with the same floor: the mean of a few draws."""
    k, n = len(small.weights), len(full.weights)
    equal, scores = np.full(k, 1.0 / k), []
    for seed in range(RANDOM_DRAWS):
        members = np.sort(np.random.default_rng(seed).choice(n, k, replace=False))
        drawn = WeightedVote(full.pool.keep(members), equal, small.floor)
        scores.append(_score(_says(drawn, X), target))
    compiled = compile_members(drawn.pool, equal)
    times = {SPEED: _time(drawn, X), COMPILED: _time(compiled, X)}
    mean = {name: float(np.mean([s[name] for s in scores])) for name in scores[0]}
    return _size(drawn, compiled) | times | mean


def _are_training_rows(full: WeightedVote, X: Any, target: np.ndarray) -> bool:
    """Whether the ensemble itself proves that it was trained on exactly these rows."""
    if full.pool.in_bag is None:
        return False
    try:
        check_row_count(full.pool, len(target))
        return prove_training_rows(full.pool, full.pool.prepare(X), target) is not None
    except ValueError:
        return False


def _says(vote: WeightedVote, X: Any) -> np.ndarray:
    return vote.predict(X) if vote.pool.classes is None else vote.predict_proba(X)


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


def _size(vote: WeightedVote, compiled: CompiledEnsemble) -> dict[str, float]:
    estimators = [member.estimator for member in vote.pool.members]
    size: dict[str, float] = {"members": float(len(estimators))}
    if all(member.is_tree for member in vote.pool.members):
        size["nodes"] = float(sum(e.tree_.node_count for e in estimators))
    size[PICKLED] = len(pickle.dumps(estimators, protocol=5)) / 1000
    size[FILE] = compiled.file_bytes / 1000
    return size


def _common_columns(rows: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    """Without the column of nodes where some members are no trees."""
    if all("nodes" in row for row in rows.values()):
        return rows
    return {name: {c: v for c, v in row.items() if c != "nodes"} for name, row in rows.items()}


def _time(model: WeightedVote | CompiledEnsemble, X: Any) -> float:
    classes = model.pool.classes if isinstance(model, WeightedVote) else model.classes
    return milliseconds(model.predict if classes is None else model.predict_proba, X)
