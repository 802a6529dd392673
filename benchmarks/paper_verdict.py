"""Write ``docs/paper.md``: the paper's claims and tables, judged by the benchmark's results.

    python -m benchmarks.paper_verdict [--results ...] [--seeds-results ...] [--tables ...]

Every number on the page is read from those files or from the experiments that
``python -m benchmarks.paper_figures`` writes; every verdict follows from them by a stated rule.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from benchmarks.environment import source_hash
from benchmarks.methods.selection import DRAWS
from benchmarks.verdict.families import calibration_table, families_section
from benchmarks.verdict.judgement import FAILS_UP_TO, HOLDS_FROM, Claim, Finding, Verdict
from benchmarks.verdict.markdown import number, percent, table
from benchmarks.verdict.performance_claims import PERFORMANCE_CLAIMS
from benchmarks.verdict.results import Inputs, Results, read_experiments, read_tables
from benchmarks.verdict.rows import every_row, rows_section, unfinished
from benchmarks.verdict.seeds import seeds_section
from benchmarks.verdict.theory_claims import THEORY_CLAIMS
from sparsebag.settings import DEFAULT_FLOOR

RESULTS = Path("benchmarks/results/paper.csv")
SEEDS_RESULTS = Path("benchmarks/results/paper_seeds.csv")
EXPERIMENTS = Path("benchmarks/results/paper_experiments.json")
PAGE = Path("docs/paper.md")
FIGURES_FOLDER = PAGE.parent / "figures"
WANTED_MINUTES = 10
CLAIMS = (*PERFORMANCE_CLAIMS, *THEORY_CLAIMS)
FIGURES = {
    "reliability": "Reliability diagrams: where the line is above the diagonal, the vote is "
    "under-confident",
    "frontier": "Test loss against members kept, and what λ does; random-k's curve is the bar",
    "spectrum": "The weights, sorted",
    "latency": "Latency against survivors",
    "starts": "The objective reached from the uniform start and from random Dirichlet starts",
    "paradox": "The L1-simplex paradox on three members",
}
NOT_ECE = """\
The text defines top-label ECE: bin the confidence of the *predicted* label, compare it with that
label's accuracy. For two classes the code bins P(class 1) instead, and still compares it with the
accuracy of the predicted label. A confident and correct "class 0" (P near 0, accuracy near 1) then
counts as an error of almost 1, and a perfect predictor scores the share of class 0. That is why
all models, XGBoost included, get {paper_ece} on spambase, where top-label ECE (15 bins) of the
same predictions is {ece}. We report the code's as `paper_ece`; the verdicts use top-label ECE."""
HEAD = """\
What *Simplex-Constrained Sparse Bagging* (Madiraju and Madiraju) claims, and what its protocol
gives here. Printed by `python -m benchmarks.paper_verdict` from `benchmarks/results/`
(`make bench-paper`, `make bench-paper-seeds`; figures and experiments:
`python -m benchmarks.paper_figures`). No score, count or verdict below is typed by hand."""
RULES = """\
“Most rows” means: a claim *holds* when at least {holds} of the rows agree, *fails* when at most
{fails} do (a coin would do as well), and *holds in part* between. A claim about two scores takes
the worse one. The word judges the paper's method (`preset="paper"`); our default stands beside it.
A row that fails stays in the count and does not agree; over the splits, one failed split is a
failed row. Random-k is the mean of {draws} draws of as many members as `preset="paper"` keeps in
that row. Our default keeps its own number and mixes {floor} of the uniform distribution into its
votes, so it is compared with uniform and random members that have this floor, and as many of them.
No rule is older than all measurements: earlier ones of the same data were in view when the rules
were written, and after the results were known 1 (a margin of 5 points, at both ends), 3 (timed in
turn), 10 (the loss), 12, 15 and 16 (every data set instead of one), 14 (a second data set and more
points; still two data sets, of which one suffices to refute) and 17 (every classifier) were
revised. {aside}"""
COLUMNS = """\
“Ours” is uniform, Lasso, XGBoost or `preset="paper"`, as the row says; “ours default” is what
`sb.compress` does by itself. “Authors' code” is what their published code gave here. `=`: equal to
it to the printed digits; else the difference."""


