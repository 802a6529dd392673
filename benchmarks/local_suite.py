"""``local="auto"`` on every data set of the paper and the suite, beside the same survivors' vote.

Forests with refitted leaves (the default); bags of trees with their own leaves, where weights have
more to say; and bags of unlike models (`benchmarks.local_unlike`). Half of the rows, at most 2000,
train; all others, at most 8000, only judge. The global model is what ``local=None`` returns:
the same members and weights, with the calibrator of the global vote.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import sparsebag as sb
from benchmarks.datasets import PAPER
from benchmarks.datasets.suite import SUITE
from benchmarks.environment import environment
from benchmarks.local_jobs import Row, run_jobs
from benchmarks.local_unlike import unlike_models
from benchmarks.problem import Problem
from benchmarks.results_store import OK
from benchmarks.suite_problem import make_problem

NAME = "local_suite"
KEY = ("dataset", "ensemble", "seed")
COLUMNS = (
    *KEY,
    *("status", "reason", "task", "train_rows", "test_rows", "survivors", "refined", "score"),
    *("global", "local", "difference_error", "global_ece", "local_ece"),
    *("global_accuracy", "local_accuracy", "gate", "weights", "temperature"),
    *("expected_gain", "expected_error", "expected_before", "seconds", "source"),
)
ENSEMBLES: dict[str, dict[str, Any]] = {"forest": {}, "bag": {"refine": None}, "unlike": {}}
N_TREES, KEPT, TRAIN_SHARE, MOST_TRAIN = 100, 20, 0.5, 2000
LEAST = 1e-15
"""scikit-learn's log-loss clips too; ours never get there."""


def row_losses(problem: Problem, model: Any) -> tuple[np.ndarray, Row]:
    """Each test row's loss, and scores besides."""
    y = problem.y_test
    if problem.task == "regression":
        return (model.predict(problem.X_test) - y) ** 2, {}
    proba = model.predict_proba(problem.X_test)
    labels = np.arange(problem.n_classes)
    return -np.log(np.maximum(proba[np.arange(len(y)), y], LEAST)), {
        "accuracy": float(np.mean(proba.argmax(axis=1) == y)),
        "ece": sb.metrics.expected_calibration_error(y, proba, labels=labels),
    }


def rows_of(job: Row, data_dir: Any) -> list[Row]:
    unlike = job["ensemble"] == "unlike"
    kind, n_trees = ("forest", 1) if unlike else (job["ensemble"], N_TREES)
    problem = make_problem(
        *(job["dataset"], kind, n_trees, job["seed"], data_dir),
        train_share=TRAIN_SHARE,
        most_train=MOST_TRAIN,
    )
    ensemble, options = problem.ensemble, ENSEMBLES[job["ensemble"]]
    if unlike:
        ensemble, samples = unlike_models(problem)
        options = {**options, "estimators_samples": samples}
    options = {**options, "max_estimators": KEPT, "tolerance": None}
    start = time.process_time()
    small = sb.compress(ensemble, problem.X, problem.y, local="auto", **options)
    seconds = time.process_time() - start
    found = small.local_
    after, scores = row_losses(problem, small.compile())
    before, beside = after, scores
    if found.used:
        usual = sb.compress(ensemble, problem.X, problem.y, **options)
        before, beside = row_losses(problem, usual.compile())
    gains = [gain for gain in (found.weights, found.temperature) if gain is not None]
    return [
        {
            **job,
            **{"status": OK, "task": problem.task, "survivors": small.n_active_},
            **{"train_rows": len(problem.y), "test_rows": len(problem.y_test)},
            "refined": int(small.refinement_.used),
            "score": "mse" if problem.task == "regression" else "log_loss",
            **{"global": float(before.mean()), "local": float(after.mean())},
            "difference_error": float((after - before).std() / np.sqrt(len(after))),
            **{f"global_{name}": value for name, value in beside.items()},
            **{f"local_{name}": value for name, value in scores.items()},
            "gate": "" if found.gate is None else found.gate.kind,
            "weights": int(found.weights is not None),
            "temperature": int(found.temperature is not None),
            "expected_gain": sum(gain.gain for gain in gains),
            "expected_error": max((gain.gain_error for gain in gains), default=0.0),
            "expected_before": gains[0].loss_before if gains else None,
            "seconds": seconds,
            "source": environment()["source"],
        }
    ]


def run(args: argparse.Namespace) -> None:
    names = [name for name in {**PAPER, **SUITE} if not args.data or name in args.data]
    jobs = [
        {"dataset": name, "ensemble": ensemble, "seed": seed}
        for ensemble in ENSEMBLES
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for name in names
    ]
    run_jobs(NAME, COLUMNS, KEY, jobs, lambda job: rows_of(job, args.data_dir), args.shard)
