"""Write ``docs/paper.md`` and the tables beside it: the paper's sentences, judged by measurements.

    python -m benchmarks.paper_page

Reads ``paper.csv``, ``paper_seeds.csv``, ``paper_experiments.json``, ``scale.txt`` and
``local_experts.txt`` of ``benchmarks/results``, and ``benchmarks/data/paper_tables.csv``: what the
paper prints and what the authors' code gave here
(github.com/mehersaipreetam/simplex-constrained-sparse-bagging, commit 32664a2). The words, with
each sentence judged and its rule, are in ``benchmarks/data/paper_template.md``; a function here has
the name by which they quote its verdict and figures.
"""

import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace as Found
from typing import Any, Self

import numpy as np
from scipy.stats import t

from benchmarks.kept_output import options
from benchmarks.picture import standing_alone
from sparsebag.report.svg import AFTER, BEFORE, Axis, Chart

HERE = Path(__file__).parent
TABLES = HERE / "data" / "paper_tables.csv"
MODELS = {
    "uniform": "Standard Bagging",
    "lasso_pruned": "Lasso-Pruned Bagging",
    "scsb_paper": "SCSB",
    "xgboost": "XGBoost",
}
SCORES = ("accuracy", "log_loss", "paper_ece", "mse", "r2")
LOSS = {"classification": "log_loss", "regression": "mse"}
LINEAR = ("LogisticRegression", "Ridge")
HOLDS_FROM, FAILS_UP_TO = 0.75, 0.5
"""Shares of rows that agree: "most", and no more than a coin would have."""
ROUNDING = 0.05
"""Rounding decides a row whose fits differ by more: of the members, or of the test loss."""
HOLDS, IN_PART, FAILS = "holds", "holds in part", "fails"
RIDGE = ("cpu_act", "Ridge")

Key = tuple[str, str]
Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """All that the page is made from."""

    rows: dict[tuple[str, str, str], Row]
    splits: dict[tuple[str, str, str], list[Row]]
    tables: dict[tuple[str, str, str], Row]
    bags: dict[Key, Row]
    about: Row

    @classmethod
    def read(cls, results: Path, tables: Path) -> Self:
        """Of a folder of results and the paper's tables."""
        splits: dict[tuple[str, str, str], list[Row]] = {}
        for row in sorted(_read(results / "paper_seeds.csv"), key=lambda row: row["seed"]):
            splits.setdefault((row["dataset"], row["base"], row["method"]), []).append(row)
        found = json.loads((results / "paper_experiments.json").read_text())
        bags = {(k.split()[0], k.split()[1]): bag for k, bag in found.pop("bags").items()}
        rows = {(r["dataset"], r["base"], r["method"]): r for r in _read(results / "paper.csv")}
        printed = {(r["dataset"], r["base"], r["model"]): r for r in _read(tables)}
        for name in ("scale", "local_experts"):
            found[name] = (results / f"{name}.txt").read_text(encoding="utf-8")
        return cls(rows, dict(sorted(splits.items())), printed, bags, found)

    def fits(self, key: Key, column: str) -> np.ndarray:
        """A figure of each of a bag's fits."""
        return np.array([float(fit[column]) for fit in self.bags[key]["fits"]])

    def scsb(self, key: Key, column: str) -> float:
        """The paper's method on a bag: the median of its fits."""
        return float(np.median(self.fits(key, column)))

    def pruned(self, key: Key) -> float:
        """Share of the members that the median fit drops."""
        return 1.0 - self.scsb(key, "survivors") / self.bags[key]["members"]

    def uniform(self, key: Key, column: str) -> float:
        """The full ensemble on the paper's split."""
        return self.rows[(*key, "uniform")][column]

    @property
    def classifiers(self) -> list[Key]:
        """Bags with probabilities."""
        return [key for key, bag in self.bags.items() if bag["task"] == "classification"]

    @property
    def stable(self) -> list[Key]:
        """Bags that rounding does not decide."""

        def spread(key: Key, column: str) -> float:
            return float(np.ptp(self.fits(key, column)))

        return [
            key
            for key, bag in self.bags.items()
            if spread(key, "survivors") <= ROUNDING * bag["members"]
            and spread(key, LOSS[bag["task"]]) <= ROUNDING * self.scsb(key, LOSS[bag["task"]])
        ]

    def over_splits(self, key: Key, method: str, column: str) -> np.ndarray:
        """A figure of every split."""
        return np.array([row[column] for row in self.splits[(*key, method)]], dtype=float)

    def lost(self, key: Key, rival: str = "uniform", method: str = "scsb_paper") -> np.ndarray:
        """Loss above a rival's, split by split, as a share of the rival's mean."""
        column = LOSS[self.splits[(*key, method)][0]["task"]]
        theirs = self.over_splits(key, rival, column)
        return (self.over_splits(key, method, column) - theirs) / theirs.mean()

    def printed(self, key: Key, method: str, column: str) -> float:
        """What the paper prints."""
        return self.tables[(*key, MODELS[method])][column]


