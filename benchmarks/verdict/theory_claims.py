"""Claims about the penalty, the landscape and the evidence, judged by the experiments."""

from __future__ import annotations

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


def penalty_makes_sparsity(inputs: Inputs) -> Finding:
    seen = inputs.experiments.get("frontier")
    if not seen:
        return NOT_MEASURED
    path = {point["lam"]: point for point in seen["paper"]}
    without, papers = path[0.0], path[0.05]
    verdict = (
        Verdict.HOLDS if without["survivors"] >= SPARSER_BY * papers["survivors"] else Verdict.FAILS
    )
    strongest = seen["paper"][-1]
    return Finding(
        verdict,
        (
            f"{seen['members']} trees on {seen['dataset']}: {without['survivors']} survive at "
            f"λ = 0 and {papers['survivors']} at λ = 0.05."
            + ("" if verdict is Verdict.HOLDS else " The simplex does the pruning."),
            f"At λ = {strongest['lam']:g}, {strongest['survivors']} survive and the heaviest has "
            f"{percent(strongest['heaviest'])} of the weight.",
        ),
    )


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
    return Finding(by_share(at_vertex, len(rows)), tuple(evidence))


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
    seen = inputs.experiments.get("landscape")
    if not seen:
        return NOT_MEASURED
    evidence, verdicts = [], {}
    for name, title in (("paper", '`preset="paper"`'), ("default", "Our default")):
        runs = seen["starts"][name]
        near = (runs["uniform"] - runs["best"]) <= NEAR_BEST * abs(runs["best"])
        beaten = runs["n_lower_than_uniform"] > FAILS_UP_TO * runs["n_starts"]
        verdicts[name] = Verdict.IN_PART
        if near != beaten:
            verdicts[name] = Verdict.HOLDS if near else Verdict.FAILS
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
    return Finding(verdicts["paper"], tuple(evidence))


def honest_estimate(inputs: Inputs) -> Finding:
    seen = inputs.experiments.get("landscape")
    if not seen:
        return NOT_MEASURED
    runs = seen["starts"]["paper"]
    estimated, deployed = runs["uniform_oob_loss"], runs["uniform_test_loss"]
    error = estimated / deployed - 1.0
    return Finding(
        Verdict.HOLDS if abs(error) <= CLOSE else Verdict.FAILS,
        (
            f'{seen["dataset"]}, `preset="paper"`: the minimised out-of-bag log-loss is '
            f"{number(estimated)}, on test rows the same weights give {number(deployed)} "
            f"({signed(100 * error, 0)} %).",
        ),
    )


def overconfidence(inputs: Inputs) -> Finding:
    seen = inputs.experiments.get("reliability")
    if not seen:
        return NOT_MEASURED
    gaps = {
        name: {m: by[m]["mean_confidence"] - by[m]["accuracy"] for m in ("uniform", "paper")}
        for name, by in seen.items()
    }
    over = sum(gap["uniform"] > 0 for gap in gaps.values())
    listed = {
        m: ", ".join(f"{name} {signed(gap[m], 3)}" for name, gap in gaps.items())
        for m in ("uniform", "paper")
    }
    return Finding(
        by_share(over, len(gaps)),
        (
            f"Mean confidence minus accuracy, bagged trees, uniform: {listed['uniform']}; "
            f'`preset="paper"`: {listed["paper"]}. Above zero is overconfident.',
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
    ),
    Claim(
        "The concave penalty makes the sparsity",
        "To induce sparsity, … introducing a concave quadratic penalty",
        "abstract, contributions",
        f"at least {SPARSER_BY:g} times as many members survive at λ = 0 as at the paper's 0.05",
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
        "random starts end lower (neither: fails)",
        uniform_start,
        "starts",
        by_split=False,
    ),
    Claim(
        "Out-of-bag loss is the true loss",
        "ensures that the optimization target represents true generalization performance",
        "method; “to avoid data leakage” in contributions, conclusion",
        "the minimised out-of-bag loss is within 10 % of the test loss",
        honest_estimate,
        by_split=False,
    ),
    Claim(
        "Uniform voting is overconfident",
        "this naive uniform prior … contributes to model overconfidence",
        "abstract",
        "mean confidence exceeds accuracy on most data sets drawn",
        overconfidence,
        "reliability",
        by_split=False,
    ),
)
