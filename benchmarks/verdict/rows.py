"""The paper's 49 table rows: printed, authors' code, ours, side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.verdict.markdown import ABSENT, decimals, number, percent, signed, table
from benchmarks.verdict.results import MAIN_SCORE, PAPER_BASES, Inputs, Results

METHOD = {
    "Standard Bagging": "uniform",
    "Lasso-Pruned Bagging": "lasso_pruned",
    "SCSB": "scsb_paper",
    "XGBoost": "xgboost",
}
EQUAL = "="
PLACES = 4
"""Decimals shown where the paper prints none."""
BESIDE = {
    "random_k": "random-k",
    "sparsebag_default": "ours default",
    "random_k_default": "random-k of default",
}
SCORE_HEADER = ["printed", "authors’ code", "ours", "ours − code", *BESIDE.values()]
SIZE_HEADER = ["k printed", "k code", "k ours", "k default"]
SCORE_WITHIN, SURVIVORS_WITHIN = 0.01, 2
"""What threads and library versions may move; beyond it a printed row is not reproduced."""


def paper_rows(inputs: Inputs) -> pd.DataFrame:
    """The tables' rows; without the tables, the same rows as the results know them."""
    if inputs.tables is not None:
        return inputs.tables
    model = {method: name for name, method in METHOD.items()}
    frame = inputs.results.frame
    known = frame[frame["method"].isin(model) & frame["base"].isin([*PAPER_BASES, "none"])]
    return known[["dataset", "task", "base"]].assign(model=known["method"].map(model))


def score_rows(inputs: Inputs, task: str, score: str, *, sizes: bool = True) -> str:
    """A table of one score for one task."""
    rows = []
    for _, entry in paper_rows(inputs).query("task == @task").iterrows():
        rows.append(
            [
                entry["dataset"],
                "" if entry["base"] == "none" else entry["base"],
                entry["model"],
                *_score_cells(inputs, entry, score),
                *(_size_cells(inputs, entry) if sizes else ()),
            ]
        )
    names = ["data set", "base", "model", *SCORE_HEADER, *(SIZE_HEADER if sizes else ())]
    return table(names, rows, left=3)


def _ours(inputs: Inputs, entry: pd.Series) -> pd.Series | None:
    return inputs.results.row(entry["dataset"], entry["base"], METHOD[entry["model"]])


def _places(entry: pd.Series, score: str) -> int:
    printed = entry.get(score, "")
    return decimals(printed) if printed else PLACES


def _score_cells(inputs: Inputs, entry: pd.Series, score: str) -> list[str]:
    ours, places = _ours(inputs, entry), _places(entry, score)
    code, beside = entry.get(f"code_{score}", ""), [""] * len(BESIDE)
    if entry["model"] == "SCSB":
        beside = [
            shown(inputs.results.row(entry["dataset"], entry["base"], method), score, places)
            for method in BESIDE
        ]
    return [
        entry.get(score, "") or ABSENT,
        number(float(code), places) if code else ABSENT,
        shown(ours, score, places),
        against_code(_value(ours, score), code, places),
        *beside,
    ]


def _size_cells(inputs: Inputs, entry: pd.Series) -> list[str]:
    default = ""
    if entry["model"] == "SCSB":
        row = inputs.results.row(entry["dataset"], entry["base"], "sparsebag_default")
        default = survivors(row)
    return [
        entry.get("active", "") or ABSENT,
        entry.get("code_active", "") or ABSENT,
        survivors(_ours(inputs, entry)),
        default,
    ]


def against_code(ours: float, code: str, places: int) -> str:
    """``=`` where ours rounds to the authors' code's figure, else the difference."""
    if not code or not np.isfinite(ours):
        return ABSENT
    if number(ours, places) == number(float(code), places):
        return EQUAL
    difference = signed(ours - float(code), places)
    return difference if difference.strip("+−0.") else "last digit"


def shown(row: pd.Series | None, score: str, places: int) -> str:
    """A score, or why there is none."""
    if row is None:
        return "not run"
    if row["status"] != "ok":
        return str(row["status"])
    return number(float(row[score]), places)


def survivors(row: pd.Series | None) -> str:
    return number(_value(row, "survivors"), 0)


def _value(row: pd.Series | None, column: str) -> float:
    if row is None or row["status"] != "ok":
        return float("nan")
    return float(row[column])


def unfinished(results: Results) -> str:
    """Every skipped or failed row with its reason, nothing dropped."""
    frame = results.frame
    bad = frame[frame["status"] != "ok"]
    if bad.empty:
        return "No row was skipped or failed."
    rows = []
    for (method, status, reason), group in bad.astype({"reason": str}).groupby(
        ["method", "status", "reason"], sort=False
    ):
        seeds = (group["dataset"] + " " + group["base"]).value_counts(sort=False)
        where = ", ".join(name + (f" ×{n}" if n > 1 else "") for name, n in seeds.items())
        rows.append([method, status, str(reason).replace("|", "/"), where])
    return table(["method", "status", "reason", "where"], rows, left=4)


def latency_rows(inputs: Inputs) -> str:
    """Printed and measured latency; how many times faster than the full ensemble."""
    rows = []
    for _, entry in paper_rows(inputs).iterrows():
        ours = _ours(inputs, entry)
        default = None
        if entry["model"] == "SCSB":
            default = inputs.results.row(entry["dataset"], entry["base"], "sparsebag_default")
        rows.append(
            [
                entry["dataset"],
                "" if entry["base"] == "none" else entry["base"],
                entry["model"],
                entry.get("latency_ms_per_1k", "") or ABSENT,
                shown(ours, "latency_ms_per_1k", 2),
                number(_value(ours, "speedup"), 2),
                number(_value(default, "latency_ms_per_1k"), 2),
                number(_value(default, "speedup"), 2),
            ]
        )
    header = ["printed", "ours", "× uniform", "ours default", "default × uniform"]
    return table(["data set", "base", "model", *header], rows, left=3)


