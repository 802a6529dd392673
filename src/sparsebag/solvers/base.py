"""What every solver takes, logs and returns, and how a solve is judged."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.objective.objective import Objective
from sparsebag.solvers.simplex import check_start, stationarity_gap

Array = Any

DROP_THRESHOLD = 1e-5
"""Weights up to this are dropped, as by the paper's code: SLSQP leaves dust on dead members.
Outside its preset they are kept where a solve that converged would not have without them."""
COARSE_GAP = 1e-3
"""A gap above this share of the loss's scale is no success, even if rounding allows no smaller."""


class Status(Enum):
    """How a solve ended; the value is the message."""

    CONVERGED = "the stationarity gap is below the tolerance"
    OWN_TEST = "stopped by the solver's own test; the gap may be above the tolerance"
    STALLED = "no step lowers the objective further in this precision"
    MAX_ITERATIONS = "the iteration limit, or the limit of passes, was reached"
    INTERRUPTED = "interrupted; these are the best weights so far"

    @property
    def success(self) -> bool:
        """Whether the solver got where it wanted."""
        return self in (Status.CONVERGED, Status.OWN_TEST)


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
        bound on the excess objective where f is convex.
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
        passes = "" if self.n_passes is None else f", {self.n_passes:.3g} passes"
        return (
            f"members   {len(self.weights):,} → {self.n_active:,}\n"
            f"objective {self.objective:.7g} (stationarity gap {self.stationarity_gap:.1e})\n"
            f"status    {self.status.value}\n"
            f"solver    {self.solver}: {self.n_iterations:,} iterations, {self.n_evaluations:,} "
            f"evaluations{passes}, {self.seconds:.3g} s"
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

    @property
    def requires(self) -> frozenset[str]:
        """What the objective must provide."""

    def solve(self, objective: Objective, start: Array | None = None) -> Solution:
        """Minimise the objective from ``start`` (default: the simplex's centre)."""


class SolveLog:
    """Counts evaluations, keeps the trace, hears Ctrl-C: for every solver.

    Parameters
    ----------
    name : str
        The solver's name.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = time.perf_counter()
        self.n_evaluations = 0
        self.nbytes_read = 0
        self.n_iterations = 0
        self.trace: list[TracePoint] = []
        self.interrupted = False

    @property
    def seconds(self) -> float:
        """Time since the solve began."""
        return time.perf_counter() - self.started

    @contextmanager
    def catch_interrupt(self) -> Iterator[None]:
        """Leave the block at Ctrl-C, and remember it: the solution's status will say so."""
        try:
            yield
        except KeyboardInterrupt:
            self.interrupted = True

    def count(self, objective: Objective) -> None:
        """Count one pass over the objective's evidence."""
        self.n_evaluations += 1
        self.nbytes_read += objective.nbytes_per_pass  # streams know it once they have been read

    def iteration(self, point: Point) -> None:
        """Record one iteration."""
        self.n_iterations += 1
        n_active = int(array_namespace(point.weights).count_nonzero(point.weights))
        at = self.seconds, self.n_evaluations, point.value, point.gap, n_active
        self.trace.append(TracePoint(*at))

    def solution(self, point: Point, status: Status) -> Solution:
        """Bundle the result; the status is ``INTERRUPTED`` where Ctrl-C was caught."""
        return Solution(
            weights=point.weights,
            objective=point.value,
            stationarity_gap=point.gap,
            status=Status.INTERRUPTED if self.interrupted else status,
            n_iterations=self.n_iterations,
            n_evaluations=self.n_evaluations,
            nbytes_read=self.nbytes_read,
            seconds=self.seconds,
            solver=self.name,
            trace=tuple(self.trace),
        )


@dataclass(frozen=True)
class Point:
    """Where a solver stands: weights with their objective and gradient."""

    weights: Array
    value: float
    gradient: Array

    @classmethod
    def at(cls, objective: Objective, weights: Array, log: SolveLog) -> Point:
        """Evaluate the objective at the weights, which is a pass over the evidence."""
        value, gradient = objective.value_and_gradient(weights)
        log.count(objective)
        if not math.isfinite(value) or not bool(objective.xp.all(objective.xp.isfinite(gradient))):
            raise FloatingPointError(
                "the objective or its gradient is not finite: the votes or targets are too large "
                "or too small for their precision; rescale them, or pass float64."
            )
        return cls(weights, value, gradient)

    @classmethod
    def start(cls, objective: Objective, start: Array | None, log: SolveLog, tol: float) -> Point:
        """A given start, or the simplex's centre: one member, where the centre is flat.

        Members that cannot be told apart (all right on every row, say) make the centre stationary;
        with a concave penalty it is then a maximum, and without one a single member does as well.
        """
        if start is not None:
            begin = check_start(objective.asarray(start), objective.n_members)
            return cls.at(objective, begin, log)
        centre = cls.at(objective, objective.uniform_weights(), log)
        goal = objective.goal(tol)  # streams know their scale once they have been read
        if centre.gap > goal:
            return centre
        alone = centre.with_weight(objective, int(objective.xp.argmin(centre.gradient)), 1.0, log)
        return alone if alone.value <= centre.value + goal else centre

    def with_weight(self, objective: Objective, member: int, weight: float, log: SolveLog) -> Point:
        """One member at a weight, the others scaled down to make room."""
        weights = (1.0 - weight) * self.weights
        weights[member] += weight
        return Point.at(objective, weights, log)

    @property
    def gap(self) -> float:
        """Stationarity gap."""
        return stationarity_gap(self.weights, self.gradient)

    def next_face(self, share: float = 1 / 8, fewest: int = 10) -> Array:
        """Members with weight, and a share as many without whose gradient asks loudest for some.

        At least ``fewest`` of those: one or two at a time would take many faces.
        A solver works on such a face of the simplex while the other members have no weight.
        """
        xp = array_namespace(self.weights)
        inside = self.weights > 0
        n_new = max(fewest, int(share * int(xp.count_nonzero(self.weights))))
        asking = xp.where(inside, xp.max(self.gradient), self.gradient)
        average = float(xp.sum(self.weights * self.gradient))
        if n_new < asking.shape[0]:
            average = min(average, float(xp.sort(asking)[n_new]))
        return xp.nonzero(inside | (asking < average))[0]

    def on(self, face: Array) -> Point:
        """The same point as seen by the members of a face that has all its weight."""
        return Point(self.weights[face], self.value, self.gradient[face])

    def moved_on(self, face: Array, inner: Point, objective: Objective, log: SolveLog) -> Point:
        """Weights that a face has come to, evaluated over all members."""
        weights = array_namespace(self.weights).zeros_like(self.weights)
        weights[face] = inner.weights
        return Point.at(objective, weights, log)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep the linear algebra library to one thread while a solver runs.

    Row blocks fit the cache and faces have a few hundred members: too small for threads, which
    then cost up to ten times what they save when other work shares the cores. The limit is the
    process's, so solves in several threads share it: the first sets it, the last lifts it.
    """
    with _limit_lock:
        _limits.append(_limits[0] if _limits else threadpool_limits(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _limit_lock:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


_limit_lock = threading.Lock()
_limits: list[Any] = []
"""The limit in force, once for every solve under way."""


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


def judged_solve(
    solver: Solver,
    objective: Objective,
    start: Array | None = None,
    *,
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
    drops_always : bool, default False
        Even if the solve has then not converged.

    Returns
    -------
    Solution
        Objective, gap and status are those of the weights that are left.
    """
    check_compatible(solver, objective)
    found = solver.solve(objective, start)
    tol = None if drops_always else float(getattr(solver, "tol", 0.0))
    return judged(drop_small_weights(found, objective, DROP_THRESHOLD, tol=tol), objective)


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
    if not solution.status.success:
        warn_caller(
            f"solver {solution.solver!r} stopped early: {solution.status.value} (stationarity gap "
            f"{gap:.2e} after {solution.n_iterations} iterations). The weights are valid and the "
            f"best found so far, but far from optimal unless the gap is small compared with the "
            f"objective ({solution.objective:.3g}).",
            ConvergenceWarning,
        )
        return solution
    is_hidden = COARSE_GAP * objective.scale < gap <= objective.goal(0.0)
    if objective.loss.channel != "prediction" or not is_hidden:
        return solution
    warn_caller(
        f"rounding errors hide the minimum (stationarity gap {gap:.2e}, the uniform ensemble's "
        f"loss {objective.scale:.3g}): the targets are large compared with the members' errors; "
        f"subtract the targets' mean from targets and predictions (the weights stay the same), "
        f"or pass float64.",
        ConvergenceWarning,
    )
    return replace(solution, status=Status.STALLED)


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
    is_nothing_small = bool(xp.all(weights == solution.weights))
    if is_nothing_small or float(total) == 0.0 or not solution.has_pass_left:
        return solution
    weights = weights / total
    value, gradient = objective.value_and_gradient(weights)
    gap, status = stationarity_gap(weights, gradient), solution.status
    counted = replace(solution, n_evaluations=solution.n_evaluations + 1)
    if status is Status.CONVERGED and tol is None:
        status = Status.OWN_TEST
    elif status is Status.CONVERGED and tol is not None and not gap <= objective.goal(tol):
        return counted
    return replace(counted, weights=weights, objective=value, stationarity_gap=gap, status=status)
