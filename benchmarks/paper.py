"""The paper's tables: seven data sets, every base model, every method, one row each.

    SPARSEBAG_DATA=... python -m benchmarks.paper [--seeds 1|10] [--out FILE]
        [--datasets ...] [--bases ...] [--methods ...] [--again METHOD ...]

One seed is the paper's single split (seed 42); ten are the splits 42 to 51. The results file grows
a row at a time and a row with figures is not run again, so the command may be stopped (Ctrl-C) and
repeated. Rows of our own methods are run again when they were made by other source than today's
(column ``source``), and size-matched ones when the size they match has changed. ``--again uniform``
refreshes a method in any case. Data that cannot be had is skipped with the reason, and an error is
a row too.

All of it runs on one thread: the paper's solver stops elsewhere with another number of them.
``fit_seconds`` is what a method adds to the fitted ensemble: its `run`, and collecting the
out-of-bag votes where it reads those the methods share. ``wall_seconds`` is all the time until the
row was there: loading, fitting the ensemble (in the first row of it) and scoring too.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from benchmarks.base_models import BASE_NAMES, NO_BASE, base_model
from benchmarks.datasets import PAPER, PAPER_SEED, Dataset, Unavailable
from benchmarks.environment import environment
from benchmarks.methods import METHODS
from benchmarks.methods.base import Method, Skipped, uniform_vote
from benchmarks.problem import Problem, make_problem
from benchmarks.progress import Progress
from benchmarks.results_store import FAILED, OK, SKIPPED, Key, ResultsStore
from benchmarks.scoring import score

RESULTS = Path(__file__).parent / "results"
DEFAULT_OUT = {1: RESULTS / "paper.csv", 10: RESULTS / "paper_seeds.csv"}
LONGEST_REASON = 300
NEEDED = {("uniform", "classification"): "mean_confidence"}
"""Figures the page reads that rows made before these columns do not hold."""
STOPPED = 130
"""Exit status of a process stopped by Ctrl-C."""


@dataclass(frozen=True)
class Cell:
    """The rows that share a split and a fitted ensemble."""

    dataset: Dataset
    base: str
    seed: int
    methods: tuple[Method, ...]

    def key(self, method: str) -> Key:
        return self.dataset.name, self.base, method, str(self.seed)


def plan(
    datasets: Sequence[Dataset], bases: Sequence[str], methods: Sequence[str], seeds: Sequence[int]
) -> list[Cell]:
    """The cells to run, a whole seed before the next.

    A method that matches another's size brings that one along.
    """
    wanted = {*methods, *(size for name in methods if (size := METHODS[name].size_from))}
    chosen = [method for name, method in METHODS.items() if name in wanted]
    cells = []
    for seed in seeds:
        for dataset in datasets:
            for base in bases:
                if base != NO_BASE and base_model(dataset.task, base) is None:
                    continue
                of_base = tuple(m for m in chosen if m.needs_ensemble == (base != NO_BASE))
                # The size to match must be known before it is matched.
                cells.append(
                    Cell(dataset, base, seed, tuple(sorted(of_base, key=_after_size_is_known)))
                )
    return [cell for cell in cells if cell.methods]


def run(
    cells: Sequence[Cell],
    store: ResultsStore,
    *,
    data_dir: str | None = None,
    again: Sequence[str] = (),
) -> None:
    """Run every row that is missing or stale, and those of the methods named in ``again``.

    Parameters
    ----------
    cells : sequence of Cell
    store : ResultsStore
        Gets each row as soon as it is done.
    data_dir : str, optional
        Where to look for the data first.
    again : sequence of str
        Methods to run whether they have figures or not.
    """
    carried = environment()
    freshness = Freshness(store, carried["source"], frozenset(again))
    due = [(cell, freshness.due(cell)) for cell in cells]
    progress = Progress(sum(len(methods) for _, methods in due))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers that stop early: their rows tell
        for cell, methods in due:
            start = time.perf_counter()
            for method, figures in run_cell(cell, methods, freshness, data_dir):
                if figures is not None:
                    store.add(
                        {
                            "dataset": cell.dataset.name,
                            "task": cell.dataset.task,
                            "base": cell.base,
                            "method": method.name,
                            "seed": cell.seed,
                            **figures,
                            "wall_seconds": time.perf_counter() - start,
                            **carried,
                        }
                    )
                    start = time.perf_counter()
                status = "as it was" if figures is None else figures["status"]
                progress.step(f"{' '.join(cell.key(method.name))}: {status}")


@dataclass(frozen=True)
class Freshness:
    """Which rows of the store still stand.

    Attributes
    ----------
    store : ResultsStore
    source : str
        The hash of the code that would make our rows now.
    again : frozenset of str
        Methods none of whose rows stand.
    """

    store: ResultsStore
    source: str
    again: frozenset[str]

    def stands(self, cell: Cell, method: Method) -> bool:
        """Whether the row is there and nothing it follows from has changed since."""
        row = self.store.rows.get(cell.key(method.name))
        if row is None or method.name in self.again:
            return False
        if cell.dataset.task not in method.tasks:
            return row["status"] == SKIPPED
        needed = NEEDED.get((method.name, cell.dataset.task))
        return (
            row["status"] == OK
            and (not method.ours or row["source"] == self.source)
            and (needed is None or row[needed] != "")
            and (method.size_from is None or size_to_match(self, cell, method) == _size(row))
        )

    def due(self, cell: Cell) -> list[Method]:
        """The methods to run, and those whose size may change when they are."""
        names = {method.name for method in cell.methods if not self.stands(cell, method)}
        return [m for m in cell.methods if m.name in names or m.size_from in names]


def size_to_match(freshness: Freshness, cell: Cell, method: Method) -> int | None:
    """The number of survivors of the method it is compared with; None where that gave none."""
    assert method.size_from is not None
    row = freshness.store.rows.get(cell.key(method.size_from), {})
    return _size(row) if row.get("status") == OK else None


def _size(row: Mapping[str, str]) -> int:
    return round(float(row["survivors"]))


def run_cell(
    cell: Cell, methods: Sequence[Method], freshness: Freshness, data_dir: str | None
) -> Iterator[tuple[Method, dict[str, Any] | None]]:
    """Status, reason and figures of each method, from one fitted ensemble.

    None where the row stands after all: the size it matches came out the same.
    """
    applying = []
    for method in methods:
        if cell.dataset.task in method.tasks:
            applying.append(method)
        else:
            yield method, _without_figures(SKIPPED, Skipped(method.not_elsewhere))
    if not applying:
        return
    try:
        problem = make_problem(cell.dataset, cell.base, cell.seed, data_dir)
    except Unavailable as reason:
        yield from ((method, _without_figures(SKIPPED, reason)) for method in applying)
        return
    except Exception as error:
        yield from ((method, _without_figures(FAILED, error)) for method in applying)
        return
    for method in applying:
        if freshness.stands(cell, method):
            yield method, None
            continue
        try:
            k = size_to_match(freshness, cell, method) if method.size_from else None
            yield method, run_method(method, problem, k)
        except Skipped as reason:
            yield method, _without_figures(SKIPPED, reason)
        except Exception as error:
            yield method, _without_figures(FAILED, error)


def run_method(method: Method, problem: Problem, k: int | None) -> dict[str, Any]:
    """Run one method, timed, and score what it returns."""
    if method.size_from and k is None:
        raise Skipped(f"{method.size_from} gave no size to match")
    shared_seconds = problem.oob.seconds if method.reads_oob else 0.0
    start = time.perf_counter()
    models = method.run(problem, k)
    seconds = time.perf_counter() - start
    figures = score(models, problem, uniform_vote(problem) if method.ours else None)
    return {"status": OK, **figures, "fit_seconds": seconds + shared_seconds}


def _without_figures(status: str, error: Exception) -> dict[str, str]:
    named = str(error) if status == SKIPPED else f"{type(error).__name__}: {error}"
    return {"status": status, "reason": named[:LONGEST_REASON]}


def _after_size_is_known(method: Method) -> bool:
    return method.size_from is not None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", help="where to look for the data first (or SPARSEBAG_DATA)")
    parser.add_argument("--seeds", type=int, choices=sorted(DEFAULT_OUT), default=1)
    parser.add_argument("--out", type=Path, help="results file (default: under benchmarks/results)")
    parser.add_argument("--datasets", nargs="+", choices=list(PAPER), default=list(PAPER))
    parser.add_argument("--bases", nargs="+", choices=BASE_NAMES, default=BASE_NAMES)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--again", nargs="+", choices=list(METHODS), default=())
    args = parser.parse_args(arguments)
    store = ResultsStore(args.out or DEFAULT_OUT[args.seeds])
    seeds = range(PAPER_SEED, PAPER_SEED + args.seeds)
    cells = plan([PAPER[name] for name in args.datasets], args.bases, args.methods, seeds)
    start = time.perf_counter()
    try:
        run(cells, store, data_dir=args.data_dir, again=args.again)
    except KeyboardInterrupt:
        print(f"\nstopped; {len(store.rows)} rows are in {store.path}", file=sys.stderr)
        return STOPPED
    counts = [sum(row["status"] == s for row in store.rows.values()) for s in (OK, SKIPPED, FAILED)]
    print(
        f"{store.path}: {counts[0]} rows ok, {counts[1]} skipped, {counts[2]} failed "
        f"({time.perf_counter() - start:.0f} s)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
