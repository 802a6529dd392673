"""Claims about the penalty, the landscape and the evidence, judged by the experiments."""

from __future__ import annotations

from typing import Any

from benchmarks.verdict.judgement import (
    FAILS_UP_TO,
    NOT_MEASURED,
    Claim,
    Finding,
    Verdict,
    by_share,
)
from benchmarks.verdict.markdown import number, out_of, percent, signed, significant
from benchmarks.verdict.results import Inputs

SAME_WEIGHTS = 1e-4
"""Two minimisers are the same when no weight differs by more."""
SPARSER_BY = 1.5
"""λ "induces" sparsity when without it this many times as many members survive."""
CLOSE = 0.1
"""An estimate is true when within 10 %."""
SAME_OBJECTIVE = 1e-6
NEAR_BEST = 0.01
"""A start is as good as the best when its objective is within 1 % of it."""


def l1_is_constant(inputs: Inputs) -> Finding:
    seen = inputs.experiments.get("paradox")
    if not seen:
        return NOT_MEASURED
    moved = seen["largest_weight_change_by_l1"]
    return Finding(
        Verdict.HOLDS if moved <= SAME_WEIGHTS else Verdict.FAILS,
        (
            f"Three trees of {seen['dataset']}: {significant(seen['l1_strength'], 1)}·‖w‖₁ added "
            f"to the loss moves no weight by more than {significant(moved, 1)}; the concave "
            f"penalty of that strength takes the heaviest from "
            f"{percent(seen['heaviest']['loss'])} to {percent(seen['heaviest']['concave'])}.",
        ),
    )


def tree_bags(inputs: Inputs) -> dict[str, dict[str, Any]]:
    """The experiments on every bag of trees, by data set."""
    bags = inputs.experiments.get("every_bag", {})
    return {name.split()[0]: bag for name, bag in bags.items() if name.endswith(" DecisionTree")}


def penalty_makes_sparsity(inputs: Inputs) -> Finding:
    bags = tree_bags(inputs)
    if not bags:
        return NOT_MEASURED
    sizes = {n: (b["survivors_without_penalty"], b["survivors"]) for n, b in bags.items()}
    sparser = sum(without >= SPARSER_BY * papers for without, papers in sizes.values())
    listed = ", ".join(f"{name} {without} → {papers}" for name, (without, papers) in sizes.items())
    evidence = [
        f"{out_of(sparser, len(bags))} sets. Trees that survive at λ = 0 → at the paper's λ: "
        f"{listed}."
    ]
    if "frontier" in inputs.experiments:
        seen = inputs.experiments["frontier"]
        strongest = seen["paper"][-1]
        evidence.append(
            f"At λ = {strongest['lam']:g} on {seen['dataset']}, {strongest['survivors']} survive "
            f"and the heaviest has {percent(strongest['heaviest'])} of the weight."
        )
    return Finding(by_share(sparser, len(bags)), tuple(evidence))


def vertex_convergence(inputs: Inputs) -> Finding:
    rows = inputs.results.of_paper().finished("scsb_paper")
    if rows.empty:
        return NOT_MEASURED
    at_vertex = int((rows["survivors"].round() == 1).sum())
    evidence = [
        f"A vertex is one member with all the weight: {out_of(at_vertex, len(rows))} rows end "
        "there."
    ]
    printed = inputs.printed("SCSB")
    if len(printed):
        count = int((printed["active"].astype(int) == 1).sum())
        evidence.append(f"In print: {out_of(count, len(printed))}.")
    if "landscape" in inputs.experiments:
        seen = inputs.experiments["landscape"]
        evidence.append(
            "The theorem is right about strictly concave functions; this objective is not one: on "
            f"{seen['dataset']} its largest curvature along the simplex is "
            f"{significant(seen['largest_curvature'])} > 0 at the start."
            if seen["largest_curvature"] > 0
            else f"On {seen['dataset']} the objective is concave at the start."
        )
    tried = inputs.results.of_paper().tried("scsb_paper")
    return Finding(by_share(at_vertex, tried), tuple(evidence))


def convex_loss(inputs: Inputs) -> Finding:
    seen = inputs.experiments.get("landscape")
    if not seen:
        return NOT_MEASURED
    bent = {name: c for name, c in seen["loss_curvature"].items() if c["n_negative"]}
    listed = "; ".join(
        f"{name} {out_of(c['n_negative'], c['n_points'])} (smallest {significant(c['smallest'])})"
        for name, c in seen["loss_curvature"].items()
    )
    reason = " The out-of-bag denominator bends it." if bent else ""
    return Finding(
        Verdict.FAILS if bent else Verdict.HOLDS,
        (
            "Random weights at which the loss alone (λ = 0, votes floored, so no log 0) has a "
            f"direction of negative curvature along the simplex: {listed}.{reason}",
        ),
    )


def uniform_start(inputs: Inputs) -> Finding:
    bags = tree_bags(inputs)
    if not bags:
        return NOT_MEASURED
    starts = {name: bag["starts"] for name, bag in bags.items()}
    near = {n: (s["uniform"] - s["best"]) <= NEAR_BEST * abs(s["best"]) for n, s in starts.items()}
    ahead = {n: s["n_lower_than_uniform"] <= FAILS_UP_TO * s["n_starts"] for n, s in starts.items()}
    robust = sum(near[name] and ahead[name] for name in starts)
    listed = ", ".join(
        f"{name} {percent(s['uniform'] / s['best'] - 1, 2)} ({s['n_lower_than_uniform']} of "
        f"{s['n_starts']} lower)"
        for name, s in starts.items()
    )
    evidence = [
        f"{out_of(robust, len(starts))} sets; within {percent(NEAR_BEST)} of the best in "
        f"{sum(near.values())}, ahead of at least half of the random starts in "
        f"{sum(ahead.values())}.",
        f"How far the uniform start ends above the best: {listed}.",
        *_many_starts(inputs),
    ]
    return Finding(by_share(robust, len(starts)), tuple(evidence))


