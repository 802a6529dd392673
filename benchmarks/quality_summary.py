"""What benchmarks/results/quality.csv says, target by target."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

PAPER_SPLIT = "paper's split"
ALLOWED = 1.01
"""Times the whole ensemble's log-loss or squared error."""
SHARES = {10: 0.6, 20: 0.8}
"""Of the data sets on which that must hold, by size."""
SAFE = 1.03
"""Times the whole ensemble's risk, accepted where the tolerance is 0.02."""
SHARE_ECE, WORST_CALIBRATION = 0.8, 1.02
OURS = {"both": "ours, as small as the tolerance allows", "whole budget": "as many as SCSB"}
METHODS = ("none", "calibrate", "refine", "both", "random", "best")
REFERENCES = ("uniform", "uniform + temperature", "uniform + calibrator")


def run(paths: Sequence[Path], key: Sequence[str], source: str, machine: dict[str, str]) -> None:
    """Print the summary of results files; of rows that several hold, the newest source's counts."""
    import pandas as pd

    if not paths:
        print("there are no results yet")
        return
    table = pd.concat([pd.read_csv(path, dtype={"source": str}) for path in paths])
    table["stale"] = table["source"] != source
    table = table.sort_values("stale", kind="stable").drop_duplicates(list(key))
    table = table[table["status"] == "ok"].copy()
    table["k"] = table["k"].astype(str)
    table["score"] = table["log_loss"].fillna(table["mse"])
    read = ", ".join(path.name for path in paths)
    print(f"\n{read}: " + ", ".join(f"{name} {value}" for name, value in machine.items()))
    if table["stale"].any():
        print(f"{table['stale'].mean():.0%} of the rows were made by other source than today's.")
        for (made, default), rows in table.groupby(["source", table["method"] == "default"]):
            what = "of the default without a budget" if default else "of all else"
            print(f"  {len(rows)} rows {what}: source {made}")
    suite = table[table["ensemble"] != PAPER_SPLIT]
    if len(suite):
        _suite(suite)
    paper = table[table["ensemble"] == PAPER_SPLIT]
    if len(paper):
        _paper(paper)
        _printed(paper)


# -- the suite -------------------------------------------------------------------------------


def _suite(rows: Any) -> None:
    seeds = rows.groupby(["dataset", "ensemble"])["seed"].nunique()
    n_sets = rows["dataset"].nunique()
    few, many = seeds.min(), seeds.max()
    each = f"{many}" if few == many else f"{few} to {many}"
    print(
        f"\n## {n_sets} data sets, forests and bags of 100 trees, {each} seeds each; "
        "ratios of means over seeds\n"
    )
    wide = _means(rows, "score")
    print(f"log-loss or squared error over the whole uniform ensemble's: share of sets ≤ {ALLOWED}")
    for k in SHARES:
        print(f"\nk = {k} (target {SHARES[k]:.0%} for both)")
        _line("", ["forests", "bags", "together", "classification", "regression"])
        for method in METHODS:
            _line(_label(method), _cells(wide, (method, str(k)), ("uniform", "100")))
        _line("paper (own k)", _cells(wide, ("paper", "own"), ("uniform", "100")))
    print(
        "\nagainst the strong reference, the whole ensemble with one temperature (classification)"
    )
    for k in SHARES:
        for method in ("calibrate", "both"):
            name = f"{_label(method)}, k = {k}"
            _line(name, _cells(wide, (method, str(k)), ("uniform + temperature", "100"))[:3])
    _line("uniform", _cells(wide, ("uniform", "100"), ("uniform + temperature", "100"))[:3])
    _promise(rows)
    _calibration(rows)
    _estimates(rows)
    _misses(wide)
    _seconds(rows)


def _means(rows: Any, column: str) -> Any:
    """One row a data set and ensemble, one column a (method, k): means over seeds."""
    return rows.pivot_table(
        index=["dataset", "ensemble", "task"], columns=["method", "k"], values=column
    )


def _ratios(wide: Any, method: tuple[str, str], reference: tuple[str, str]) -> Any:
    if method not in wide.columns or reference not in wide.columns:
        return None
    found = wide[method]
    if method[0] == "both":  # regression has nothing to calibrate
        found = found.fillna(wide.get(("refine", method[1])))
    if method[0] == "calibrate":
        found = found.fillna(wide.get(("none", method[1])))
    return (found / wide[reference]).dropna()


