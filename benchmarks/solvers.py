"""Every solver against SLSQP on real forests' evidence, and against the bandwidth bound.

    SPARSEBAG_DATA=... python -m benchmarks.solvers [--quick] [--only well ill mixsqp passes]

Two objectives. *Well posed*: ours, floor ε = 0.001 and prior mass τ = 0.02. *Ill posed*: the
paper's, ε = τ = 0 with the 1e-15 clip. Every solver runs on one thread. Times are the best of
three runs where SLSQP takes under five seconds, one run for every solver otherwise; compare them
as ratios. Objectives are those of the weights a user gets, after weights up to 1e-5 are dropped.
The bound is the evidence that passes over all or some members read, divided by the read bandwidth
measured in the same run; Hessians and copies of columns are not in it.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from timeit import repeat

import numpy as np
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import sparsebag as sb
from benchmarks import mixsqp
from benchmarks.datasets import Unavailable, load
from benchmarks.kept_output import options, results_of
from sparsebag.evidence.arrays import row_blocks
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.objective.losses import resolve_loss
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
LAMS = (0.0, 0.01, 0.05, 0.2)
ILL_POSED_LAMS = (0.01, 0.05)

# (data set, members, λs): SLSQP is cubic in the members it sees at once, all of them up to 2000,
# so the large ones get one λ.
GRID = [
    *[(name, 100, LAMS) for name in ("digits", "spambase", "satimage", "magic", "house_8l")],
    *[(name, 300, LAMS) for name in ("digits", "spambase", "satimage", "adult", "house_8l")],
    *[(name, 1000, (0.01,)) for name in ("digits", "adult", "electricity", "bike_sharing")],
    ("adult", 2000, (0.01,)),
]
QUICK_GRID = [("digits", 100, (0.01,)), ("digits", 300, (0.01,))]


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
            # SLSQP's stopping test is absolute; on raw targets it stalls at once.
            y = (y - y.mean()) / y.std()
        kind = RandomForestClassifier if task == "classification" else RandomForestRegressor
        forest = kind(n_members, random_state=0, n_jobs=-1).fit(X, y)
        dtype = np.float32 if well_posed else np.float64
        pool = read_ensemble(forest)
        evidence = collect_evidence(pool, X, y, dtype=dtype, n_jobs=-1)
        del forest, pool
        for lam in lams or own_lams:
            objective = Objective(
                evidence,
                resolve_loss("auto", task),
                ConcaveQuadratic(lam),
                floor=1e-3 if well_posed else 0.0,
                prior_mass=0.02 if well_posed else 0.0,
            )
            yield name, lam, objective


def timed(solver: Solver, objective: Objective, repeats: int) -> Solution:
    # For SLSQP too: threads only add noise on a shared machine.
    os.environ["OMP_NUM_THREADS"] = "1"  # of the compiled passes
    with one_blas_thread():
        runs = [solver.solve(objective) for _ in range(repeats)]
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
        baseline = timed(SLSQP(), objective, 1)
        # As many repeats for ours as for SLSQP, which is too slow for more on large problems.
        repeats = REPEATS if baseline.seconds < REPEAT_BELOW_SECONDS else 1
        if repeats > 1:
            baseline = timed(SLSQP(), objective, repeats)
        for solver in (SLSQP(), ActiveSet(), ProjectedGradient()):
            if (
                not well_posed
                and solver.name == "projected_gradient"
                and (name, n_members) != ("digits", 100)
            ):
                continue  # stalls for minutes without prior mass; shown on the smallest problem
            solution = baseline if solver.name == "slsqp" else timed(solver, objective, repeats)
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


def run(sections: Sequence[str], quick: bool) -> None:
    grid = QUICK_GRID if quick else GRID
    if "well" in sections:
        compare("Well posed: ε = 0.001, τ = 0.02, float32 evidence", grid, None, True)
    if "ill" in sections:
        small = [row for row in grid if row[1] <= 300 or row[0] == "digits"]
        title = "Ill posed: the paper's objective, float64 evidence"
        compare(title, small, ILL_POSED_LAMS, False)
    if "mixsqp" in sections:
        mixsqp.run(quick=quick)
    if "passes" in sections:
        compare_passes()


def main() -> None:
    parser = options(__doc__, quick="bundled data, minutes not hours")
    sections = ("well", "ill", "mixsqp", "passes")
    parser.add_argument("--only", nargs="*", choices=sections, default=sections)
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=sb.UncoveredRowsWarning)
    with results_of("solvers", keep=args.only is sections and not args.quick):
        run(args.only, args.quick)


if __name__ == "__main__":
    main()
