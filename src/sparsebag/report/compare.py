"""Before and after on the same rows: the full ensemble and the small one."""

from __future__ import annotations

import datetime
import inspect
import pickle
import platform
import timeit
import warnings
from functools import partial
from importlib import metadata
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
import sklearn

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import COLLAPSED, collapses_into_one, compile_members
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.collect import encode_target, row_weights
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import take_rows
from sparsebag.evidence.training_rows import check_row_count, prove_training_rows
from sparsebag.judge.selection import Selection
from sparsebag.report import metrics
from sparsebag.report.changes import prediction_changes, score_changes, scores
from sparsebag.report.compression_report import (
    COMPILED,
    FILE,
    PICKLED,
    SPEED,
    CompressionReport,
)

FEW_TEST_ROWS = 200
"""Below this many rows the test figures themselves are little more than luck."""
TRAINING_ROWS = (
    "These are the rows the ensemble was trained on: all scores are too optimistic, the full "
    "ensemble's most of all. Pass rows it has not seen."
)
CLASS_WEIGHTED = (
    "Scores are class-weighted, like the estimate: classes have the shares the ensemble was "
    "trained with. Row counts are not weighted."
)
ALONE = "Sizes and times are those of the ensemble alone, without the steps around it."


def compare(
    full: WeightedVote,
    small: WeightedVote,
    deployed: CompiledEnsemble,
    rows_given: tuple[Any, Any, Any],
    *,
    selection: Selection,
    params: dict[str, Any],
    is_unverified: bool,
) -> CompressionReport:
    """Score the full ensemble and the small one.

    Parameters
    ----------
    full, small : WeightedVote
        Before and after.
    deployed : CompiledEnsemble
        What serves the small one.
    rows_given : tuple of X, y and sample_weight
        Test rows; X is None: sizes only.
    selection : Selection
    params : dict
        The estimator's parameters.
    is_unverified : bool
        Whether nothing proved that the out-of-bag rows are the training rows.

    Returns
    -------
    CompressionReport
    """
    X, y, sample_weight = rows_given
    whole, classes = compile_members(full.pool, full.weights), full.pool.classes
    before, after = _size(full, whole), _size(small, deployed)
    rows = {"full ensemble": before, "sparsebag": after}
    if not before.keys() >= {"nodes"} <= after.keys():  # some members are no trees
        before.pop("nodes", None), after.pop("nodes", None)
    notes: tuple[str, ...] = (ALONE,) if selection.is_part else ()
    if collapses_into_one(small.pool) and small.gate is None:
        notes, after["members"] = (*notes, COLLAPSED), 1.0
    report = partial(
        CompressionReport,
        selection=selection,
        settings={name: _shown(value) for name, value in params.items()},
        versions=_versions(),
    )
    if X is None:
        told = _cautions(selection, is_unverified, 0)
        return report(rows, 0, notes, cautions=told)
    target = encode_target(full.pool, y)
    X = X.tocsr() if sp.issparse(X) else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows != len(target):
        raise ValueError(f"X has {n_rows} rows but y has {len(target)}.")
    trained_on = _are_training_rows(full, X, target)
    notes += (TRAINING_ROWS,) if trained_on else ()
    old, new = _says(full, X), _says(small, X)
    before |= {SPEED: _milliseconds(full, X), COMPILED: _milliseconds(whole, X)}
    weight, kind = _weights(full, target, sample_weight, selection)
    notes += (CLASS_WEIGHTED,) if kind.startswith("class") else ()
    before |= scores(target, old, weight)
    ms = _milliseconds(deployed, X)
    after |= {SPEED: ms, COMPILED: ms, **scores(target, new, weight)}
    labels = None if classes is None else np.arange(len(classes))
    # Weights that add up to as many rows of equal weight as tell as much (Kish).
    counted = weight * weight.sum() / (weight @ weight)
    curve = partial(metrics.reliability_curve, target, labels=labels, sample_weight=counted)
    return report(
        rows,
        n_rows,
        notes,
        score_changes(target, old, new, weight),
        rows_are=kind + ("training rows" if trained_on else "test rows"),
        cautions=_cautions(selection, is_unverified, n_rows, trained_on),
        reliability=None if labels is None else (curve(old), curve(new)),
        changed=prediction_changes(target, old, new, classes),
    )


