"""Claims about size, speed, calibration and accuracy, judged by the results file."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from benchmarks.verdict.judgement import (
    NOT_MEASURED,
    Claim,
    Finding,
    Verdict,
    by_share,
    median,
    weakest,
)
from benchmarks.verdict.markdown import number, out_of, percent, signed
from benchmarks.verdict.results import PAPER_BASES, Inputs, Results

PRINTED_RANGE = (0.33, 0.96)
RANGE_WITHIN = 0.05
"""How far from an end of the printed range ours may lie, to either side."""
CONCLUDED_FROM = 0.68
LINEAR_FROM = 0.8
"""A speed-up is linear when it reaches this share of N / k."""
ACCURACY_MARGIN = 0.005
"""Accuracy is preserved down to half a percentage point below the uniform ensemble's ..."""
MSE_MARGIN = 1.01
"""... and a regression's squared error up to 1 % above it."""
ONE_SECOND = 1.0


def pruned_share(results: Results, method: str) -> pd.Series:
    rows = results.of_paper().finished(method)
    return 1.0 - rows["survivors"] / rows["members"]


def printed_pruned_share(inputs: Inputs, model: str) -> pd.Series:
    rows, full = inputs.printed(model), inputs.printed("Standard Bagging")
    if rows.empty:
        return pd.Series(dtype=float)
    return 1.0 - rows["active"].astype(float) / full["active"].astype(float)


def failures(results: Results, method: str) -> list[str]:
    """A sentence where rows of a method failed: they stay in the count and cannot agree."""
    failed = results.tried(method) - len(results.finished(method))
    return [f"{failed} of its rows failed and count as not agreeing."] if failed else []


def _range(shares: pd.Series) -> str:
    return f"{percent(shares.min(), 1)} to {percent(shares.max(), 1)}"


def compression(inputs: Inputs) -> Finding:
    ours, printed = pruned_share(inputs.results, "scsb_paper"), printed_pruned_share(inputs, "SCSB")
    if ours.empty:
        return NOT_MEASURED
    ends = zip((ours.min(), ours.max()), PRINTED_RANGE, strict=True)
    failed = failures(inputs.results.of_paper(), "scsb_paper")
    inside = not failed and all(abs(end - printed) <= RANGE_WITHIN for end, printed in ends)
    evidence = [f'`preset="paper"` prunes {_range(ours)} over {len(ours)} rows.', *failed]
    default = pruned_share(inputs.results, "sparsebag_default")
    if len(default):
        evidence.append(f"Our default prunes {_range(default)}.")
    if len(printed):
        evidence.append(f"Printed: {_range(printed)}.")
    return Finding(Verdict.HOLDS if inside else Verdict.FAILS, tuple(evidence))


def concluded_compression(inputs: Inputs) -> Finding:
    ours, printed = pruned_share(inputs.results, "scsb_paper"), printed_pruned_share(inputs, "SCSB")
    if ours.empty:
        return NOT_MEASURED
    reach = int((ours.round(2) >= CONCLUDED_FROM).sum())
    tried = inputs.results.of_paper().tried("scsb_paper")
    verdict = by_share(reach, tried)
    if verdict is Verdict.HOLDS and reach < tried:
        verdict = Verdict.IN_PART  # "consistently" admits no exception
    evidence = [f"{out_of(reach, tried)} rows prune {percent(CONCLUDED_FROM)} or more."]
    if len(printed):
        count = int((printed.round(2) >= CONCLUDED_FROM).sum())
        evidence.append(f"In the paper's own tables {out_of(count, len(printed))} rows do.")
    return Finding(verdict, tuple(evidence))


