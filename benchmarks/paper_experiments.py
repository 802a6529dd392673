"""The paper's problem on every bag of its tables, by NumPy and SciPy alone: what its solver does.

    SPARSEBAG_DATA=... python -m benchmarks.paper_experiments

Writes ``benchmarks/results/paper_experiments.json``, from which `benchmarks.paper_page` quotes.
The objective, for row i, member j, vote V and out-of-bag indicator I (the paper's section III)::

    q_i = Σ_j w_j I_ij V_ij / (Σ_j w_j I_ij + 1e-15)
    f(w) = mean_i loss(y_i, q_i) - λ ‖w‖²

with q clipped at 1e-15 in log-loss and differentiated as if it were not, SLSQP from the uniform
centre (at most 100 iterations, tolerance 1e-6), and weights up to 1e-5 dropped: the authors' code.
Where it stops hangs on rounding in many bags, so each is fitted `FITS` times at every λ: once as it
is, and to votes of which half are one or two last bits lower.
"""

import json
import sys
import warnings
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from benchmarks.datasets import PAPER, PAPER_SEED, Unavailable
from benchmarks.environment import environment
from benchmarks.kept_output import RESULTS, options
from benchmarks.methods import DROPPED, voting_model
from benchmarks.paper_page import LOSS
from benchmarks.problem import BASES, Problem, make_problem
from benchmarks.results_store import rounded
from benchmarks.scoring import figures_on_test_rows

PAPER_LAM = 0.05
LAMBDAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
FITS = 13
STARTS = 10
POINTS = 20
TINY = 1e-15
FLOOR = 1e-3
"""Mixed into votes where curvature is measured: with log 0 in it the loss has none."""


@dataclass(frozen=True)
class PaperProblem:
    """Votes of the true class (or predictions), zero in the bag; mask; targets (None: classes)."""

    votes: np.ndarray
    mask: np.ndarray
    target: np.ndarray | None
    lam: float = PAPER_LAM

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """The out-of-bag votes of a fitted bag."""
        votes, mask = problem.oob_votes, problem.oob_mask.astype(float)
        if problem.task == "regression":
            return cls(votes[:, :, 0], mask, problem.y)
        return cls(votes[np.arange(len(problem.y)), :, problem.y], mask, None)

    def value_and_gradient(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """The objective and the paper's gradient."""
        weight = self.mask @ w + TINY
        q = self.votes @ w / weight
        if self.target is None:
            q = np.clip(q, TINY, 1.0 - TINY)
            loss, slope = -np.log(q), -1.0 / q
        else:
            loss, slope = (q - self.target) ** 2, 2.0 * (q - self.target)
        pull = slope / weight / len(q)
        gradient = self.votes.T @ pull - self.mask.T @ (pull * q)
        return float(loss.mean() - self.lam * w @ w), gradient - 2.0 * self.lam * w

    def oob_loss(self, w: np.ndarray) -> float:
        """The objective without its penalty."""
        return self.value_and_gradient(w)[0] + self.lam * float(w @ w)

    def solve(self, start: np.ndarray | None = None) -> Any:
        """SciPy's result, put back on the simplex: rounding, or a failed solve, leaves it."""
        n = self.votes.shape[1]
        found = minimize(
            self.value_and_gradient,
            np.full(n, 1.0 / n) if start is None else start,
            jac=True,
            method="SLSQP",
            bounds=[(0.0, 1.0)] * n,
            constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0},
            options={"ftol": 1e-6, "maxiter": 100},
        )
        found.x = np.clip(found.x, 0.0, None) / np.clip(found.x, 0.0, None).sum()
        found.fun = self.value_and_gradient(found.x)[0]
        return found

    def with_last_bits(self, draw: int) -> Self:
        """Half of the votes one or two last bits lower."""
        lower = np.random.default_rng([PAPER_SEED, draw]).integers(0, 2, self.votes.shape)
        return replace(self, votes=self.votes * (1.0 - np.finfo(float).eps * lower))

    def loss_curvature(self, w: np.ndarray, n_classes: int) -> np.ndarray:
        """Eigenvalues of the loss's Hessian along the simplex (directions of sum 0), ascending."""
        weight = self.mask @ w
        q = self.votes @ w / weight
        if self.target is None:
            p = (1.0 - FLOOR) * q + FLOOR / n_classes
            slope, bend = -(1.0 - FLOOR) / p, ((1.0 - FLOOR) / p) ** 2
        else:
            slope, bend = 2.0 * (q - self.target), np.full(len(q), 2.0)
        share = self.mask / weight[:, None]
        dq = (self.votes - self.mask * q[:, None]) / weight[:, None]
        cross = dq.T @ (share * slope[:, None])
        hessian = (dq.T @ (dq * bend[:, None]) - cross - cross.T) / len(q)
        n = len(w)
        # Columns after the first of this Q are orthonormal and sum to zero.
        basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[0][:, 1:]
        return np.linalg.eigvalsh(basis.T @ hessian @ basis)


