"""The same weights from rows on a Dask cluster: equality, speed, a lost worker, memory a worker.

    python -m benchmarks.scale_dask

A `LocalCluster` of one and two worker processes with one thread each; ratios are taken in one run.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from benchmarks.environment import environment
from benchmarks.kept_output import kept_output
from benchmarks.peak_memory import peak_bytes
from sparsebag.objective.cluster_objective import ClusterObjective
from sparsebag.objective.pass_threads import at_most_pass_threads

RESULTS = Path(__file__).parent / "results" / "scale_dask.txt"
SHAPE = (1_228_800, 400)
"""Rows and members of the synthetic evidence: 2.5 GB, so that a pass outlasts its scheduling."""
BLOCK_ROWS = 102_400
"""Twelve blocks, six a worker: a task costs the scheduler about a millisecond."""
FOREST_ROWS, TREES = 20_000, 100
KILL_AT = 8
"""The evaluation before which a worker is killed; a solve has some twenty."""
SOLVES = 3
"""With each number of workers, all of them printed: the machine is shared."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows, nothing kept")
    options = parser.parse_args()
    with kept_output(None if options.quick else RESULTS):
        print("python -m benchmarks.scale_dask")
        print(", ".join(f"{name} {value}" for name, value in environment().items() if value))
        run(quick=options.quick)


