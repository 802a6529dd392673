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
from sparsebag.deploy.deployable import Deployable
from sparsebag.deploy.from_members import COLLAPSED, collapses_into_one, compile_members
from sparsebag.deploy.rows import by_name, encoded
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.deploy.wrapped import compiled_in
from sparsebag.evidence.collect import encode_target, row_weights
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import take_rows
from sparsebag.evidence.training_rows import check_row_count, prove_training_rows
from sparsebag.evidence.wrappers import Part, Wrapping
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
    "These are the rows the ensemble was trained on: all scores are too optimistic, and so "
    "are their changes. Pass rows it has not seen."
)
CLASS_WEIGHTED = (
    "Scores are class-weighted, like the estimate: classes have the shares the ensemble was "
    "trained with. The confusion matrix and the scores of each class are not weighted."
)


def compare(part: Part, around: Wrapping, whole: Part, sample_weight: Any) -> CompressionReport:
    """Score the full ensemble and the small one.

    Parameters
    ----------
    part : Part
        The small one, an estimator or what a file holds of it, and test rows as it reads them; X
        is None: sizes only.
    around : Wrapping
        The user's rows and the steps around the ensemble, which are timed with it.
    whole : Part
        The full one; ``part``: the one that the estimator was made from.
    sample_weight : array-like or None

    Returns
    -------
    CompressionReport
    """
    small, X, y = part.model, part.X, around.y
    deployed: Any = compiled_in(small)
    is_from_file = not isinstance(small, Deployable)
    if whole is part:
        whole = Part(getattr(small, "_full", None), calibrated=getattr(small, "_calibrated", None))
    if whole.model is None:
        raise ValueError(
            "the full ensemble is not kept in files, pickles and copies; pass it as baseline= to "
            "compare."
        )
    pool = read_ensemble(whole.model)
    n, classes = len(pool.members), pool.classes
    known: Any = classes
    n_weighted = n if is_from_file else len(small.weights_)
    if n != n_weighted or not np.array_equal(known, deployed.classes):
        raise ValueError("baseline is not the ensemble that was compressed; pass that one.")
    full = WeightedVote(pool, np.full(n, 1.0 / n) if pool.own_weights is None else pool.own_weights)
    selection = getattr(small, "selection_", None)
    is_unverified = not is_from_file and small.evidence == "oob" and small.verified_by_ is None
    params = {} if is_from_file else small.get_params(deep=False)
    compiled = compile_members(pool, full.weights)
    before, after = _sizes(full, compiled, deployed)
    rows = {"full ensemble": before, "sparsebag": after}
    is_part = bool(around.layers) or (selection is not None and selection.is_part)
    what = "Sizes are" if around.layers else "Sizes and times are"
    notes: tuple[str, ...] = (
        (f"{what} of the ensemble alone, without the steps around it.",) if is_part else ()
    )
    is_collapsed = collapses_into_one(pool) and deployed.gate is None
    notes += (COLLAPSED,) if is_collapsed else ()
    report = partial(
        CompressionReport,
        selection=selection,
        is_part=is_part,
        is_collapsed=is_collapsed,
        settings={name: _shown(value) for name, value in params.items()},
        versions=_versions(),
    )
    if X is None:
        told = _cautions(selection, is_unverified, 0)
        return report(rows, 0, notes, cautions=told)
    names, target = deployed.feature_names, encode_target(pool, y)
    X = encoded(by_name(X, names), deployed.categories, names)
    X = X if is_from_file else small._check_X(X)
    X = X.tocsr() if sp.issparse(X) else X
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    if n_rows != len(target):
        raise ValueError(f"X has {n_rows} rows but y has {len(target)}.")
    trained_on = _are_training_rows(full, X, target)
    back, predict = around.fitted().back, "predict" if classes is None else "predict_proba"

    def said(model: Any, rows: Any) -> np.ndarray:
        return back(np.asarray(getattr(model, predict)(rows)))

    rows_timed = around.X if any(axis == "X" for axis, _ in around.layers) else X
    block = take_rows(rows_timed, np.resize(np.arange(n_rows), 1000))

    def milliseconds(model: Any) -> float:
        """For a thousand rows, one thread: the best of five calls.

        By the clock: the processor's time is counted in steps that short calls fall between.
        """
        predict = partial(said, model)  # the first call pays for imports, caches and threads
        took = timeit.repeat(lambda: predict(around.transformed(block)), number=1, repeat=6)
        return 1e3 * min(took[1:])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows without names
        old, new = said(_spokesman(whole, full), X), said(deployed, X)
        before |= {SPEED: milliseconds(full), COMPILED: milliseconds(compiled)}
        ms = milliseconds(deployed)
    weight = _weights(full, target, sample_weight, selection)
    kind = ("class-weighted" if sample_weight is None else "weighted") * bool(np.ptp(weight))
    notes += (CLASS_WEIGHTED,) if kind and sample_weight is None else ()
    before |= scores(target, old, weight)
    after |= {SPEED: ms, COMPILED: ms, **scores(target, new, weight)}
    labels = None if classes is None else np.arange(len(classes))
    curve = partial(metrics.reliability_curve, target, labels=labels, sample_weight=weight)
    return report(
        rows,
        n_rows,
        notes,
        score_changes(target, old, new, weight),
        weighted=kind,
        on_training_rows=trained_on,
        cautions=_cautions(selection, is_unverified, n_rows, trained_on),
        reliability=None if labels is None else (curve(old), curve(new)),
        changed=prediction_changes(target, old, new, classes),
    )