def linear_speedup(inputs: Inputs) -> Finding:
    results = inputs.results.of_paper()
    rows = results.finished("scsb_paper").dropna(subset="speedup")
    if rows.empty:
        return NOT_MEASURED
    speedup, ideal = rows["speedup"], rows["members"] / rows["survivors"]
    # Rows of older files were not timed in turn with the full ensemble and say nothing here.
    untimed = len(results.finished("scsb_paper")) - len(rows)
    total = results.tried("scsb_paper") - untimed
    linear = int((speedup / ideal >= LINEAR_FROM).sum())
    evidence = [
        f"{out_of(linear, total)} rows reach {percent(LINEAR_FROM)} of N/k, each timed in turn "
        f"with the full ensemble (median of the ratios); the median row is "
        f"{number(median(speedup), 1)}× faster with {number(median(ideal), 1)}× fewer members."
    ]
    if untimed:
        evidence.append(f"{untimed} older rows were not timed so and are left out.")
    printed, full = inputs.printed("SCSB"), inputs.printed("Standard Bagging")
    if len(printed):
        gain = full["latency_ms_per_1k"].astype(float) / printed["latency_ms_per_1k"].astype(float)
        fewer = full["active"].astype(float) / printed["active"].astype(float)
        worst = (gain / fewer).idxmin()
        count = int((gain / fewer >= LINEAR_FROM).sum())
        evidence.append(
            f"In the paper's own tables {out_of(count, len(gain))} rows do; on {worst[0]} "
            f"{worst[1]} {number(fewer[worst], 0)}× fewer members are printed as "
            f"{number(gain[worst], 2)}× faster."
        )
    if "latency" in inputs.experiments:
        fit = inputs.experiments["latency"]
        evidence.append(
            f"Timed alone, {fit['members']} trees on {fit['dataset']}: "
            f"{number(fit['slope_ms'], 3)} ms a tree {signed(fit['intercept_ms'], 2)} ms for 1000 "
            f"rows, R² {number(fit['r2'], 3)}."
        )
    return Finding(by_share(linear, total), tuple(evidence))


def _lower(results: Results, method: str, rival: str, score: str) -> tuple[int, int, str]:
    """How often ``method`` scores lower than ``rival``, of how many, and a sentence of it."""
    task = "regression" if score == "mse" else "classification"
    rows = results.of_paper().pairs(method, rival, score)
    total = results.of_paper().tried(method, rival, task)
    lower = int((rows["left"] < rows["right"]).sum())
    gain = median(rows["left"] - rows["right"])
    difference = signed(gain) if len(rows) else "–"
    return lower, total, f"{out_of(lower, total)} (median {difference})"


NAMES = {"scsb_paper": '`preset="paper"`', "sparsebag_default": "our default"}
FAIR_TO_DEFAULT = {
    "uniform": ("uniform_floored", "uniform with the same floor"),
    "random_k": ("random_k_default", "as many random members with the same floor"),
}
"""Our default has a floor and its own size; so must what it is compared with."""


def _rival_of(method: str, rival: str, rival_name: str) -> tuple[str, str]:
    return FAIR_TO_DEFAULT[rival] if method == "sparsebag_default" else (rival, rival_name)


def calibration(rival: str, rival_name: str) -> Callable[[Inputs], Finding]:
    """Lower ECE and lower log-loss than a rival."""

    def judge(inputs: Inputs) -> Finding:
        sentences = []
        verdict = Verdict.NOT_MEASURED
        for method, name in NAMES.items():
            against, against_name = _rival_of(method, rival, rival_name)
            ece = _lower(inputs.results, method, against, "ece")
            loss = _lower(inputs.results, method, against, "log_loss")
            if not ece[1]:
                continue
            sentences.append(
                f"{name[0].upper() + name[1:]} against {against_name}: ECE lower in {ece[2]}, "
                f"log-loss lower in {loss[2]}."
            )
            if method == "scsb_paper":
                verdict = weakest(by_share(*ece[:2]), by_share(*loss[:2]))
        if rival == "uniform":
            sentences += _temperature(inputs) + _printed_calibration(inputs)
        return Finding(verdict, tuple(sentences))

    return judge


def _temperature(inputs: Inputs) -> list[str]:
    ece = _lower(inputs.results, "uniform_temperature", "uniform", "ece")
    loss = _lower(inputs.results, "uniform_temperature", "uniform", "log_loss")
    if not ece[1]:
        return []
    return [
        f"One temperature fitted to the uniform ensemble, no pruning: ECE lower in {ece[2]}, "
        f"log-loss lower in {loss[2]}."
    ]


def _printed_calibration(inputs: Inputs) -> list[str]:
    scsb, full = inputs.printed("SCSB"), inputs.printed("Standard Bagging")
    if scsb.empty:
        return []
    scsb, full = (t[t["task"] == "classification"] for t in (scsb, full))
    counts = [
        out_of(int((scsb[c].astype(float) < full[c].astype(float)).sum()), len(scsb))
        for c in ("paper_ece", "log_loss")
    ]
    return [f"In the paper's own tables its ECE is lower in {counts[0]}, log-loss in {counts[1]}."]


