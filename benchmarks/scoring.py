"""The one scoring function: test scores, size and latency of what any method returns."""

import time
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score
from threadpoolctl import threadpool_limits

from benchmarks.methods import Model
from benchmarks.problem import Problem
from sparsebag import metrics

TIMED_ROWS = 1000
TIMED_REPEATS = 7
FEWEST_REPEATS = 3
ENOUGH_SECONDS = 1.0  # slow models are not timed more than `FEWEST_REPEATS` times after this
ECE_BINS = 15


def score(models: Sequence[Model], problem: Problem, full: Model | None = None) -> dict[str, float]:
    """Scores on the test rows, the mean over models where a method returns several.

    Latency is that of the first model. Latencies of rows timed minutes apart on a busy machine do
    not compare; ``speedup`` does: the full ensemble ``full`` is timed in turn with the model.
    """
    each = [figures_on_test_rows(model, problem) | model.size for model in models]
    mean = {name: float(np.mean([scores[name] for scores in each])) for name in each[0]}
    seconds = _seconds([models[0]] if full is None else [models[0], full], problem.X_test)
    figures = {**mean, "latency_ms_per_1k": 1e3 * float(np.median(seconds[:, 0]))}
    if full is not None:
        figures["speedup"] = float(np.median(seconds[:, 1] / seconds[:, 0]))
    return figures


def figures_on_test_rows(model: Model, problem: Problem) -> dict[str, float]:
    """Accuracy, losses and calibration, or squared error and R²."""
    y, predicted = problem.y_test, model.predict(problem.X_test)
    if problem.task == "regression":
        return {"mse": float(mean_squared_error(y, predicted)), "r2": float(r2_score(y, predicted))}
    labels = np.arange(problem.n_classes)
    proba = np.clip(predicted, 0.0, 1.0)  # rounding: scikit-learn refuses 1 + 2e-16
    return {
        "accuracy": float(accuracy_score(y, proba.argmax(axis=1))),
        # scikit-learn's clip (2.2e-16): what the paper's figures are scored with.
        "log_loss": float(log_loss(y, proba, labels=labels)),
        "brier": metrics.brier_score(y, proba, labels=labels),
        "ece": metrics.expected_calibration_error(y, proba, n_bins=ECE_BINS, labels=labels),
        "paper_ece": metrics.paper_ece(y, proba, labels=labels),
        "mean_confidence": float(proba.max(axis=1).mean()),
    }


def _seconds(models: Sequence[Model], X: np.ndarray) -> np.ndarray:
    """Seconds for a thousand rows (repeats, models), after one round that is not counted.

    The models take turns on one thread, so that what else the machine does falls on all of them.
    """
    block = X[np.resize(np.arange(len(X)), TIMED_ROWS)]
    rounds: list[list[float]] = []
    with threadpool_limits(1):
        for model in models:
            model.predict(block)
        while len(rounds) < TIMED_REPEATS:
            if len(rounds) >= FEWEST_REPEATS and np.sum(rounds) > ENOUGH_SECONDS:
                break
            rounds.append([])
            for model in models:
                start = time.perf_counter()
                model.predict(block)
                rounds[-1].append(time.perf_counter() - start)
    return np.array(rounds)
