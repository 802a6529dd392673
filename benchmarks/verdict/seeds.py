"""Many splits: means with 95 % intervals, and paired differences to fair rivals and raw ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from benchmarks.verdict.markdown import ABSENT, percent, significant, table
from benchmarks.verdict.results import MAIN_SCORE, Results

LEVEL = 0.95
SHOWN = {
    "uniform": "uniform",
    "random_k": "random-k",
    "best_k": "best-k",
    "caruana": "Caruana",
    "scsb_paper": 'SCSB (`"paper"`)',
    "sparsebag_default": "default",
    "uniform_floored": "uniform, floored",
    "random_k_default": "random-k of default, floored",
    "uniform_temperature": "uniform + temperature",
}
Pairs = dict[tuple[str, str], str]
FAIR: Pairs = {
    ("scsb_paper", "uniform"): "SCSB − uniform",
    ("scsb_paper", "random_k"): "SCSB − random-k",
    ("sparsebag_default", "uniform_floored"): "default − uniform, floored",
    ("sparsebag_default", "random_k_default"): "default − random-k of its size, floored",
}
"""Equal floors and, against random members, equal sizes."""
RAW: Pairs = {
    ("sparsebag_default", "uniform"): "default − uniform",
    ("sparsebag_default", "random_k"): "default − random-k of SCSB's size",
}
"""The default's floor and size against none and another: part of these is the floor's doing."""


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean and half-width of Student's interval."""
    n = len(values)
    if n < 2:
        return float(np.mean(values)), float("nan")
    half = stats.t.ppf((1 + LEVEL) / 2, n - 1) * np.std(values, ddof=1) / np.sqrt(n)
    return float(np.mean(values)), float(half)


def relative_differences(results: Results, method: str, rival: str) -> pd.DataFrame:
    """Per configuration and seed, (method - rival) / mean of rival, of the main score."""
    rows = results.frame[results.frame["status"] == "ok"].copy()
    rows["score"] = np.where(rows["task"] == "classification", rows["log_loss"], rows["mse"])
    wide = rows.pivot_table(
        index=["dataset", "base", "seed"], columns="method", values="score", sort=False
    )
    if method not in wide or rival not in wide:
        return pd.DataFrame(columns=["dataset", "base", "difference"])
    both = wide[[method, rival]].dropna()
    scale = both[rival].groupby(level=["dataset", "base"], sort=False).transform("mean")
    return ((both[method] - both[rival]) / scale).rename("difference").reset_index()


def means_table(results: Results) -> str:
    rows = []
    finished = results.frame[results.frame["status"] == "ok"]
    keys = ["dataset", "task", "base"]
    for (dataset, task, base), group in finished[finished["base"] != "none"].groupby(
        keys, sort=False
    ):
        cells = []
        for method in SHOWN:
            values = group.loc[group["method"] == method, MAIN_SCORE[task]].dropna().to_numpy()
            cells.append(
                (_with_half_width(*interval(values)), len(values)) if len(values) else None
            )
        rows.append([dataset, base, *_with_n(cells)])
    return table(["data set", "base", "n", *SHOWN.values()], rows, left=2)


def _with_n(cells: Sequence[tuple[str, int] | None]) -> list[str]:
    """The most splits a row's cells rest on, then the cells; those with fewer say so."""
    most = max((cell[1] for cell in cells if cell), default=0)
    shown = [
        ABSENT if cell is None else cell[0] + (f" (n = {cell[1]})" if cell[1] < most else "")
        for cell in cells
    ]
    return [str(most), *shown]


def _with_half_width(mean: float, half: float) -> str:
    return significant(mean) + (f" ± {significant(half, 2)}" if np.isfinite(half) else "")


def differences_table(results: Results, pairs: Pairs) -> tuple[str, list[str]]:
    """Paired differences in percent of the rival's mean, and a sentence a column."""
    cells: dict[tuple[str, str], dict[str, tuple[str, int]]] = {}
    sentences = []
    for (method, rival), title in pairs.items():
        lower = higher = total = 0
        differences = relative_differences(results, method, rival)
        for key, group in differences.groupby(["dataset", "base"], sort=False):
            mean, half = interval(group["difference"].to_numpy())
            sign = "lower" if mean + half < 0 else "higher" if mean - half > 0 else ""
            lower, higher, total = lower + (sign == "lower"), higher + (sign == "higher"), total + 1
            cells.setdefault(key, {})[title] = (
                _percent_interval(mean, half, bool(sign)),
                len(group),
            )
        sentences.append(
            f"{title}: lower in {lower}, higher in {higher}, undecided in "
            f"{total - lower - higher} of {total}."
        )
    known = results.frame[["dataset", "base"]].drop_duplicates().itertuples(index=False, name=None)
    rows = [
        [*key, *_with_n([cells[key].get(title) for title in pairs.values()])]
        for key in known
        if key in cells
    ]
    return table(["data set", "base", "n", *pairs.values()], rows, left=2), sentences


def _percent_interval(mean: float, half: float, decided: bool) -> str:
    text = f"{100 * mean:+.1f} ± {100 * half:.1f}".replace("-", "−")
    return f"**{text}**" if decided else text


def seeds_section(results: Results | None) -> str:
    if results is None:
        return (
            "Fewer than two splits are finished; `make bench-paper-seeds` runs ten and writes "
            "`benchmarks/results/paper_seeds.csv`."
        )
    n_seeds = results.frame["seed"].nunique()
    differences, sentences = differences_table(results, FAIR)
    raw, raw_sentences = differences_table(results, RAW)
    return "\n\n".join(
        [
            f"{n_seeds} splits; rows of ours by source {', '.join(results.sources())}. Log-loss "
            "(classification) or mean squared error (regression): mean ± half-width of Student's "
            f"{percent(LEVEL)} interval over the n splits that ran (cells of fewer say so).",
            means_table(results),
            "Paired differences, split by split, in percent of the rival's mean; below zero is "
            "better, bold where the interval excludes zero. The splits share rows, so the "
            "intervals are somewhat too narrow. Our default votes with a floor and keeps its own "
            "number of members, so its rivals here have the same floor and random-k the same size.",
            differences,
            "\n".join(f"- {s}" for s in sentences),
            "The same against rivals without a floor, and random members of SCSB's number: not a "
            "fair comparison, since log-loss punishes a wrong certainty without bound.",
            raw,
            "\n".join(f"- {s}" for s in raw_sentences),
        ]
    )
