"""What weights that depend on the row cost: a gated model beside the same one with global weights.

    SPARSEBAG_DATA=... python -m benchmarks.local_latency [--quick] [--output FILE]

Gates read every feature, and their numbers are made up: a gate's cost hangs on its shape alone.
Models take turns in bursts of calls, as in benchmarks.latency, and ratios are of the best times:
of one row on the wall's clock, of many rows, which a busy machine interrupts, on the thread's own.
The kernel of models without a gate is that of `make bench-latency`. Shallow trees, as experts of
few features are, leave a gate least to hide behind. Linear regressors are one
linear model without a gate, one a region with a gate of regions, and as many as they are with a
smooth one, where cost grows with their number: their ratio stands apart, and twice as many of five
times the features are there to show it. Beside it stands what the products alone would take at the
rate of a large matrix product, and what of a call is no arithmetic at all. Sparsemax is for gates
made by hand: no `local=` fits one, and its ratio stands apart too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_digits, make_classification, make_regression
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from benchmarks.datasets import PAPER, PAPER_SEED
from benchmarks.environment import environment
from benchmarks.kept_output import kept_output
from benchmarks.latency import blocks_of, quiet, timed
from sparsebag.deploy.calibrators import Temperature
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import collapses_into_one, compile_members
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import MemberPool
from sparsebag.refine.directions import Directions
from sparsebag.refine.gate import LinearGate
from sparsebag.refine.region_gate import RegionGate

BATCHES = (1, 1000)
ASKED = 2.0
"""Times the cost of the global model, at most."""
SECONDS = 4.0
"""For all models of one setting together, on one batch size."""
RANK, DEPTH = 3, 4
"""The largest gates that a fit considers: three directions, sixteen regions. Oblique ones have one
direction and four regions; here every region is behind a split along it."""
TASKS = "regression", "classification"
SHALLOW = ((2, 10, 20), (3, 10, 20), (3, 30, 20), (4, 10, 10), (4, 4, 20))
"""Depth, features and members of the smallest trees, where a gate weighs most."""
RESULTS = Path(__file__).parent / "results" / "local_latency.txt"


@dataclass(frozen=True)
class Setting:
    """Survivors, their weights, and rows to predict."""

    name: str
    pool: MemberPool
    weights: np.ndarray
    train: np.ndarray
    rows: np.ndarray


def compressed(name: str, ensemble: Any, X: Any, y: Any, **how: Any) -> Setting:
    """The survivors of a compression."""
    X, rows, y, _ = train_test_split(X, y, test_size=0.3, random_state=PAPER_SEED)
    small = sb.compress(ensemble.fit(X, y), X, y, **how)
    vote = small._vote
    return Setting(name, vote.pool, vote.weights, X, np.ascontiguousarray(rows, dtype=np.float32))


def members_of(name: str, ensemble: Any, X: Any, y: Any) -> Setting:
    """All members of a small ensemble."""
    X, rows, y, _ = train_test_split(X, y, test_size=0.3, random_state=PAPER_SEED)
    pool = read_ensemble(ensemble.fit(X, y))
    k = len(pool.members)
    return Setting(name, pool, np.full(k, 1.0 / k), X, np.ascontiguousarray(rows))


def shallow(task: str, depth: int, d: int, k: int) -> Setting:
    """Bagged trees of a few leaves each, over as few features."""
    seed: dict[str, Any] = {"random_state": PAPER_SEED}
    if task == "regression":
        bag = BaggingRegressor(DecisionTreeRegressor(max_depth=depth), k, **seed)
        rows = make_regression(4000, d, noise=10.0, **seed)
    else:
        bag = BaggingClassifier(DecisionTreeClassifier(max_depth=depth), k, **seed)
        rows = make_classification(4000, d, n_informative=d, n_redundant=0, **seed)
    return members_of(f"made up, {task}, depth {depth}", bag, *rows)


def settings(data_dir: str | None) -> list[Callable[[], Setting]]:
    digits = StandardScaler().fit_transform(load_digits().data), load_digits().target
    diabetes = load_diabetes(return_X_y=True)
    seed = {"random_state": PAPER_SEED}
    wide = make_regression(2000, 50, noise=10.0, **seed)
    spambase = PAPER["spambase"].load(data_dir)
    bag = BaggingClassifier(DecisionTreeClassifier(), 100, **seed)
    return [
        lambda: compressed("spambase, paper's preset", bag, *spambase, preset="paper"),
        lambda: compressed("spambase", RandomForestClassifier(100, **seed), *spambase),
        lambda: compressed("digits, 10 classes", RandomForestClassifier(100, **seed), *digits),
        lambda: compressed("diabetes", RandomForestRegressor(100, **seed), *diabetes),
        lambda: members_of(
            "digits, 10 logistic", BaggingClassifier(LogisticRegression(), 10, **seed), *digits
        ),
        lambda: members_of(
            "digits, 5 networks",
            BaggingClassifier(MLPClassifier((32,), max_iter=30), 5, **seed),
            *digits,
        ),
        lambda: members_of("diabetes, 10 ridge", BaggingRegressor(Ridge(), 10, **seed), *diabetes),
        lambda: members_of("made up, 20 ridge", BaggingRegressor(Ridge(), 20, **seed), *wide),
        lambda: members_of(
            "digits, 5 pipelines",
            BaggingClassifier(make_pipeline(StandardScaler(), LogisticRegression()), 5, **seed),
            *digits,
        ),
        *(partial(shallow, task, *size) for task in TASKS for size in SHALLOW),
    ]


def linear_gate(setting: Setting, activation: str, temperature: bool) -> LinearGate:
    rng = np.random.default_rng(0)
    X, k = setting.train, len(setting.weights)
    scale = X.std(axis=0)
    d = X.shape[1]
    return LinearGate(
        mean=X.mean(axis=0),
        scale=np.where(scale > 0.0, scale, 1.0),
        down=rng.normal(size=(RANK, d)) / np.sqrt(d),
        up=rng.normal(size=(k, RANK)) * (0.5 if activation == "softmax" else 0.05),
        base=np.log(setting.weights) if activation == "softmax" else setting.weights,
        activation=activation,
        log_temperature=0.1 * rng.normal(size=1 + RANK) if temperature else None,
        offset=rng.normal(size=RANK) if activation == "softmax" else None,
    )


def region_gate(setting: Setting, temperature: bool) -> RegionGate:
    rng = np.random.default_rng(0)
    tree = DecisionTreeRegressor(max_depth=DEPTH, random_state=0)
    nodes = tree.fit(setting.train, rng.normal(size=len(setting.train))).tree_
    leaf = nodes.children_left < 0
    n_regions = int(leaf.sum())
    return RegionGate(
        feature=np.maximum(nodes.feature, 0),
        threshold=nodes.threshold,
        left=nodes.children_left,
        right=nodes.children_right,
        missing_left=nodes.missing_go_to_left,
        region=np.where(leaf, np.cumsum(leaf) - 1, -1),
        region_weights=rng.dirichlet(np.ones(len(setting.weights)), size=n_regions),
        n_features=setting.train.shape[1],
        temperature=rng.uniform(0.8, 1.2, size=n_regions) if temperature else None,
    )


def oblique_gate(setting: Setting) -> RegionGate:
    """Sixteen regions along one direction of all features."""
    axis, smooth = region_gate(setting, False), linear_gate(setting, "softmax", False)
    along = Directions(smooth.mean, smooth.scale, smooth.down[:1])
    sums = along.of(setting.train)
    tree = DecisionTreeRegressor(max_leaf_nodes=2**DEPTH, random_state=0)
    nodes = tree.fit(sums, sums[:, 0] + np.sin(9.0 * sums[:, 0])).tree_
    leaf = nodes.children_left < 0
    return replace(
        axis,
        feature=np.where(leaf, 0, axis.n_features),
        threshold=nodes.threshold,
        left=nodes.children_left,
        right=nodes.children_right,
        missing_left=nodes.missing_go_to_left,
        region=np.where(leaf, np.cumsum(leaf) - 1, -1),
        region_weights=np.resize(axis.region_weights, (int(leaf.sum()), axis.n_members)),
        directions=along,
    )


def models(setting: Setting) -> dict[str, CompiledEnsemble]:
    """The global model first; temperatures against a calibrator with one."""
    pool, weights = setting.pool, setting.weights
    out = {
        "global": compile_members(pool, weights),
        "linear": compile_members(pool, weights, gate=linear_gate(setting, "softmax", False)),
        "sparsemax": compile_members(pool, weights, gate=linear_gate(setting, "sparsemax", False)),
        "regions": compile_members(pool, weights, gate=region_gate(setting, False)),
        "oblique": compile_members(pool, weights, gate=oblique_gate(setting)),
    }
    if pool.classes is not None:
        out |= {
            "global, T": compile_members(pool, weights, 1e-3, Temperature(0.9)),
            "linear, T(x)": compile_members(
                pool, weights, 1e-3, gate=linear_gate(setting, "softmax", True)
            ),
            "regions, T(x)": compile_members(pool, weights, 1e-3, gate=region_gate(setting, True)),
        }
    return out


def predicting(model: CompiledEnsemble, batch: int) -> Callable[[np.ndarray], Any]:
    if batch == 1:
        one = model.predict_one if model.classes is None else model.predict_proba_one
        return lambda block: one(block[0])
    return model.predict if model.classes is None else model.predict_proba


def products_a_second() -> float:
    """Multiplications with their additions, of a matrix product that stays in the second cache."""
    a, b = np.ones((192, 192)), np.ones((192, 192))
    best = np.inf
    for _ in range(200):
        start = time.thread_time()
        a @ b
        best = min(best, time.thread_time() - start)
    return 192**3 / best


def print_floor(setting: Setting, times: dict[int, dict[str, Any]]) -> None:
    """What of a smooth gate's time is arithmetic that cannot be saved, and what is overhead."""
    k, d = len(setting.weights), setting.rows.shape[1]
    one, many = times[1], times[BATCHES[-1]]
    rows, rate = BATCHES[-1], products_a_second()
    products = rows * d * (k + RANK)
    print(
        f"  {rows:,} rows of {k} lines and {RANK} directions are {products / 1e6:.2f} million "
        f"products, {k + RANK} times those of one line: {1e6 * products / rate:.0f} us at the "
        f"{rate / 1e9:.1f} a nanosecond of a matrix product; measured "
        f"{1e6 * quiet(many['linear']):.0f} us with weights and all"
    )
    shares = ", ".join(
        f"{name} {1e6 * quiet(one[name]):.1f} us, {quiet(one[name]) / quiet(many[name]):.0%}"
        for name in ("global", "linear", "regions")
    )
    print(f"  a call of one row, nearly all overhead, and its share of {rows:,} rows': {shares}")