def accuracy(
    rival: str, rival_name: str, *, must_beat: bool = False
) -> Callable[[Inputs], Finding]:
    """Accuracy (or squared error) no worse than a rival's within a margin, or better than it."""

    def judge(inputs: Inputs) -> Finding:
        sentences, verdict = [], Verdict.NOT_MEASURED
        for method, name in NAMES.items():
            against, against_name = _rival_of(method, rival, rival_name)
            kept, better, total, worst = _preserved(inputs.results, method, against)
            if not total:
                continue
            counted = f"better in {out_of(better, total)}"
            if not must_beat:
                counted = f"preserved in {out_of(kept, total)}, {counted}"
            sentences.append(
                f"{name[0].upper() + name[1:]} against {against_name}: {counted}; worst: {worst}."
            )
            if method == "scsb_paper":
                verdict = by_share(better if must_beat else kept, total)
        return Finding(verdict, tuple(sentences))

    return judge


def _preserved(results: Results, method: str, rival: str) -> tuple[int, int, int, str]:
    hits = results.of_paper().pairs(method, rival, "accuracy")
    errors = results.of_paper().pairs(method, rival, "mse")
    lost = hits["right"] - hits["left"]
    ratio = errors["left"] / errors["right"]
    kept = int((lost <= ACCURACY_MARGIN + 1e-12).sum() + (ratio <= MSE_MARGIN).sum())
    better = int((lost < 0).sum() + (ratio < 1).sum())
    worst = []
    if len(lost):
        worst.append(f"accuracy {signed(-lost.max())} on {' '.join(lost.idxmax())}")
    if len(ratio):
        worst.append(f"MSE {signed(100 * (ratio.max() - 1), 1)} % on {' '.join(ratio.idxmax())}")
    return kept, better, results.of_paper().tried(method, rival), ", ".join(worst)


def lasso_keeps_all(inputs: Inputs) -> Finding:
    lasso, scsb = (pruned_share(inputs.results, m) for m in ("lasso_pruned", "scsb_paper"))
    if lasso.empty:
        return NOT_MEASURED
    rows = pd.DataFrame({"lasso": lasso, "scsb": scsb}).dropna()
    less = int((rows["lasso"] < rows["scsb"]).sum())
    total = inputs.results.of_paper().tried("lasso_pruned", "scsb_paper")
    evidence = [
        f"Lasso prunes {_range(lasso)}, median {percent(median(lasso))}, and nothing at all in "
        f"{out_of(int((lasso == 0).sum()), len(lasso))} rows; it prunes less than SCSB in "
        f"{out_of(less, total)}.",
        *failures(inputs.results.of_paper(), "lasso_pruned"),
    ]
    loss = _lower(inputs.results, "lasso_pruned", "scsb_paper", "log_loss")
    error = _lower(inputs.results, "lasso_pruned", "scsb_paper", "mse")
    if loss[1] or error[1]:
        evidence.append(
            f"But its log-loss is below SCSB's in {out_of(*loss[:2])} rows and its MSE in "
            f"{out_of(*error[:2])}."
        )
    evidence.append(
        "The reason given does not apply: this baseline (L1 logistic regression, positive "
        "LassoCV) is not constrained to the simplex."
    )
    return Finding(by_share(less, total), tuple(evidence))


def under_one_second(inputs: Inputs) -> Finding:
    seconds = inputs.results.of_paper().finished("scsb_paper")["fit_seconds"].dropna()
    if seconds.empty:
        return NOT_MEASURED
    fast = int((seconds < ONE_SECOND).sum())
    tried = inputs.results.of_paper().tried("scsb_paper")
    evidence = [
        f"{out_of(fast, tried)} rows; median {number(median(seconds), 2)} s, slowest "
        f"{number(seconds.max(), 2)} s ({' '.join(seconds.idxmax())})."
    ]
    ours = inputs.results.of_paper().finished("sparsebag_default")["fit_seconds"].dropna()
    if len(ours):
        evidence.append(
            f"Our default: median {number(median(ours), 2)} s, slowest {number(ours.max(), 2)} s."
        )
    return Finding(by_share(fast, tried), tuple(evidence))


