"""The objective on the simplex: weighted out-of-bag loss plus penalty, over rows wherever they are.

Value, gradient and Hessian are means over row blocks, each a `BlockLoss`. With W_b the weight
of a block's rows and f_b their mean loss::

    f(w) = Σ_b (W_b / Σ W) f_b(w) + penalty(w)
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import is_numpy_namespace

from sparsebag.evidence.arrays import detached, on_host
from sparsebag.evidence.evidence import (
    NOT_COVERED,
    NOT_TO_BE_SUMMED,
    WEIGHTLESS,
    OOBEvidence,
    warn_of_uncovered,
    warn_of_uneven,
)
from sparsebag.evidence.from_predictions import ALL_ZERO, has_votes
from sparsebag.objective.block_loss import BlockLoss, with_prior
from sparsebag.objective.losses import Loss, TwiceDifferentiableLoss
from sparsebag.objective.penalties import Penalty, restrict_penalty
from sparsebag.sources.base import MemoryRows, Source
from sparsebag.sources.stream import StreamRows

Array = Any

PRIOR_MASS = 0.02
"""τ: the solvers' speed hangs on it; smaller is ill-posed, larger blurs the weights."""
GAP_PER_ROUNDING = 32
"""A gap this many times the value's rounding cannot be told from zero."""


