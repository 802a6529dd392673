"""What every solver takes and returns."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, TextIO

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.objective.objective import Objective
from sparsebag.solvers.simplex import stationarity_gap

Array = Any

COARSE_GAP = 1e-3
"""A gap above this share of the loss's scale is no success, even if rounding allows no smaller."""


class Status(Enum):
    """How a solve ended; the value is the message."""

    CONVERGED = "the stationarity gap is below the tolerance"
    OWN_TEST = "the solver's own stopping test was met; the stationarity gap may be larger"
    CHOSEN = "members were chosen along a budget path; there is no stationarity gap"
    STALLED = "no step lowers the objective further in this precision"
    ONE_PASS = (
        "rows held out of the sample see a gap that one pass does not close, or cannot rule one "
        "out; more memory, or rows that can be read again, would"
    )
    MAX_ITERATIONS = "the iteration limit, or the limit of passes, was reached"
    INTERRUPTED = "interrupted; these are the best weights so far"

    @property
    def success(self) -> bool:
        """Whether the solver got where it wanted."""
        return self in (Status.CONVERGED, Status.OWN_TEST, Status.CHOSEN)


@dataclass(frozen=True)
class TracePoint:
    """One iteration: time since the start, passes over the evidence, objective, gap, support."""

    seconds: float
    n_evaluations: int
    objective: float
    gap: float
    n_active: int


@dataclass(frozen=True)
class Solution:
    """Weights on the simplex and how good they are.

    Attributes
    ----------
    weights : array of shape (N,)
        Not negative, summing to one, with exact zeros.
    objective : float
        Objective at the weights.
    stationarity_gap : float
        ``max_v ∇f(w)·(w - v)`` over the simplex: zero exactly at a stationary point, an upper
        bound on the excess objective where f is convex. NaN where members were chosen by a budget
        path, which has no such f.
    status : Status
        How the solve ended.
    n_iterations, n_evaluations : int
        Iterations, and passes over the evidence (a pass over part of the members counts 1).
    nbytes_read : int
        Evidence those passes read; divided by the memory's bandwidth, a bound on the time.
    seconds : float
        Wall-clock time.
    solver : str
        Name of the solver that ran.
    trace : tuple of TracePoint
        The way there.
    n_passes : float or None
        Of streamed evidence: rows read, divided by M, whatever they were read for; parts of passes
        count as such. None where the evidence is in memory or on a Dask cluster.
    has_pass_left : bool
        False where the solver has a limit of passes and has made them all: nothing may be read to
        change these weights.
    """

    weights: Array
    objective: float
    stationarity_gap: float
    status: Status
    n_iterations: int
    n_evaluations: int
    nbytes_read: int
    seconds: float
    solver: str
    trace: tuple[TracePoint, ...] = field(default=(), repr=False)
    n_passes: float | None = None
    has_pass_left: bool = field(default=True, repr=False)

    @property
    def active(self) -> Array:
        """Indices of the members with weight."""
        return np.flatnonzero(on_host(self.weights))

    @property
    def n_active(self) -> int:
        """Number of members with weight."""
        return len(self.active)

    def __str__(self) -> str:
        how = f"{self.solver}, {self.n_iterations} iterations, {self.n_evaluations} evaluations"
        if self.n_passes is not None:
            how += f", {self.n_passes:.3g} passes"
        return (
            f"Weights of {self.n_active} of {len(self.weights)} members: objective "
            f"{self.objective:.7g}, stationarity gap {self.stationarity_gap:.1e}; "
            f"{self.status.name}: {self.status.value} ({how}, {self.seconds:.3g} s)."
        )


class Solver(Protocol):
    """What the library needs of a solver. To add one: a file here and a line in `auto.SOLVERS`.

    Attributes
    ----------
    name : str
        The public name, as passed to ``solver=``.
    requires : frozenset of str
        What the objective must provide: ``"gradient"``, ``"hessian"``.
    """

    @property
    def name(self) -> str:
        """Public name."""
        ...

    @property
    def requires(self) -> frozenset[str]:
        """What the objective must provide."""
        ...

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""
        ...