def _read(path: Path) -> list[Row]:
    def value(text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    with path.open(newline="") as file:
        return [{name: value(v) for name, v in row.items()} for row in csv.DictReader(file)]


def most(agree: int, total: int, **told: Any) -> Found:
    """The verdict about "most rows"."""
    word = HOLDS if agree >= HOLDS_FROM * total else IN_PART
    word = FAILS if agree <= FAILS_UP_TO * total else word
    return Found(**{"verdict": word, "figure": f"{agree} of {total} rows"} | told)


def percent(share: float, places: int = 0) -> str:
    return f"{100 * share:.{places}f} %"


def span(values: Iterable[float], show: Callable[[float], str] = "{:.0f}".format) -> str:
    found = list(values)
    low, high = show(min(found)), show(max(found))
    return low if low == high else f"{low} to {high}"


def listed(figures: dict[Key, str]) -> str:
    return ", ".join(f"{' '.join(key)} {figure}".strip() for key, figure in figures.items())


def of_trees(figures: dict[Key, str]) -> str:
    return ", ".join(f"{key[0]} {text}" for key, text in figures.items() if key[1] not in LINEAR)


# -- size -----------------------------------------------------------------------------------------


def compression(m: Measured) -> Found:
    shares = [m.pruned(key) for key in m.bags]
    right = abs(min(shares) - 0.33) <= 0.05 and abs(max(shares) - 0.96) <= 0.05
    means = [1 - m.over_splits(k, "scsb_paper", "survivors") / m.bags[k]["members"] for k in m.bags]
    figure = f"{span(shares, percent)} pruned"
    splits = span((float(mean.mean()) for mean in means), percent)
    return Found(verdict=HOLDS if right else FAILS, figure=figure, splits=splits)


def concluded(m: Measured) -> Found:
    below = {key: percent(m.pruned(key)) for key in m.bags if round(m.pruned(key), 2) < 0.68}
    found = most(len(m.bags) - len(below), len(m.bags), below=listed(below))
    if found.verdict == HOLDS and below:
        found.verdict = IN_PART  # "consistently" admits no exception
    return found


def flagship(m: Measured) -> Found:
    fits = m.bags[RIDGE]["fits"]
    two = [fit for fit in fits if fit["survivors"] <= 2]
    agree = sum(fit["r2"] >= m.uniform(RIDGE, "r2") for fit in two)
    better = m.over_splits(RIDGE, "scsb_paper", "r2") > m.over_splits(RIDGE, "uniform", "r2")
    return most(
        agree,
        len(fits),
        figure=f"{agree} of {len(fits)} fits",
        kept=span(fit["survivors"] for fit in fits),
        in_other_unit=m.bags[RIDGE]["unit_variance"]["survivors"],
        iterations=span(fit["iterations"] for fit in two),
        loss=span((fit["oob_loss"] for fit in two), "{:.1f}".format),
        loss_dropped=span(fit["oob_loss_dropped"] for fit in two),
        splits_kept=span(m.over_splits(RIDGE, "scsb_paper", "survivors")),
        splits_better=int(better.sum()),
    )


def spike(m: Measured) -> Found:
    top = {key: m.scsb(key, "top_five") for key in m.bags}
    linear = span((s for key, s in top.items() if key[1] in LINEAR), percent)
    trees = of_trees({key: percent(s) for key, s in top.items()})
    return most(sum(s > 0.5 for s in top.values()), len(top), linear=linear, trees=trees)


def _sizes(m: Measured, key: Key) -> dict[float, int]:
    return {point["lam"]: point["survivors"] for point in m.bags[key]["lambdas"]}


def penalty(m: Measured) -> Found:
    sizes = {key: _sizes(m, key) for key in m.stable}
    told = of_trees({key: f"{s[0.0]} → {s[0.05]}" for key, s in sizes.items()})
    return most(sum(s[0.0] >= 1.5 * s[0.05] for s in sizes.values()), len(sizes), sizes=told)


def size_control(m: Measured) -> Found:
    paths = {key: list(_sizes(m, key).values()) for key in m.stable}
    steered = {k: "" for k, s in paths.items() if np.diff(s).max() <= 1 and s[-1] <= 0.9 * s[0]}
    spam = [p for p in m.bags["spambase", "DecisionTree"]["lambdas"] if p["lam"] >= 0.05]
    path = " → ".join(f"{p['survivors']} (λ = {p['lam']:g})" for p in spam)
    heaviest = percent(next(p["heaviest"] for p in spam if p["lam"] == 0.2))
    told = {"steered": listed(steered) or "none", "path": path, "heaviest": heaviest}
    return most(len(steered), len(paths), **told)


# -- solver ---------------------------------------------------------------------------------------


def zeros(m: Measured) -> Found:
    tiny, exact = ([m.scsb(key, c) for key in m.bags] for c in ("tiny", "exact_zeros"))
    return most(sum(n == 0 for n in tiny), len(tiny), tiny=span(tiny), exact=span(exact))


def convergence(m: Measured) -> Found:
    agree = 0
    for key in m.bags:
        loss = m.fits(key, "oob_loss")
        agree += bool(m.fits(key, "success").all() and np.ptp(loss) <= 0.01 * loss.min())
    fits = [fit for bag in m.bags.values() for fit in bag["fits"]]
    ended = [fit["status"] for fit in fits if not fit["success"]]
    return most(
        agree,
        len(m.bags),
        successes=len(fits) - len(ended),
        n_fits=len(fits),
        iterations=span(fit["iterations"] for fit in fits if fit["success"]),
        endings=", ".join(f"“{s}” ({ended.count(s)})" for s in sorted(set(ended))),
        ridge=span(m.fits(("diabetes_reg", "Ridge"), "survivors")),
    )


def convexity(m: Measured) -> Found:
    bent = sum(min(bag["least_curvature"]) < 0 for bag in m.bags.values())
    figure = f"negative in {bent} of {len(m.bags)} rows"
    return Found(verdict=FAILS if bent else HOLDS, figure=figure)


def start(m: Measured) -> Found:
    near, ahead, excess = {}, {}, {}
    for key, bag in m.bags.items():
        ours, others = m.scsb(key, "objective"), np.array(bag["random_starts"])
        best = min(ours, others.min())
        excess[key] = (ours - best) / abs(best)
        near[key] = excess[key] <= 0.01
        ahead[key] = np.sum(others < ours - 1e-6 * abs(ours)) <= len(others) / 2
    worst = max(excess, key=excess.__getitem__)
    return most(
        sum(near[key] and ahead[key] for key in near),
        len(near),
        near=sum(near.values()),
        ahead=sum(ahead.values()),
        worst=f"{' '.join(worst)}, {percent(excess[worst])} above the best",
    )


def seconds(m: Measured) -> Found:
    taken = [m.rows[(*key, "scsb_paper")]["fit_seconds"] for key in m.bags]
    told = {"median": f"{np.median(taken):.2f}", "slowest": f"{max(taken):.2f}"}
    return most(sum(s < 1.0 for s in taken), len(taken), **told)


# -- what it costs and brings ---------------------------------------------------------------------


def speedup(m: Measured) -> Found:
    rows = [m.rows[(*key, "scsb_paper")] for key in m.bags]
    printed = 0
    for key in m.bags:
        gain, fewer = (
            m.printed(key, "uniform", column) / m.printed(key, "scsb_paper", column)
            for column in ("latency_ms_per_1k", "active")
        )
        printed += gain >= 0.8 * fewer
    linear = sum(r["speedup"] >= 0.8 * r["members"] / r["survivors"] for r in rows)
    return most(linear, len(rows), printed=printed)


def calibration(m: Measured) -> Found:
    keys = m.classifiers
    lower = {c: sum(m.scsb(k, c) < m.uniform(k, c) for k in keys) for c in ("ece", "log_loss")}
    printed = {
        c: sum(m.printed(k, "scsb_paper", c) < m.printed(k, "uniform", c) for k in keys)
        for c in ("paper_ece", "log_loss")
    }
    splits = [float(m.lost(key).mean()) for key in keys]
    ece = [
        m.over_splits(k, "scsb_paper", "ece").mean() < m.over_splits(k, "uniform", "ece").mean()
        for k in keys
    ]
    return most(
        lower["ece"],
        len(keys),
        log_loss=lower["log_loss"],
        printed_ece=printed["paper_ece"],
        printed_log_loss=printed["log_loss"],
        splits_ece=sum(ece),
        splits_higher=sum(s > 0 for s in splits),
        splits_median=percent(float(np.median(splits))),
    )


def printed_ece(m: Measured) -> Found:
    ours = {
        key: row
        for key, row in m.rows.items()
        if row["ece"] != "" and (*key[:2], MODELS.get(key[2])) in m.tables
    }
    close = [
        abs(m.printed(k[:2], k[2], "paper_ece") - row["ece"]) <= 0.01 for k, row in ours.items()
    ]

    def shown(dataset: str, column: str) -> str:
        return span((r[column] for k, r in ours.items() if k[0] == dataset), "{:.3f}".format)

    return most(
        sum(close),
        len(close),
        spambase=shown("spambase", "paper_ece"),
        spambase_top=shown("spambase", "ece"),
        breast_cancer=shown("breast_cancer", "paper_ece"),
    )


def accuracy(m: Measured) -> Found:
    lost, splits = {}, 0
    for key, bag in m.bags.items():
        if bag["task"] == "regression":
            kept = m.scsb(key, "mse") <= 1.01 * m.uniform(key, "mse")
            splits += m.lost(key).mean() <= 0.01
        else:
            kept = m.scsb(key, "accuracy") >= m.uniform(key, "accuracy") - 0.005
            ours, full = (m.over_splits(key, x, "accuracy") for x in ("scsb_paper", "uniform"))
            splits += (ours - full).mean() >= -0.005
        lost |= {} if kept else {key: ""}
    return most(len(m.bags) - len(lost), len(m.bags), lost=listed(lost), splits=splits)


def lasso(m: Measured) -> Found:
    rows = {key: m.rows[(*key, "lasso_pruned")] for key in m.bags}
    shares = {key: 1 - row["survivors"] / row["members"] for key, row in rows.items()}
    losses = {key: LOSS[row["task"]] for key, row in rows.items()}
    return most(
        sum(shares[key] < m.pruned(key) for key in m.bags),
        len(m.bags),
        pruned=span(shares.values(), percent),
        better=sum(row[losses[key]] < m.scsb(key, losses[key]) for key, row in rows.items()),
    )


def agnostic(m: Measured) -> Found:
    others = [k[:2] for k in m.splits if k[2] == "scsb_paper" and k[1] in ("SVM", "MLP")]
    few = [m.over_splits(k, "scsb_paper", "survivors") < m.uniform(k, "members") for k in others]
    theirs, own = (sum(m.lost(k).mean() <= 0.01 for k in keys) for keys in (others, m.bags))
    told = {"kept": f"{theirs} of {len(others)}", "own": f"{own} of {len(m.bags)}"}
    return most(sum(bool(pruned.all()) for pruned in few), len(others), **told)


def honest(m: Measured) -> Found:
    off = {
        key: m.scsb(key, "oob_loss") / m.scsb(key, LOSS[bag["task"]]) - 1
        for key, bag in m.bags.items()
    }
    trees = of_trees({k: f"{100 * e:+.0f} %".replace("-", "−") for k, e in off.items()})
    return most(sum(abs(e) <= 0.1 for e in off.values()), len(off), trees=trees)


def overconfident(m: Measured) -> Found:
    over, scsb = (
        sum(figure(key, "mean_confidence") > figure(key, "accuracy") for key in m.classifiers)
        for figure in (m.uniform, m.scsb)
    )
    return most(over, len(m.classifiers), scsb=f"{scsb} of {len(m.classifiers)}")


CLAIMS = (
    *(compression, concluded, flagship, spike, penalty, size_control),
    *(zeros, convergence, convexity, start, seconds),
    *(speedup, calibration, printed_ece, accuracy, lasso, agnostic, honest, overconfident),
)


# -- not counted ----------------------------------------------------------------------------------


def reproduction(m: Measured) -> Found:
    """How the printed tables, the authors' code and our rows compare."""
    found = Found(same=0, n=len(m.tables), size=0, loss=0, baselines=0, n_baselines=0)
    missed: list[str] = []
    apart: list[Key] = []
    methods = {model: method for method, model in MODELS.items()}
    for (dataset, base, model), row in m.tables.items():
        column = LOSS[row["task"]]
        code, ours = row[f"code_{column}"], m.rows[dataset, base, methods[model]]
        digit = 1.5 * 10.0 ** -(2 if row[column] >= 100 else 4)
        if abs(row[column] - code) <= digit:
            found.same += 1
        else:
            missed.append(dataset)
        off = abs(ours[column] / code - 1) if ours["status"] == "ok" else np.inf
        if model == "SCSB":
            near = abs(ours["survivors"] - row["code_active"]) <= 2
            found.size, found.loss = found.size + near, found.loss + (off <= 0.02)
            apart += [] if near and off <= 0.02 else [(dataset, base)]
        else:
            found.n_baselines += 1
            found.baselines += off <= 0.01
    found.missed = ", ".join(f"{d} {missed.count(d)}" for d in dict.fromkeys(missed))
    found.apart, found.by_rounding = len(apart), len(set(apart) - set(m.stable))
    return found


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean, and half-width of Student's 95 % interval."""
    n = len(values)
    return float(values.mean()), float(t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n))


