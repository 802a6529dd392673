"""The objective on the simplex: weighted OOB loss plus penalty, with its derivatives.

For row i, member j, vote V and out-of-bag indicator I::

    n_i = Σ_j w_j V_ij        d_i = Σ_j w_j I_ij
    q_i = (n_i + τ u_i) / (d_i + τ)          u_i: the uniform ensemble's OOB vote, τ: prior mass
    p_i = (1 - ε) q_i + ε / C                ε: floor (classification only)
    f(w) = Σ_i s_i φ(p_i) + penalty(w)       s: normalised row weights, φ: the loss

The floor mixes every vote with the uniform class distribution; mixing is affine, so flooring
the ratio equals flooring each member. Derivatives, with D = d + τ and r = s (1-ε) φ'(p)::

    ∂f/∂n = r / D                            ∂f/∂d = -r q / D
    ∇f = Vᵀ(r/D) - Iᵀ(r q/D) + ∇penalty      (the paper's section III-D)

All of it is matrix-vector products over row blocks small enough to stay in cache between the
forward and the transposed product, so a value and its gradient read the evidence once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device

from sparsebag.evidence.arrays import detached, on_host, working_dtype
from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.reservoir import draw_by_weight
from sparsebag.objective.evidence_passes import pass_blocks, passes_of, reads_views
from sparsebag.objective.losses import Loss, TwiceDifferentiableLoss
from sparsebag.objective.on_simplex import ObjectiveOnSimplex
from sparsebag.objective.one_read import make_one_read
from sparsebag.objective.passes import Passes
from sparsebag.objective.penalties import Penalty, restrict_penalty
from sparsebag.objective.row_facts import RowFacts, find_facts

Array = Any

FACE_BYTES = 256 << 20
"""A face may always copy this much evidence,"""
FACE_SHARE = 8
"""or an eighth of it, so that peak memory stays near the evidence itself."""
NO_VOTE = 1e-15
"""Added to every denominator. The authors' own guard is not known; this one keeps their recorded
tree rows within bounds, max(D, 1e-15) does not with our summation order. Where
τ = 0 and no survivor has the row out of bag the vote is then 0, and log-loss meets its clip."""


@dataclass(frozen=True)
class _Block:
    """One block of rows: matrices (rows × members), and per-row arrays of shape (K, rows)."""

    votes: tuple[Array, ...]
    mask: Array | None
    passes: Passes
    uniform_vote: Array
    targets: Array
    row_weight: Array


@dataclass(frozen=True)
class _Vote:
    """The ensemble's vote on a block and what its derivatives need."""

    ratio: Array
    floored: Array
    denominator: Array


