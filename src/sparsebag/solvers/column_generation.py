"""Column generation: thousands of members by a solver that can do a few hundred.

A working set of members is solved as if there were no others; one pass over all members then tells
who outside it asks for weight. The loudest come in, members without weight go, and so on until a
round gains too little or nobody asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.objective import Objective
from sparsebag.solvers.active_set import welcome_newcomers
from sparsebag.solvers.base import Solution, Status, Watch
from sparsebag.solvers.faces import on_face
from sparsebag.solvers.point import Point

Array = Any
Minimise = Callable[[Objective, np.ndarray, int], tuple[np.ndarray, Status, int]]
"""Weights, status and number of iterations, from a start, in at most so many of them."""

WORKING_SET = 300
"""Members at once, more where more have weight: SLSQP takes under a second for so many."""
LEAST_SET = 30
"""The set is halved until its columns fit the memory allowed, but not below this."""
NEWCOMERS_SHARE = 1 / 2
"""Where the set is full of members with weight, this share as many may join them."""
DUST = float(np.finfo(np.float64).eps)
"""A weight that the sum of all of them does not see is none."""


def generate_columns(
    objective: Objective,
    begin: Array,
    watch: Watch,
    minimise: Minimise,
    *,
    ftol: float,
    max_iter: int,
) -> Solution:
    """Minimise an objective of many members by working sets.

    Parameters
    ----------
    objective : Objective
        Of all members.
    begin : array of shape (N,)
        A start on the simplex. Where more members than a working set have weight, as in the
        centre, only some of them begin.
    watch : Watch
    minimise : callable
        Solves the objective of a working set. Returns weights on the simplex whatever happens, a
        keyboard interrupt included.
    ftol : float
        A round that lowers the objective by no more is the last.
    max_iter : int
        Iteration limit over all rounds.

    Returns
    -------
    Solution
        Of all members; its objective is no higher than the start's.
    """
    point = best = Point.at(objective, begin, watch)
    size = _set_size(objective)
    status, n_iterations = Status.INTERRUPTED, 0
    try:
        if np.count_nonzero(on_host(begin)) > size:
            point = part_of_dense(objective, point, size)
        members = working_set(point, size)
        while True:
            before = point
            left = max_iter - n_iterations
            point, status, n_more = _round(objective, before, members, watch, minimise, left)
            n_iterations += n_more
            best = min(best, point, key=lambda p: p.value)
            members = working_set(point, size)
            is_asked = len(members) > np.count_nonzero(on_host(point.weights))
            is_last = not (is_asked and point.value < before.value - ftol)
            if is_last or status in (Status.INTERRUPTED, Status.MAX_ITERATIONS):
                break
            if n_iterations >= max_iter:
                status = Status.MAX_ITERATIONS
                break
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    if status is Status.OWN_TEST and point.value > best.value + ftol:
        status = Status.STALLED
    watch.n_iterations = n_iterations  # the solver's own, where the watch has counted evaluations
    return watch.solution(best.weights, best.value, best.gradient, status)


def working_set(point: Point, size: int) -> np.ndarray:
    """Members with weight, and those without that ask loudest for some, up to ``size`` in all.

    A member asks where its slope is below the average of those that have weight. Where so many have
    weight already, half as many may still join them.

    Parameters
    ----------
    point : Point
        Of all members.
    size : int

    Returns
    -------
    array of indices, ascending
    """
    weights, gradient = on_host(point.weights), on_host(point.gradient)
    inside = np.flatnonzero(weights)
    asking = np.flatnonzero((weights == 0.0) & (gradient < weights @ gradient))
    room = size - len(inside)
    if room <= 0:
        room = max(1, int(NEWCOMERS_SHARE * len(inside)))
    loudest = asking[np.argsort(gradient[asking], kind="stable")[:room]]
    return np.sort(np.concatenate([inside, loudest]))


def part_of_dense(objective: Objective, point: Point, size: int) -> Point:
    """A start cut to half of ``size`` members that are heaviest, and the loudest of the others.

    Weights tell where a start comes from, slopes where it has to go. Members that weigh alike, as
    in the centre, go by how loudly they ask.

    Parameters
    ----------
    objective : Objective
    point : Point
        Of all members.
    size : int

    Returns
    -------
    Point
        With the slopes of the whole start, and a value to be found: it may be worse.
    """
    weights, gradient = on_host(point.weights), on_host(point.gradient)
    heavy, others = np.split(np.lexsort((gradient, -weights)), [-(-size // 2)])
    loud = others[np.argsort(gradient[others], kind="stable")[: size - len(heavy)]]
    part = np.zeros_like(weights)
    part[heavy], part[loud] = weights[heavy], weights[loud]
    return Point(objective.asarray(part / part.sum()), math.inf, point.gradient)


def _round(
    objective: Objective,
    point: Point,
    members: np.ndarray,
    watch: Watch,
    minimise: Minimise,
    max_iter: int,
) -> tuple[Point, Status, int]:
    """The working set's minimum, seen by all members, and the iterations it took."""
    at = objective.xp.asarray(members, device=objective.device)
    face = objective.restrict(at)
    begin = welcome_newcomers(face, on_face(point, at), watch)
    found, status, n_iterations = minimise(face, on_host(begin.weights), max_iter)
    del face  # its columns, before a pass over all
    found = np.where(found > DUST, found, 0.0)
    weights = np.zeros(objective.n_members)
    weights[members] = found / found.sum()
    try:
        moved = Point.at(objective, objective.asarray(weights), watch)
    except KeyboardInterrupt:  # the pass is made again: what the round has gained is worth it
        moved = Point.at(objective, objective.asarray(weights), watch)
        status = Status.INTERRUPTED
    return moved, status, n_iterations


def _set_size(objective: Objective) -> int:
    """As many members as the memory allowed holds the columns of; if not even a few, all the same.

    The columns are then read from the rows, and fewer members would only mean more rounds.
    """
    size = WORKING_SET
    while size // 2 >= LEAST_SET and not objective.can_hold(size):
        size //= 2
    return size if objective.can_hold(size) else WORKING_SET