class Watch:
    """Counts evaluations, keeps the trace, prints progress: what all solvers do alike.

    Parameters
    ----------
    name : str
        The solver's name, for the progress line.
    verbose : int
        0: silent; 1: a progress line at most every half second; 2: every iteration.
    stream : text stream, optional
        Where progress goes; default standard error.
    """

    PRINT_EVERY_SECONDS = 0.5

    def __init__(self, name: str, verbose: int = 0, stream: TextIO | None = None) -> None:
        self.name = name
        self.verbose = verbose
        self.stream = stream
        self.started = time.perf_counter()
        self.n_evaluations = 0
        self.nbytes_read = 0
        self.n_iterations = 0
        self.trace: list[TracePoint] = []
        self._last_print = self.started

    @property
    def seconds(self) -> float:
        """Time since the solve began."""
        return time.perf_counter() - self.started

    def value_and_gradient(self, objective: Objective, weights: Array) -> tuple[float, Array]:
        """Evaluate and count."""
        value, gradient = objective.value_and_gradient(weights)
        self.n_evaluations += 1
        self.nbytes_read += objective.nbytes_per_pass  # streams know it once they have been read
        if not math.isfinite(value) or not bool(objective.xp.all(objective.xp.isfinite(gradient))):
            raise FloatingPointError(
                "the objective or its gradient is not finite: the votes or targets are too large "
                "or too small for their precision; rescale them, or pass float64."
            )
        return value, gradient

    def hessian(self, objective: Objective, weights: Array) -> Array:
        """Evaluate the Hessian, which is a pass like any other, and count."""
        hessian = objective.hessian(weights)
        self.n_evaluations += 1
        self.nbytes_read += objective.nbytes_per_pass
        return hessian

    def iteration(self, objective: float, gap: float, n_active: int) -> None:
        """Record one iteration."""
        self.n_iterations += 1
        point = TracePoint(self.seconds, self.n_evaluations, objective, gap, n_active)
        self.trace.append(point)
        now = time.perf_counter()
        due = now - self._last_print >= self.PRINT_EVERY_SECONDS
        if self.verbose >= 2 or (self.verbose == 1 and due):
            self._last_print = now
            print(
                f"[{self.name}] iteration {self.n_iterations:4d}  {point.seconds:7.1f} s  "
                f"objective {objective:.8g}  gap {gap:.2e}  members {n_active}",
                file=self.stream or sys.stderr,
                flush=True,
            )

    def solution(
        self, weights: Array, objective: float, gradient: Array, status: Status
    ) -> Solution:
        """Bundle the result."""
        solution = Solution(
            weights=weights,
            objective=objective,
            stationarity_gap=stationarity_gap(weights, gradient),
            status=status,
            n_iterations=self.n_iterations,
            n_evaluations=self.n_evaluations,
            nbytes_read=self.nbytes_read,
            seconds=self.seconds,
            solver=self.name,
            trace=tuple(self.trace),
        )
        if self.verbose:
            print(
                f"[{self.name}] {solution.n_active} members, objective {objective:.8g}, gap "
                f"{solution.stationarity_gap:.2e}: {status.value}",
                file=self.stream or sys.stderr,
                flush=True,
            )
        return solution


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep the linear algebra library to one thread while a solver runs.

    Row blocks fit the cache and faces have a few hundred members: too small for threads, which
    then cost up to ten times what they save when other work shares the cores. The limit is the
    process's, so solves in several threads share it: the first sets it, the last lifts it.
    """
    global _n_limited, _limits
    with _limit_lock:
        _n_limited += 1
        if _n_limited == 1:
            _limits = threadpool_limits(limits=1, user_api="blas")
    try:
        yield
    finally:
        with _limit_lock:
            _n_limited -= 1
            if _n_limited == 0:
                _limits.restore_original_limits()


_limit_lock = threading.Lock()
_n_limited = 0
_limits: Any = None


def check_compatible(solver: Solver, objective: Objective) -> None:
    """Raise one precise error if the solver needs what the objective lacks.

    Parameters
    ----------
    solver : Solver
    objective : Objective
    """
    missing = sorted(solver.requires - objective.provides)
    if missing:
        raise ValueError(
            f"solver {solver.name!r} needs the objective's {' and '.join(missing)}, which loss "
            f"{objective.loss.name!r} does not define; use solver='projected_gradient', or give "
            "the loss a curvature method."
        )


def judged(solution: Solution, objective: Objective) -> Solution:
    """Warn when a solve did not end as it should, or when rounding hides whether it did.

    Squared errors are what is left after subtracting the target: where targets are far from zero
    beside their spread, single precision has no digits left for that, and any weights would pass.

    Parameters
    ----------
    solution : Solution
    objective : Objective
        Of all members.

    Returns
    -------
    Solution
        With status ``STALLED`` where rounding hides the minimum.
    """
    gap = solution.stationarity_gap
    is_hidden = COARSE_GAP * objective.scale < gap <= objective.goal(0.0)
    regression = objective.loss.channel == "prediction"
    if not (regression and is_hidden and solution.status.success):
        warn_unless_converged(solution)
        return solution
    warn_caller(
        f"rounding hides the minimum (stationarity gap {gap:.2e}, the uniform ensemble's loss "
        f"{objective.scale:.3g}): the targets are far from zero beside the members' errors, in the "
        "predictions' precision; subtract the targets' mean from targets and predictions (the "
        "weights are the same), or pass float64.",
        ConvergenceWarning,
    )
    return replace(solution, status=Status.STALLED)


def warn_unless_converged(solution: Solution) -> None:
    """Warn, with the gap, when a solve did not end as it should.

    Parameters
    ----------
    solution : Solution
    """
    if not solution.status.success:
        warn_caller(
            f"solver {solution.solver!r} stopped early: {solution.status.value} (stationarity gap "
            f"{solution.stationarity_gap:.2e} after {solution.n_iterations} iterations). The "
            "weights are on the simplex, the best found so far; a gap that is not small beside the "
            f"objective, {solution.objective:.3g}, leaves them far from the best there are.",
            ConvergenceWarning,
        )


def tolerance_of(solver: Solver) -> float:
    """The gap, relative to the objective's scale, that a solver stops at; 0 if it names none.

    Parameters
    ----------
    solver : Solver

    Returns
    -------
    float
    """
    return float(getattr(solver, "tol", 0.0))


def drop_small_weights(
    solution: Solution, objective: Objective, threshold: float, *, tol: float | None = None
) -> Solution:
    """Set weights up to ``threshold`` to exact zero and rescale the rest to sum to one.

    A small weight need not be dust: where the loss bends sharply, a member that loses 1e-5 asks for
    it back with a gap a hundred times the tolerance, and none of the others can make up for it.
    So the rest is evaluated, which is a pass; nothing is dropped where the solver's limit of passes
    leaves none.

    Parameters
    ----------
    solution : Solution
    objective : Objective
        Evaluates the weights that remain.
    threshold : float
        Largest weight that is dropped.
    tol : float, optional
        To which the solve converged: where it did and the rest would not, nothing is dropped.
        Default: weights are dropped whatever the gap, and a solve that converged no longer says so.

    Returns
    -------
    Solution
        Objective, gap and status are those of its weights.
    """
    xp = objective.xp
    weights = xp.where(solution.weights > threshold, solution.weights, 0.0 * solution.weights)
    total = xp.sum(weights)
    if bool(xp.all(weights == solution.weights)) or float(total) == 0.0:  # or all are small
        return solution
    if not solution.has_pass_left:
        return solution
    weights = weights / total
    value, gradient = objective.value_and_gradient(weights)
    gap, status = stationarity_gap(weights, gradient), solution.status
    if status is Status.CONVERGED and tol is None:
        status = Status.OWN_TEST
    elif status is Status.CONVERGED and tol is not None and not gap <= objective.goal(tol):
        return replace(solution, n_evaluations=solution.n_evaluations + 1)
    return replace(
        solution,
        weights=weights,
        objective=value,
        stationarity_gap=gap,
        status=status,
        n_evaluations=solution.n_evaluations + 1,
    )