class Objective:
    """Weighted out-of-bag loss plus penalty, as a function of the members' weights.

    Parameters
    ----------
    rows : OOBEvidence or Source
        Votes, mask, targets, row weights. Rows no member has out of bag get no weight.
    loss : Loss
        Pointwise loss of the vote.
    penalty : Penalty
        Penalty on the weights.
    floor : float, default 0
        ε: share of the uniform class distribution mixed into each vote. Ignored in regression.
    prior_mass : float, default 0
        τ: weight of the uniform ensemble's vote in each row; keeps rows defined that none of
        the kept members has out of bag.

    Attributes
    ----------
    n_members : int
        Number of weights, N.
    has_mask : bool
        Whether members vote only on the rows out of their bags.
    is_streamed : bool
        Whether every evaluation reads its rows anew from where they are.
    xp, device
        Array namespace and device of the weights.

    Examples
    --------
    >>> from sparsebag.objective.losses import LogLoss
    >>> from sparsebag.objective.penalties import ConcaveQuadratic
    >>> e = OOBEvidence(np.array([[0.9, 0.5], [0.8, 0.5]]), None, np.array([0, 1]),
    ...                 "classification", classes=np.array([0, 1]))
    >>> f = Objective(e, LogLoss(), ConcaveQuadratic(0.0))
    >>> bool(f.value(np.array([1.0, 0.0])) < f.value(np.array([0.5, 0.5])))
    True
    """

    on_pass: Callable[[Array, float], None] | None = None
    """Called with weights and value after every pass over all rows of a stream."""

    def __init__(
        self,
        rows: OOBEvidence | Source,
        loss: Loss,
        penalty: Penalty,
        *,
        floor: float = 0.0,
        prior_mass: float = 0.0,
    ) -> None:
        source = rows if isinstance(rows, Source) else MemoryRows(rows)
        self.loss, self.penalty, self.prior_mass = loss, penalty, prior_mass
        self.task, self.has_mask = source.task, source.has_mask
        self.floor = floor if source.classes is not None else 0.0
        self.is_streamed, self.xp, self.device = source.is_streamed, source.xp, source.device
        self.n_members = self._n_all = source.n_members
        self._known: list[Survey] = []  # one, after a first pass; shared with faces
        self._rows = source.derived(with_prior, loss.channel)
        self._parts = self._rows.derived(BlockLoss, loss, self.floor)
        if isinstance(self._parts, MemoryRows) and not self._parts.block.mass:
            raise ValueError(WEIGHTLESS)

    # -- what it is --------------------------------------------------------------------------

    @property
    def evidence(self) -> OOBEvidence:
        """All rows, where they are in memory."""
        assert isinstance(self._rows, MemoryRows)
        found: OOBEvidence = self._rows.block
        return found

    @property
    def survey(self) -> Survey:
        """What is known of all rows, after a first pass."""
        if isinstance(self._parts, MemoryRows) and not self._known:
            self._known.append(_survey_in_memory(self._parts.block))
        if not self._known:
            assert self.n_members == self._n_all  # a face is made of rows that were read
            self.value_and_gradient(self.uniform_weights())
        return self._known[0]

    @property
    def n_rows(self) -> int:
        """Number of rows, M; where a stream does not say, one pass counts them."""
        if isinstance(self._rows, MemoryRows):
            return self.evidence.n_rows
        if isinstance(self._rows, StreamRows) and self._rows.stream.n_rows is not None:
            return self._rows.stream.n_rows
        return self.survey.n_rows

    @property
    def n_passes(self) -> float | None:
        """How often a stream was read, parts of it included; None where there is none."""
        return self._rows.n_passes if isinstance(self._rows, StreamRows) else None

    @property
    def nbytes_per_pass(self) -> int:
        """Bytes of evidence one value-and-gradient pass reads."""
        if isinstance(self._rows, MemoryRows):
            return self.evidence.nbytes
        return self.survey.nbytes * self.n_members // self._n_all

    @property
    def provides(self) -> frozenset[str]:
        """What a solver may ask: ``"gradient"``, ``"hessian"``."""
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

    @property
    def scale(self) -> float:
        """What tolerances are relative to.

        The uniform ensemble's loss in regression, whose unit is the user's; one nat or Brier
        point in classification.
        """
        if self.task == "classification":
            return 1.0
        return max(self.survey.uniform_loss, np.finfo(float).tiny)

    @property
    def rounding(self) -> float:
        """Differences between two values smaller than this mean nothing.

        A regression vote is rounded relative to the target's size, the loss is made of what is left
        after subtracting the target: (f + δ - y)² differs by 2 δ |f - y|, with δ = eps |y|.
        """
        eps = self.survey.eps
        if self.task == "classification":
            return eps
        square, scale = self.survey.square, self.scale
        rounding = float(eps * max(scale, square**0.5 * scale**0.5, eps * square))
        if not np.isfinite(rounding):
            raise FloatingPointError(
                "the squares of the targets overflow: divide targets and predictions by "
                "the targets' standard deviation."
            )
        return rounding

    def goal(self, tol: float) -> float:
        """The stationarity gap to stop at: ``tol`` on the loss's scale, or what rounding allows."""
        return max(tol * self.scale, GAP_PER_ROUNDING * self.rounding)

    def uniform_weights(self) -> Array:
        """The simplex's centre, every solver's default start."""
        n = self.n_members
        return self.xp.full(n, 1.0 / n, dtype=self.xp.float64, device=self.device)

    def asarray(self, weights: Array) -> Array:
        """Weights as float64 on the evidence's device."""
        if is_numpy_namespace(self.xp):
            return np.asarray(on_host(weights), dtype=np.float64)
        return self.xp.asarray(detached(weights), dtype=self.xp.float64, device=self.device)

    # -- passes ------------------------------------------------------------------------------

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """Objective and gradient, in one pass over the evidence."""
        loss, gradient = self._mean(BlockLoss.value_and_gradient, weights)
        value = loss + float(self.penalty.value(weights))
        if self.on_pass is not None and self.n_members == self._n_all:
            self.on_pass(weights, value)
        return value, gradient + self.penalty.gradient(weights)

    def value(self, weights: Array) -> float:
        """Objective at the weights."""
        return self.value_and_gradient(weights)[0]

    def gradient(self, weights: Array) -> Array:
        """Gradient at the weights."""
        return self.value_and_gradient(weights)[1]

    def hessian(self, weights: Array) -> Array:
        """Dense Hessian (N × N). Meant for restricted objectives: it costs M N² operations."""
        return self._mean(BlockLoss.hessian, weights)[0] + self.penalty.hessian(weights)

    def rows_won(self) -> Array:
        """For each member, the number of rows on which its own vote has the least loss."""
        return self._parts.sum(BlockLoss.rows_won)

    def _mean(self, quantity: Callable[..., Any], *at: Array) -> tuple[Any, ...]:
        """A block's quantities, over all rows; the first pass finds what is known of them, too."""
        surveys = not (self._known or isinstance(self._parts, MemoryRows))
        mean = self._parts.sum(_mean_of, quantity, surveys, *at, self.prior_mass)
        if surveys:
            self._known.append(self._checked(mean and mean.survey))
        values: tuple[Any, ...] = mean.values
        return values

    # -- other objectives of the same rows -----------------------------------------------------

    def restrict(self, members: Array) -> Objective:
        """The same objective on a face of the simplex: only ``members`` may have weight.

        The rows, their weights and the prior votes stay those of the whole ensemble. A stream's
        columns come to memory where they fit.
        """
        holds = self.is_streamed and self.can_hold(len(members))
        face = self._face(members)
        if holds and isinstance(face._rows, StreamRows):
            return face._in_memory(face._rows.in_memory().block)
        return face

    def can_hold(self, n_members: int) -> bool:
        """Whether `restrict` may copy so many members' columns."""
        return self._rows.can_hold(self.nbytes_per_pass, n_members / self.n_members)

    def row_sample(self, n_rows: int, seed: int) -> Objective:
        """The same objective on rows drawn at random by their weight, in memory.

        All of them where there are no more; fewer where so many would not fit the memory allowed.
        """
        return self._in_memory(self._rows.sample(min(n_rows, self.most_rows), seed))

    @property
    def most_rows(self) -> int:
        """Rows of a sample that fit the memory allowed; all, where they are not streamed."""
        return self._rows.most_rows if isinstance(self._rows, StreamRows) else self.n_rows

    def face_sample(self, members: Array, seed: int) -> Objective:
        """The same on a face, and on as many rows of a stream as the memory allowed holds."""
        face = self._face(members)
        assert isinstance(face._rows, StreamRows)
        bytes_a_row = face.nbytes_per_pass / face.n_rows
        return face._in_memory(face._rows.sample_columns(bytes_a_row, seed))

    def at_rows(self, rows: Array) -> Objective:
        """The same objective on some of the rows in memory, with the whole ensemble's priors."""
        return self._in_memory(self.evidence.take(rows))

    def with_prior_mass(self, prior_mass: float) -> Objective:
        """The same objective with another prior mass; shares the evidence."""
        other = copy(self)
        other.prior_mass, other.on_pass = prior_mass, None
        return other

    def with_penalty(self, penalty: Penalty) -> Objective:
        """The same objective with another penalty; shares the evidence."""
        other = copy(self)
        other.penalty = penalty
        return other

    def warn_of_rows(self) -> None:
        """Say how many rows are left out, and so where a few weigh so much that they decide."""
        survey = self.survey
        missing = survey.n_rows - survey.n_covered
        if missing:
            warn_of_uncovered(missing, survey.n_rows)
        warn_of_uneven(survey.total, survey.squared_weight, survey.n_covered)

    def _face(self, members: Array) -> Objective:
        face = copy(self)
        face._rows = self._rows.derived(OOBEvidence.take_members, members)
        face.n_members = len(members)
        face.penalty = restrict_penalty(self.penalty, members)
        face._parts = face._rows.derived(BlockLoss, self.loss, self.floor)
        return face

    def _in_memory(self, rows: OOBEvidence) -> Objective:
        return Objective(
            rows, self.loss, self.penalty, floor=self.floor, prior_mass=self.prior_mass
        )

    def _checked(self, survey: Survey | None) -> Survey:
        """What was found of rows elsewhere, or one sentence on why there is nothing to fit."""
        if survey is None:
            raise ValueError("there are no rows to judge the members by.")
        if survey.total == 0.0:
            raise ValueError(WEIGHTLESS if survey.n_covered else NOT_COVERED)
        # Weights of a stream are added up as they come: smaller sums have not all their digits.
        if not np.finfo(float).tiny <= survey.total < np.inf:
            raise ValueError(NOT_TO_BE_SUMMED)
        if not survey.has_votes:
            raise ValueError(ALL_ZERO)
        return survey


