"""Two ways to step on the simplex: multiply (entropy) or project (Euclid)."""

from __future__ import annotations

import math
from typing import Any, Protocol

from array_api_compat import array_namespace

from sparsebag.solvers.simplex import project_to_simplex

Array = Any


class Geometry(Protocol):
    """A distance on the simplex: what a stochastic step needs of it."""

    def step(self, weights: Array, gradient: Array, length: float) -> Array:
        """The point that minimises ``length · gradient·w`` plus the distance to the weights."""
        ...

    def dual_norm(self, gradient: Array) -> float:
        """Size of a gradient; a constant added to all its entries changes nothing."""
        ...

    def radius(self, n_members: int) -> float:
        """Distance from the centre to the farthest point."""
        ...


class Entropy:
    """Exponentiated gradient: mirror descent with the Kullback-Leibler divergence.

    Its rate grows with √log N, where the projected step's grows with the gradient's 2-norm.
    """

    def step(self, weights: Array, gradient: Array, length: float) -> Array:
        """Weights times ``exp(-length · gradient)``, rescaled to sum to one."""
        xp = array_namespace(weights)
        moved = weights * xp.exp(-length * (gradient - xp.min(gradient)))
        return moved / xp.sum(moved)

    def dual_norm(self, gradient: Array) -> float:
        """Half the gradient's range: its largest entry, less the constant that makes it least."""
        xp = array_namespace(gradient)
        return 0.5 * float(xp.max(gradient) - xp.min(gradient))

    def radius(self, n_members: int) -> float:
        """Root of twice the largest divergence from the centre."""
        return math.sqrt(2.0 * math.log(max(n_members, 2)))


class Euclid:
    """Projected stochastic gradient: exact zeros on the way."""

    def step(self, weights: Array, gradient: Array, length: float) -> Array:
        """The projection of ``weights - length · gradient``."""
        return project_to_simplex(weights - length * gradient)

    def dual_norm(self, gradient: Array) -> float:
        """2-norm of the gradient, less its mean."""
        xp = array_namespace(gradient)
        centred = gradient - xp.mean(gradient)
        return math.sqrt(float(xp.sum(centred * centred)))

    def radius(self, n_members: int) -> float:
        """Distance from the centre to a corner."""
        return math.sqrt(1.0 - 1.0 / n_members)
