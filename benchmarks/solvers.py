"""Every solver against SLSQP on real forests' evidence, and against the bandwidth bound.

    SPARSEBAG_DATA=... python -m benchmarks.solvers [--quick] [--only well ill mixsqp passes large]

Two objectives. *Well posed*: ours, floor ε = 0.001 and prior mass τ = 0.02. *Ill posed*: the
paper's, ε = τ = 0 with the 1e-15 clip. Every solver runs on one thread. Times are the best of up to
three runs, as many as start within five seconds; compare them as ratios. Objectives are those of
the weights a user gets, after weights up to 1e-5 are dropped. The bound is the evidence that passes
over all or some members read, divided by the read bandwidth measured in the same run; Hessians and
copies of columns are not in it.
"""

import os
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from timeit import repeat

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import sparsebag as sb
from benchmarks.datasets import Unavailable, load
from benchmarks.kept_output import options, results_of
from sparsebag.evidence.arrays import row_blocks
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.objective.losses import LogLoss, resolve_loss
from sparsebag.objective.objective import Objective
from sparsebag.objective.passes import ArrayPasses, NativePasses
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.auto import select_solver
from sparsebag.solvers.base import (
    DROP_THRESHOLD,
    Solution,
    Solver,
    drop_small_weights,
    one_blas_thread,
)
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.slsqp import SLSQP

MOST_ROWS = 20_000
ALLOWED_EXCESS = 1e-6
REPEATS = 3
PASS_SHAPES, PASS_REPEATS = ((20_000, 250), (20_000, 1000), (20_000, 2000)), 15
REPEAT_BELOW_SECONDS = 5.0
MIXSQP_TOL = 1e-8
LAMS = (0.0, 0.01, 0.05, 0.2)
ILL_POSED_LAMS = (0.01, 0.05)

# (data set, members, λs): SLSQP is cubic in the members, so the large ones get one λ.
GRID = [
    *[(name, 100, LAMS) for name in ("digits", "spambase", "satimage", "magic", "house_8l")],
    *[(name, 300, LAMS) for name in ("digits", "spambase", "satimage", "adult", "house_8l")],
    *[(name, 1000, (0.01,)) for name in ("digits", "adult", "electricity", "bike_sharing")],
]
LARGE_GRID = [("digits", 2000, (0.01,))]  # `--only large`: SLSQP takes minutes
QUICK_GRID = [("digits", 100, (0.01,)), ("digits", 300, (0.01,))]
SCRIPT = """
suppressMessages(library(mixsqp))
args <- commandArgs(TRUE)
n <- as.integer(args[2]); m <- as.integer(args[3])
L <- matrix(readBin(args[1], "double", n * m), n, m)
seconds <- system.time(fit <- mixsqp(L, control = list(verbose = FALSE)))[["elapsed"]]
blas <- as.character(extSoftVersion()["BLAS"])
cat("BLAS", basename(dirname(blas)), "\\n", file = stderr())
cat(seconds, nrow(fit$progress), fit$status, "\\n", sep = "\\t")
writeBin(fit$x, args[4])
"""


def problems(
    grid: list, lams: tuple | None, well_posed: bool
) -> Iterator[tuple[str, float, Objective]]:
    """Data set, λ and objective."""
    for name, n_members, own_lams in grid:
        try:
            X, y, task = load(name, MOST_ROWS)
        except Unavailable as reason:
            print(f"{name:<14}skipped: {reason}")
            continue
        if task == "regression":
            y = (y - y.mean()) / y.std()  # on raw ones SLSQP's absolute stopping test stalls
        kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
        forest = kind(n_members, random_state=0, n_jobs=-1).fit(X, y)
        dtype = np.float32 if well_posed else np.float64
        pool = read_ensemble(forest)
        evidence = collect_evidence(pool, X, y, dtype=dtype, n_jobs=-1)
        del forest, pool
        for lam in lams or own_lams:
            how = {"floor": 1e-3, "prior_mass": 0.02} if well_posed else {}
            loss, penalty = resolve_loss("auto", task), ConcaveQuadratic(lam)
            yield name, lam, Objective(evidence, loss, penalty, **how)


def timed(solver: Solver, objective: Objective) -> Solution:
    os.environ["OMP_NUM_THREADS"] = "1"  # of the compiled passes; SLSQP, too, is on one thread
    with one_blas_thread():
        runs = [solver.solve(objective)]
        while len(runs) < REPEATS and sum(run.seconds for run in runs) < REPEAT_BELOW_SECONDS:
            runs.append(solver.solve(objective))
    best = min(runs, key=lambda s: s.seconds)
    # What users get: weights the paper calls negligible are dropped, for every solver alike.
    return replace(drop_small_weights(best, objective, DROP_THRESHOLD), seconds=best.seconds)


