"""The paper's 49 table rows: printed, authors' code, ours, side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from benchmarks.verdict.markdown import ABSENT, decimals, number, signed, table
from benchmarks.verdict.results import MAIN_SCORE, PAPER_BASES, Inputs

METHOD = {
    "Standard Bagging": "uniform",
    "Lasso-Pruned Bagging": "lasso_pruned",
    "SCSB": "scsb_paper",
    "XGBoost": "xgboost",
}
EQUAL = "="
PLACES = {"log_loss": 4, "accuracy": 4, "paper_ece": 4, "ece": 4, "mse": 4}


def paper_rows(inputs: Inputs) -> pd.DataFrame:
    """The tables' rows; without the tables, the same rows as the results know them."""
    if inputs.tables is not None:
        return inputs.tables
    model = {method: name for name, method in METHOD.items()}
    frame = inputs.results.frame
    known = frame[frame["method"].isin(model) & frame["base"].isin([*PAPER_BASES, "none"])]
    return known[["dataset", "task", "base"]].assign(model=known["method"].map(model))


def score_rows(inputs: Inputs, task: str, score: str) -> tuple[str, dict[str, int]]:
    """A table of one score for one task, and how many rows equal the authors' code, by model."""
    header = [
        "data set",
        "base",
        "model",
        "printed",
        "authors’ code",
        "ours",
        "ours − code",
        "ours default",
        "k printed",
        "code",
        "ours",
        "default",
    ]
    rows, equal = [], {}
    for _, entry in paper_rows(inputs).query("task == @task").iterrows():
        ours = inputs.results.row(entry["dataset"], entry["base"], METHOD[entry["model"]])
        default = None
        if entry["model"] == "SCSB":
            default = inputs.results.row(entry["dataset"], entry["base"], "sparsebag_default")
        printed, code = entry.get(score, ""), entry.get(f"code_{score}", "")
        places = decimals(printed) if printed else PLACES[score]
        mark = against_code(_value(ours, score), code, places)
        equal.setdefault(entry["model"], 0)
        equal[entry["model"]] += mark == EQUAL
        rows.append(
            [
                entry["dataset"],
                "" if entry["base"] == "none" else entry["base"],
                entry["model"],
                printed or ABSENT,
                number(float(code), places) if code else ABSENT,
                shown(ours, score, places),
                mark,
                shown(default, score, places) if entry["model"] == "SCSB" else "",
                entry.get("active", "") or ABSENT,
                entry.get("code_active", "") or ABSENT,
                survivors(ours),
                survivors(default) if entry["model"] == "SCSB" else "",
            ]
        )
    return table(header, rows, left=3), equal


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
    value = _value(row, "survivors")
    return number(value, 0)


def _value(row: pd.Series | None, column: str) -> float:
    if row is None or row["status"] != "ok":
        return float("nan")
    return float(row[column])


def unfinished(inputs: Inputs) -> str:
    """Every skipped or failed row with its reason, nothing dropped."""
    frame = inputs.results.frame
    bad = frame[frame["status"] != "ok"]
    if bad.empty:
        return "No row was skipped or failed."
    rows = []
    for (method, status, reason), group in bad.astype({"reason": str}).groupby(
        ["method", "status", "reason"], sort=False
    ):
        where = ", ".join(f"{r['dataset']} {r['base']}" for _, r in group.iterrows())
        rows.append([method, status, str(reason).replace("|", "/"), where])
    return table(["method", "status", "reason", "where"], rows, left=4)


def rows_section(inputs: Inputs) -> str:
    """The section: main scores of both tasks, then what else the paper prints of classifiers."""
    parts, totals = [], {}
    for task, title in (("classification", "log-loss"), ("regression", "mean squared error")):
        text, equal = score_rows(inputs, task, MAIN_SCORE[task])
        parts.append(f"### {task.capitalize()}: {title} and survivors (k)\n\n{text}")
        for model, count in equal.items():
            totals[model] = totals.get(model, 0) + count
    for score, title in (
        ("accuracy", "accuracy"),
        ("paper_ece", "the paper's “ECE” (`paper_ece`)"),
    ):
        text, _ = score_rows(inputs, "classification", score)
        parts.append(f"### Classification: {title}\n\n{text}")
    return summary(inputs, totals) + "\n\n" + "\n\n".join(parts)


def summary(inputs: Inputs, equal: dict[str, int]) -> str:
    if inputs.tables is None:
        return (
            "The paper's tables were not given (`--tables`), so the printed and authors' code "
            "columns are empty."
        )
    counts = inputs.tables["model"].value_counts()
    listed = ", ".join(f"{model} {equal.get(model, 0)} of {counts[model]}" for model in METHOD)
    return (
        f"Rows whose main score equals the authors' code, run with the same library versions, to "
        f"the printed digits: {listed}."
    )