def facts(f: PaperProblem) -> tuple[dict[str, Any], np.ndarray]:
    """How a solve from the centre ended, and the weights left after small ones are dropped."""
    found = f.solve()
    w = np.where(found.x > DROPPED, found.x, 0.0)
    w /= w.sum()
    return {
        "survivors": int(np.count_nonzero(w)),
        "exact_zeros": int(np.sum(found.x == 0.0)),
        "tiny": int(np.sum((found.x > 0.0) & (found.x <= DROPPED))),
        "success": bool(found.success),
        "status": str(found.message),
        "iterations": int(found.nit),
        "objective": float(found.fun),
        "oob_loss": f.oob_loss(found.x),
        "oob_loss_dropped": f.oob_loss(w),
        "heaviest": float(w.max()),
        "top_tenth": float(np.sort(w)[-len(w) // 10 :].sum()),
    }, w


def measure(problem: Problem) -> dict[str, Any]:
    """All experiments on one bag."""
    f = PaperProblem.of(problem)
    n = f.votes.shape[1]
    nudged = [f, *(f.with_last_bits(draw) for draw in range(1, FITS))]
    fits, lambdas = [], []
    for told, w in map(facts, nudged):
        fits.append(told | figures_on_test_rows(voting_model(problem, w), problem))
    for lam in LAMBDAS:
        found = [facts(replace(g, lam=lam)) for g in nudged]
        middle = float(np.median([told["survivors"] for told, _ in found]))
        loss = figures_on_test_rows(voting_model(problem, found[0][1]), problem)[LOSS[problem.task]]
        as_is = found[0][0]["survivors"], loss
        lambdas.append({"lam": lam, "survivors": middle, "as_is": as_is})
    random = np.random.default_rng(PAPER_SEED).dirichlet(np.ones(n), max(STARTS, POINTS))
    measured = {
        "task": problem.task,
        "members": n,
        "fits": fits,
        "lambdas": lambdas,
        "oob_loss_uniform": f.oob_loss(np.full(n, 1.0 / n)),
        "random_starts": [float(f.solve(start).fun) for start in random[:STARTS]],
        "least_curvature": [f.loss_curvature(w, problem.n_classes)[0] for w in random[:POINTS]],
    }
    if f.target is not None:  # the same problem in another unit
        unit = float(np.std(f.target))
        same = PaperProblem(f.votes / unit, f.mask, f.target / unit, f.lam / unit**2)
        measured["unit_variance"] = facts(same)[0]
    return measured


def main() -> int:
    options(__doc__).parse_args()
    bags = {}
    try:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            for dataset in PAPER.values():
                for base in BASES[dataset.task][:2]:
                    problem = make_problem(dataset, base, PAPER_SEED)
                    bags[f"{dataset.name} {base}"] = measure(problem)
                    print(f"{dataset.name} {base}", file=sys.stderr, flush=True)
    except Unavailable as reason:
        print(f"Nothing was written: {reason}.", file=sys.stderr)
        return 1
    about = {**environment(), "source": ""}  # none of it is sparsebag's
    found = rounded({"environment": about, "bags": bags})
    (path := RESULTS / "paper_experiments.json").write_text(json.dumps(found) + "\n")
    print(f"{path}: {len(bags)} bags")
    return 0


if __name__ == "__main__":
    sys.exit(main())
