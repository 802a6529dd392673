"""The honest estimate of refitted leaves against what they do on test rows, at every strength.

    SPARSEBAG_DATA=... python -m benchmarks.honest_estimate

Forests of 100 trees, one seed. For random k of the trees both are in closed form: the estimate from
leave-one-out, co-OOB votes of training rows, the deployed risk from test rows. Rows are appended
to benchmarks/results/honest_estimate.csv; the figure is docs/figures/honest_estimate.png.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import PAPER, Unavailable
from benchmarks.datasets.suite import SUITE
from benchmarks.progress import Progress
from benchmarks.results_store import OK, ResultsStore
from benchmarks.selection import Deployed, make_problem
from sparsebag.evidence.collect import collect_evidence
from sparsebag.refine.refitted_trees import RefittedTrees
from sparsebag.refine.strength import LAMS, row_moments
from sparsebag.settings import DEFAULT_FLOOR

RESULTS = Path(__file__).parent / "results" / "honest_estimate.csv"
FIGURE = Path(__file__).parents[1] / "docs" / "figures" / "honest_estimate.png"
TWICINGS = (-0.5, 0.0, 0.5, 1.0)
SIZES = (10, 20, 100)
MOST_TEST = 3000
TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)
COLOURS = {-0.5: "#0072B2", 0.0: "#000000", 0.5: "#D55E00", 1.0: "#CC79A7"}

KEY = ("dataset", "twicing", "smoothing", "k")
COLUMNS = (*KEY, "status", "task", "estimate", "deployed", "full_estimate", "full_deployed")


def points(name: str, data_dir: str | None) -> Iterator[dict[str, Any]]:
    problem = make_problem(name, "forest", 100, 0, data_dir, train_share=0.5, most_train=4000)
    evidence = collect_evidence(problem.pool, problem.X, problem.y, class_votes=True)
    trees = RefittedTrees(problem.pool, problem.X, evidence, floor=DEFAULT_FLOOR)
    targets, honest, weight = trees.targets, trees.honest, trees.levels.weight
    observed = targets.observed[honest.rows][:, None, :]
    X = problem.pool.prepare(problem.X_test[:MOST_TEST])
    y = problem.y_test[:MOST_TEST]
    classify = problem.task == "classification"
    truth = (y[:, None] == np.arange(problem.n_classes)) if classify else y[:, None]
    leaves = [member.apply(X) for member in problem.pool.members]
    own = [
        member.predict_proba(X, problem.n_classes) if classify else member.predict(X)[:, None]
        for member in problem.pool.members
    ]
    n = len(leaves)
    full_deployed = float(Deployed(np.asarray(truth - np.asarray(own), np.float32)).random_k(n))
    full_estimate = float(trees.levels.own.at(1.0 / n))
    for lam in LAMS:
        # Leaf tables are linear in the twicing.
        tables = [
            (
                targets.leaf_table(trees.routed, j, 0.0, lam),
                targets.leaf_table(trees.routed, j, 1.0, lam),
            )
            for j in range(n)
        ]
        for twicing in TWICINGS:
            said = [
                targets.as_votes(zero + twicing * (one - zero))[leaf]
                for (zero, one), leaf in zip(tables, leaves, strict=True)
            ]
            judge = Deployed(np.asarray(truth - np.asarray(said), np.float32))
            residual = observed - honest.votes(twicing, lam)
            moments = row_moments(honest.mask, residual, residual)
            for k in SIZES:
                yield {
                    **{"dataset": name, "twicing": twicing, "smoothing": lam, "k": k},
                    **{"status": OK, "task": problem.task},
                    "estimate": targets.multiplicity * moments.at(1.0 / k, weight),
                    "deployed": float(judge.random_k(k)),
                    **{"full_estimate": full_estimate, "full_deployed": full_deployed},
                }


def run(data_dir: str | None, only: Sequence[str] | None = None) -> None:
    """Add what is missing, print the errors, draw the figure."""
    store = ResultsStore(RESULTS, COLUMNS, KEY)
    names = [name for name in {**PAPER, **SUITE} if not only or name in only]
    last = (f"{TWICINGS[-1]}", f"{LAMS[-1]}", f"{SIZES[-1]}")
    todo = [name for name in names if not store.is_finished((name, *last))]
    progress = Progress(max(len(todo), 1))
    for name in todo:
        try:
            for row in points(name, data_dir):
                store.add(
                    {**row, "smoothing": str(row["smoothing"]), "twicing": str(row["twicing"])}
                )
        except Unavailable as reason:
            print(f"{name} skipped: {reason}")
        progress.step(f"{name}, every strength")
    if store.rows:
        summarise(RESULTS)
        draw(RESULTS, FIGURE)


def summarise(path: Path) -> None:
    table = _table(path)
    print("\n## Honest estimate against deployed, random k trees, every strength\n")
    print("                 strengths × sets × k   mean |error|   median   bias   correlation")
    for task, part in table.groupby("task"):
        error = part["x"] / part["y"] - 1.0
        r = np.corrcoef(part["x"], part["y"])[0, 1]
        print(
            f"{task:<17}{len(part):>20}{error.abs().mean():>15.1%}{error.abs().median():>9.1%}"
            f"{error.mean():>+7.1%}{r:>14.3f}"
        )


def draw(path: Path, figure_path: Path) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

    from benchmarks.figures.style import new_figure, note, save

    table = _table(path)
    figure, axes = new_figure(2, width=4.0, height=3.8)
    for axis, task in zip(axes[0], ("classification", "regression"), strict=True):
        part = table[table["task"] == task]
        if not len(part):
            continue
        ends = [min(part["x"].min(), part["y"].min()), max(part["x"].max(), part["y"].max())]
        axis.plot(ends, ends, color="#999999", linewidth=1.0, zorder=1)
        for twicing, colour in COLOURS.items():
            some = part[part["twicing"] == twicing]
            axis.scatter(
                some["x"],
                some["y"],
                s=7,
                color=colour,
                alpha=0.5,
                linewidths=0,
                label=f"a = {twicing:g}",
            )
        error = (part["x"] / part["y"] - 1.0).abs()
        risk = "Brier score" if task == "classification" else "squared error"
        axis.set(
            xscale="log",
            yscale="log",
            title=f"{task}, {part['dataset'].nunique()} data sets",
            xlabel=f"honest estimate of the {risk}",
            ylabel="deployed, on test rows",
        )
        note(axis, f"over the whole ensemble's;\nmean |error| {error.mean():.1%}")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_locator(FixedLocator(TICKS))
            side.set_major_formatter(ScalarFormatter())
            side.set_minor_locator(NullLocator())
        axis.legend(loc="lower right", markerscale=2.0)
    save(figure, figure_path)


def _table(path: Path) -> Any:
    """Both risks over the whole ensemble's own, estimated and deployed."""
    import pandas as pd

    table = pd.read_csv(path)
    table["x"] = table["estimate"] / table["full_estimate"]
    table["y"] = table["deployed"] / table["full_deployed"]
    return table


if __name__ == "__main__":
    run(os.environ.get("SPARSEBAG_DATA"))
