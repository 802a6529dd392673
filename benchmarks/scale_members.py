"""Thousands of members: 10 000 fitted trees, their evidence as leaves, solved as a stream.

    python -m benchmarks.scale --only members [--quick]

Small trees on small bags of a made-up ten-class problem. What their evidence would take as
true-class votes, as every class's votes, and as leaves; what a solve reads; and the test loss of
the survivors beside the whole ensemble's. Before, time and memory of `compress` for 500 to 2500
trees.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from benchmarks.peak_memory import forget_peak, held_bytes, peak_bytes
from sparsebag.settings import DEFAULT_FLOOR

SHAPE, QUICK_SHAPE = (10_000, 10_000), (5_000, 500)
N_CLASSES = 10
TEST_ROWS = 5_000
BAG_ROWS = 500
TREES, QUICK_TREES, COMPRESSED_ROWS = (500, 1000, 2500), (100,), 2000


def run(*, quick: bool) -> None:
    print(f"\nsb.compress(forest, X, y), {COMPRESSED_ROWS} rows, two classes, memory beyond it:\n")
    for n_trees in QUICK_TREES if quick else TREES:
        compressed(n_trees)
    n_rows, n_members = QUICK_SHAPE if quick else SHAPE
    print(
        f"\n## Ensembles of thousands: N = {n_members:,} trees, M = {n_rows:,}, C = {N_CLASSES}\n"
    )
    X, y = make_classification(
        n_rows + TEST_ROWS,
        20,
        n_informative=12,
        n_classes=N_CLASSES,
        n_clusters_per_class=2,
        random_state=0,
    )
    X, X_test = X[:n_rows].astype(np.float32), X[n_rows:].astype(np.float32)
    y, y_test = y[:n_rows], y[n_rows:]
    tree = DecisionTreeClassifier(max_leaf_nodes=48, max_features=6)
    start = time.process_time()
    bag = BaggingClassifier(tree, n_members, max_samples=BAG_ROWS, random_state=0).fit(X, y)
    print(f"fitting the trees: {time.process_time() - start:.0f} s")
    start = time.process_time()
    stream = sb.stream_members(bag, X, y)
    entries = n_rows * n_members
    print(
        f"evidence: {stream.nbytes / 2**20:.0f} MiB as leaves and bits, found in "
        f"{time.process_time() - start:.0f} s; true-class votes and mask would be "
        f"{5 * entries / 2**20:.0f} MiB, every class's {(4 * N_CLASSES + 1) * entries / 2**20:.0f}"
    )
    forget_peak()
    before = held_bytes()
    start = time.process_time()
    found = sb.fit_weights(stream, memory_limit=256 << 20)
    peak = peak_bytes() - before
    print(
        f"{found.solver}: {time.process_time() - start:.0f} s of CPU, "
        f"{found.n_passes:.3g} passes, "
        f"{found.n_active} of {n_members:,} kept, objective {found.objective:.6f}, gap "
        f"{found.stationarity_gap:.1e}, {found.status.name}; memory grew by {peak / 2**20:.0f} MiB"
    )
    whole = test_loss(bag, X_test, y_test, np.full(n_members, 1.0 / n_members))
    kept = test_loss(bag, X_test, y_test, np.asarray(found.weights))
    print(
        f"test log-loss: all {n_members:,} equally {whole:.4f}, "
        f"the {found.n_active} kept {kept:.4f}"
    )
    model = sb.with_weights(bag, found.weights)
    proba = model.predict_proba(X_test)[np.arange(TEST_ROWS), y_test]
    print(f"the same as a model, sb.with_weights(bag, weights): {-np.log(proba).mean():.4f}")


def compressed(n_trees: int) -> None:
    """The default call on a forest of so many trees."""
    X, y = make_classification(COMPRESSED_ROWS, 20, n_informative=10, random_state=0)
    start = time.process_time()
    forest = RandomForestClassifier(n_trees, random_state=0).fit(X, y)
    fit = time.process_time() - start
    forget_peak()
    before, start = held_bytes(), time.process_time()
    small = sb.compress(forest, X, y)
    seconds, peak = time.process_time() - start, peak_bytes() - before
    print(
        f"{n_trees:,} trees (fit {fit:.0f} s of CPU): {peak / 2**20:.0f} MiB, {seconds:.0f} s, "
        f"{small.n_active_} kept"
    )


def test_loss(bag: BaggingClassifier, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> float:
    vote = np.zeros((len(X), N_CLASSES))
    for j in np.flatnonzero(weights):
        member = bag.estimators_[j]
        vote[:, member.classes_.astype(int)] += weights[j] * member.predict_proba(X)
    floored = (1 - DEFAULT_FLOOR) * vote + DEFAULT_FLOOR / N_CLASSES
    return float(-np.log(floored[np.arange(len(y)), y]).mean())