def model_agnostic(inputs: Inputs) -> Finding:
    frame = inputs.results.frame
    others = Results(frame[~frame["base"].isin([*PAPER_BASES, "none"])])
    tried = others.tried("scsb_paper", "uniform")
    if not tried:
        return NOT_MEASURED
    done = others.finished("scsb_paper")
    pruned = done["survivors"] < done["members"]
    ratio = pd.concat(
        rows["left"] / rows["right"]
        for rows in (others.pairs("scsb_paper", "uniform", s) for s in ("log_loss", "mse"))
    ).reindex(done.index)
    agree = int((pruned & (ratio <= MSE_MARGIN)).sum())
    names = " and ".join(sorted(set(others.frame["base"])))
    evidence = [
        f"{out_of(agree, tried)} rows with bagged {names} run, prune and lose at most "
        f"{percent(MSE_MARGIN - 1)}; {int(pruned.sum())} run and prune.",
        *failures(others, "scsb_paper"),
    ]
    for score, name in (("log_loss", "Log-loss"), ("mse", "MSE")):
        rows = others.pairs("scsb_paper", "uniform", score)
        if len(rows):
            no_worse = int((rows["left"] <= MSE_MARGIN * rows["right"]).sum())
            evidence.append(
                f"{name} within {percent(MSE_MARGIN - 1)} of uniform, or below, in "
                f"{out_of(no_worse, len(rows))}; median ratio "
                f"{number(median(rows['left'] / rows['right']), 3)}."
            )
    return Finding(by_share(agree, tried), tuple(evidence))


PERFORMANCE_CLAIMS = (
    Claim(
        "Compression of 33 to 96 %",
        "consistently achieves high compression ratios ranging from 33.0% to 96.0%",
        "results; the abstract: “up to 96%”",
        "the smallest share pruned is within 5 points of 33 % and the largest within 5 points of "
        "96 %",
        compression,
        "frontier",
    ),
    Claim(
        "Compression of 68 to 96 %",
        "consistently prunes 68%–96% of estimators",
        "conclusion",
        "every row prunes at least 68 % (more than half of them: in part)",
        concluded_compression,
    ),
    Claim(
        "Linear inference speed-up",
        "prediction latency scales linearly with the fraction of active estimators",
        "results; “linear inference speedups” in abstract, contributions, conclusion",
        f"the speed-up over uniform reaches {percent(LINEAR_FROM)} of N/k in most rows, the two "
        "timed in turn",
        linear_speedup,
        "latency",
    ),
    Claim(
        "Better calibrated than the full ensemble",
        "superior probability calibration (lowered Expected Calibration Error)",
        "abstract, contributions, conclusion",
        "top-label ECE and log-loss are below uniform's, each in most rows",
        calibration("uniform", "uniform"),
        "reliability",
    ),
    Claim(
        "Better calibrated than as many random members",
        "superior probability calibration",
        "abstract, contributions, conclusion",
        "top-label ECE and log-loss are below random-k's at the same k, each in most rows",
        calibration("random_k", "random-k"),
        "frontier",
    ),
    Claim(
        "As accurate as the full ensemble",
        "while preserving or enhancing generalization accuracy",
        "abstract, contributions, conclusion",
        "accuracy is at most half a point below uniform's, or MSE at most 1 % above, in most rows",
        accuracy("uniform", "uniform"),
    ),
    Claim(
        "More accurate than as many random members",
        "while preserving or enhancing generalization accuracy",
        "abstract, contributions, conclusion",
        "accuracy is above, or MSE below, random-k's at the same k, in most rows",
        accuracy("random_k", "random-k", must_beat=True),
        "frontier",
    ),
    Claim(
        "Lasso fails to prune",
        "Lasso-pruned bagging fails to induce sufficient sparsity on the probability simplex",
        "results",
        "Lasso prunes a smaller share than SCSB in most rows",
        lasso_keeps_all,
    ),
    Claim(
        "Under one second",
        "this is fast (typically under 1 second)",
        "limitations",
        "fitting the weights takes under a second in most rows",
        under_one_second,
    ),
    Claim(
        "Model-agnostic",
        "SCSB is model-agnostic",
        "abstract; SVMs and neural nets are future work",
        "most rows with bagged SVMs and MLPs run, prune, and lose at most 1 % of uniform's "
        "log-loss or MSE",
        model_agnostic,
    ),
)
