"""What benchmarks/results/quality.csv says, goal by goal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

REFERENCE, FLOORED = "whole", "whole floored"
TOLERANCE = 0.01
BEFORE = "quality_before.csv"
"""The same script run with sparsebag of commit b6d7648, which kept whole trees."""
SET = ["dataset", "ensemble", "task"]
BUDGETS = {
    "k20": ("20 trees", 0.92),
    "k10": ("10 trees", 0.75),
    "n10": ("10 % of the nodes", 0.90),
    "n5": ("5 % of the nodes", 0.85),
    "n2.5": ("2.5 % of the nodes", 0.75),
    "n1.25": ("1.25 % of the nodes", 0.55),
}
BESIDE = {
    "default": "default, no budget",
    "whole floored": "whole with the floor",
    "whole temperature": "whole with a temperature",
    "random20": "20 random trees",
    "random10": "10 random trees",
    "tuned": "20 tuned trees, OOB temperature",
    "tuned out-of-fold": "20 tuned trees, CV temperature",
    "at tuned nodes": "compressed to the nodes of these",
    "lightgbm": "LightGBM, at most 5 % of the nodes",
    "n5 uncalibrated": "5 % of the nodes, no calibration",
    "n5 unrehearsed": "5 % of the nodes, no rehearsal",
    "k20 members": "20 trees as they are, weighted",
}


def run(paths: Sequence[Path], key: Sequence[str], machine: dict[str, str]) -> None:
    """Print the summary of results files."""
    if not paths:
        print("There are no results yet.")
        return
    table = read(paths, key, machine["source"])
    beside = paths[0].with_name(BEFORE)
    before = read([beside], key, "") if beside.exists() and beside not in paths else None
    seeds = table.groupby(SET)["seed"].nunique()
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(f"{len(seeds)} data sets × ensembles, {seeds.min()} to {seeds.max()} seeds each")
    for source, rows in table[table["seconds"].notna()].groupby("source"):
        print(f"{len(rows)} compressed models by source {source}")
    for column in ("reason", "warned"):
        for (method, said), rows in table.groupby(["method", column]):
            print(f"{len(rows)} times {method}: {said}")
    table = table[table["status"] == "ok"]
    if REFERENCE not in set(table["method"]):
        print("There are no rows of the whole ensemble to compare with.")
        return

    print("\nLog-loss or MSE over the whole ensemble's as it is, means over seeds:")
    print("share of ensembles with a ratio of at most 1.01 (median, largest);")
    print("floored: over the whole ensemble's with the floor 0.001 mixed in")
    heading = ("all", "floored", "classification", "regression", "forests", "bags", "before")
    print(f"{'':<37}{'goal':>6}" + "".join(f"{name:>20}" for name in heading))
    for method, (label, goal) in BUDGETS.items():
        _line(label, table, method, REFERENCE, 1.01, goal, before)
    for method, label in BESIDE.items():
        _line(label, table, method, REFERENCE, 1.01, before=before)

    print("\nLog-loss or MSE against each other: share below 1 (median, largest)")
    _line("at the nodes of tuned, OOB", table, "at tuned nodes", "tuned", 1.0, 0.75)
    _line("at the nodes of tuned, CV", table, "at tuned nodes", "tuned out-of-fold", 1.0)
    _line("20 trees / 20 tuned, CV", table, "k20", "tuned out-of-fold", 1.0, before=before)
    _line("5 % / LightGBM", table, "n5", "lightgbm", 1.0)
    _line("calibrated / not, 5 %", table, "n5", "n5 uncalibrated", 1.0)
    _line("rehearsed / not, 5 %", table, "n5", "n5 unrehearsed", 1.0)
    print("share of at most 1.02:")
    classes = table[table["task"] == "classification"]
    _line("5 % / whole + temperature", classes, "n5", "whole temperature", 1.02, 0.60)

    _default(table, "default")
    if before is not None:
        _default(before, "default before")
    _estimates(table)
    _worst(table, "n5")


def read(paths: Sequence[Path], key: Sequence[str], source: str) -> Any:
    """Rows of all files; of rows that several hold, that of today's source."""
    import pandas as pd

    table = pd.concat([pd.read_csv(path, dtype={"source": str}) for path in paths])
    table["stale"] = table["source"] != source
    table = table.sort_values("stale", kind="stable").drop_duplicates(list(key))
    return table.assign(score=table["log_loss"].fillna(table["mse"]))


