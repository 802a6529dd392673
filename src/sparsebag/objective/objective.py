"""What a solver may ask of an objective, wherever its evidence lives."""

from __future__ import annotations

from typing import Any, Protocol

from sparsebag.objective.losses import Loss
from sparsebag.objective.penalties import Penalty
from sparsebag.objective.simplex_objective import SimplexObjective

Array = Any


class Objective(Protocol):
    """Weighted OOB loss plus penalty, as a function of the members' weights.

    `SimplexObjective` has its evidence in memory (or on one device), `StreamObjective` reads it
    block by block from wherever it is. The solvers know neither.
    """

    loss: Loss
    penalty: Penalty
    xp: Any
    device: Any
    prior_mass: float

    @property
    def n_members(self) -> int:
        """Number of weights, N."""
        ...

    @property
    def n_rows(self) -> int:
        """Number of rows, M."""
        ...

    @property
    def has_mask(self) -> bool:
        """Whether members vote only on the rows out of their bags."""
        ...

    @property
    def is_streamed(self) -> bool:
        """Whether every evaluation reads its rows anew from where they are."""
        ...

    @property
    def provides(self) -> frozenset[str]:
        """What a solver may ask: ``"gradient"``, ``"hessian"``."""
        ...

    @property
    def nbytes_per_pass(self) -> int:
        """Bytes of evidence one value-and-gradient pass reads."""
        ...

    @property
    def is_well_posed(self) -> bool:
        """Whether every row keeps a vote on the whole simplex."""
        ...

    @property
    def is_convex(self) -> bool:
        """Whether every stationary point is a global minimum."""
        ...

    @property
    def scale(self) -> float:
        """What tolerances are relative to."""
        ...

    @property
    def rounding(self) -> float:
        """Differences between two values smaller than this mean nothing."""
        ...

    def goal(self, tol: float) -> float:
        """The stationarity gap to stop at."""
        ...

    def uniform_weights(self) -> Array:
        """The simplex's centre."""
        ...

    def asarray(self, weights: Array) -> Array:
        """Weights as float64 on the objective's device."""
        ...

    def value(self, weights: Array) -> float:
        """Objective at the weights."""
        ...

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """Objective and gradient, in one pass over the evidence."""
        ...

    def hessian(self, weights: Array) -> Array:
        """Dense Hessian (N × N)."""
        ...

    def rows_won(self) -> Array:
        """For each member, the number of rows on which its own vote has the least loss."""
        ...

    def restrict(self, members: Array) -> Objective:
        """The same objective on a face of the simplex."""
        ...

    def can_hold(self, n_members: int) -> bool:
        """Whether `restrict` to so many members gives an objective in memory."""
        ...

    def row_sample(self, n_rows: int, seed: int) -> SimplexObjective:
        """The same objective on rows drawn at random, in memory."""
        ...

    def with_prior_mass(self, prior_mass: float) -> Objective:
        """The same objective with another prior mass."""
        ...

    def with_penalty(self, penalty: Penalty) -> Objective:
        """The same objective with another penalty."""
        ...