def _cells(wide: Any, method: tuple[str, str], reference: tuple[str, str]) -> list[str]:
    ratio = _ratios(wide, method, reference)
    if ratio is None:
        return ["–"] * 5
    ensemble, task = (ratio.index.get_level_values(n) for n in ("ensemble", "task"))
    parts = [
        *(ratio[ensemble == "forest"], ratio[ensemble == "bag"], ratio),
        *(ratio[task == "classification"], ratio[task == "regression"]),
    ]
    return [_share(part) for part in parts]


def _share(ratio: Any) -> str:
    if not len(ratio):
        return "–"
    return f"{(ratio <= ALLOWED).mean():.0%} ({ratio.median():.3f}, {ratio.max():.2f})"


def _label(method: str) -> str:
    return {"none": "selection alone", "both": "both (default)"}.get(method, method)


def _line(name: str, cells: list[str]) -> None:
    print(f"{name:<32}" + "".join(f"{cell:>20}" for cell in cells))


def _promise(rows: Any) -> None:
    """What the default, with a tolerance and no budget, says of itself, run by run."""
    rows = rows.assign(risk=rows["mse"].fillna(rows["brier"]))
    run = ["dataset", "ensemble", "seed"]
    default = rows[rows["method"] == "default"].set_index(run)
    if not len(default):
        return
    as_it_is = rows[rows["method"] == "uniform"].set_index(run)["risk"]
    best = rows[rows["method"] == "uniform + calibrator"].set_index(run)["risk"]
    whole = best.reindex(default.index).fillna(as_it_is)
    ratio, to_plain = default["risk"] / whole, default["risk"] / as_it_is.reindex(default.index)
    within = default["risk"].between(default["low"], default["high"])
    reach = 1.645 * default["ratio_error"]
    luck = 1.96 * default["test_error"]
    below = ((default["expected_risk"] - default["low"]) ** 2 + luck**2) ** 0.5
    above = ((default["high"] - default["expected_risk"]) ** 2 + luck**2) ** 0.5
    allowed = default["risk"].between(
        default["expected_risk"] - below, default["expected_risk"] + above
    )
    print(
        f"\nthe default with tolerance = 0.02 and no budget, {len(default)} runs (Brier score, "
        "squared error)\n"
        f"  at most {SAFE} × the whole ensemble's, calibrated too, on {(ratio <= SAFE).mean():.1%} "
        f"(mean {ratio.mean():.4f}, worst {ratio.max():.3f}); of the whole as it is on "
        f"{(to_plain <= SAFE).mean():.1%} (mean {to_plain.mean():.4f})\n"
        f"  kept: median {default['survivors'].median():.0f} of 100 (quartiles "
        f"{default['survivors'].quantile(0.25):.0f} to {default['survivors'].quantile(0.75):.0f}); "
        f"leaves refitted on {default['refined'].mean():.0%}\n"
        f"  its 95 % bound is exceeded on {(ratio - 1.0 > default['bound']).mean():.1%} of test "
        f"sets, by more than their own 95 % luck (median {reach.median():.1%}) on "
        f"{(ratio - 1.0 - reach > default['bound']).mean():.1%}\n"
        f"  its 95 % interval covers the test rows' risk on {within.mean():.1%}, with their own "
        f"luck allowed for on {allowed.mean():.1%}; expected over found: "
        f"mean {(default['expected_risk'] / default['risk']).mean():.3f}"
    )