def ours(m: Measured) -> Found:
    """Random members, a temperature, our default: what the paper does not speak of."""
    keys = [key[:2] for key in m.splits if key[2] == "scsb_paper"]
    lines = []
    for title, method, rival in (
        ("SCSB − full ensemble", "scsb_paper", "uniform"),
        ("SCSB − random members", "scsb_paper", "random_k"),
        ("full ensemble with a temperature − without", "uniform_temperature", "uniform"),
    ):
        found = [interval(m.lost(k, rival, method)) for k in keys if (*k, method) in m.splits]
        lower, higher = (sum(s * mean - half > 0 for mean, half in found) for s in (-1, 1))
        lines.append(f"|{title}|{lower}|{higher}|{len(found) - lower - higher}|")
    default, preset, whole = (
        np.array([float(m.rows[(*k, x)][LOSS[m.rows[(*k, x)]["task"]]] or "nan") for k in keys])
        for x in ("sparsebag_default", "scsb_paper", "uniform")
    )
    boosted = 0
    for dataset in {key[0] for key in m.bags}:
        column = LOSS[m.bags[dataset, "DecisionTree"]["task"]]
        scsb = m.printed((dataset, "DecisionTree"), "scsb_paper", column)
        boosted += m.printed((dataset, "none"), "xgboost", column) < scsb
    counts = {"default": int((default < preset).sum()), "whole": int((default < whole).sum())}
    return Found(table="\n".join(lines), boosted=boosted, n=len(keys), **counts)


