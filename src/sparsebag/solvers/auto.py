"""Which solver for which objective: a rule one can call and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.active_set import ActiveSet, why_active_set
from sparsebag.solvers.base import Solver
from sparsebag.solvers.mirror import Mirror
from sparsebag.solvers.newton import LARGEST_FACE
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.slsqp import SLSQP

SOLVERS: dict[str, Callable[..., Solver]] = {
    "slsqp": SLSQP,
    "active_set": ActiveSet,
    "projected_gradient": ProjectedGradient,
    "mirror": Mirror,
}


@dataclass(frozen=True)
class SolverChoice:
    """A solver's name and the reason it was chosen."""

    name: str
    reason: str


def select_solver(objective: Objective) -> SolverChoice:
    """Choose a solver for an objective; the first rule that applies wins.

    1. The rows are streamed, not in memory: ``mirror``, which reads them four or five times;
       ``active_set`` for up to 300 members where ``mirror`` would run out of passes: a regression
       loss on columns that do not fit the memory allowed, or a sample there of fewer than 16 rows
       a member, which says too little of the rest. Newton's steps take 15 to 20 passes.
    2. The loss has no second derivative: ``projected_gradient``.
    3. No prior mass, and a row can lose its last member: ``active_set``, whose path over the
       prior mass is the only one of ours that does not stall there.
    4. Held-out evidence (no mask): ``active_set``; mixture weights are ill-conditioned.
    5. A regression loss on up to 300 members: ``active_set``; their errors differ in size by so
       much that first-order steps take thousands of iterations.
    6. Otherwise: ``projected_gradient``, within a few passes of the bandwidth bound.

    Parameters
    ----------
    objective : Objective

    Returns
    -------
    SolverChoice

    Examples
    --------
    >>> import numpy as np
    >>> from sparsebag.evidence.evidence import OOBEvidence
    >>> from sparsebag.objective.losses import SquaredError
    >>> from sparsebag.objective.penalties import ConcaveQuadratic
    >>> from sparsebag.objective.objective import Objective
    >>> e = OOBEvidence(np.eye(2), np.eye(2) > 0, np.ones(2), "regression")
    >>> f = Objective(e, SquaredError(), ConcaveQuadratic(0.0), prior_mass=0.02)
    >>> select_solver(f).name
    'active_set'
    """
    if objective.is_streamed:
        n = objective.n_members
        newton = "hessian" in objective.provides and n <= LARGEST_FACE
        is_stiff = newton and objective.loss.channel == "prediction"
        if is_stiff and not objective.can_hold(n):
            return SolverChoice("active_set", "regression errors make an ill-conditioned problem")
        if newton and objective.most_rows < 16 * n:
            return SolverChoice("active_set", "the rows that fit the memory say too little")
        return SolverChoice("mirror", "rows that are streamed should be read few times")
    if "hessian" not in objective.provides:
        return SolverChoice("projected_gradient", "the loss has no second derivative")
    if reason := why_active_set(objective):
        return SolverChoice("active_set", reason)
    return SolverChoice("projected_gradient", "prior mass makes first-order steps converge fast")


def check_solver(solver: Any) -> None:
    """One sentence for what is neither a solver's name nor a solver object.

    Parameters
    ----------
    solver : object

    Examples
    --------
    >>> check_solver("auto")
    >>> check_solver(Mirror)
    Traceback (most recent call last):
    ...
    TypeError: solver is the class Mirror; pass an object of it, such as Mirror().
    """
    if isinstance(solver, str):
        if solver not in ("auto", *SOLVERS):
            known = ["auto", *sorted(SOLVERS)]
            raise ValueError(f"solver={solver!r} is not known; use one of {known}.")
        return
    if isinstance(solver, type):
        name = solver.__name__
        raise TypeError(f"solver is the class {name}; pass an object of it, such as {name}().")
    if not (hasattr(solver, "solve") and hasattr(solver, "requires")):
        raise TypeError(
            "solver must be a name or an object with name, requires and solve "
            f"(see solvers/base.py), not {type(solver).__name__}."
        )


def resolve_solver(solver: str | Solver, objective: Objective) -> Solver:
    """Turn a name, ``"auto"`` or a solver object into a solver object.

    Parameters
    ----------
    solver : str or Solver
    objective : Objective
        What ``"auto"`` looks at.

    Returns
    -------
    Solver
    """
    check_solver(solver)
    if not isinstance(solver, str):
        return solver
    return SOLVERS[select_solver(objective).name if solver == "auto" else solver]()