def _calibration(rows: Any) -> None:
    ece, brier, score = (_means(rows, c) for c in ("ece", "brier", "score"))
    print(
        f"\nECE (top label, 15 bins) lower than the whole uniform ensemble's (target "
        f"{SHARE_ECE:.0%}), and Brier score ≤ {ALLOWED} of it: share of classification sets"
    )
    _line("", ["ECE: forests", "bags", "together", "Brier: together"])
    compared = [(m, str(k)) for k in SHARES for m in METHODS]
    compared += [(m, "100") for m in REFERENCES[1:]] + [("paper", "own")]
    for method in compared:
        if method not in ece.columns:
            continue
        lower = (ece[method] < ece[("uniform", "100")])[ece[method].notna()]
        of = lower.index.get_level_values("ensemble")
        ratio = (brier[method] / brier[("uniform", "100")]).dropna()
        cells = [f"{part.mean():.0%}" for part in (lower[of == "forest"], lower[of == "bag"])]
        name = f"{_label(method[0])}, k = {method[1]}"
        _line(name, [*cells, f"{lower.mean():.0%}", _share(ratio)])
    print(f"\ncalibrated over uncalibrated log-loss (never above {WORST_CALIBRATION})")
    for k in map(str, SHARES):
        for with_it, without in (("calibrate", "none"), ("both", "refine")):
            if (with_it, k) not in score.columns:
                continue
            ratio = (score[(with_it, k)] / score[(without, k)]).dropna()
            worst = " ".join(map(str, ratio.idxmax()[:2]))
            print(
                f"  {with_it} over {without}, k = {k}: median {ratio.median():.3f}, worst "
                f"{ratio.max():.3f} ({worst}); above {WORST_CALIBRATION}: "
                f"{(ratio > WORST_CALIBRATION).sum()} of {len(ratio)}"
            )
    chosen = rows[rows["method"].isin(["both", "calibrate"])]["calibrator"].value_counts()
    print("  chosen: " + ", ".join(f"{kind} {n}" for kind, n in chosen.items()))


def _estimates(rows: Any) -> None:
    print("\nhonest estimate against deployed: mean |relative error|, bias, a data set's mean")
    risk = rows["mse"].fillna(rows["brier"])
    for name, estimate, deployed, methods in (
        ("Brier score or squared error", rows["expected_risk"], risk, ("none", "refine")),
        (
            "log-loss, calibrated",
            rows["expected_log_loss"],
            rows["log_loss"],
            ("calibrate", "both"),
        ),
    ):
        for method in methods:
            for k in map(str, SHARES):
                of = (rows["method"] == method) & (rows["k"] == k) & estimate.notna()
                if not of.any():
                    continue
                part = rows[of].assign(estimate=estimate[of], deployed=deployed[of])
                means = part.groupby(["dataset", "ensemble"])[["estimate", "deployed"]].mean()
                error = means["estimate"] / means["deployed"] - 1.0
                print(
                    f"  {name}, {_label(method)}, k = {k}: {error.abs().mean():.1%}, "
                    f"{error.mean():+.1%}"
                )


def _misses(wide: Any) -> None:
    print("\nwhere the default is above the limit (ratio of means)")
    for k in SHARES:
        ratio = _ratios(wide, ("both", str(k)), ("uniform", "100"))
        if ratio is not None:
            above = ratio[ratio > ALLOWED].sort_values(ascending=False)
            told = ", ".join(f"{d} {e} {r:.3f}" for (d, e, _), r in above.items())
            print(f"  k = {k}: {told or 'nowhere'}")


def _seconds(rows: Any) -> None:
    for method in ("none", "refine"):
        part = rows[(rows["method"] == method) & (rows["k"] == "20")]
        what = "with refinement" if method == "refine" else "without"
        share = part["seconds"].sum() / part["fit_seconds"].sum()  # of the same run
        print(f"compress to 20, {what}, calibration included: {share:.0%} of the fits' time")


# -- the paper's own split -------------------------------------------------------------------


def _luck(group: Any) -> str:
    """What one test set can tell of ours against SCSB, and the ECE of exact probabilities."""
    ours = group[group["method"] == "both"]
    error = float(np.sqrt(np.sum(ours["over_scsb_error"] ** 2))) / max(len(ours), 1)
    words = f"{ours['over_scsb'].mean():+.3g} ± {error:.2g}"
    exact = ours["ece_if_right"].mean()
    return words + (f"; {exact:.4f}" if np.isfinite(exact) else "")


def _ece_difference(group: Any) -> str:
    """Ours less SCSB's ECE, split by split, ± the standard error over splits."""
    ece = group.pivot_table(index="seed", columns="method", values="ece")
    if not {"both", "paper"} <= set(ece.columns) or len(ece) < 2:
        return ""
    over = (ece["both"] - ece["paper"]).dropna()
    error = over.std(ddof=1) / np.sqrt(len(over))
    return f"; {over.mean():+.4f} ± {error:.4f}, lower on {(over < 0).sum()} of {len(over)}"


