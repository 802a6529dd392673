"""Faces of the simplex: the members a solver works on while the others have no weight."""

from __future__ import annotations

from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Watch
from sparsebag.solvers.point import Point

Array = Any

NEWCOMERS = 10
"""At least this many members without weight may enter a face at once."""


def next_face(point: Point, xp: Any, share: float = 1 / 8) -> Array:
    """Members with weight, and a share as many without, whose gradient asks loudest for some."""
    inside = point.weights > 0
    n_inside = int(xp.sum(xp.astype(inside, xp.int64)))
    n_new = max(NEWCOMERS, int(share * n_inside))
    asking = xp.where(inside, xp.max(point.gradient), point.gradient)
    average = float(xp.sum(point.weights * point.gradient))
    if n_new < asking.shape[0]:
        average = min(average, float(xp.sort(asking)[n_new]))
    return xp.nonzero(inside | (asking < average))[0]


def on_face(point: Point, face: Array) -> Point:
    """The point as seen by the members of a face that has all its weight."""
    return Point(point.weights[face], point.value, point.gradient[face])


def at_face(objective: Objective, face: Array, weights: Array, watch: Watch) -> Point:
    """A face's weights among all members, evaluated."""
    whole = objective.xp.zeros_like(objective.uniform_weights())
    whole[face] = weights
    return Point.at(objective, whole, watch)