def _weights(full: WeightedVote, target: np.ndarray, given: Any, selection: Any) -> np.ndarray:
    """Row weights of mean one, as the estimate has them."""
    ones = np.ones(len(target))
    weight = ones if given is None else np.asarray(check_sample_weight(given, target))
    if getattr(getattr(selection, "curve", None), "is_weighted", False):
        weight = row_weights(full.pool, target, weight, held_out=True)
    return np.asarray(weight / weight.mean())


def _are_training_rows(full: WeightedVote, X: Any, target: np.ndarray) -> bool:
    """Whether the ensemble itself proves that it was trained on exactly these rows."""
    if full.pool.in_bag is None:
        return False
    try:
        check_row_count(full.pool, len(target))
        return prove_training_rows(full.pool, full.pool.prepare(X), target) is not None
    except ValueError:
        return False


def _spokesman(whole: Part, full: WeightedVote) -> Any:
    """What predicts as the user's model does: a calibrated one, or a forest that adds up scores."""
    own = None if full.pool.leaves_are_shares else full.pool.source
    return whole.calibrated or (own if hasattr(own, "predict_proba") else full)


def _sizes(
    full: WeightedVote, whole: CompiledEnsemble, deployed: Any
) -> tuple[dict[str, float], dict[str, float]]:
    estimators = [member.estimator for member in full.pool.members]
    before, after = {"members": float(len(estimators))}, {"members": float(deployed.n_models)}
    if all(member.is_tree for member in full.pool.members):
        before["nodes"] = float(sum(e.tree_.node_count for e in estimators))
        # Binary trees: as many leaves as inner nodes, and one more.
        after["nodes"] = float(sum(2 * len(g.feature) + g.n_members for g in deployed.groups))
    for size, model, compiled in ((before, estimators, whole), (after, deployed, deployed)):
        size[PICKLED] = len(pickle.dumps(model, protocol=5)) / 1000
        size[FILE] = compiled.file_bytes / 1000
    return before, after


def _cautions(
    selection: Any, is_unverified: bool, n_test_rows: int, trained_on: bool = False
) -> tuple[str, ...]:
    """What a reader must know before believing the figures."""
    found = []
    curve: Any = getattr(selection, "curve", None)
    tolerance = getattr(selection, "tolerance", None)
    ratio = 1.0 if curve is None else float(curve.ratio_calibrated[selection.position])
    if tolerance is not None and ratio > 1.0 + tolerance:
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
