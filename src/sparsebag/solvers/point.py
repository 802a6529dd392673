"""Where a solver stands: weights with their objective and gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Watch
from sparsebag.solvers.simplex import stationarity_gap

Array = Any

SUFFICIENT_DECREASE = 1e-4
"""Armijo's constant, the usual value."""
SMALLEST_BACKTRACK = 1e-10
"""A line search that shrinks below this cannot lower the objective in this precision."""


@dataclass(frozen=True)
class Point:
    """Weights with their objective and gradient."""

    weights: Array
    value: float
    gradient: Array

    @classmethod
    def at(cls, objective: Objective, weights: Array, watch: Watch) -> Point:
        """Evaluate the objective at the weights."""
        value, gradient = watch.value_and_gradient(objective, weights)
        return cls(weights, value, gradient)

    @property
    def gap(self) -> float:
        """Stationarity gap."""
        return stationarity_gap(self.weights, self.gradient)
