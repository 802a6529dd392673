"""The paper's tables: seven data sets, every base model, every method, one row each.

    SPARSEBAG_DATA=... python -m benchmarks.paper [--seeds 1|10] [--out FILE]

One seed is the paper's single split (seed 42); ten are the splits 42 to 51. The results file grows
a row at a time, errors too; a row with figures by today's source (or of a method that runs no
sparsebag) is not run again. Without the data, or the paper's tables, nothing is written.

All of it runs on one thread: the paper's solver stops elsewhere with another number of them.
``fit_seconds`` is the processor time that a method adds to the fitted ensemble, without the
out-of-bag votes that baselines share.
"""

import sys
import time
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.datasets import PAPER, PAPER_SEED, Dataset, Unavailable
from benchmarks.environment import environment
from benchmarks.kept_output import RESULTS, options
from benchmarks.methods import METHODS, Method, Skipped, uniform
from benchmarks.paper_page import TABLES
from benchmarks.problem import BASES, NO_BASE, Problem, make_problem
from benchmarks.progress import Progress
from benchmarks.results_store import FAILED, OK, SKIPPED, ResultsStore, key_of
from benchmarks.scoring import score

OUT = {1: RESULTS / "paper.csv", 10: RESULTS / "paper_seeds.csv"}
COLUMNS = (
    *("dataset", "task", "base", "method", "seed", "status", "reason"),
    *("accuracy", "log_loss", "brier", "ece", "paper_ece", "mean_confidence", "mse", "r2"),
    *("survivors", "members", "bytes", "latency_ms_per_1k", "speedup", "fit_seconds"),
    *("wall_seconds", "source", "sklearn", "numpy", "scipy", "python", "xgboost", "machine"),
)
KEY = ("dataset", "base", "method", "seed")


def run(cells: Sequence[tuple[Dataset, str, int]], store: ResultsStore) -> None:
    """Run every row that has no figures by this source; rivals' rows are of none."""
    carried = environment()
    progress = Progress(len(cells))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers that stop early
        for dataset, base, seed in cells:
            problem, start = cache(make_problem), time.perf_counter()
            for name, method in METHODS.items():  # one to be matched is before its match
                if method.has_ensemble == (base == NO_BASE) or dataset.task not in method.tasks:
                    continue
                key = {"dataset": dataset.name, "base": base, "method": name, "seed": seed}
                source = carried["source"] if method.is_ours else ""
                row = store.rows.get(key_of(key, KEY), {})
                sized = store.rows.get(key_of({**key, "method": method.size_from}, KEY), row)
                found = [row.get("status"), row.get("source"), row.get("survivors")]
                if found == [OK, source, sized.get("survivors")]:
                    continue
                try:
                    k = int(float(sized["survivors"])) if method.size_from else None
                    figures = run_method(method, problem(dataset, base, seed), k)
                except Skipped as reason:
                    figures = {"status": SKIPPED, "reason": str(reason)}
                except Exception as error:
                    figures = {"status": FAILED, "reason": f"{type(error).__name__}: {error}"[:300]}
                key |= {"task": dataset.task, **figures, **carried, "source": source}
                store.add({**key, "wall_seconds": time.perf_counter() - start})
                start = time.perf_counter()
            progress.step(f"{dataset.name} {base} {seed}")


def run_method(method: Method, problem: Problem, k: int | None) -> dict[str, Any]:
    """Run one method, timed, and score what it returns."""
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