def future(m: Measured) -> Found:
    """Figures of what the paper leaves to future work."""

    def told(pattern: str, text: str) -> str:
        found = re.search(pattern, text, re.DOTALL)
        assert found is not None, pattern
        return found[1]

    def size(name: str) -> str:
        return f"{int(told(rf'{name} = ([0-9,]*[0-9])', large).replace(',', '')):,}"

    large, sgd = (
        told(rf"## {name}(.*?)(?:\n## |$)", m.about["scale"]) for name in ("Large", "Sgd")
    )
    rows = told(r"M = ([0-9,]*[0-9])", sgd)
    passes = told(r"generator .*?(\d+ passes)", sgd)
    off = told(r"generator +\S+ +(\S+)", sgd)
    share = told(r"oracle's gain: mean ([\d.]+)", m.about["local_experts"])
    return Found(
        large=f"{size('N')} members, {size('M')} rows: {told(r': ([0-9.]+) s,', large)} s",
        sgd=f"{rows} generated rows: {passes}, objective {off}",
        local=f"{percent(float(share))} of an oracle's gain, on experts made for it",
    )


# -- files ----------------------------------------------------------------------------------------


def page(m: Measured, template: str) -> str:
    """The template with its figures."""
    judged = {judge.__name__: judge(m) for judge in CLAIMS}
    words = [found.verdict for found in judged.values()]
    titles = re.findall(r"^### (\d+\. .*): \{(\w+)\.verdict\}$", template, re.MULTILINE)
    table = (f"|{title}|**{judged[n].verdict}**|{judged[n].figure}|" for title, n in titles)
    versions = {k: m.about["environment"][k] for k in ("sklearn", "numpy", "scipy", "machine")}
    over = {row["source"] for rows in m.splits.values() for row in rows} - {""}
    return template.format(
        **judged,
        table="\n".join(table),
        reproduction=reproduction(m),
        ours=ours(m),
        future=future(m),
        stable=listed(dict.fromkeys(m.stable, "")),
        n_claims=len(words),
        n_hold=words.count(HOLDS),
        n_part=words.count(IN_PART),
        n_fail=words.count(FAILS),
        n_bags=len(m.bags),
        n_clf=len(m.classifiers),
        n_unstable=len(m.bags) - len(m.stable),
        n_fits=len(m.bags[RIDGE]["fits"]),
        vertices=sum(m.scsb(key, "survivors") == 1 for key in m.bags),
        source=", ".join(sorted({row["source"] for row in m.rows.values()} - {""})),
        source_splits=", ".join(sorted(over)),
        versions=", ".join(f"{k} {v}" for k, v in versions.items()),
    )


