"""What benchmarks/results/quality.csv says, goal by goal."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

REFERENCE, FLOORED = "whole", "whole floored"
TOLERANCE = 0.01
SET = ["dataset", "ensemble", "task"]
BUDGETS = {
    "k20": "20 trees",
    "k10": "10 trees",
    "n10": "10 % of the nodes",
    "n5": "5 % of the nodes",
    "n2.5": "2.5 % of the nodes",
    "n1.25": "1.25 % of the nodes",
}
OUT, HELD, NEW = "out-of-bag rows", "held-out rows", "held-out rows, a new fit"
RIVALS = {
    "reduced error": ("reduced error", OUT),
    "complementariness": ("complementariness", OUT),
    "cost-complexity": ("cost-complexity pruning", HELD),
    "depth pruning": ("depth pruning (ForestPrune)", HELD),
    "level-wise L1": ("level-wise L1 (LOP)", "held-out rows, every level"),
    "small forest": ("small forest, tuned", NEW),
    "hierarchical shrinkage": ("hierarchical shrinkage", NEW),
    "lightgbm tuned": ("LightGBM", NEW),
    "ydf": ("YDF boosting", NEW),
    "slim-trees": ("slim-trees, all trees", "nothing"),
}
"""Of each, its name and what it needs beside the ensemble's rows and labels."""
MOST = 0.7
"""Ahead of a rival: on at least this share of forests and bags."""
BESIDE = {
    "default": "default, no budget",
    "whole floored": "whole with the floor",
    "whole temperature": "whole with a temperature",
    "random20": "20 random trees",
    "random10": "10 random trees",
    "tuned out-of-fold": "20 tuned trees",
    "at tuned nodes": "compressed to the nodes of these",
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
    heading = ("all", "floored", "classification", "regression", "forests", "bags")
    print(f"{'':<37}" + "".join(f"{name:>20}" for name in heading))
    for method, label in (BUDGETS | BESIDE).items():
        _line(label, table, method, REFERENCE, 1.01)

    print("\nLog-loss or MSE against each other: share below 1 (median, largest)")
    _line("at the nodes of 20 tuned trees", table, "at tuned nodes", "tuned out-of-fold", 1.0)
    _line("20 trees / 20 tuned", table, "k20", "tuned out-of-fold", 1.0)
    _line("calibrated / not, 5 %", table, "n5", "n5 uncalibrated", 1.0)
    _line("rehearsed / not, 5 %", table, "n5", "n5 unrehearsed", 1.0)
    for method, (label, _) in RIVALS.items():
        _line(f"5 % / {label}", table, "n5", method, 1.0)
    print("share of at most 1.02:")
    classes = table[table["task"] == "classification"]
    _line("5 % / whole + temperature", classes, "n5", "whole temperature", 1.02)

    if set(RIVALS) <= set(table["method"]):
        print(f"\n{rivals_table(table)}\n\n{why_not(table)}")
    _default(table)
    _estimates(table)


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


def _line(label: str, table: Any, method: str, reference: str, limit: float) -> None:
    found = ratios(table, method, reference)
    if found is None:
        return
    task, kind = (found.index.get_level_values(name) for name in ("task", "ensemble"))
    parts = [found, found[task == "classification"], found[task == "regression"]]
    parts += [found[kind == "forest"], found[kind == "bag"]]
    if reference == REFERENCE:
        parts.insert(1, ratios(table, method, FLOORED))
    print(f"{label:<37}" + "".join(f"{_cell(part, limit):>20}" for part in parts))


def _cell(ratio: Any, limit: float) -> str:
    if ratio is None or not len(ratio):
        return "–"
    return f"{(ratio <= limit).mean():.0%} ({ratio.median():.3f}, {ratio.max():.2f})"


def rivals_table(table: Any) -> str:
    """Published ways to 5 % of the nodes beside ours, in Markdown."""
    key = [*SET, "seed"]
    ours = table[table["method"].isin(["n10", "n5", "n2.5", "n1.25"])].sort_values("file_bytes")
    lines = [
        "|method|also needs|at 5% of the nodes|no larger file|nodes, file, time|",
        "|---|---|---|---|---|",
    ]
    for method, (label, needs) in ({"n5": ("**sparsebag**", "four 32-tree fits")} | RIVALS).items():
        rows = table[table["method"] == method]
        pairs = rows.merge(ours, on=key, suffixes=("", "_ours"))
        pairs = pairs[pairs["file_bytes_ours"] <= pairs["file_bytes"]].groupby(key).last()
        small = _cell(pairs["score_ours"] / pairs["score"], 1.0)
        cells = [_cell(ratios(table, "n5", method), 1.0), small] if method in RIVALS else ["–", "–"]
        # Budgets share a rehearsal, whose time the default's row has.
        timed = rows if method in RIVALS else table[table["method"] == "default"]
        size, file, time = (
            (of[one] / of[all_]).median()
            for of, one, all_ in (
                (rows, "n_nodes", "whole_nodes"),
                (rows, "file_bytes", "whole_bytes"),
                (timed, "seconds", "fit_seconds"),
            )
        )
        cost = "–" if time != time else f"{time:.1f}"
        lines.append(f"|{label}|{needs}|{'|'.join(cells)}|{size:.1%}, {file:.1%}, {cost}|")
    return "\n".join(lines)


def why_not(table: Any) -> str:
    """Of which rivals ours is not ahead on most ensembles, and where."""
    found = {method: ratios(table, "n5", method) for method in RIVALS}
    behind = [method for method, ratio in found.items() if (ratio <= 1.0).mean() < MOST]
    names = " and ".join(RIVALS[method][0] for method in behind)
    told = f"sparsebag has the lower loss on at least {MOST:.0%} of the forests and bags, against "
    told += f"every method but {names}." if behind else "every method."
    for method in behind:
        whole = ratios(table, "whole temperature", method).reindex(found[method].index) > 1.0
        worse, better = (found[method][part] <= 1.0 for part in (whole, ~whole))
        told += (
            f" On {whole.mean():.0%} of them, {RIVALS[method][0]} beats even the calibrated whole "
            f"ensemble; there sparsebag has the lower loss on {worse.mean():.0%}, elsewhere on "
            f"{better.mean():.0%}."
        )
    return told


def _default(table: Any) -> None:
    rows = table[table["method"] == "default"]
    if not len(rows):
        return
    kept, reach = rows["n_nodes"] / rows["whole_nodes"], 1.96 * rows["ratio_error"]
    file, cost = rows["file_bytes"] / rows["whole_bytes"], rows["seconds"] / rows["fit_seconds"]
    above, (low, high) = rows["ratio"] > 1.0 + TOLERANCE + reach, kept.quantile([0.25, 0.75])
    print(f"\ndefault: {len(rows)} runs, tolerance {TOLERANCE}")
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
