"""A solve from its solver to the weights that are kept: checked, small ones dropped, judged."""

from __future__ import annotations

from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import (
    Solution,
    Solver,
    check_compatible,
    drop_small_weights,
    judged,
    tolerance_of,
)

Array = Any


def judged_solve(
    solver: Solver,
    objective: Objective,
    start: Array | None = None,
    *,
    drop_threshold: float,
    drops_always: bool = False,
) -> Solution:
    """Minimise, set negligible weights to exact zero, and warn where that is no success.

    Parameters
    ----------
    solver : Solver
        One that needs what the objective lacks is refused.
    objective : Objective
        Of all members.
    start : array of shape (N,), optional
        Default: the simplex's centre.
    drop_threshold : float
        Largest weight that is dropped.
    drops_always : bool, default False
        Even if the solve has then not converged.

    Returns
    -------
    Solution
        Objective, gap and status are those of the weights that are left.
    """
    check_compatible(solver, objective)
    found = solver.solve(objective, start)
    tol = None if drops_always else tolerance_of(solver)
    return judged(drop_small_weights(found, objective, drop_threshold, tol=tol), objective)