def _many_starts(inputs: Inputs) -> list[str]:
    """The figure's experiment: one data set, more starts, both objectives."""
    seen = inputs.experiments.get("landscape")
    if not seen:
        return []
    evidence = []
    for name, title in (("paper", '`preset="paper"`'), ("default", "Our objective (λ = 0)")):
        runs = seen["starts"][name]
        evidence.append(
            f"{title}, {seen['dataset']}: {number(runs['uniform'])} from the uniform start; "
            f"{number(runs['best'])} to {number(runs['worst'])} from {runs['n_starts']} random "
            f"ones, of which {runs['n_lower_than_uniform']} end lower. Test log-loss "
            f"{number(runs['uniform_test_loss'])} against a random start's median "
            f"{number(runs['median_test_loss'])}."
        )
        if abs(runs["uniform_after_drop"] - runs["uniform"]) > SAME_OBJECTIVE:
            evidence.append(
                "Dropping the weights up to 1e-5, as the code does, takes the uniform start's "
                f"objective to {number(runs['uniform_after_drop'])}: rows lose their last voter."
            )
    return evidence


def honest_estimate(inputs: Inputs) -> Finding:
    bags = tree_bags(inputs)
    if not bags:
        return NOT_MEASURED
    errors = {name: bag["oob_loss"] / bag["test_score"] - 1.0 for name, bag in bags.items()}
    close = sum(abs(error) <= CLOSE for error in errors.values())
    listed = ", ".join(f"{name} {signed(100 * error, 0)} %" for name, error in errors.items())
    return Finding(
        by_share(close, len(errors)),
        (
            f"{out_of(close, len(errors))} sets. The minimised out-of-bag loss against the test "
            f"loss of the same weights: {listed}.",
        ),
    )


def overconfidence(inputs: Inputs) -> Finding:
    results = inputs.results.of_paper()
    gaps = {}
    for method in ("uniform", "scsb_paper"):
        rows = results.finished(method)
        gaps[method] = (rows["mean_confidence"] - rows["accuracy"]).dropna()
    if gaps["uniform"].empty:
        return NOT_MEASURED
    counts, listed = {}, {}
    for method, gap in gaps.items():
        counts[method] = int((gap > 0).sum()), results.tried(method, task="classification")
        listed[method] = ", ".join(f"{' '.join(key)} {signed(v, 3)}" for key, v in gap.items())
    return Finding(
        by_share(*counts["uniform"]),
        (
            f"{out_of(*counts['uniform'])} rows. Mean confidence minus accuracy of the uniform "
            f"vote (above zero is overconfident): {listed['uniform']}.",
            f'`preset="paper"`, {out_of(*counts["scsb_paper"])}: {listed["scsb_paper"]}.',
        ),
    )


THEORY_CLAIMS = (
    Claim(
        "The L1-simplex paradox",
        "the L1 norm is constant on the simplex and fails to prune",
        "abstract",
        f"an L1 term moves no weight of the minimiser by more than {SAME_WEIGHTS:g}",
        l1_is_constant,
        "paradox",
        by_split=False,
        aside="true by algebra: ‖w‖₁ = 1 everywhere on the simplex, so no data could refute it",
    ),
    Claim(
        "The concave penalty makes the sparsity",
        "To induce sparsity, … introducing a concave quadratic penalty",
        "abstract, contributions",
        f"at least {SPARSER_BY:g} times as many trees survive at λ = 0 as at the paper's 0.05, on "
        "most data sets",
        penalty_makes_sparsity,
        "spectrum",
        by_split=False,
    ),
    Claim(
        "Vertex convergence",
        "provide the mathematical proof of its vertex convergence",
        "contributions",
        "most solutions are a vertex of the simplex",
        vertex_convergence,
        aside="about a theorem: it is right about strictly concave functions, and a sum with a "
        "convex loss need not be one, so that few solutions are vertices refutes its use here, "
        "not its proof",
    ),
    Claim(
        "A convex loss",
        "a convex predictive loss (which pulls the solution into the interior of the simplex)",
        "theory",
        "no negative curvature is found along the simplex at λ = 0",
        convex_loss,
        by_split=False,
    ),
    Claim(
        "The uniform start is robust",
        "empirically functions as a highly robust initialization anchor",
        "limitations",
        "the uniform start's objective is within 1 % of the best one and at most half of the "
        "random starts end lower, on most data sets (bagged trees)",
        uniform_start,
        "starts",
        by_split=False,
    ),
    Claim(
        "Out-of-bag loss is the true loss",
        "ensures that the optimization target represents true generalization performance",
        "method; “to avoid data leakage” in contributions, conclusion",
        "the minimised out-of-bag loss is within 10 % of the test loss on most data sets (bagged "
        "trees)",
        honest_estimate,
        by_split=False,
    ),
    Claim(
        "Uniform voting is overconfident",
        "this naive uniform prior … contributes to model overconfidence",
        "abstract",
        "mean confidence exceeds accuracy in most rows of the classifiers",
        overconfidence,
        "reliability",
    ),
)