def read_bandwidth() -> float:
    """Bytes a second one thread reads from memory, best of five."""
    block = np.ones(64_000_000, dtype=np.float32)
    return block.nbytes / min(repeat(lambda: block.dot(block), number=1, repeat=5))


def compare(title: str, grid: list, lams: tuple | None, well_posed: bool) -> None:
    print(f"\n## {title}\n")
    bandwidth = read_bandwidth()
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s\n")
    print(
        f"{'data':<14}{'M':>6}{'N':>6}{'λ':>6}  {'solver':<20}{'seconds':>9}{'faster':>8}"
        f"{'objective':>14}{'− SLSQP':>10}{'gap':>9}{'kept':>6}{'passes':>7}{'× bound':>8}  status"
    )
    wins = total = 0
    ratios: dict[int, list[float]] = {}
    for name, lam, objective in problems(grid, lams, well_posed):
        n_rows, n_members = objective.evidence.n_rows, objective.n_members
        chosen = select_solver(objective).name
        baseline = timed(SLSQP(), objective)
        for solver in (SLSQP(), ActiveSet(), ProjectedGradient()):
            if solver.name == "projected_gradient" and not well_posed and name != "digits":
                continue  # stalls for minutes without prior mass
            solution = baseline if solver.name == "slsqp" else timed(solver, objective)
            excess = (solution.objective - baseline.objective) / objective.scale
            ratio = baseline.seconds / solution.seconds
            bound = solution.nbytes_read / bandwidth
            auto = solver.name == chosen
            if auto:
                total += 1
                wins += excess <= (ALLOWED_EXCESS if well_posed else 0.0)
                ratios.setdefault(n_members, []).append(ratio)
            print(
                f"{name:<14}{n_rows:>6}{n_members:>6}"
                f"{lam:>6}  {solver.name + (' (auto)' if auto else ''):<26.26}"
                f"{solution.seconds:>8.3f}{ratio:>7.1f}x{solution.objective:>13.7f}{excess:>10.1e}"
                f"{solution.stationarity_gap:>9.1e}{solution.n_active:>6}"
                f"{solution.n_evaluations:>7}{solution.seconds / bound:>8.1f}"
                f"  {solution.status.name}",
                flush=True,
            )
    if not total:
        return
    limit = f"SLSQP's + {ALLOWED_EXCESS:g}" if well_posed else "SLSQP's"
    print(f"\nauto: objective ≤ {limit} on {wins} of {total} problems ({wins / total:.0%})")
    for n_members, values in ratios.items():
        print(
            f"auto at N = {n_members}: {min(values):.0f}x to {max(values):.0f}x SLSQP's speed "
            f"(median {np.median(values):.0f}x, {len(values)} problems)"
        )


def normal_mixture(n_rows: int, n_members: int) -> np.ndarray:
    """Likelihoods of normal scale mixtures, as in mixsqp's own experiments; rows scaled to 1."""
    rng = np.random.default_rng(0)
    kinds = rng.choice(3, n_rows, p=[0.5, 0.2, 0.3])
    draws = [rng.normal(size=n_rows), rng.standard_t(4, n_rows), 2.0 * rng.standard_t(6, n_rows)]
    x = np.choose(kinds, draws)
    scale = np.concatenate([[0.0], np.geomspace(0.05, 2 * np.abs(x).max(), n_members - 1)])
    variance = 1.0 + scale**2
    log_density = -0.5 * (x[:, None] ** 2 / variance + np.log(variance))
    return np.exp(log_density - log_density.max(axis=1, keepdims=True))


def member_votes(n_rows: int, n_members: int) -> np.ndarray:
    """Held-out votes of members of unequal skill: a mixture problem with a wide support."""
    rng = np.random.default_rng(1)
    logit = 1.5 * rng.normal(size=(n_rows, n_members))
    logit += rng.normal(1.0, 0.3, n_members) + rng.normal(0.0, 1.5, (n_rows, 1))
    return 1.0 / (1.0 + np.exp(-logit))