def every_row(m: Measured) -> Iterable[Row]:
    """Every row here, with what is printed and what the authors' code gave."""
    for (dataset, base, method), row in m.rows.items():
        known = m.tables.get((dataset, base, MODELS.get(method, "")), {})
        told = {"dataset": dataset, "base": base, "method": method, "status": row["status"]}
        for column, printed in (*zip(SCORES, SCORES, strict=True), ("survivors", "active")):
            told[f"{column}_printed"] = known.get(printed, "")
            told[f"{column}_code"] = known.get(f"code_{printed}", "")
            told[column] = row[column]
        here = ("members", "ece", "brier", "latency_ms_per_1k", "speedup", "bytes", "fit_seconds")
        yield told | {column: row[column] for column in here}


def every_solve(m: Measured) -> Iterable[Row]:
    """How SLSQP ended on each bag: least, median and largest of the fits."""
    for key, bag in m.bags.items():
        told = {"dataset": key[0], "base": key[1], "members": bag["members"]}
        told["rounding_decides"] = "no" if key in m.stable else "yes"
        told["successes"] = int(m.fits(key, "success").sum())
        columns = ("survivors", "iterations", "exact_zeros", "tiny", "oob_loss", "oob_loss_dropped")
        for column in (*columns, "heaviest", "top_five"):
            figures = np.quantile(m.fits(key, column), [0.0, 0.5, 1.0])
            told |= dict(
                zip((f"{column}_{q}" for q in ("least", "median", "most")), figures, strict=True)
            )
        told["best_random_start"] = min(bag["random_starts"])
        told["least_curvature"] = min(bag["least_curvature"])
        yield told | {f"survivors_at_lambda_{p['lam']:g}": p["survivors"] for p in bag["lambdas"]}


