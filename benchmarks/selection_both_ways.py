"""Expected risk against deployed when every row both trains and judges: 5 x 2 cross-validation.

    SPARSEBAG_DATA=... python -m benchmarks.selection_both_ways [--seeds 5] [--members 100 500]

Two samples of a few hundred rows differ by more than any estimate is wrong: `benchmarks.selection`
prints that luck beside its errors. Here each seed cuts the rows into halves (at most 2000 rows
each); an ensemble is fitted and judged from one half alone and deployed on the other, then the
other way round. Both sides of the comparison are then means over the same
rows, so that what is left is the error of the estimate. Rows of results are appended as they come.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import sparsebag as sb
from benchmarks.datasets import PAPER, Unavailable
from benchmarks.datasets.suite import SUITE, load
from benchmarks.environment import environment
from benchmarks.progress import Progress
from benchmarks.results_store import OK, ResultsStore
from benchmarks.selection import SIZES, deployed, fitted, judged_path, rounded
from sparsebag.evidence.collect import collect_evidence

RESULTS = Path(__file__).parent / "results" / "selection_both_ways.csv"
MOST_ERROR, MOST_ROWS = 0.05, 2000
KEY = ("dataset", "ensemble", "members", "seed", "point")
COLUMNS = (
    *KEY,
    *("status", "rows", "expected", "deployed", "full_expected", "full_deployed", "source"),
)


def both_ways(name: str, kind: str, n_members: int, seed: int, data_dir: Any) -> list[dict]:
    """A row a size: the mean over the two ways of what was expected, and of what came."""
    X, y, task = load(name, 2 * MOST_ROWS, data_dir, seed)
    half = len(X) // 2
    halves = (X[:half], y[:half]), (X[half : 2 * half], y[half : 2 * half])
    found = []
    for train, test in (halves, halves[::-1]):
        problem = fitted(train, test, task, name, kind, n_members, seed)
        evidence = collect_evidence(problem.pool, problem.X, problem.y, class_votes=True)
        path = judged_path(problem, evidence)
        judge = deployed(problem)
        whole = judge.risk(np.full(n_members, 1.0 / n_members))[0]
        at = [int(np.argmin(np.abs(path.sizes - k))) for k in SIZES]
        risks = [judge.risk(path.points[i].spread(n_members))[0] for i in at]
        found.append(
            [
                (float(path.expected()[i]), r, path.full_risk, whole)
                for i, r in zip(at, risks, strict=True)
            ]
        )
    means = np.mean(found, axis=0)
    names = ("expected", "deployed", "full_expected", "full_deployed")
    run = {"dataset": name, "ensemble": kind, "members": n_members, "seed": seed, "rows": half}
    source = environment()["source"]
    return [
        {**run, "point": k, "status": OK, "source": source}
        | {column: rounded(float(value)) for column, value in zip(names, values, strict=True)}
        for k, values in zip(SIZES, means, strict=True)
    ]


def run(args: argparse.Namespace) -> None:
    store = ResultsStore(RESULTS, COLUMNS, KEY)
    work = [
        (name, kind, n, seed)
        for n in args.members
        for seed in range(args.seeds)
        for name in {**PAPER, **SUITE}
        for kind in ("forest", "bag")
    ]
    todo = [job for job in work if not store.is_finished((*map(str, job), str(SIZES[-1])))]
    progress = Progress(max(len(todo), 1))
    for job in todo:
        try:
            for row in both_ways(*job, args.data_dir):
                store.add(row)
        except Unavailable as reason:
            print(f"{job[0]} skipped: {reason}")
        progress.step(" ".join(map(str, job)))


def summary() -> str:
    """What the results say of each size."""
    import pandas as pd

    table = pd.read_csv(RESULTS, dtype={"source": str})
    table = table[table["status"] == OK]
    lines = []
    for n_members, part in table.groupby("members"):
        runs = part.drop_duplicates(["dataset", "ensemble", "seed"])
        lines.append(
            f"## Ensembles of {n_members}, 5 x 2 cross-validation: {runs['dataset'].nunique()} "
            f"data sets, {runs['seed'].nunique()} seeds, forests and bags, {len(runs)} runs both "
            f"ways; source {', '.join(sorted(set(part['source'])))}\n\n"
            f"k     expected against deployed, mean |relative error| of a run "
            f"(target {MOST_ERROR:.0%})   median   whole ensemble's"
        )
        for k, rows in part.groupby("point"):
            error = (rows["expected"] / rows["deployed"] - 1.0).abs()
            whole = (rows["full_expected"] / rows["full_deployed"] - 1.0).abs()
            lines.append(f"{k:<6}{error.mean():>40.1%}{error.median():>37.1%}{whole.mean():>19.1%}")
        lines.append("")
    return "\n".join(lines).rstrip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("SPARSEBAG_DATA"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--members", nargs="*", type=int, default=[100, 500])
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=sb.UncoveredRowsWarning)
    run(args)
    text = summary()
    print(text)
    RESULTS.with_suffix(".txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