@dataclass(frozen=True)
class Survey:
    """What is known of blocks of rows; those of disjoint blocks add.

    Attributes
    ----------
    n_rows, n_covered : int
        Rows, and those that some member has out of bag.
    nbytes : int
        Votes and mask.
    total, squared_weight : float
        Sums of the rows' weights and of their squares.
    uniform_loss, square : float
        Weighted means of the uniform ensemble's loss and of the squared targets; of regression.
    eps : float
        Rounding of the votes.
    has_votes : bool
        Whether any vote is not zero; always so in regression, and of members that predicted here.
    """

    n_rows: int
    n_covered: int
    nbytes: int
    total: float
    squared_weight: float
    uniform_loss: float
    square: float
    eps: float
    has_votes: bool

    def __add__(self, other: Survey) -> Survey:
        total = self.total + other.total
        mine, theirs = (part.total / total if total else 0.0 for part in (self, other))
        return Survey(
            self.n_rows + other.n_rows,
            self.n_covered + other.n_covered,
            self.nbytes + other.nbytes,
            total,
            self.squared_weight + other.squared_weight,
            mine * self.uniform_loss + theirs * other.uniform_loss,
            mine * self.square + theirs * other.square,
            max(self.eps, other.eps),
            self.has_votes or other.has_votes,
        )


@dataclass(frozen=True)
class _Mean:
    """Means over the rows of some blocks, which weigh so much; those of disjoint blocks add."""

    mass: float
    values: tuple[Any, ...]
    survey: Survey | None

    def __add__(self, other: _Mean) -> _Mean:
        mass = self.mass + other.mass
        mine, theirs = (part.mass / mass if mass else 0.0 for part in (self, other))
        values = (mine * a + theirs * b for a, b in zip(self.values, other.values, strict=True))
        survey = self.survey and other.survey and self.survey + other.survey
        return _Mean(mass, tuple(values), survey)


def _mean_of(part: BlockLoss, quantity: Callable[..., Any], surveys: bool, *at: Any) -> _Mean:
    found = quantity(part, *at)
    values = found if isinstance(found, tuple) else (found,)
    return _Mean(part.mass, values, _survey(part) if surveys else None)


def _survey(part: BlockLoss) -> Survey:
    rows = part.evidence
    return replace(
        _survey_in_memory(part),
        n_covered=int(np.count_nonzero(on_host(rows.covered()))),
        has_votes=rows.source != "matrices" or has_votes(rows),
    )


def _survey_in_memory(part: BlockLoss) -> Survey:
    """Without another read of votes and mask."""
    rows, xp = part.evidence, part.xp
    square = uniform_loss = 0.0
    if rows.task == "regression":
        uniform_loss = part.uniform_loss()
        square = float(xp.sum(part.row_weight * part.channels.targets[0, :] ** 2))
    return Survey(
        n_rows=rows.n_rows,
        n_covered=rows.n_rows,
        nbytes=rows.nbytes,
        total=part.mass,
        squared_weight=part.mass * (part.mass * float(xp.sum(part.row_weight**2))),
        uniform_loss=uniform_loss,
        square=square,
        eps=float(xp.finfo(part.dtype).eps),
        has_votes=True,
    )
