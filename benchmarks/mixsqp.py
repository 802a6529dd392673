"""Against R's mixsqp on its own kind of problem: λ = 0, no mask, mixture weights.

Needs Rscript with the mixsqp package (Debian: r-base-core, r-cran-mixsqp); skips without.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.auto import select_solver

SHAPE = (20_000, 800)
QUICK_SHAPE = (2_000, 80)
TOL = 1e-8
REPEATS = 3
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


def run(*, quick: bool) -> None:
    n_rows, n_members = QUICK_SHAPE if quick else SHAPE
    print(f"\n## R's mixsqp: {n_rows} × {n_members}, λ = 0, full mask, float64\n")
    reason = unavailable()
    print(f"{'problem':<16}{'solver':<28}{'seconds':>9}{'objective':>15}{'gap':>10}{'kept':>6}")
    for name, make in (("normal mixture", normal_mixture), ("member votes", member_votes)):
        votes = make(n_rows, n_members)
        evidence = OOBEvidence(
            votes, None, np.zeros(n_rows, int), "classification", classes=np.arange(2)
        )
        objective = Objective(evidence, LogLoss(), ConcaveQuadratic(0.0))
        ours = min(
            (ActiveSet(tol=TOL).solve(objective) for _ in range(REPEATS)), key=lambda s: s.seconds
        )
        label = f"{ours.solver} (auto: {select_solver(objective).name})"
        show(name, label, ours.seconds, ours.objective, ours.stationarity_gap, ours.weights)
        if reason:
            print(f"{name:<16}mixsqp skipped: {reason}")
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


def unavailable() -> str | None:
    if shutil.which("Rscript") is None:
        return "Rscript is not installed (Debian: r-base-core, r-cran-mixsqp)"
    check = subprocess.run(["Rscript", "-e", "library(mixsqp)"], capture_output=True)
    return None if check.returncode == 0 else "R has no mixsqp package (Debian: r-cran-mixsqp)"


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