def judged(claim: Claim, inputs: Inputs, seeds: Inputs | None) -> tuple[Finding, Finding | None]:
    """A claim on the paper's split and, where it is judged by results, on the mean of many."""
    return claim.judge(inputs), claim.judge(seeds) if seeds and claim.by_split else None


def summary_table(findings: list[tuple[Claim, Finding, Finding | None]], n_seeds: int) -> str:
    header = ["claim", "verdict", f"over {n_seeds} splits"] if n_seeds else ["claim", "verdict"]
    rows = []
    for position, (claim, finding, over_seeds) in enumerate(findings, 1):
        word = f"**{finding.verdict.value}**" + (" (not counted)" if claim.aside else "")
        row = [f"{position}. {claim.title}", word]
        if n_seeds:
            row.append(over_seeds.verdict.value if over_seeds else "")
        rows.append(row)
    return table(header, rows, left=len(header))


def claim_entry(position: int, claim: Claim, finding: Finding, over_seeds: Finding | None) -> str:
    lines = [
        f"### {position}. {claim.title}: {finding.verdict.value}",
        "",
        f"> “{claim.quote}” ({claim.where})",
        "",
        f"*Holds when* {claim.rule}.",
        "",
        *((f"*Not counted:* {claim.aside}.", "") if claim.aside else ()),
        *(f"- {sentence}" for sentence in finding.evidence),
    ]
    if finding.verdict is Verdict.NOT_MEASURED and not finding.evidence:
        lines.append("- Not in the results.")
    if over_seeds is not None and over_seeds.evidence:
        lines.append(f"- Mean over the splits ({over_seeds.verdict.value}): ")
        lines[-1] += over_seeds.evidence[0]
    if claim.figure:
        lines += ["", f"Figure: [{claim.figure}](#{claim.figure})."]
    return "\n".join(lines)


def not_counted(findings: list[tuple[Claim, Finding, Finding | None]]) -> str:
    """Which claims the tally leaves out."""
    aside = [str(i) for i, (claim, *_) in enumerate(findings, 1) if claim.aside]
    return f"Claims {' and '.join(aside)} are about mathematics and not counted." if aside else ""


def wall_time(inputs: Inputs) -> str:
    """What `make bench-paper` takes, as its own rows and experiments recorded it."""
    rows = inputs.results.frame["wall_seconds"]
    experiments = inputs.experiments.get("seconds", {})
    if rows.isna().any() or not experiments:
        return "The wall time of `make bench-paper` was not recorded in full."
    minutes = [rows.sum() / 60, sum(experiments.values()) / 60]
    return (
        f"`make bench-paper` took {number(sum(minutes), 1)} minutes of wall time on this machine, "
        f"{number(minutes[0], 1)} for the {len(rows)} rows and {number(minutes[1], 1)} for figures "
        f"and experiments ({'within' if sum(minutes) <= WANTED_MINUTES else 'not within'} the "
        f"{WANTED_MINUTES} wanted)."
    )


def binary_ece(results: Results) -> str:
    """Why the paper's ECE is none, with the ranges the results show on spambase."""
    frame = results.frame
    methods = ["uniform", "lasso_pruned", "scsb_paper", "xgboost"]
    rows = frame[(frame["dataset"] == "spambase") & frame["method"].isin(methods)]
    ranges = {}
    for column in ("paper_ece", "ece"):
        values = rows[column].dropna()
        ranges[column] = f"{values.min():.3f} to {values.max():.3f}" if len(values) else "(not run)"
    return NOT_ECE.format(**ranges)


