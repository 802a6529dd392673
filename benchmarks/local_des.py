"""Beside dynamic selection: DESlib's KNORA-E, KNORA-U and META-DES on the classification sets.

All get the same training rows, the same kind of forest, and the same at most 2000 test rows.
Dynamic selection needs rows its members have not seen: a quarter of the training rows is held out,
and its pool of 100 trees grows on the rest; "its pool" is that forest's own vote. Its neighbours
are found among standardised features (trees do not mind), all else in DESlib is at its defaults
(``voting="soft"`` changes nothing for KNORA-E and META-DES on grown trees, and KNORA-U's log-loss
for the better on two of four sets that were looked at).
sparsebag's forest grows on all rows and is judged out of bag. Probabilities of zero are common in
DESlib, and log-loss does not forgive them: ``smoothed_log_loss`` is with sparsebag's floor given to
every method, ``log_loss`` with scikit-learn's clip. sparsebag calibrates, DESlib offers nothing for
that: read log-loss and ECE with it in mind, and accuracy without. Latency is processor time of one
thread, a row of a batch of a thousand, from the same array of float64 for every method.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data

import sparsebag as sb
from benchmarks.datasets import PAPER
from benchmarks.datasets.suite import SUITE
from benchmarks.environment import environment
from benchmarks.local_jobs import Row, run_jobs
from benchmarks.local_suite import KEPT, MOST_TRAIN, N_TREES, TRAIN_SHARE
from benchmarks.problem import Problem
from benchmarks.results_store import OK
from benchmarks.suite_problem import make_problem
from sparsebag.settings import DEFAULT_FLOOR

NAME = "local_des"
OURS = "sparsebag local=auto"
"""The method that is run last."""
POOL = "its pool"
"""What dynamic selection selects from, without selection."""
KEY = ("dataset", "seed", "method")
COLUMNS = (
    *KEY,
    *("status", "reason", "train_rows", "test_rows", "members", "accuracy"),
    *("log_loss", "smoothed_log_loss", "ece", "us_per_row", "fit_seconds", "gate", "source"),
)
HELD_OUT, MOST_TEST, BATCH, REPEATS = 0.25, 2000, 1000, 2


def des_methods() -> dict[str, Any]:
    """DESlib's classes by name, mended for scikit-learn 1.6 and later.

    DESlib 0.3.7 calls ``self._validate_data``, which scikit-learn has since made a function.
    """
    from deslib.base import BaseDS
    from deslib.des.knora_e import KNORAE
    from deslib.des.knora_u import KNORAU
    from deslib.des.meta_des import METADES

    if not hasattr(BaseDS, "_validate_data"):
        BaseDS._validate_data = lambda self, X, y=None, **options: validate_data(
            self, X, **({} if y is None else {"y": y}), **options
        )
    return {"KNORA-E": KNORAE, "KNORA-U": KNORAU, "META-DES": METADES}


def figures(problem: Problem, proba: np.ndarray) -> Row:
    y, labels = problem.y_test[:MOST_TEST], np.arange(problem.n_classes)
    proba = np.clip(proba, 0.0, 1.0)
    smooth = (1.0 - DEFAULT_FLOOR) * proba + DEFAULT_FLOOR / problem.n_classes
    return {
        "accuracy": float(np.mean(proba.argmax(axis=1) == y)),
        "log_loss": float(log_loss(y, proba, labels=labels)),
        "smoothed_log_loss": float(log_loss(y, smooth, labels=labels)),
        "ece": sb.metrics.expected_calibration_error(y, proba, labels=labels),
    }


def microseconds(predict: Any, X: np.ndarray) -> float:
    block = X[np.resize(np.arange(len(X)), BATCH)]
    predict(block)
    spent = []
    for _ in range(REPEATS):
        start = time.process_time()
        predict(block)
        spent.append(time.process_time() - start)
    return 1e6 * min(spent) / BATCH


def rows_of(job: Row, data_dir: Any) -> list[Row]:
    problem = make_problem(
        *(job["dataset"], "forest", N_TREES, job["seed"], data_dir),
        train_share=TRAIN_SHARE,
        most_train=MOST_TRAIN,
    )
    X, y, X_test = problem.X, problem.y, problem.X_test[:MOST_TEST]
    common = {
        **{**job, "status": OK, "train_rows": len(y), "test_rows": len(X_test)},
        "source": environment()["source"],
    }
    rows = []
    kept, held, y_kept, y_held = train_test_split(
        X, y, test_size=HELD_OUT, random_state=job["seed"], stratify=_strata(y)
    )
    scaler = StandardScaler().fit(kept)
    kept, held, queries = (scaler.transform(rows_in) for rows_in in (kept, held, X_test))
    pool = RandomForestClassifier(N_TREES, random_state=job["seed"]).fit(kept, y_kept)
    if len(pool.classes_) == problem.n_classes:
        told = {"method": POOL, "members": N_TREES}
        speed = {"us_per_row": microseconds(pool.predict_proba, queries)}
        rows.append({**common, **told, **figures(problem, pool.predict_proba(queries)), **speed})
        for method, kind in des_methods().items():
            start = time.process_time()
            model = kind(pool, random_state=job["seed"], n_jobs=1).fit(held, y_held)
            seconds = time.process_time() - start
            proba = model.predict_proba(queries)
            if proba.shape[1] != problem.n_classes:  # a class that no held-out row has
                wide = np.zeros((len(proba), problem.n_classes))
                wide[:, np.unique(y_held)] = proba
                proba = wide
            told = {"method": method, "members": N_TREES, "fit_seconds": seconds}
            speed = {"us_per_row": microseconds(model.predict_proba, queries)}
            rows.append({**common, **told, **figures(problem, proba), **speed})
    whole = {"method": "whole forest", "members": N_TREES}
    predict = problem.ensemble.predict_proba
    speed = {"us_per_row": microseconds(predict, X_test)}
    rows.append({**common, **whole, **figures(problem, predict(X_test)), **speed})
    start = time.process_time()
    small = sb.compress(problem.ensemble, X, y, max_estimators=KEPT, tolerance=None, local="auto")
    told = {"members": small.n_active_, "fit_seconds": time.process_time() - start}
    model = small.compile()
    told["gate"] = "" if small.local_.gate is None else small.local_.gate.kind
    speed = {"us_per_row": microseconds(model.predict_proba, X_test)}
    ours = figures(problem, small.predict_proba(X_test))
    return [*rows, {**common, **told, **ours, **speed, "method": OURS}]


def _strata(y: np.ndarray) -> np.ndarray | None:
    """Classes to keep in balance; none where one has a single row."""
    return y if np.bincount(y).min() >= 2 else None


def run(args: argparse.Namespace) -> None:
    tasks = {name: dataset.task for name, dataset in {**PAPER, **SUITE}.items()}
    names = [name for name, task in tasks.items() if task == "classification"]
    jobs = [
        {"dataset": name, "seed": seed, "method": OURS}
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for name in names
        if not args.data or name in args.data
    ]
    run_jobs(NAME, COLUMNS, KEY, jobs, lambda job: rows_of(job, args.data_dir), args.shard)
