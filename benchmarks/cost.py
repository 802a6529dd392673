"""Cost and steadiness of the default `sparsebag.compress`: processor time, seeds, class weights.

    SPARSEBAG_DATA=... python -m benchmarks.cost [--large]

Processor time is that of all threads, over that of the ensemble's own fit.
"""

import time
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.metrics import recall_score

import sparsebag as sb
from benchmarks.datasets import load
from benchmarks.kept_output import options, results_of
from benchmarks.problem import new_ensemble

SMALL_SETS = (
    *("adult", "electricity", "magic", "mammography", "spambase", "satimage", "covertype_15k"),
    *("california_housing", "bike_sharing", "kin8nm", "wine_quality", "power_plant"),
)
SMALL, MEDIUM, LARGE = (3000, 100), (20_000, 500), (1_000_000, 100)
"""Rows and trees."""
SEED_ROWS, SEEDS = 9000, 10
BALANCED_SETS = ("adult", "mammography", "churn")
BALANCED_TREES = {"depth 6": {"max_depth": 6}, "leaves of 5": {"min_samples_leaf": 5}}


def timed(X: np.ndarray, y: np.ndarray, task: str, n_trees: int) -> tuple[float, float]:
    """Processor seconds of a forest's fit and of its compression."""
    forest = new_ensemble(task, "forest", n_trees, 0)
    start = time.process_time()
    forest.fit(X, y)
    fitted = time.process_time()
    small = sb.compress(forest, X, y)
    done = time.process_time()
    fit, seconds = fitted - start, done - fitted
    told = f"fit {fit:8.2f} s  compress {seconds:7.2f} s {seconds / fit:6.2f} of it"
    print(f"{told}  nodes kept {share_kept(small):6.1%}", flush=True)
    return fit, seconds


def share_kept(small: Any) -> float:
    return float(small.n_nodes_ / small.selection_.before.nodes)


def forests(names: tuple[str, ...], rows: int, trees: int) -> np.ndarray:
    """Processor seconds of fit and of compress, a data set each."""
    print(f"\n{rows} rows, {trees} trees")
    found = []
    for name in names:
        print(f"  {name:<20}", end="", flush=True)
        found.append(timed(*load(name, rows), trees))
    return np.array(found).T


def small() -> None:
    fit, cost = forests(SMALL_SETS, *SMALL)
    print(
        f"  median {np.median(cost / fit):.2f} of the fit, most {np.max(cost / fit):.2f}; "
        f"median {np.median(cost):.2f} s, most {cost.max():.2f} s"
    )


def large() -> None:
    print("\n{} rows, {} trees, 20 features of make_classification".format(*LARGE))
    X, y = make_classification(LARGE[0], 20, n_informative=10, flip_y=0.05, random_state=0)
    timed(X.astype(np.float32), y, "classification", LARGE[1])


def seeds() -> None:
    """The same rows, forests that differ by their seed alone."""
    X, y, task = load("adult", SEED_ROWS)
    forests = (new_ensemble(task, "forest", 100, seed).fit(X, y) for seed in range(SEEDS))
    kept = [share_kept(sb.compress(forest, X, y)) for forest in forests]
    print(f"\nnodes kept, adult, {SEED_ROWS} rows, {SEEDS} seeds of the forest:")
    print("  " + " ".join(f"{share:.2%}" for share in kept))
    print(f"  largest over smallest {max(kept) / min(kept):.1f}")


def balanced() -> None:
    """Recall of each class on test rows, before and after."""
    print('\nrecall of each class, class_weight="balanced": forest, compressed, largest change')
    changes = []
    for name in BALANCED_SETS:
        X, y, task = load(name, 10**9)
        n = min(len(y) // 2, 10_000)
        for label, tree in BALANCED_TREES.items():
            forest = new_ensemble(task, "forest", 100, 0, class_weight="balanced", **tree)
            forest.fit(X[:n], y[:n])
            found = sb.compress(forest, X[:n], y[:n])
            before, after = (
                recall_score(y[n:], model.predict(X[n:]), average=None) for model in (forest, found)
            )
            changes.append(np.abs(after - before).max())
            told = " ".join(f"{a:.3f} → {b:.3f}" for a, b in zip(before, after, strict=True))
            kept = f"  {changes[-1]:.3f}  nodes kept {share_kept(found):.1%}"
            print(f"  {name:<12} {label:<12} {told}{kept}")
    print(f"  largest change {max(changes):.3f}")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--large", action="store_true", help="a million rows, half an hour")
    is_large = parser.parse_args().large
    with results_of("cost_large" if is_large else "cost", keep=True):
        if is_large:
            return large()
        X, y, task = load("breast_cancer", 200)  # imports are not timed
        sb.compress(new_ensemble(task, "forest", 5, 0).fit(X, y), X, y)
        small()
        forests(("adult", "california_housing"), *MEDIUM)
        seeds()
        balanced()


if __name__ == "__main__":
    main()