def compare_mixsqp(quick: bool) -> None:
    """R's mixsqp on its own kind of problem: λ = 0, no mask, mixture weights."""
    n_rows, n_members = (2_000, 80) if quick else (20_000, 800)
    print(f"\n## R's mixsqp: {n_rows} × {n_members}, λ = 0, full mask, float64\n")
    check = "Rscript -e 'library(mixsqp)'"
    is_there = subprocess.run(check, shell=True, capture_output=True).returncode == 0
    print(f"{'problem':<16}{'solver':<28}{'seconds':>9}{'objective':>15}{'gap':>10}{'kept':>6}")
    for name, make in (("normal mixture", normal_mixture), ("member votes", member_votes)):
        votes = make(n_rows, n_members)
        how = {"task": "classification", "classes": np.arange(2)}
        evidence = OOBEvidence(votes, None, np.zeros(n_rows, int), **how)
        objective = Objective(evidence, LogLoss(), ConcaveQuadratic(0.0))
        runs = [ActiveSet(tol=MIXSQP_TOL).solve(objective) for _ in range(REPEATS)]
        ours = min(runs, key=lambda s: s.seconds)
        label = f"{ours.solver} (auto: {select_solver(objective).name})"
        show(name, label, ours.seconds, ours.objective, ours.stationarity_gap, ours.weights)
        if not is_there:
            print(f"{name:<16}mixsqp skipped: not installed (Debian: r-base-core, r-cran-mixsqp)")
            continue
        seconds, weights = run_mixsqp(votes)
        value, gradient = objective.value_and_gradient(weights)
        gap = float(weights @ (gradient - gradient.min()))
        show(name, "mixsqp (R)", seconds, value, gap, weights)
        print(
            f"{'':<16}{seconds / ours.seconds:.1f}x mixsqp's speed, objective differs by "
            f"{ours.objective - value:+.1e}"
        )


def show(name: str, solver: str, seconds: float, value: float, gap: float, w: np.ndarray) -> None:
    found = f"{seconds:>9.3f}{value:>15.9f}{gap:>10.1e}{np.sum(w > 1e-5):>6}"
    print(f"{name:<16}{solver:<28}{found}", flush=True)


def run_mixsqp(votes: np.ndarray) -> tuple[float, np.ndarray]:
    n_rows, n_members = votes.shape
    with tempfile.TemporaryDirectory() as folder:
        script, data, out = (Path(folder) / name for name in ("fit.R", "L.bin", "x.bin"))
        script.write_text(SCRIPT)
        np.asfortranarray(votes).T.tofile(data)  # R reads columns
        command = ["Rscript", script, data, str(n_rows), str(n_members), out]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        weights = np.maximum(np.fromfile(out), 0.0)
    print(f"{'':<16}R's {done.stderr.strip().splitlines()[-1]}")
    return float(done.stdout.split("\t")[0]), weights / weights.sum()


def one_pass(blocks: list, weights: np.ndarray) -> None:
    for block in blocks:
        n, d = block.forward(weights)
        block.transposed(n, d)


def compare_passes() -> None:
    """The compiled products against NumPy's BLAS: why the compiled module exists."""
    bandwidth = read_bandwidth()
    print("\n## A pass over votes and mask, compiled and by NumPy's BLAS\n")
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s; milliseconds, best of {PASS_REPEATS}\n")
    print(f"{'M':>7}{'N':>6}{'BLAS':>9}{'compiled':>10}{'faster':>8}{'× bound':>9}")
    for n_rows, n_members in PASS_SHAPES:
        rng = np.random.default_rng(0)
        votes = rng.random((n_rows, n_members), dtype=np.float32)
        mask = rng.random((n_rows, n_members)) < 0.37
        weights = np.full(n_members, 1.0 / n_members)
        rows = list(row_blocks(votes))
        general = [ArrayPasses((votes[r],), mask[r], np, np.float32) for r in rows]
        native = [NativePasses(votes[r], mask[r]) for r in rows]
        blas, ours = (
            min(repeat(partial(one_pass, way, weights), number=1, repeat=PASS_REPEATS))
            for way in (general, native)
        )
        bound = (votes.nbytes + mask.nbytes) / bandwidth
        print(
            f"{n_rows:>7}{n_members:>6}{1e3 * blas:>9.2f}{1e3 * ours:>10.2f}"
            f"{blas / ours:>7.1f}x{ours / bound:>9.1f}"
        )


def main() -> None:
    parser = options(__doc__, quick="bundled data, minutes not hours")
    sections = ("well", "ill", "mixsqp", "passes")
    parser.add_argument("--only", nargs="*", choices=(*sections, "large"), default=sections)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=sb.UncoveredRowsWarning)
    grid = QUICK_GRID if args.quick else GRID
    is_large = args.only == ["large"]
    name, keep = "solvers_large" if is_large else "solvers", args.only is sections or is_large
    with results_of(name, keep=keep and not args.quick):
        if is_large:
            compare("Two thousand members", LARGE_GRID, None, True)
        if "well" in args.only:
            compare("Well posed: ε = 0.001, τ = 0.02, float32 evidence", grid, None, True)
        if "ill" in args.only:
            small = [row for row in grid if row[1] <= 300 or row[0] == "digits"]
            title = "Ill posed: the paper's objective, float64 evidence"
            compare(title, small, ILL_POSED_LAMS, False)
        if "mixsqp" in args.only:
            compare_mixsqp(args.quick)
        if "passes" in args.only:
            compare_passes()


if __name__ == "__main__":
    main()
