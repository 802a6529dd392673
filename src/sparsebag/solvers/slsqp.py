"""The paper's solver: SciPy's SLSQP, over working sets where the members are thousands.

One of its steps is cubic in the number of members; the other solvers replace it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Solution, Status, Watch, one_blas_thread
from sparsebag.solvers.column_generation import generate_columns
from sparsebag.solvers.simplex import SUM_TOLERANCE, check_start, stationarity_gap

Array = Any

MOST_MEMBERS = 2000
"""Up to so many members SciPy sees all at once, as in the paper: every ensemble there, and all that
the other solvers are compared with it on. So many take minutes; with 10 000, one step would take
half an hour and 6 GiB."""
_ITERATION_LIMIT_MODE = 9


@dataclass(frozen=True)
class SLSQP:
    """Sequential least squares programming.

    More than 2000 members are solved by column generation: SciPy sees 300 of them at a time, those
    with weight and those that ask loudest for some (`generate_columns`), and more where more than
    300 keep weight: where thousands do, or are copies of one another, other solvers are faster by
    far. A round that lowers the objective by no more than ``ftol`` is the last.

    Ctrl-C is heard between SciPy's steps only. One step is compiled code, cubic in the number of
    members it sees: hundredths of a second for 300, up to 20 seconds for 2000.

    Parameters
    ----------
    ftol : float, default 1e-6
        SciPy's stopping test on the objective.
    max_iter : int, default 100
        Iteration limit (SciPy's own default, and the paper's), over all rounds.
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
        begin = objective.uniform_weights() if start is None else objective.asarray(start)
        begin = check_start(begin, objective.n_members)

        def minimise(
            part: Objective, at: np.ndarray, max_iter: int
        ) -> tuple[np.ndarray, Status, int]:
            return scipy_slsqp(part, at, watch, ftol=self.ftol, max_iter=max_iter)

        if objective.n_members > MOST_MEMBERS:
            with one_blas_thread():
                return generate_columns(
                    objective,
                    begin,
                    watch,
                    minimise,
                    ftol=self.ftol,
                    max_iter=self.max_iter,
                )
        weights, status, watch.n_iterations = minimise(objective, on_host(begin), self.max_iter)
        final = objective.asarray(weights)
        value, gradient = watch.value_and_gradient(objective, final)
        return watch.solution(final, value, gradient, status)


def scipy_slsqp(
    objective: Objective, begin: np.ndarray, watch: Watch, *, ftol: float, max_iter: int
) -> tuple[np.ndarray, Status, int]:
    """SciPy's SLSQP over all members of an objective.

    Parameters
    ----------
    objective : Objective
    begin : ndarray of shape (N,)
        On the simplex.
    watch : Watch
        Counts evaluations.
    ftol : float
    max_iter : int

    Returns
    -------
    weights : ndarray of shape (N,)
        On the simplex; of a solve that was interrupted the best it has been at.
    status : Status
    n_iterations : int
        SciPy's; of a solve that was interrupted its evaluations.
    """
    n_before = watch.n_iterations
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

    n = objective.n_members
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
            options={"ftol": ftol, "maxiter": max_iter},
        )
        found, n_iterations = result.x, int(result.nit)
        if not result.success:
            limit = result.status == _ITERATION_LIMIT_MODE
            status = Status.MAX_ITERATIONS if limit else Status.STALLED
    except KeyboardInterrupt:
        found, status = best[1], Status.INTERRUPTED
        n_iterations = watch.n_iterations - n_before
    # SLSQP's iterates leave the simplex by rounding; so may a failed solve by more.
    weights = np.clip(np.nan_to_num(found), 0.0, None)
    weights = weights / weights.sum() if weights.sum() > 0 else begin
    return weights, status, n_iterations