def run(data_dir: str | None, quick: bool) -> None:
    for key, value in environment().items():
        print(f"{key}: {value}")
    print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; one thread")
    worst: dict[tuple[int, str], tuple[float, str]] = {}
    for make in settings(data_dir):
        setting = make()
        k, d = len(setting.weights), setting.rows.shape[1]
        print(f"\n{setting.name}: {k} members, {d} features")
        compiled = models(setting)
        of_batch: dict[int, dict[str, Any]] = {}
        for batch in BATCHES:
            engines = {name: predicting(model, batch) for name, model in compiled.items()}
            budget = SECONDS / (8 if quick else 1)
            clock = time.perf_counter if batch == 1 else time.thread_time
            times = timed(engines, blocks_of(setting.rows, batch), budget, clock)
            of_batch[batch] = times
            print(f"  {batch:,} row{'s' * (batch > 1)}, microseconds a call")
            for name, seconds in times.items():
                against = "global, T" if name.endswith("T(x)") else "global"
                ratio = quiet(seconds) / quiet(times[against])
                figures = "".join(f"{1e6 * s:>10,.2f}" for s in np.percentile(seconds, [0, 50]))
                print(f"    {name:<16}best, p50 {figures}{ratio:>8.2f}x {against}")
                if not name.startswith("global"):
                    apart = setting.name if collapses_into_one(setting.pool) else ""
                    key = batch, apart + ", sparsemax" * (name == "sparsemax" and bool(apart))
                    worst[key] = max(worst.get(key, (0.0, "")), (ratio, f"{setting.name}, {name}"))
            sys.stdout.flush()
        if collapses_into_one(setting.pool):
            print_floor(setting, of_batch)
    print(f"\nTarget: at most {ASKED:g}x the global model (best times, one thread)")
    for (batch, collapsed), (ratio, name) in sorted(worst.items()):
        verdict = "met" if ratio <= ASKED else "MISSED"
        rows = f"{batch:,} row{'s' * (batch > 1)}"
        note = "; without a gate its members are one linear model" if collapsed else ""
        if collapsed.endswith("sparsemax"):
            verdict += ", of a gate made by hand: no fit makes it"
        print(f"  {rows:<11}at most {ratio:.2f}x ({name}{note}): {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir")
    parser.add_argument("--quick", action="store_true", help="an eighth of the time")
    parser.add_argument("--output", type=Path, help=f"default {RESULTS.name}, none with --quick")
    args = parser.parse_args()
    with kept_output(args.output or (None if args.quick else RESULTS)):
        run(args.data_dir, args.quick)


if __name__ == "__main__":
    main()