def every_row(results: Results) -> str:
    """What else each finished row holds."""
    rows = [
        [
            row["dataset"],
            "" if row["base"] == "none" else row["base"],
            row["method"],
            number(row["brier"], 4),
            number(row["r2"], 4),
            number(row["survivors"], 0),
            number(row["bytes"], 0),
            number(row["latency_ms_per_1k"], 2),
            number(row["fit_seconds"], 3),
        ]
        for _, row in results.frame[results.frame["status"] == "ok"].iterrows()
    ]
    header = ["Brier", "R²", "k", "bytes", "ms for 1000 rows", "fit, s"]
    return table(["data set", "base", "method", *header], rows, left=3)


def rows_section(inputs: Inputs) -> str:
    """The section: main scores of both tasks, then what else the paper prints of classifiers."""
    parts = [
        summary(inputs),
        "### Classification: log-loss and survivors (k)",
        score_rows(inputs, "classification", "log_loss"),
        "### Regression: mean squared error and survivors (k)",
        score_rows(inputs, "regression", "mse"),
        "### Classification: accuracy",
        score_rows(inputs, "classification", "accuracy", sizes=False),
        "### Classification: what the paper's code prints as ECE (`paper_ece`)",
        score_rows(inputs, "classification", "paper_ece", sizes=False),
        "### Regression: R²",
        score_rows(inputs, "regression", "r2", sizes=False),
        "### Latency: milliseconds for 1000 rows",
        "Printed on the authors' machine, ours on this one: compare within a column. Each row was "
        "timed when it ran, on a machine that may have been busy; “× uniform” was timed in turn "
        "with the full ensemble and is what the verdict on speed uses.",
        latency_rows(inputs),
    ]
    return "\n\n".join(parts)


def _why_scsb_differs(inputs: Inputs) -> str:
    """What fits to votes of other last bits say about the rows where ours is not the code's."""
    assert inputs.tables is not None
    bags = inputs.experiments.get("every_bag", {})
    reached, not_reached, unmeasured = [], [], []
    for _, entry in inputs.tables.query("model == 'SCSB'").iterrows():
        score = MAIN_SCORE[entry["task"]]
        code, places = entry[f"code_{score}"], _places(entry, score)
        if against_code(_value(_ours(inputs, entry), score), code, places) in (EQUAL, ABSENT):
            continue
        name = f"{entry['dataset']} {entry['base']}"
        if name not in bags:
            unmeasured.append(name)
            continue
        found = [point["test_score"] for point in (bags[name], *bags[name]["perturbed"])]
        last_digit = 10.0**-places
        inside = min(found) - last_digit <= float(code) <= max(found) + last_digit
        (reached if inside else not_reached).append(name)
    if not (reached or not_reached or unmeasured):
        return ""
    total = len(reached) + len(not_reached) + len(unmeasured)
    text = f" SCSB differs in {total} rows."
    if reached or not_reached:
        draws = max(len(bag["perturbed"]) for bag in bags.values())
        text += (
            f" Fitted again {draws} times to votes of which half are one last bit lower, ours "
            f"spreads over the code's figure in {len(reached)} of them"
            f"{' (' + ', '.join(reached) + ')' if reached else ''}: there rounding alone can be "
            "the cause."
        )
    if not_reached:
        text += f" In the others the cause is not known: {', '.join(not_reached)}."
    if unmeasured:
        text += f" Not measured, so the cause is not known: {', '.join(unmeasured)}."
    return text


def summary(inputs: Inputs) -> str:
    """How many rows agree: ours with the authors' code, and the code with the paper."""
    if inputs.tables is None:
        return (
            "The paper's tables were not given (`--tables`), so the printed and authors' code "
            "columns are empty."
        )
    marks: dict[str, list[str]] = {model: [] for model in METHOD}
    unprinted: dict[str, list[str]] = {}
    for _, entry in inputs.tables.iterrows():
        score = MAIN_SCORE[entry["task"]]
        places, code = _places(entry, score), entry[f"code_{score}"]
        marks[entry["model"]].append(
            against_code(_value(_ours(inputs, entry), score), code, places)
        )
        printed = float(entry[score]), int(entry["active"])
        if (
            abs(printed[0] / float(code) - 1.0) > SCORE_WITHIN
            or abs(printed[1] - int(entry["code_active"])) > SURVIVORS_WITHIN
        ):
            where = f"{entry['dataset']} {entry['base']}".removesuffix(" none")
            unprinted.setdefault(where, []).append(entry["model"])
    equal = ", ".join(f"{m} {marks[m].count(EQUAL)} of {len(marks[m])}" for m in METHOD)
    lost = "; ".join(f"{where} ({', '.join(models)})" for where, models in unprinted.items())
    count = sum(map(len, unprinted.values()))
    others = [m for m in METHOD if m != "SCSB"]
    exact = all(mark == EQUAL for m in others for mark in marks[m])
    why = ""
    if exact:
        why = (
            " Every row that SLSQP does not touch is equal, so the data, the split and the "
            "ensembles are the authors'."
        )
    why += _why_scsb_differs(inputs)
    return (
        f"Main scores equal to the authors' code to the printed digits: {equal}.{why}\n\n"
        f"The authors' code itself does not give what is printed (score within "
        f"{percent(SCORE_WITHIN)}, survivors within {SURVIVORS_WITHIN}) in {count} of "
        f"{len(inputs.tables)} rows: {lost}."
    )
