"""`sparsebag.compress` by rows and trees: time beside the fit, memory beside X and the forest.

    SPARSEBAG_DATA=... python -m benchmarks.compress_scale [--quick]

Synthetic float32 rows of 50 columns. Each tree is fitted to 20,000 rows (``max_samples``), so that
500 of them on a million rows take minutes; every step of ``compress`` still reads all rows. Each
case has a process of its own. Seconds are processor time; memory is how much the process grew.
"""

import contextlib
import gc
import json
import signal
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from benchmarks.datasets import load
from benchmarks.kept_output import options, results_of
from benchmarks.peak_memory import forget_peak, held_bytes, peak_bytes

COLUMNS, FEW_COLUMNS, SAMPLE, NODE_BYTES = 50, 10, 20_000, 80
BY_ROWS = ((10_000, 100), (100_000, 100), (1_000_000, 100))
BY_TREES = ((100_000, 100), (100_000, 500), (100_000, 2000))
LARGEST, REAL, STOPS = (1_000_000, 500), "adult", 8
WORKERS, DASK_SHAPE, DASK_TREES, LIMIT = 2, (1_000_000, 200), 20, 0.9


def rows(n: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, columns), dtype=np.float32)
    noise = 2.0 * rng.standard_normal(n, dtype=np.float32)
    return X, (X[:, :10].sum(axis=1) + noise > 0.0).astype(int)


def fitted(X: np.ndarray, y: np.ndarray, trees: int) -> Any:
    sample = None if len(X) <= SAMPLE else SAMPLE
    return RandomForestClassifier(trees, max_samples=sample, random_state=0).fit(X, y)


def measured(X: np.ndarray, y: np.ndarray, trees: int, n_stops: int) -> dict[str, Any]:
    sb.compress(fitted(X[:300], y[:300], 5), X[:300], y[:300])  # what is imported is not counted
    start = time.process_time()
    forest = fitted(X, y, trees)
    fit = time.process_time() - start
    gc.collect()
    forget_peak()
    before, start = held_bytes(), time.process_time()
    nodes = sb.compress(forest, X, y).selection_.before.nodes
    seconds, grown = time.process_time() - start, peak_bytes() - before
    found = {"fit": fit, "compress": seconds, "grown": grown}
    stops = [stopped(forest, X, y, seconds * (k + 0.5) / n_stops) for k in range(n_stops)]
    return found | {"X": X.nbytes, "forest": NODE_BYTES * nodes, "stops": stops}


def stopped(forest: Any, X: np.ndarray, y: np.ndarray, wait: float) -> tuple[float, float]:
    """Ctrl-C: seconds until it is heard, and the memory that is left."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGVTALRM, interrupt)
    gc.collect()
    before, start = held_bytes(), time.process_time()
    signal.setitimer(signal.ITIMER_VIRTUAL, wait)
    with contextlib.suppress(KeyboardInterrupt):
        sb.compress(forest, X, y)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
    heard = time.process_time() - start - wait
    gc.collect()
    return heard, float(held_bytes() - before)


def case(data: int | str, trees: int, columns: int = COLUMNS, stops: int = 0) -> dict[str, Any]:
    """Measured in a process of its own, and printed."""
    arguments = map(str, (data, trees, columns, stops))
    command = [sys.executable, "-m", "benchmarks.compress_scale", "--case", *arguments]
    found: dict[str, Any] = json.loads(subprocess.check_output(command, text=True))
    fit, seconds, *nbytes = (found[k] for k in ("fit", "compress", "X", "forest", "grown"))
    told = f"{data:>10}{columns:>5}{trees:>7}{fit:>9.1f}{seconds:>10.1f}{seconds / fit:>8.2f}"
    print(told + "".join(f"{n / 1e6:>8.0f}" for n in nbytes), flush=True)
    return found


def exponent(cases: list[dict[str, Any]], sizes: list[int], what: str) -> float:
    return float(np.polyfit(np.log(sizes), np.log([found[what] for found in cases]), 1)[0])


def report(cut: int) -> None:
    print("      rows cols  trees    fit s  compress  of fit    X MB  forest   grown")
    by_rows = [case(n // cut, trees, stops=STOPS * (n == 100_000)) for n, trees in BY_ROWS]
    by_trees = [by_rows[1], *(case(n // cut, trees // cut) for n, trees in BY_TREES[1:])]
    wide, narrow = by_rows[-1], case(BY_ROWS[-1][0] // cut, BY_ROWS[-1][1], FEW_COLUMNS)
    case(LARGEST[0] // cut, LARGEST[1] // cut)
    case(REAL, LARGEST[1] // cut, 14)
    for what in ("fit", "compress", "grown"):
        of_rows = exponent(by_rows, [n for n, _ in BY_ROWS], what)
        of_trees = exponent(by_trees, [trees for _, trees in BY_TREES], what)
        print(f"{what:>10} grows as rows^{of_rows:.2f}, trees^{of_trees:.2f}")
    copies = (wide["grown"] - narrow["grown"]) / (wide["X"] - narrow["X"])
    print(f"copies of X, from the growth between {FEW_COLUMNS} columns and {COLUMNS}: {copies:.2f}")
    heard, left = np.array(by_rows[1]["stops"]).max(axis=0)
    print(f"Ctrl-C at {STOPS} moments: heard within {heard:.2f} s, {left / 1e6:.0f} MB held then")


def on_dask() -> None:
    """Weights over all rows of an X that exceeds what one worker may hold."""
    import dask.array as da
    from distributed import Client, LocalCluster

    n, columns = DASK_SHAPE
    nbytes = 4 * n * columns
    limit = int(LIMIT * nbytes)
    forest = fitted(*rows(SAMPLE, columns), DASK_TREES)
    how: dict[str, Any] = {"n_workers": WORKERS, "threads_per_worker": 1, "memory_limit": limit}
    with LocalCluster(**how, dashboard_address=None) as cluster, Client(cluster) as client:
        X = da.random.default_rng(1).standard_normal((n, columns), dtype="f4", chunks="8MB")
        X = X.rechunk((None, columns))
        X, y = client.persist([X, (X[:, :10].sum(axis=1) > 0.0).astype(int)])
        forget_peak()
        before, start = held_bytes(), time.perf_counter()
        small = sb.compress(forest, X, y, evidence="holdout", lam=0.01, calibration=None)
        seconds, grown = time.perf_counter() - start, peak_bytes() - before
    print(
        f"Dask, {WORKERS} workers of {limit / 1e6:.0f} MB, X of {nbytes / 1e6:.0f} MB, {DASK_TREES}"
        f" trees, weights over all rows: {seconds:.0f} s, {small.n_active_} kept; the caller grew "
        f"by {grown / 1e6:.0f} MB"
    )


def main() -> None:
    parser = options(__doc__, quick="a tenth, no Dask")
    parser.add_argument("--case", nargs=4, help="data, trees, columns, Ctrl-Cs: one, as JSON")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    if args.case:
        data, *sizes = args.case
        trees, columns, stops = map(int, sizes)
        if data == REAL:
            X, y, _ = load(data, 10**9)
        else:
            X, y = rows(int(data), columns)
        print(json.dumps(measured(X.astype(np.float32, copy=False), y, trees, stops)))
        return
    with results_of("compress_scale", keep=not args.quick):
        report(10 if args.quick else 1)
        if not args.quick:  # a worker itself takes more than a tenth of the limit
            on_dask()


if __name__ == "__main__":
    main()
