"""The base models the paper names but does not test: bagged SVMs and neural nets."""

from __future__ import annotations

from benchmarks.verdict.markdown import number, table
from benchmarks.verdict.results import MAIN_SCORE, PAPER_BASES, Inputs
from benchmarks.verdict.rows import shown, survivors

COLUMNS = {
    "uniform": "uniform",
    "random_k": "random-k",
    "scsb_paper": 'SCSB (`"paper"`)',
    "sparsebag_default": "default",
    "uniform_floored": "uniform, floored",
    "random_k_default": "random-k of default, floored",
    "caruana": "Caruana",
    "uniform_temperature": "uniform + temperature",
}


def calibration_table(inputs: Inputs) -> str:
    """Top-label ECE of the paper's classifiers, the scores the paper's text speaks of."""
    methods = {**COLUMNS, "lasso_pruned": "Lasso"}
    frame = inputs.results.of_paper().frame
    known = frame.loc[frame["task"] == "classification", ["dataset", "base"]].drop_duplicates()
    rows = [
        [dataset, base, *(shown(inputs.results.row(dataset, base, m), "ece", 4) for m in methods)]
        for dataset, base in known.itertuples(index=False)
    ]
    return table(["data set", "base", *methods.values()], rows, left=2)


def families_section(inputs: Inputs) -> str:
    frame = inputs.results.frame
    others = frame[~frame["base"].isin([*PAPER_BASES, "none"])]
    if others.empty:
        return "Not in the results file."
    rows = []
    for (dataset, task, base), _ in others.groupby(["dataset", "task", "base"], sort=False):
        found = {m: inputs.results.row(dataset, base, m) for m in COLUMNS}
        score = MAIN_SCORE[task]
        members = found["uniform"]["members"] if found["uniform"] is not None else float("nan")
        uniform = found["uniform"][score] if found["uniform"] is not None else 0.0
        places = 2 if uniform >= 100 else 4
        rows.append(
            [
                dataset,
                base,
                score.replace("_", "-").replace("mse", "MSE"),
                *(shown(row, score, places) for row in found.values()),
                number(members, 0),
                survivors(found["scsb_paper"]),
                survivors(found["sparsebag_default"]),
            ]
        )
    header = ["data set", "base", "score", *COLUMNS.values(), "N", "k SCSB", "k default"]
    return table(header, rows, left=3)