def run(*, quick: bool) -> bool:
    """Print all sections; False where Dask is not installed."""
    try:
        import dask
        import distributed  # noqa: F401
    except ImportError:
        print("Dask is not installed (pip install 'sparsebag[dask]'); nothing to measure.")
        return False
    shrink = 10 if quick else 1
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", category=UserWarning)
    print(f"dask {dask.__version__}")
    same_weights(FOREST_ROWS // shrink)
    workers_and_speed(SHAPE[0] // shrink, SHAPE[1])
    lost_worker(FOREST_ROWS // shrink)
    return True


class Cluster:
    """Worker processes on this machine, and a client of them."""

    def __init__(self, n_workers: int) -> None:
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            memory_limit="8GB",
            silence_logs=logging.CRITICAL,
        )
        self.client = Client(self.cluster)
        self.client.run(_import_sparsebag)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.cluster.close()

    def pids(self) -> list[int]:
        return list(self.client.run(os.getpid).values())

    def peaks(self) -> list[int]:
        """Most memory each worker process has had, in bytes."""
        return list(self.client.run(peak_bytes).values())


def _import_sparsebag() -> None:
    """Imports are paid before anything is timed."""
    import sparsebag  # noqa: F401


def forest_problem(n_rows: int) -> tuple[Any, np.ndarray, np.ndarray]:
    X, y = make_classification(n_rows, 20, n_informative=8, n_classes=3, flip_y=0.1, random_state=0)
    X = X.astype(np.float32)
    forest = RandomForestClassifier(TREES, min_samples_leaf=5, random_state=0, n_jobs=2)
    return forest.fit(X, y), X, y


def same_weights(n_rows: int) -> None:
    import dask
    import dask.array as da

    print(f"\n## The same weights as in memory: forest of {TREES}, {n_rows} rows, 2 workers\n")
    forest, X, y = forest_problem(n_rows)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("lam=0.01", {"lam": 0.01}),
        ("lam=0.01, loss='brier', refine=None", {"lam": 0.01, "loss": "brier", "refine": None}),
        (
            "lam=0.01, refine=None, calibration=None",
            {"lam": 0.01, "refine": None, "calibration": None},
        ),
        ("preset='paper'", {"preset": "paper"}),
        ("max_estimators=20, tolerance=None", {"max_estimators": 20, "tolerance": None}),
    ]
    print(
        f"{'compress(forest, X, y, ...)':>42}{'weights off by':>16}{'kept':>6}"
        f"{'memory':>9}{'Dask':>8}"
    )
    with Cluster(2):
        dX, dy = da.from_array(X, chunks=(3000, 20)), da.from_array(y, chunks=5000)
        for name, how in calls:
            start = time.perf_counter()
            here = sb.compress(forest, X, y, **how)
            between = time.perf_counter()
            there = sb.compress(forest, dX, dy, **how)
            end = time.perf_counter()
            off = np.abs(here.weights_ - there.weights_).max()
            print(
                f"{name:>42}{off:>16.1e}{there.n_active_:>6}{between - start:>7.1f} s"
                f"{end - between:>6.1f} s",
                flush=True,
            )
        bound = n_rows // 4
        with dask.config.set({"sparsebag.rows-in-memory": bound}):
            found = sb.compress(forest, dX, dy)
        print(f"\nThe default call, with at most {bound} rows brought together, says:\n")
        print("\n".join("    " + line for line in str(found.selection_).splitlines()))


def workers_and_speed(n_rows: int, n_members: int) -> None:
    print(f"\n## One worker and two: fit_weights, M = {n_rows}, N = {n_members}\n")
    seconds, found = {}, {}
    size = n_rows * n_members * 5
    for n_workers in (1, 2):
        with Cluster(n_workers) as workers:
            before = workers.peaks()
            votes, mask, y = (array.persist() for array in synthetic(n_rows, n_members))
            _wait(votes, mask, y)
            loaded = workers.peaks()
            took = []
            for _ in range(SOLVES):  # the first imports what the workers need
                start = time.perf_counter()
                found[n_workers] = sb.fit_weights(votes, mask, y, lam=0.01)
                took.append(time.perf_counter() - start)
            seconds[n_workers] = min(took)
            peaks = workers.peaks()
        each = ", ".join(
            f"{(peak - first) / 2**20:.0f} MiB ({(own - first) / 2**20:.0f} with the rows loaded)"
            for peak, own, first in zip(peaks, loaded, before, strict=True)
        )
        share = size / n_workers / 2**20
        print(
            f"{n_workers} worker(s): {', '.join(f'{s:.1f}' for s in took)} s, "
            f"{found[n_workers].n_evaluations} passes; peak memory above an idle worker's: "
            f"{each}; its share of the evidence is {share:.0f} MiB",
            flush=True,
        )
    votes, mask, y = (array.compute(scheduler="sync") for array in synthetic(n_rows, n_members))
    alone = {}
    for n_threads in (1, 2):
        start = time.perf_counter()
        with at_most_pass_threads(n_threads):
            here = sb.fit_weights(votes, mask, y, lam=0.01)
        alone[n_threads] = time.perf_counter() - start
    off = max(np.abs(here.weights - solution.weights).max() for solution in found.values())
    order = np.random.default_rng(0).permutation(len(y))
    shuffled = sb.fit_weights(votes[order], mask[order], y[order], lam=0.01)
    by_order = np.abs(here.weights - shuffled.weights).max()
    worst = max(abs(solution.objective - here.objective) for solution in found.values())
    print(
        f"in memory, one thread: {alone[1]:.1f} s, two: {alone[2]:.1f} s; weights off by "
        f"{off:.1e}; two workers are {seconds[1] / seconds[2]:.2f} times as fast as one, by the "
        f"best of {SOLVES} solves"
    )
    print(
        f"objectives differ by {worst:.1e}; in memory, with the rows in another order, the weights "
        f"are off by {by_order:.1e}: what the rounding of float32 sums leaves open here"
    )


def _wait(*arrays: Any) -> None:
    from distributed import wait

    wait(arrays)


def synthetic(n_rows: int, n_members: int) -> tuple[Any, Any, Any]:
    """Votes, mask and targets as Dask arrays whose blocks are drawn where they are."""
    import dask.array as da

    sizes = tuple(min(BLOCK_ROWS, n_rows - start) for start in range(0, n_rows, BLOCK_ROWS))
    chunks = (sizes, (n_members,))
    mask = da.map_blocks(_mask, chunks=chunks, dtype=np.bool_)
    votes = da.map_blocks(_votes, mask, dtype=np.float32)
    return votes, mask, da.arange(n_rows, chunks=(sizes,)) % 2


def _mask(block_info: Any) -> np.ndarray:
    info = block_info[None]
    rng = np.random.default_rng([0, info["chunk-location"][0]])
    return rng.random(info["chunk-shape"], dtype=np.float32) < 0.37


def _votes(mask: np.ndarray, block_info: Any) -> np.ndarray:
    rng = np.random.default_rng([1, block_info[None]["chunk-location"][0]])
    skill = np.random.default_rng(2).normal(1.0, 0.3, mask.shape[1])
    logit = 1.5 * rng.standard_normal(mask.shape, dtype=np.float32) + skill.astype(np.float32)
    logit += 1.5 * rng.standard_normal((len(mask), 1), dtype=np.float32)
    return np.where(mask, 1.0 / (1.0 + np.exp(-logit)), 0.0).astype(np.float32)


@contextmanager
def a_kill() -> Iterator[None]:
    """In the middle of a solve, a worker process gets `kill -9`."""
    evaluate, calls = ClusterObjective.value_and_gradient, 0

    def evaluate_or_kill(objective: ClusterObjective, weights: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == KILL_AT:
            from distributed import default_client

            (pid, *_) = default_client().run(os.getpid).values()
            os.kill(pid, signal.SIGKILL)
        return evaluate(objective, weights)

    ClusterObjective.value_and_gradient = evaluate_or_kill  # type: ignore[method-assign]
    try:
        yield
    finally:
        ClusterObjective.value_and_gradient = evaluate  # type: ignore[method-assign]


def lost_worker(n_rows: int) -> None:
    import dask.array as da

    print(f"\n## A worker killed (kill -9) in mid-solve: forest of {TREES}, {n_rows} rows\n")
    forest, X, y = forest_problem(n_rows)
    how: dict[str, Any] = {"lam": 0.01, "refine": None, "calibration": None}
    here = sb.compress(forest, X, y, **how)
    dX, dy = da.from_array(X, chunks=(3000, 20)), da.from_array(y, chunks=3000)
    for n_workers in (2, 1):
        with Cluster(n_workers):
            start = time.perf_counter()
            sb.compress(forest, dX, dy, **how)
            calm = time.perf_counter() - start
            start = time.perf_counter()
            with a_kill():
                there = sb.compress(forest, dX, dy, **how)
            seconds = time.perf_counter() - start
        off = np.abs(here.weights_ - there.weights_).max()
        what = (
            "one of two workers" if n_workers == 2 else "the only worker, and the members with it"
        )
        print(
            f"killed {what}: weights off by {off:.1e}, {there.solution_.status.name}, "
            f"{seconds:.1f} s against {calm:.1f} s undisturbed",
            flush=True,
        )


if __name__ == "__main__":
    main()
