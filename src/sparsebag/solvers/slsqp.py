"""The paper's solver: SciPy's SLSQP. Cubic in the number of members; the others replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Solution, Status, Watch
from sparsebag.solvers.simplex import SUM_TOLERANCE, check_start, stationarity_gap

Array = Any

_ITERATION_LIMIT_MODE = 9


@dataclass(frozen=True)
class SLSQP:
    """Sequential least squares programming.

    Ctrl-C is heard between SciPy's steps only: one step is compiled code, cubic in the number of
    members, and at thousands of members takes up to a minute. The other solvers stop at once.

    Parameters
    ----------
    ftol : float, default 1e-6
        SciPy's stopping test on the objective.
    max_iter : int, default 100
        Iteration limit (SciPy's own default, and the paper's).
    verbose : int, default 0
        Progress on standard error.
    """

    ftol: float = 1e-6
    max_iter: int = 100
    verbose: int = 0
    name: str = "slsqp"
    requires: frozenset[str] = frozenset({"gradient"})

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        watch = Watch(self.name, self.verbose)
        n = objective.n_members
        begin = objective.uniform_weights() if start is None else objective.asarray(start)
        begin = on_host(check_start(begin, n))
        best: tuple[float, np.ndarray] = (np.inf, begin)

        def evaluate(weights: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal best
            value, gradient = watch.value_and_gradient(objective, objective.asarray(weights))
            feasible = abs(float(weights.sum()) - 1.0) <= SUM_TOLERANCE and weights.min() >= 0.0
            if feasible and value < best[0]:  # its trial points may lie off the simplex
                best = (value, weights.copy())
            host = on_host(gradient)
            watch.iteration(value, stationarity_gap(weights, host), int(np.sum(weights > 0)))
            return value, host

        ones = np.ones(n)
        status = Status.OWN_TEST
        try:
            result = minimize(
                evaluate,
                begin,
                jac=True,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * n,
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: ones},
                options={"ftol": self.ftol, "maxiter": self.max_iter},
            )
            found, watch.n_iterations = result.x, int(result.nit)
            if not result.success:
                limit = result.status == _ITERATION_LIMIT_MODE
                status = Status.MAX_ITERATIONS if limit else Status.STALLED
        except KeyboardInterrupt:
            found, status = best[1], Status.INTERRUPTED
        # SLSQP's iterates leave the simplex by rounding; so may a failed solve by more.
        weights = np.clip(np.nan_to_num(found), 0.0, None)
        weights = weights / weights.sum() if weights.sum() > 0 else begin
        final = objective.asarray(weights)
        value, gradient = watch.value_and_gradient(objective, final)
        return watch.solution(final, value, gradient, status)
