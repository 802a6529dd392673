"""What every objective on the simplex has, wherever its evidence lives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.objective.losses import Loss, TwiceDifferentiableLoss
from sparsebag.objective.penalties import Penalty

Array = Any

GAP_PER_ROUNDING = 32
"""A gap this many times the value's rounding cannot be told from zero."""


class ObjectiveOnSimplex(ABC):
    """Weighted OOB loss plus penalty: what follows from its parts, not from where the rows are."""

    loss: Loss
    penalty: Penalty
    prior_mass: float

    @property
    @abstractmethod
    def has_mask(self) -> bool:
        """Whether members vote only on the rows out of their bags."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """What tolerances are relative to.

        The uniform ensemble's loss in regression, whose unit is the user's; one nat or Brier
        point in classification.
        """

    @property
    @abstractmethod
    def rounding(self) -> float:
        """Differences between two values smaller than this mean nothing."""

    @property
    def provides(self) -> frozenset[str]:
        """What a solver may ask of this objective."""
        twice = isinstance(self.loss, TwiceDifferentiableLoss)
        return frozenset({"gradient", "hessian"} if twice else {"gradient"})

    @property
    def is_well_posed(self) -> bool:
        """Whether every row keeps a vote on the whole simplex: no jumps of the loss."""
        return self.prior_mass > 0 or not self.has_mask

    @property
    def is_convex(self) -> bool:
        """Whether every stationary point is a global minimum, so that the start is free.

        The out-of-bag ratio is not convex in the weights, whatever the loss; without a mask its
        denominator is constant and it is linear.
        """
        convex_loss = bool(getattr(self.loss, "is_convex", False))
        return not self.has_mask and convex_loss and self.penalty.is_convex

    def goal(self, tol: float) -> float:
        """The stationarity gap to stop at: ``tol`` on the loss's scale, or what rounding allows."""
        return max(tol * self.scale, GAP_PER_ROUNDING * self.rounding)

    def _rounding_of_regression(self, eps: float, square: float) -> float:
        """What is lost with votes rounded by ``eps`` and targets of this mean square.

        A vote is rounded relative to the target's size, the loss is made of what is left after
        subtracting the target: (f + δ - y)² differs by 2 δ |f - y|, with δ = eps |y|.
        """
        rounding = float(eps * max(self.scale, square**0.5 * self.scale**0.5, eps * square))
        # Of streams prior votes are kept in single precision.
        largest = float(np.finfo(np.float32).max) ** 2
        if not np.isfinite(rounding) or (getattr(self, "is_streamed", False) and square > largest):
            raise FloatingPointError(
                "the targets are too large for their squares, or for single precision: divide "
                "targets and predictions by the targets' standard deviation."
            )
        return rounding


class HostObjective(ObjectiveOnSimplex):
    """An objective whose weights are NumPy arrays here, while its rows are elsewhere."""

    xp: Any = np
    device: Any = "cpu"

    @property
    @abstractmethod
    def n_members(self) -> int:
        """Number of weights, N."""

    @abstractmethod
    def value_and_gradient(self, weights: Array) -> tuple[float, np.ndarray]:
        """Objective and gradient, in one pass over the evidence."""

    def value(self, weights: Array) -> float:
        """Objective at the weights."""
        return self.value_and_gradient(weights)[0]

    def uniform_weights(self) -> np.ndarray:
        """The simplex's centre, every solver's default start."""
        return np.full(self.n_members, 1.0 / self.n_members)

    def asarray(self, weights: Array) -> np.ndarray:
        """Weights as float64."""
        return np.asarray(on_host(weights), dtype=np.float64)

    def _penalty_hessian(self, weights: np.ndarray) -> np.ndarray:
        eye = np.eye(self.n_members)
        columns = [self.penalty.hessian_product(weights, line) for line in eye]
        return np.stack(columns, axis=1)