class SimplexObjective(ObjectiveOnSimplex):
    """Weighted OOB loss plus penalty, as a function of the members' weights.

    Parameters
    ----------
    evidence : OOBEvidence
        Votes, mask, targets, row weights. Rows no member has out of bag get no weight.
    loss : Loss
        Pointwise loss of the vote.
    penalty : Penalty
        Penalty on the weights.
    floor : float, default 0
        ε: share of the uniform class distribution mixed into each vote. Ignored in regression.
    prior_mass : float, default 0
        τ: weight of the uniform ensemble's vote in each row; keeps rows defined that none of
        the survivors has out of bag.
    facts : RowFacts, optional
        Of these rows, where they are known, from the whole ensemble; default: from the evidence.

    Examples
    --------
    >>> from sparsebag.objective.losses import LogLoss
    >>> from sparsebag.objective.penalties import ConcaveQuadratic
    >>> e = OOBEvidence(np.array([[0.9, 0.5], [0.8, 0.5]]), None, np.array([0, 1]),
    ...                 "classification", classes=np.array([0, 1]))
    >>> f = SimplexObjective(e, LogLoss(), ConcaveQuadratic(0.0))
    >>> bool(f.value(np.array([1.0, 0.0])) < f.value(np.array([0.5, 0.5])))
    True
    """

    is_streamed = False
    _kept_blocks: list[_Block] | None

    def __init__(
        self,
        evidence: OOBEvidence,
        loss: Loss,
        penalty: Penalty,
        *,
        floor: float = 0.0,
        prior_mass: float = 0.0,
        facts: RowFacts | None = None,
    ) -> None:
        if not 0.0 <= floor < 1.0:
            raise ValueError(f"floor must be at least 0 and below 1, got {floor}.")
        if not (np.isfinite(prior_mass) and prior_mass >= 0.0):
            raise ValueError(
                f"prior_mass must be a finite number that is not negative, got {prior_mass}."
            )
        self.evidence = evidence
        self.loss = loss
        self.penalty = penalty
        self.floor = floor if evidence.n_classes else 0.0
        self.prior_mass = prior_mass
        self.xp = array_namespace(evidence.votes)
        self.device = device(evidence.votes)
        self._dtype = working_dtype(evidence.votes)
        clip = getattr(loss, "clip", None)
        self._smallest_vote = None if clip is None else self.asarray(clip)
        self._channels = evidence.channels(loss.channel)
        self.facts = facts or find_facts(evidence, self._channels)
        self._row_weight = self.facts.row_weight
        self._uniform_vote = self.facts.uniform_vote
        self._prepare_passes()

    @property
    def n_members(self) -> int:
        """Number of weights, N."""
        return self.evidence.n_members

    @property
    def nbytes_per_pass(self) -> int:
        """Bytes of evidence one value-and-gradient pass reads."""
        return self.evidence.nbytes

    @property
    def n_rows(self) -> int:
        """Number of rows, M."""
        return self.evidence.n_rows

    @property
    def has_mask(self) -> bool:
        """Whether members vote only on the rows out of their bags."""
        return self.evidence.oob_mask is not None

    @cached_property
    def scale(self) -> float:
        """What tolerances are relative to: see `ObjectiveOnSimplex`."""
        if self.evidence.task == "classification":
            return 1.0
        losses = self.xp.sum(self.loss.value(self._uniform_vote, self._channels.targets), axis=0)
        return max(float(self.xp.sum(self._row_weight * losses)), np.finfo(float).tiny)

    @cached_property
    def rounding(self) -> float:
        """Differences between two values smaller than this mean nothing."""
        eps = float(self.xp.finfo(self._dtype).eps)
        if self.evidence.task == "classification":
            return eps
        square = float(self.xp.sum(self._row_weight * self._channels.targets[0, :] ** 2))
        return self._rounding_of_regression(eps, square)

    def uniform_weights(self) -> Array:
        """The simplex's centre, every solver's default start."""
        n = self.n_members
        return self.xp.full(n, 1.0 / n, dtype=self.xp.float64, device=self.device)

    def asarray(self, weights: Array) -> Array:
        """Weights as float64 on the evidence's device."""
        return self.xp.asarray(detached(weights), dtype=self.xp.float64, device=self.device)

    def value(self, weights: Array) -> float:
        """Objective at the weights."""
        total = sum(self._loss_sum(block, self._vote(block, weights)) for block in self._blocks())
        return float(total + self.penalty.value(weights))

    def loss_value(self, weights: Array) -> float:
        """The loss alone, without the penalty."""
        return self.value(weights) - float(self.penalty.value(weights))

    def value_and_gradient(self, weights: Array) -> tuple[float, Array]:
        """Objective and gradient, in one pass over the evidence."""
        if self._one_read is not None:
            loss, gradient = self._one_read.loss_and_gradient(
                weights, prior_mass=self.prior_mass, least_denominator=NO_VOTE
            )
            value = loss + float(self.penalty.value(weights))
            return value, gradient + self.penalty.gradient(weights)
        xp = self.xp
        total: Array = 0.0
        gradient = self.penalty.gradient(weights)
        for block in self._blocks():
            vote = self._vote(block, weights)
            slope = self._slope(block, vote) / vote.denominator
            on_mask = -xp.sum(slope * vote.ratio, axis=0)
            total = total + self._loss_sum(block, vote)
            gradient = gradient + block.passes.transposed(slope, on_mask)
        return float(total + self.penalty.value(weights)), gradient

    def gradient(self, weights: Array) -> Array:
        """Gradient at the weights."""
        return self.value_and_gradient(weights)[1]

    def hessian_product(self, weights: Array, direction: Array) -> Array:
        """Hessian times a direction.

        With ṅ = V v, ḋ = I v, q̇ = (ṅ - q ḋ)/D::

            d(r/D) = φ'' q̇ / D - r ḋ / D²        d(-r q/D) = -Σ_k [q d(r/D) + (r/D) q̇]
        """
        xp = self.xp
        product = self.penalty.hessian_product(weights, direction)
        for block in self._blocks():
            vote = self._vote(block, weights)
            n_dot, d_dot = block.passes.forward(direction)
            q_dot = (n_dot - vote.ratio * d_dot) / vote.denominator
            slope = self._slope(block, vote) / vote.denominator
            curvature = self._curvature(block, vote) / vote.denominator
            d_slope = curvature * q_dot - slope * d_dot / vote.denominator
            on_mask = -xp.sum(vote.ratio * d_slope + slope * q_dot, axis=0)
            product = product + block.passes.transposed(d_slope, on_mask)
        return product

    def hessian(self, weights: Array) -> Array:
        """Dense Hessian (N × N). Meant for restricted objectives: it costs M N² operations.

        With J = V - q I (the vote's Jacobian times D)::

            H = Jᵀ diag(φ''/D²) J - Jᵀ diag(r/D²) I - Iᵀ diag(r/D²) J + penalty's Hessian

        The first three terms are the symmetric part of one product, Jᵀ(φ'' J - 2 r I)/D².
        """
        xp = self.xp
        n = self.n_members
        dtype = self._dtype
        total = xp.zeros((n, n), dtype=xp.float64, device=self.device)
        for block in self._dense_blocks():
            vote = self._vote(block, weights)
            d2 = vote.denominator**2
            slope, curvature = self._slope(block, vote) / d2, self._curvature(block, vote) / d2
            if block.mask is None:
                mask = xp.ones((block.row_weight.shape[0], n), dtype=dtype, device=self.device)
            else:
                mask = xp.astype(block.mask, dtype)
            for k, votes in enumerate(block.votes):
                ratio = xp.astype(vote.ratio[k, :], dtype)[:, None]
                votes = votes if self.evidence.is_zeroed else zero_in_bag(votes, block.mask)
                jacobian = xp.astype(_dense(votes), dtype) - ratio * mask
                bent = xp.astype(curvature[k, :], dtype)[:, None] * jacobian
                bent = bent - xp.astype(2.0 * slope[k, :], dtype)[:, None] * mask
                total = total + xp.astype(jacobian.T @ bent, xp.float64)
        eye = xp.eye(n, dtype=xp.float64, device=self.device)
        columns = [self.penalty.hessian_product(weights, eye[:, j]) for j in range(n)]
        return (total + total.T) / 2 + xp.stack(columns, axis=1)

    def rows_won(self) -> Array:
        """For each member, the number of rows on which its own vote has the least loss."""
        xp = self.xp
        counts = xp.zeros(self.n_members, dtype=xp.float64, device=self.device)
        dtype = self._dtype  # whole blocks: twice as wide would be twice the memory
        for block in self._dense_blocks():
            losses: Array = 0.0
            for k, votes in enumerate(block.votes):
                vote = xp.astype(_dense(votes), dtype, copy=False)
                if self._smallest_vote is not None:
                    vote = xp.maximum(vote, xp.astype(self._smallest_vote, dtype))
                target = xp.astype(block.targets[k, :], dtype)[:, None]
                losses = losses + self.loss.value(vote, target)
            if block.mask is not None:
                losses = xp.where(xp.astype(block.mask, xp.bool), losses, xp.inf)
            winners, won = xp.unique_counts(xp.argmin(losses, axis=1))
            counts[winners] += xp.astype(won, xp.float64)
        return counts

    def restrict(self, members: Array) -> SimplexObjective:
        """The same objective on a face of the simplex: only ``members`` may have weight.

        The rows, their weights and the prior votes stay those of the whole ensemble.
        """
        face = object.__new__(SimplexObjective)
        face.__dict__.update(self.__dict__)
        face.evidence = self.evidence.take_members(members)
        face.penalty = restrict_penalty(self.penalty, members)
        face._channels = face.evidence.channels(self.loss.channel)
        face._prepare_passes()
        return face

    def can_hold(self, n_members: int) -> bool:
        """Whether copying so many members' columns is worth it and within the memory allowed."""
        share = n_members / self.n_members
        nbytes = self.evidence.nbytes
        return share < 1.0 and share * nbytes <= max(FACE_BYTES, nbytes / FACE_SHARE)

    def row_sample(self, n_rows: int, seed: int) -> SimplexObjective:
        """The same objective on rows drawn at random; all of them where there are no more.

        Rows with weights are drawn by them, and count for those like them that were not drawn.
        """
        if n_rows >= self.n_rows:
            return self
        rng, counts = np.random.default_rng(seed), None
        if self.evidence.sample_weight is None:
            rows = np.sort(rng.choice(self.n_rows, n_rows, replace=False))
        else:
            rows, counts = draw_by_weight(on_host(self.evidence.sample_weight), n_rows, rng)
            counts = self.asarray(np.where(on_host(self._row_weight)[rows] > 0, counts, 0.0))
        return self.at_rows(self.xp.asarray(rows, device=self.device), counts)

    def at_rows(self, rows: Array, counts: Array | None = None) -> SimplexObjective:
        """The same objective on some rows, with the votes of the whole ensemble as priors.

        ``counts`` are their weights where these are not those they have here.
        """
        weight = self._row_weight[rows] if counts is None else counts
        total = float(self.xp.sum(weight))
        facts = RowFacts(weight / total, self._uniform_vote[:, rows], total * self.facts.total)
        return SimplexObjective(
            self.evidence.take(rows),
            self.loss,
            self.penalty,
            floor=self.floor,
            prior_mass=self.prior_mass,
            facts=facts,
        )

    def with_prior_mass(self, prior_mass: float) -> SimplexObjective:
        """The same objective with another prior mass; shares the evidence."""
        other = object.__new__(SimplexObjective)
        other.__dict__.update(self.__dict__)
        other.prior_mass = prior_mass
        return other

    def with_penalty(self, penalty: Penalty) -> SimplexObjective:
        """The same objective with another penalty; shares the evidence."""
        other = object.__new__(SimplexObjective)
        other.__dict__.update(self.__dict__)
        other.penalty = penalty
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Without views of the evidence: a pickle would hold it twice."""
        return {**self.__dict__, "_kept_blocks": None, "_one_read": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare_passes()

    # -- one block ---------------------------------------------------------------------------

    def _vote(self, block: _Block, weights: Array) -> _Vote:
        xp = self.xp
        n, d = block.passes.forward(weights)
        denominator = d + (self.prior_mass + NO_VOTE)
        ratio = (n + self.prior_mass * block.uniform_vote) / denominator
        if self._smallest_vote is not None:
            ratio = xp.maximum(ratio, self._smallest_vote)
        floored = ratio
        if self.floor:
            floored = (1.0 - self.floor) * ratio + self.floor / (self.evidence.n_classes or 1)
        return _Vote(ratio=ratio, floored=floored, denominator=denominator)

    def _loss_sum(self, block: _Block, vote: _Vote) -> Array:
        losses = self.loss.value(vote.floored, block.targets)
        return self._channels.multiplicity * self.xp.sum(block.row_weight * losses)

    def _slope(self, block: _Block, vote: _Vote) -> Array:
        scale = self._channels.multiplicity * (1.0 - self.floor)
        return scale * block.row_weight * self.loss.gradient(vote.floored, block.targets)

    def _curvature(self, block: _Block, vote: _Vote) -> Array:
        assert isinstance(self.loss, TwiceDifferentiableLoss)
        scale = self._channels.multiplicity * (1.0 - self.floor) ** 2
        return scale * block.row_weight * self.loss.curvature(vote.floored, block.targets)

    # -- preparation -------------------------------------------------------------------------

    def _blocks(self) -> Iterable[_Block]:
        """The blocks; kept where they are views of the evidence and not copies."""
        if self._kept_blocks is None and reads_views(self.evidence, self._channels):
            self._kept_blocks = list(self._cut_into_blocks())
        return self._cut_into_blocks() if self._kept_blocks is None else self._kept_blocks

    def _dense_blocks(self) -> Iterable[_Block]:
        """Blocks of which copies are made: never larger than usual on their device."""
        return self._cut_into_blocks(row_blocks(self.evidence.votes))

    def _prepare_passes(self) -> None:
        # Cut when they are first asked for: a block of a stream is often read once, by one kernel.
        self._kept_blocks = None
        self._one_read = make_one_read(
            self.evidence, self._channels, self.facts, self.loss, self.floor
        )

    def _cut_into_blocks(self, slices: Iterable[slice] | None = None) -> Iterator[_Block]:
        for rows in slices or pass_blocks(self.evidence, self._channels):
            votes, mask, passes = passes_of(self.evidence, self._channels, rows)
            yield _Block(
                votes=votes,
                mask=mask,
                passes=passes,
                uniform_vote=self._uniform_vote[:, rows],
                targets=self._channels.targets[:, rows],
                row_weight=self._row_weight[rows],
            )


def _dense(votes: Array) -> Array:
    return votes.toarray() if hasattr(votes, "toarray") else votes
