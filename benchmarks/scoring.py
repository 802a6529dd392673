"""The one scoring function: test scores, size and latency of what any method returns."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from threadpoolctl import threadpool_limits

from benchmarks.methods.base import Model
from benchmarks.problem import Problem
from sparsebag import metrics

TIMED_ROWS = 1000
TIMED_REPEATS = 7
FEWEST_REPEATS = 3
ENOUGH_SECONDS = 1.0
"""Slow models are not timed more than `FEWEST_REPEATS` times once this much has gone by."""
THREADS = 1
"""For every model alike."""
ECE_BINS = 15


def score(models: Sequence[Model], problem: Problem) -> dict[str, float]:
    """Scores on the test rows, the mean over models where a method returns several.

    Latency is that of the first model: the others are as large.

    Parameters
    ----------
    models : sequence of Model
    problem : Problem

    Returns
    -------
    dict of str to float
        Column of the results file to figure.
    """
    each = [{**_test_scores(model, problem), **_size(model)} for model in models]
    mean = {name: float(np.mean([scores[name] for scores in each])) for name in each[0]}
    return {**mean, "latency_ms_per_1k": _latency(models[0], problem.X_test)}


def _test_scores(model: Model, problem: Problem) -> dict[str, float]:
    y = problem.y_test
    predicted = model.predict(problem.X_test)
    if problem.task == "regression":
        return {
            "mse": float(mean_squared_error(y, predicted)),
            "r2": float(r2_score(y, predicted)),
        }
    labels = np.arange(problem.n_classes)
    proba = np.clip(predicted, 0.0, 1.0)  # rounding: scikit-learn refuses 1 + 2e-16
    return {
        "accuracy": float(accuracy_score(y, proba.argmax(axis=1))),
        # scikit-learn's clip (2.2e-16): what the paper's figures are scored with.
        "log_loss": float(log_loss(y, proba, labels=labels)),
        "brier": metrics.brier_score(y, proba, labels=labels),
        "ece": metrics.expected_calibration_error(y, proba, n_bins=ECE_BINS, labels=labels),
        "paper_ece": metrics.paper_ece(y, proba, labels=labels),
    }


def _size(model: Model) -> dict[str, float]:
    return {
        "survivors": model.survivors,
        "members": model.members,
        "compression_ratio": 1.0 - model.survivors / model.members,
        "bytes": len(pickle.dumps(model.parts, protocol=5)),
    }


def _latency(model: Model, X: np.ndarray) -> float:
    """Median milliseconds for a thousand rows, after one call that is not counted."""
    rows = np.resize(np.arange(len(X)), TIMED_ROWS)
    block = X[rows]
    seconds: list[float] = []
    with threadpool_limits(THREADS):
        model.predict(block)
        while len(seconds) < TIMED_REPEATS:
            if len(seconds) >= FEWEST_REPEATS and sum(seconds) > ENOUGH_SECONDS:
                break
            start = time.perf_counter()
            model.predict(block)
            seconds.append(time.perf_counter() - start)
    return 1e3 * float(np.median(seconds))