def ratios(table: Any, method: str, reference: str) -> Any:
    """Of mean scores over the seeds that both have, one a data set and ensemble."""
    wide = table.pivot(index=[*SET, "seed"], columns="method", values="score")
    if not {method, reference} <= set(wide.columns):
        return None
    known = wide[method].notna() & wide[reference].notna()
    mean = wide[known].groupby(level=SET).mean()
    return mean[method] / mean[reference]


def _line(
    label: str,
    table: Any,
    method: str,
    reference: str,
    limit: float,
    goal: float | None = None,
    before: Any = None,
) -> None:
    found = ratios(table, method, reference)
    if found is None:
        return
    task, kind = (found.index.get_level_values(name) for name in ("task", "ensemble"))
    parts = [found, found[task == "classification"], found[task == "regression"]]
    parts += [found[kind == "forest"], found[kind == "bag"]]
    old = None if before is None else ratios(before, method, reference)
    if reference == REFERENCE:
        parts.insert(1, ratios(table, method, FLOORED))
    cells = [_cell(part, limit) for part in (*parts, old)]
    print(f"{label:<37}{'' if goal is None else f'{goal:.0%}':>6}" + "".join(cells))


def _cell(ratio: Any, limit: float) -> str:
    if ratio is None or not len(ratio):
        return f"{'–':>20}"
    text = f"{(ratio <= limit).mean():.0%} ({ratio.median():.3f}, {ratio.max():.2f})"
    return f"{text:>20}"


def _default(table: Any, label: str) -> None:
    rows = table[(table["method"] == "default") & (table["status"] == "ok")]
    if not len(rows):
        return
    kept, reach = rows["n_nodes"] / rows["whole_nodes"], 1.96 * rows["ratio_error"]
    file, cost = rows["file_bytes"] / rows["whole_bytes"], rows["seconds"] / rows["fit_seconds"]
    above, (low, high) = rows["ratio"] > 1.0 + TOLERANCE + reach, kept.quantile([0.25, 0.75])
    print(f"\n{label}: {len(rows)} runs, tolerance {TOLERANCE}")
    print(f"  nodes kept: median {kept.median():.1%}, quartiles {low:.1%} to {high:.1%}")
    print(f"  Brier score or MSE over the whole's: mean {rows['ratio'].mean():.3f}")
    print(f"    above the tolerance beyond the test rows' error: {above.mean():.1%} of runs")
    print(f"  file over joblib's (compress=3): median {file.median():.1%}, most {file.max():.1%}")
    print(f"  processor time over the fit's: median {cost.median():.2f}, most {cost.max():.2f}")


def _estimates(table: Any) -> None:
    rows = table[table["expected"].notna()]
    print("\nExpected against deployed Brier score or MSE, over that of the whole as it is")
    for method in ("default", *BUDGETS, "at tuned nodes"):
        mine = rows[rows["method"] == method]
        if not len(mine):
            continue
        off = mine["expected"] / mine["ratio"] - 1.0
        error = np.hypot(mine["expected_error"], mine["ratio_error"])
        covered = (mine["expected"] - mine["ratio"]).abs() <= 1.96 * error
        print(
            f"  {method:<16} expected {mine['expected'].mean():.3f}, deployed "
            f"{mine['ratio'].mean():.3f}; mean signed error {off.mean():+.1%}, mean absolute "
            f"{off.abs().mean():.1%}; 95 % intervals cover {covered.mean():.0%} of {len(mine)}"
        )


def _worst(table: Any, method: str, most: int = 6) -> None:
    found = ratios(table, method, REFERENCE)
    if found is None:
        return
    worst = found.sort_values(ascending=False)[:most]
    print(
        f"\nLargest ratios of {method}: "
        + ", ".join(f"{name} {kind} {value:.3f}" for (name, kind, _), value in worst.items())
    )