def figures_section(figures: Path, page: Path) -> str:
    parts = []
    for name, caption in FIGURES.items():
        image = figures / f"{name}.png"
        if image.exists():
            link = Path(os.path.relpath(image, page.parent)).as_posix()
            parts.append(f"### {name.capitalize()}\n\n{caption}.\n\n![{caption}]({link})")
    return "\n\n".join(parts) or "Not drawn yet."


def write_page(
    results: Path, seeds_results: Path | None, tables: Path | None, experiments: Path | None
) -> str:
    """The page as text."""
    inputs = Inputs(Results.read(results), read_tables(tables), read_experiments(experiments))
    all_splits = None
    if seeds_results is not None and seeds_results.exists():
        all_splits = Results.read(seeds_results)
    splits = all_splits.complete_seeds() if all_splits else None
    seeds = splits and Inputs(splits.mean_over_seeds(), inputs.tables, inputs.experiments)
    n_seeds = int(splits.frame["seed"].nunique()) if splits else 0
    findings = [(claim, *judged(claim, inputs, seeds)) for claim in CLAIMS]
    entries = [claim_entry(i, *finding) for i, finding in enumerate(findings, 1)]
    words = [finding.verdict for claim, finding, _ in findings if not claim.aside]
    tally = ", ".join(f"{words.count(v)} {v.value}" for v in Verdict if words.count(v))
    sections = [
        "# The paper, row by row",
        "<!-- Generated by `python -m benchmarks.paper_verdict`; edits are lost. -->",
        HEAD,
        f'Made with {inputs.results.versions()}. Rows of `preset="paper"` and of our default: '
        f"source {', '.join(inputs.results.sources()) or 'unknown'} (SHA-256 of the files of "
        "`src/sparsebag`, first digits).",
        wall_time(inputs),
        f"## Verdicts: {tally}",
        RULES.format(
            holds=percent(HOLDS_FROM),
            fails=percent(FAILS_UP_TO),
            draws=DRAWS,
            floor=percent(DEFAULT_FLOOR, 1),
            aside=not_counted(findings),
        ),
        summary_table(findings, n_seeds),
        "## Claim by claim",
        *entries,
        "## Why the paper's binary ECE is not ECE",
        binary_ece(inputs.results),
        "Top-label ECE, 15 bins:",
        calibration_table(inputs),
        "## The paper's tables",
        COLUMNS,
        rows_section(inputs),
        "### Every row: Brier score, R², size and time",
        every_row(inputs.results),
        "## Families the paper names but does not test",
        families_section(inputs),
        "## Many splits",
        seeds_section(splits),
        "## Skipped and failed rows",
        unfinished(inputs.results),
        *(("Over the splits (×: how many):", unfinished(all_splits)) if all_splits else ()),
        "## Figures",
        figures_section(FIGURES_FOLDER, PAGE),
    ]
    return "\n\n".join(sections) + "\n"


def default_tables() -> Path | None:
    folder = os.environ.get("SPARSEBAG_DATA")
    return Path(folder).parent / "paper" / "tables.csv" if folder else None


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--seeds-results", type=Path, default=SEEDS_RESULTS)
    parser.add_argument("--tables", type=Path, default=default_tables())
    parser.add_argument("--experiments", type=Path, default=EXPERIMENTS)
    parser.add_argument("--out", type=Path, default=PAGE)
    args = parser.parse_args(arguments)
    if not args.results.exists():
        parser.error(f"{args.results} is not there; `python -m benchmarks.paper` writes it.")
    text = write_page(args.results, args.seeds_results, args.tables, args.experiments)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text)
    print(f"{args.out}: {len(text.splitlines())} lines")
    for path in (args.results, args.seeds_results):
        stale = path.exists() and Results.read(path).sources() != [source_hash()]
        if stale:
            print(
                f"{path}: rows of ours are not by this source; run the benchmark", file=sys.stderr
            )


if __name__ == "__main__":
    main()