def _paper(rows: Any) -> None:
    print("\n## The paper's sets, its own split and scores; ours at no more survivors than SCSB\n")
    print("over SCSB: ours less SCSB's on the same rows, ± the standard error over these rows;")
    print("ECE if right: what ours would be on as many rows if every probability were exact;")
    print("then, of several splits, our ECE less SCSB's, ± the standard error over splits\n")
    columns = ["uniform", "SCSB", "ours", "whole budget", "survivors of each"]
    _line("", [*columns, "  over SCSB; ECE if right"])
    every = rows["seed"].unique().tolist()
    for what, seeds in (("seed 42", [42]), (f"mean over {len(every)} splits", every)):
        part = rows[rows["seed"].isin(seeds)]
        print(what)
        won = {(ours, name): [0, 0, 0] for ours in OURS for name in ("score", "ece")}
        for name, group in part.groupby("dataset", sort=False):
            means = group.groupby("method")[["score", "ece", "survivors"]].mean()
            if not {"uniform", "paper", *OURS} <= set(means.index):
                continue
            cells = []
            for method in ("uniform", "paper", *OURS):
                score, ece = means.loc[method, "score"], means.loc[method, "ece"]
                cells.append(f"{score:.4g}" + (f" / {ece:.4f}" if np.isfinite(ece) else ""))
            kept = ", ".join(f"{means.loc[m, 'survivors']:.0f}" for m in ("paper", *OURS))
            _line(f"  {name}", [*cells, kept, "  " + _luck(group) + _ece_difference(group)])
            for (ours, column), counts in won.items():
                found = means[column]
                if np.isfinite(found[ours]):
                    counts[0] += int(found[ours] < found["paper"])
                    counts[1] += int(found[ours] < found["uniform"])
                    counts[2] += 1
        for ours, label in OURS.items():
            score, ece = won[ours, "score"], won[ours, "ece"]
            print(
                f"  {label}: log-loss or squared error better than SCSB on {score[0]} of "
                f"{score[2]} (target all), than uniform on {score[1]} (target six); ECE on "
                f"{ece[0]} and {ece[1]} of {ece[2]}"
            )


def _printed(rows: Any) -> None:
    """Ours on the paper's split beside what the paper prints, where its tables are at hand."""
    import pandas as pd

    folder = os.environ.get("SPARSEBAG_DATA")
    tables = Path(folder).parent / "paper" / "tables.csv" if folder else None
    if tables is None or not tables.exists():
        return
    print("\n## The same beside the rows the paper prints (its code gives others: above)\n")
    print("The paper's ECE is of another kind where it is far above ours (spambase).\n")
    table = pd.read_csv(tables)
    table = table[table["base"] == "DecisionTree"]
    table["score"] = table["log_loss"].fillna(table["mse"])
    table = table.set_index(["dataset", "model"])
    _line("", ["uniform", "SCSB", "ours", "kept: SCSB, ours"])
    ours = rows[(rows["seed"] == 42) & (rows["method"] == "both")]
    better = np.zeros(4, dtype=int)
    for row in ours.itertuples():
        uniform, scsb = (table.loc[(row.dataset, m)] for m in ("Standard Bagging", "SCSB"))
        pairs = [(m["score"], m["paper_ece"]) for m in (uniform, scsb)] + [(row.score, row.ece)]
        cells = [f"{a:.4g}" + (f" / {b:.4f}" if np.isfinite(b) else "") for a, b in pairs]
        _line(f"  {row.dataset}", [*cells, f"{scsb['active']:.0f}, {row.survivors:.0f}"])
        better += [
            row.score < scsb["score"],
            row.score < uniform["score"],
            row.ece < scsb["paper_ece"],
            np.isfinite(row.ece),
        ]
    print(
        f"  better than the printed SCSB on {better[0]} of {len(ours)} (target all), than uniform "
        f"on {better[1]} (target six); ECE lower than SCSB's on {better[2]} of {better[3]}"
    )
