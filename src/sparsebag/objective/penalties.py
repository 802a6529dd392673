"""Penalties on the weights. To add one: write the class here; pass an instance to the objective."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace, device

Array = Any


class Penalty(Protocol):
    """What the objective needs of a penalty."""

    @property
    def is_convex(self) -> bool:
        """Whether it keeps a convex loss convex."""

    def value(self, weights: Array) -> Array:
        """Penalty of the weights, a scalar."""

    def gradient(self, weights: Array) -> Array:
        """Gradient, one entry a member."""

    def hessian(self, weights: Array) -> Array:
        """Dense Hessian, shape (N, N)."""


@dataclass(frozen=True)
class ConcaveQuadratic:
    """``-lam ‖w‖²``, the paper's penalty: concave, so it pushes weights to the corners."""

    lam: float

    @property
    def is_convex(self) -> bool:
        """Only at strength zero."""
        return self.lam == 0.0

    def value(self, weights: Array) -> Array:
        """Penalty of the weights, a scalar."""
        xp = array_namespace(weights)
        return -self.lam * xp.sum(weights * weights)

    def gradient(self, weights: Array) -> Array:
        """Gradient, one entry a member."""
        return -2.0 * self.lam * weights

    def hessian(self, weights: Array) -> Array:
        """Dense Hessian, shape (N, N)."""
        return -2.0 * self.lam * _eye_of(weights)


@dataclass(frozen=True)
class Tilted:
    """A penalty with a linear term and a pull towards an anchor, for steps of other solvers.

    ``penalty(w) + linear·w + pull/2 ‖w - anchor‖² + Σ_k sign_k/2 (bend_k·(w - anchor))²``. A
    sample's loss, tilted by the difference of the whole's gradient and its own at the anchor, has
    the whole's gradient there; the last sum can give it the whole's curvature along steps made.
    """

    penalty: Penalty
    linear: Array
    anchor: Array
    pull: float = 0.0
    bends: tuple[tuple[Array, float], ...] = ()

    @property
    def is_convex(self) -> bool:
        """As the penalty it is made of."""
        return self.penalty.is_convex

    def value(self, weights: Array) -> Array:
        """Penalty of the weights, a scalar."""
        xp = array_namespace(weights)
        moved = weights - self.anchor
        added = xp.sum(self.linear * weights) + 0.5 * self.pull * xp.sum(moved * moved)
        for bend, sign in self.bends:
            added = added + 0.5 * sign * xp.sum(bend * moved) ** 2
        return self.penalty.value(weights) + added

    def gradient(self, weights: Array) -> Array:
        """Gradient, one entry a member."""
        moved = weights - self.anchor
        slope = self.penalty.gradient(weights) + self.linear + self.pull * moved
        for bend, sign in self.bends:
            slope = slope + sign * array_namespace(weights).sum(bend * moved) * bend
        return slope

    def hessian(self, weights: Array) -> Array:
        """Dense Hessian, shape (N, N)."""
        hessian = self.penalty.hessian(weights) + self.pull * _eye_of(weights)
        for bend, sign in self.bends:
            hessian = hessian + sign * bend[:, None] * bend[None, :]
        return hessian

    def restrict(self, members: Array) -> Tilted:
        """The same on a face of the simplex that holds all the anchor's weight."""
        inner = restrict_penalty(self.penalty, members)
        bends = tuple((bend[members], sign) for bend, sign in self.bends)
        return Tilted(inner, self.linear[members], self.anchor[members], self.pull, bends)


def _eye_of(weights: Array) -> Array:
    xp = array_namespace(weights)
    return xp.eye(weights.shape[0], dtype=weights.dtype, device=device(weights))


def restrict_penalty(penalty: Penalty, members: Array) -> Penalty:
    """A penalty on a face; most treat all members alike and stay as they are.

    Parameters
    ----------
    penalty : Penalty
    members : array of indices

    Returns
    -------
    Penalty
    """
    restrict = getattr(penalty, "restrict", None)
    restricted: Penalty = penalty if restrict is None else restrict(members)
    return restricted