def every_split(m: Measured) -> Iterable[Row]:
    """Loss over the splits, and difference from the full ensemble's, with 95 % intervals."""
    for (dataset, base, method), rows in m.splits.items():
        key, column = (dataset, base), LOSS[rows[0]["task"]]
        mean, half = interval(m.over_splits(key, method, column))
        told = {"dataset": dataset, "base": base, "method": method, "splits": len(rows)}
        told |= {"score": column, "mean": mean, "half_width": half}
        pair = ("", "")
        if method != "uniform" and (*key, "uniform") in m.splits:
            pair = interval(m.lost(key, "uniform", method))
        told |= {"difference": pair[0], "difference_half_width": pair[1]}
        yield told | {"survivors": float(m.over_splits(key, method, "survivors").mean())}


def csv_text(rows: Iterable[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list((found := list(rows))[0]), lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()


def lambda_picture(m: Measured) -> str:
    """Members kept against λ, where rounding does not decide."""
    chart = Chart(Axis("λ", 0.01, 5.0, is_log=True), Axis("members kept", -4.0, 70.0), height=260.0)
    paths = {key: [p for p in m.bags[key]["lambdas"] if p["lam"] > 0] for key in m.stable}
    lowest = 0.0
    for key, path in sorted(paths.items(), key=lambda one: -one[1][-1]["survivors"]):
        lams, sizes = ([float(p[name]) for p in path] for name in ("lam", "survivors"))
        colour = AFTER if np.diff(sizes).max() > 1 else BEFORE
        chart.line(lams, sizes, colour)
        chart.dots(lams, sizes, colour, radius=2.5)
        lowest = max(lowest + 14.0, chart.top(sizes[-1]) + 4.0)  # labels below one another
        place = f'x="{chart.left(lams[-1]) + 8:g}" y="{lowest:g}" style="fill:{colour}"'
        chart.marks.append(f"<text {place}>{key[0]}</text>")
    told = "Trees of a hundred that the paper's method keeps, at seven strengths of its penalty."
    return standing_alone(chart, "members-kept-against-lambda", "Members kept against λ", told)


def files() -> dict[str, str]:
    """Every file under docs that is made here, by its name."""
    m = Measured.read(HERE / "results", TABLES)
    template = (HERE / "data" / "paper_template.md").read_text(encoding="utf-8")
    return {
        "paper.md": page(m, template),
        "paper_rows.csv": csv_text(every_row(m)),
        "paper_solver.csv": csv_text(every_solve(m)),
        "paper_splits.csv": csv_text(every_split(m)),
        "pictures/paper_lambda.svg": lambda_picture(m),
    }


def main(arguments: list[str] | None = None) -> int:
    parser = options(__doc__)
    parser.add_argument("--out", type=Path, default=HERE.parent / "docs")
    args = parser.parse_args(arguments)
    try:
        texts = files()
    except OSError as error:
        print(f"Nothing was written: {error.filename} is not there.", file=sys.stderr)
        return 1
    (args.out / "pictures").mkdir(exist_ok=True)
    for name, text in texts.items():
        (args.out / name).write_text(text, encoding="utf-8")
    print(f"{args.out / 'paper.md'}: {len(texts['paper.md'].split())} words")
    return 0


if __name__ == "__main__":
    sys.exit(main())