def _weights(
    full: WeightedVote, target: np.ndarray, given: Any, selection: Selection
) -> tuple[np.ndarray, str]:
    """Row weights of mean one, as the estimate has them, and what to call rows that have them."""
    ones = np.ones(len(target))
    weight = ones if given is None else np.asarray(check_sample_weight(given, target))
    if selection.curve is not None and "weighted" in selection.curve.score:
        weight = row_weights(full.pool, target, weight, held_out=True)
    kind = "class-weighted " if given is None else "weighted "
    return weight / weight.mean(), kind if np.ptp(weight) > 0.0 else ""


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
    if vote.pool.classes is None:
        return vote.predict(X)
    # What a forest says that adds scores up is no mean of what its trees say.
    own = None if vote.pool.leaves_are_shares else getattr(vote.pool.source, "predict_proba", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows without names
        return vote.predict_proba(X) if own is None else np.asarray(own(X))


def _size(vote: WeightedVote, compiled: CompiledEnsemble) -> dict[str, float]:
    estimators = [member.estimator for member in vote.pool.members]
    size: dict[str, float] = {"members": float(len(estimators))}
    if all(member.is_tree for member in vote.pool.members):
        size["nodes"] = float(sum(e.tree_.node_count for e in estimators))
    size[PICKLED] = len(pickle.dumps(estimators, protocol=5)) / 1000
    size[FILE] = compiled.file_bytes / 1000
    return size


def _milliseconds(model: WeightedVote | CompiledEnsemble, X: Any) -> float:
    """Milliseconds for a thousand rows, one thread: the best of five calls.

    By the clock: the processor's time is counted in steps that short calls fall between.
    """
    classes = model.pool.classes if isinstance(model, WeightedVote) else model.classes
    predict = model.predict if classes is None else model.predict_proba
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    block = take_rows(X, np.resize(np.arange(n_rows), 1000))
    predict(block)  # the first call pays for imports, caches and threads
    return 1e3 * min(timeit.repeat(lambda: predict(block), number=1, repeat=5))


def _cautions(
    selection: Selection, is_unverified: bool, n_test_rows: int, trained_on: bool = False
) -> tuple[str, ...]:
    """What a reader must know before believing the figures."""
    found = []
    curve, tolerance = selection.curve, selection.tolerance
    ratio = 1.0 if curve is None else float(curve.ratio_calibrated[selection.position])
    if curve is not None and tolerance is not None and ratio > 1.0 + tolerance:
        found.append(
            f"The expected {curve.score} is more than {tolerance:.1%} above the full ensemble's: "
            "no model within the budget is within the tolerance."
        )
    if is_unverified:
        found.append(
            "Could not verify that compress was given the training rows, in order; fit the "
            "ensemble with oob_score=True so that sparsebag can check."
        )
    if n_test_rows == 0:
        found.append(
            "No test rows were given, so there are no scores on unseen rows: pass some to "
            "report(X_test, y_test), or --test on the command line."
        )
    elif trained_on:
        found.append(TRAINING_ROWS)
    elif n_test_rows < FEW_TEST_ROWS:
        found.append(f"There are only {n_test_rows} test rows: the figures on them are uncertain.")
    return tuple(found)


def _versions() -> dict[str, str]:
    """What made the report, and when."""
    return {
        "made": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "sparsebag": metadata.version("sparsebag"),
        "scikit-learn": sklearn.__version__,
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "Python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def _shown(value: Any) -> str:
    """A parameter in words; the ensemble by its kind only."""
    inner = getattr(value, "estimator", None)
    if inner is not None and type(value).__name__ == "FrozenEstimator":
        return f"{type(inner).__name__}, fitted beforehand"
    if value is None or isinstance(value, (str, int, float, bool)):
        return str(value)
    return "a function" if inspect.isroutine(value) else type(value).__name__
