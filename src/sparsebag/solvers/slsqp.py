"""The paper's solver: SciPy's SLSQP, whose steps are cubic in the number of members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Point, Solution, SolveLog, Status
from sparsebag.solvers.simplex import SUM_TOLERANCE, check_start

Array = Any


@dataclass(frozen=True)
class SLSQP:
    """Sequential least squares programming.

    Ctrl-C is heard between SciPy's steps only. One step is compiled code, cubic in the number of
    members: hundredths of a second for 300, up to 20 seconds for 2000, half an hour and 6 GiB for
    10 000. The other solvers take any number.

    Parameters
    ----------
    tol : float, default 1e-6
        SciPy's stopping test on the objective.
    max_iter : int, default 100
        Iteration limit (SciPy's own default, and the paper's).

    Examples
    --------
    >>> import numpy as np
    >>> import sparsebag as sb
    >>> votes, y = np.array([[0.9, 2.0], [2.1, 1.0]]), np.array([1.0, 2.0])
    >>> solver = sb.SLSQP(tol=1e-9, max_iter=500)
    >>> sb.fit_weights(votes, None, y, loss="squared_error", solver=solver).weights.round(2)
    array([0.92, 0.08])
    """

    tol: float = 1e-6
    max_iter: int = 100
    name: str = "slsqp"
    requires: frozenset[str] = frozenset({"gradient"})

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective.

        Parameters
        ----------
        objective : Objective
        start : array of shape (n_members,), optional
            Weights on the simplex; default: its centre.

        Returns
        -------
        Solution
        """
        log = SolveLog(self.name)
        given = objective.uniform_weights() if start is None else objective.asarray(start)
        begin = on_host(check_start(given, objective.n_members))
        found, best = begin, np.inf

        def evaluate(weights: np.ndarray) -> tuple[float, np.ndarray]:
            nonlocal found, best
            at = Point.at(objective, objective.asarray(weights), log)
            # Its trial points may lie off the simplex.
            feasible = abs(float(weights.sum()) - 1.0) <= SUM_TOLERANCE and weights.min() >= 0.0
            if feasible and at.value < best:
                found, best = weights.copy(), at.value
            log.iteration(at)
            return at.value, on_host(at.gradient)

        n = objective.n_members
        ones = np.ones(n)
        status = Status.OWN_TEST
        with log.catch_interrupt():
            result = minimize(
                evaluate,
                begin,
                jac=True,
                method="SLSQP",
                bounds=[(0.0, 1.0)] * n,
                constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: ones},
                options={"ftol": self.tol, "maxiter": self.max_iter},
            )
            found, log.n_iterations = result.x, int(result.nit)
            if not result.success:
                limit = result.status == 9  # SciPy's mode for the iteration limit
                status = Status.MAX_ITERATIONS if limit else Status.STALLED
        # SLSQP's iterates leave the simplex by rounding; so may a failed solve by more.
        weights = np.clip(np.nan_to_num(found), 0.0, None)
        weights = weights / weights.sum() if weights.sum() > 0 else begin
        return log.solution(Point.at(objective, objective.asarray(weights), log), status)
