"""The paper's tables: seven data sets, every base model, every method, one row each.

    SPARSEBAG_DATA=... python -m benchmarks.paper [--seeds 1|10] [--out FILE]

One seed is the paper's single split (seed 42); ten are the splits 42 to 51. The results file grows
a row at a time; a row with figures by today's source is not run again, so the command may be
stopped (Ctrl-C) and repeated, and a finished file is of one source (column ``source``). An error is
a row too. Without the data, or the paper's tables, nothing is written.

All of it runs on one thread: the paper's solver stops elsewhere with another number of them.
``fit_seconds`` is the processor time that a method adds to the fitted ensemble, without the
out-of-bag votes that baselines share.
"""

import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.datasets import PAPER, PAPER_SEED, Dataset, Unavailable
from benchmarks.environment import environment
from benchmarks.kept_output import options
from benchmarks.methods import METHODS, Method, Skipped, uniform
from benchmarks.paper_page import TABLES
from benchmarks.problem import BASES, NO_BASE, Problem, make_problem
from benchmarks.progress import Progress
from benchmarks.results_store import FAILED, OK, SKIPPED, ResultsStore
from benchmarks.scoring import score

RESULTS = Path(__file__).parent / "results"
OUT = {1: RESULTS / "paper.csv", 10: RESULTS / "paper_seeds.csv"}
COLUMNS = (
    *("dataset", "task", "base", "method", "seed", "status", "reason"),
    *("accuracy", "log_loss", "brier", "ece", "paper_ece", "mean_confidence", "mse", "r2"),
    *("survivors", "members", "bytes", "latency_ms_per_1k", "speedup", "fit_seconds"),
    *("wall_seconds", "source", "sklearn", "numpy", "scipy", "python", "xgboost", "machine"),
)
KEY = ("dataset", "base", "method", "seed")
LONGEST_REASON = 300

Cell = tuple[Dataset, str, int]


def run(cells: Iterable[Cell], store: ResultsStore) -> None:
    """Run every row that has no figures by this source."""
    carried = environment()

    def is_due(cell: Cell, name: str, method: Method) -> bool:
        dataset, base, seed = cell
        row = store.rows.get((dataset.name, base, name, str(seed)), {})
        done = row.get("status") == OK and row["source"] == carried["source"]
        applies = method.has_ensemble == (base != NO_BASE) and dataset.task in method.tasks
        return applies and not done

    due = {c: [name for name, method in METHODS.items() if is_due(c, name, method)] for c in cells}
    progress = Progress(sum(map(len, due.values())))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers that stop early
        for (dataset, base, seed), methods in due.items():
            if not methods:
                continue
            start = time.perf_counter()
            key = {"dataset": dataset.name, "task": dataset.task, "base": base, "seed": seed}
            for name, figures in run_cell((dataset, base, seed), methods, store):
                row = {**key, "method": name, **figures, **carried}
                store.add({**row, "wall_seconds": time.perf_counter() - start})
                start = time.perf_counter()
                progress.step(f"{dataset.name} {base} {name} {seed}: {figures['status']}")


def run_cell(
    cell: Cell, methods: list[str], store: ResultsStore
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Status, reason and figures of each method, from one fitted ensemble."""
    dataset, base, seed = cell
    problem: Problem | None = None
    for name in methods:
        sized = store.rows.get((dataset.name, base, METHODS[name].size_from or "", str(seed)), {})
        k = int(float(sized["survivors"])) if sized.get("status") == OK else None
        try:
            problem = problem or make_problem(dataset, base, seed)
            yield name, run_method(METHODS[name], problem, k)
        except Skipped as reason:
            yield name, {"status": SKIPPED, "reason": str(reason)}
        except Exception as error:
            told = f"{type(error).__name__}: {error}"[:LONGEST_REASON]
            yield name, {"status": FAILED, "reason": told}


def run_method(method: Method, problem: Problem, k: int | None) -> dict[str, Any]:
    """Run one method, timed, and score what it returns."""
    if method.size_from and k is None:
        raise Skipped(f"{method.size_from} gave no size to match")
    full = None
    if method.has_ensemble:
        full, _ = uniform(problem)[0], problem.oob_votes
    start = time.process_time()  # a busy machine is no slow method
    models = method.run(problem, k)
    seconds = time.process_time() - start
    return {"status": OK, **score(models, problem, full), "fit_seconds": seconds}


def main(arguments: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--seeds", type=int, choices=sorted(OUT), default=1)
    parser.add_argument("--out", type=Path, help="results file (default: under benchmarks/results)")
    args = parser.parse_args(arguments)
    try:
        if not TABLES.exists():
            raise Unavailable(f"{TABLES} is not there")
        for dataset in PAPER.values():
            dataset.load()
    except Unavailable as reason:
        print(f"Nothing was run or written: {reason}.", file=sys.stderr)
        return 1
    store = ResultsStore(args.out or OUT[args.seeds], COLUMNS, KEY)
    cells = [
        (dataset, base, seed)
        for seed in range(PAPER_SEED, PAPER_SEED + args.seeds)
        for dataset in PAPER.values()
        for base in (*BASES[dataset.task], NO_BASE)
    ]
    run(cells, store)
    statuses = [row["status"] for row in store.rows.values()]
    print(f"{store.path}: " + ", ".join(f"{statuses.count(s)} {s}" for s in (OK, SKIPPED, FAILED)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
