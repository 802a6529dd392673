"""The loss of the weighted vote on a block of rows in memory, with its derivatives.

For row i, member j, vote V and out-of-bag indicator I::

    n_i = Σ_j w_j V_ij        d_i = Σ_j w_j I_ij
    q_i = (n_i + τ u_i) / (d_i + τ)          u_i: the uniform ensemble's OOB vote, τ: prior mass
    p_i = (1 - ε) q_i + ε / C                ε: floor (classification only)
    f(w) = Σ_i s_i φ(p_i)                    s: normalised row weights, φ: the loss

The floor mixes every vote with the uniform class distribution; mixing is affine, so flooring
the ratio equals flooring each member. Derivatives, with D = d + τ and r = s (1-ε) φ'(p)::

    ∂f/∂n = r / D                            ∂f/∂d = -r q / D
    ∇f = Vᵀ(r/D) - Iᵀ(r q/D)                 (the paper's section III-D)

All of it is matrix-vector products over row slices small enough to stay in cache between the
forward and the transposed product. Where the compiled kernel knows the loss both happen in one
read: it votes on a few rows, differentiates, and adds their share of the gradient.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from sparsebag.evidence.arrays import detached, row_blocks
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective import _passes
from sparsebag.objective.losses import (
    Brier,
    Channel,
    LogLoss,
    Loss,
    SquaredError,
    TwiceDifferentiableLoss,
)
from sparsebag.objective.passes import Passes, pass_threads, passes_of

Array = Any

NO_VOTE = 1e-15
"""Added to every denominator. The authors' own guard is not known; this one keeps their recorded
tree rows within bounds, max(D, 1e-15) does not with our summation order. Where
τ = 0 and no kept member has the row out of bag the vote is then 0, and log-loss meets its clip."""


def with_prior(evidence: OOBEvidence, channel: Channel) -> OOBEvidence:
    """The same rows with the uniform ensemble's votes; no weight where no member may vote.

    Parameters
    ----------
    evidence : OOBEvidence
        Of all members, unless it has its prior already.
    channel : {"true_class", "every_class", "prediction"}
        What the loss reads.

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> mask = np.array([[1, 1], [0, 1], [0, 0]], dtype=bool)
    >>> votes = np.array([[1.0, 3.0], [0.0, 4.0], [0.0, 0.0]])
    >>> e = OOBEvidence(votes, mask, np.ones(3), "regression")
    >>> found = with_prior(e, "prediction")
    >>> found.prior.tolist(), found.sample_weight.tolist()
    ([[2.0, 4.0, 0.0]], [1.0, 1.0, 0.0])
    """
    if evidence.prior is not None:
        return evidence
    xp = array_namespace(evidence.votes)
    ones = xp.ones(evidence.n_members, dtype=xp.float64, device=device(evidence.votes))
    channels = evidence.channels(channel)
    votes, counts = [], []
    for rows in row_blocks(evidence.votes):
        total, count = passes_of(evidence, channels, rows)[2].forward(ones)
        votes.append(total / xp.clip(count, min=1.0))
        counts.append(count)
    covered = xp.concat(counts) > 0
    weight = evidence.sample_weight
    if not bool(xp.all(covered)):
        seen = xp.astype(covered, xp.float64)
        weight = seen if weight is None else weight * seen
    return replace(evidence, prior=xp.concat(votes, axis=1), sample_weight=weight)


class BlockLoss:
    """Mean loss over some rows as a function of the members' weights.

    Parameters
    ----------
    evidence : OOBEvidence
        With its prior (`with_prior`).
    loss : Loss
    floor : float
        ε; zero for regression.

    Attributes
    ----------
    mass : float
        What the rows weigh.
    row_weight : array of shape (M,)
        s: the weights divided by their sum.
    """

    def __init__(self, evidence: OOBEvidence, loss: Loss, floor: float) -> None:
        self.evidence, self.loss, self.floor = evidence, loss, floor
        self.xp, self.device = array_namespace(evidence.votes), device(evidence.votes)
        self.channels = evidence.channels(loss.channel)
        self.dtype = evidence.votes.dtype
        clip = getattr(loss, "clip", None)
        self._smallest_vote = None if clip is None else self.asarray(clip)
        self.row_weight, self.mass = self._weigh()
        self._kept: list[_Slice] | None = None
        self._native = self._native_arguments()

    def _weigh(self) -> tuple[Array, float]:
        xp, weight = self.xp, self.evidence.sample_weight
        if weight is None:
            n_rows = self.evidence.n_rows
            weight = xp.ones(n_rows, dtype=xp.float64, device=self.device)
            return weight / max(n_rows, 1), float(n_rows)
        largest = float(xp.max(weight)) or 1.0
        share = weight / largest  # huge ones would overflow their sum
        own = float(xp.sum(share))
        return share / (own or 1.0), own * largest

    def asarray(self, values: Array) -> Array:
        """Values as float64 on the evidence's device."""
        return self.xp.asarray(detached(values), dtype=self.xp.float64, device=self.device)

    def value_and_gradient(self, weights: Array, prior_mass: float) -> tuple[float, Array]:
        """The loss and its gradient, in one pass over the rows.

        Parameters
        ----------
        weights : array of shape (N,)
        prior_mass : float
            τ.

        Returns
        -------
        float
        array of shape (N,)
        """
        if self._native is not None:
            gradient = np.zeros(len(weights))
            at = weights.astype(np.float32, copy=False), float(prior_mass), pass_threads()
            given: tuple[Any, ...] = (*self._native, *at, gradient)
            return _passes.loss_and_gradient(*given), gradient
        total: Array = 0.0
        gradient = 0.0 * weights
        for rows in self._slices():
            vote = self._vote(rows, weights, prior_mass)
            slope = self._slope(rows, vote) / vote.denominator
            on_mask = -self.xp.sum(slope * vote.ratio, axis=0)
            losses = self.loss.value(vote.floored, rows.targets)
            total = total + self.channels.multiplicity * self.xp.sum(rows.row_weight * losses)
            gradient = gradient + rows.passes.transposed(slope, on_mask)
        return float(total), gradient

    def hessian(self, weights: Array, prior_mass: float) -> Array:
        """Dense Hessian (N × N). Meant for few members: it costs M N² operations.

        With J = V - q I (the vote's Jacobian times D)::

            H = Jᵀ diag(φ''/D²) J - Jᵀ diag(r/D²) I - Iᵀ diag(r/D²) J

        The symmetric part of one product, Jᵀ(φ'' J - 2 r I)/D².
        """
        xp, n, dtype = self.xp, self.evidence.n_members, self.dtype
        total = xp.zeros((n, n), dtype=xp.float64, device=self.device)
        for rows in self._cut():
            vote = self._vote(rows, weights, prior_mass)
            d2 = vote.denominator**2
            slope, curvature = self._slope(rows, vote) / d2, self._curvature(rows, vote) / d2
            if rows.mask is None:
                mask = xp.ones((rows.row_weight.shape[0], n), dtype=dtype, device=self.device)
            else:
                mask = xp.astype(rows.mask, dtype)
            for k, votes in enumerate(rows.votes):
                ratio = xp.astype(vote.ratio[k, :], dtype)[:, None]
                jacobian = xp.astype(_dense(votes), dtype) - ratio * mask
                bent = xp.astype(curvature[k, :], dtype)[:, None] * jacobian
                bent = bent - xp.astype(2.0 * slope[k, :], dtype)[:, None] * mask
                total = total + xp.astype(jacobian.T @ bent, xp.float64)
        return (total + total.T) / 2

    def rows_won(self) -> Array:
        """For each member, the number of rows on which its own vote has the least loss."""
        xp = self.xp
        counts = xp.zeros(self.evidence.n_members, dtype=xp.float64, device=self.device)
        dtype = self.dtype  # whole slices: twice as wide would be twice the memory
        for rows in self._cut():
            losses: Array = 0.0
            for k, votes in enumerate(rows.votes):
                vote = xp.astype(_dense(votes), dtype, copy=False)
                if self._smallest_vote is not None:
                    vote = xp.maximum(vote, xp.astype(self._smallest_vote, dtype))
                target = xp.astype(rows.targets[k, :], dtype)[:, None]
                losses = losses + self.loss.value(vote, target)
            if rows.mask is not None:
                losses = xp.where(xp.astype(rows.mask, xp.bool), losses, xp.inf)
            winners, won = xp.unique_counts(xp.argmin(losses, axis=1))
            counts[winners] += xp.astype(won, xp.float64)
        return counts

    def uniform_loss(self) -> float:
        """The uniform ensemble's loss on these rows."""
        losses = self.xp.sum(self.loss.value(self.evidence.prior, self.channels.targets), axis=0)
        return float(self.xp.sum(self.row_weight * losses))

    def __getstate__(self) -> dict[str, Any]:
        """Without views of the evidence: a pickle would hold it twice."""
        return {**self.__dict__, "_kept": None, "_native": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._native = self._native_arguments()

    # -- slices of the rows --------------------------------------------------------------------

    def _vote(self, rows: _Slice, weights: Array, prior_mass: float) -> _Vote:
        n, d = rows.passes.forward(weights)
        denominator = d + (prior_mass + NO_VOTE)
        ratio = (n + prior_mass * rows.prior) / denominator
        if self._smallest_vote is not None:
            ratio = self.xp.maximum(ratio, self._smallest_vote)
        floored = ratio
        if self.floor:
            floored = (1.0 - self.floor) * ratio + self.floor / (self.evidence.n_classes or 1)
        return _Vote(ratio, floored, denominator)

    def _slope(self, rows: _Slice, vote: _Vote) -> Array:
        scale = self.channels.multiplicity * (1.0 - self.floor)
        return scale * rows.row_weight * self.loss.gradient(vote.floored, rows.targets)

    def _curvature(self, rows: _Slice, vote: _Vote) -> Array:
        assert isinstance(self.loss, TwiceDifferentiableLoss)
        scale = self.channels.multiplicity * (1.0 - self.floor) ** 2
        return scale * rows.row_weight * self.loss.curvature(vote.floored, rows.targets)

    def _slices(self) -> Iterable[_Slice]:
        """Slices for products; kept where they are views of the evidence and not copies."""
        if not (self.evidence.is_zeroed or self.evidence.oob_mask is None):
            return self._cut()
        if self._kept is None:
            self._kept = list(self._cut())
        return self._kept

    def _cut(self) -> Iterator[_Slice]:
        for rows in row_blocks(self.evidence.votes):
            votes, mask, passes = passes_of(self.evidence, self.channels, rows)
            yield _Slice(
                votes,
                mask,
                passes,
                self.evidence.prior[:, rows],  # type: ignore[index]
                self.channels.targets[:, rows],
                self.row_weight[rows],
            )

    def _native_arguments(self) -> tuple[Any, ...] | None:
        """What the compiled kernel reads beside weights; None where it knows not how.

        Doubles go the general way: who asks for them asks for its summation order too. So do
        predictions without a mask: what is left of a prediction beside a target far from zero needs
        the digits of its sums.
        """
        votes, mask, loss = self.channels.votes[0], self.evidence.oob_mask, self.loss
        readable = (
            type(loss) in (LogLoss, SquaredError, Brier)
            and len(self.channels.votes) == 1
            and not (mask is None and loss.channel == "prediction")
            and is_numpy_array(votes)
            and votes.dtype == np.float32
            and votes.flags.c_contiguous
            and (mask is None or (mask.dtype in (np.bool_, np.uint8) and mask.flags.c_contiguous))
        )
        if not readable:
            return None
        assert self.evidence.prior is not None
        is_log_loss = isinstance(loss, LogLoss)
        no_mask = np.empty((0, votes.shape[1]), dtype=np.uint8)
        row_weight = np.ascontiguousarray(self.row_weight)
        return (
            votes,
            no_mask if mask is None else mask.view(np.uint8),
            np.ascontiguousarray(self.evidence.prior[0]),
            # The true class's vote has no target; any array of its length will do.
            row_weight if is_log_loss else np.ascontiguousarray(self.channels.targets[0]),
            row_weight,
            is_log_loss,
            NO_VOTE,
            float(getattr(loss, "clip", -np.inf)),
            1.0 - self.floor,
            self.floor / (self.evidence.n_classes or 1),
            self.channels.multiplicity,
            self.evidence.is_zeroed,
        )


@dataclass(frozen=True)
class _Slice:
    """Some rows: matrices (rows × members), and per-row arrays of shape (K, rows)."""

    votes: tuple[Array, ...]
    mask: Array | None
    passes: Passes
    prior: Array
    targets: Array
    row_weight: Array


@dataclass(frozen=True)
class _Vote:
    """The ensemble's vote on some rows and what its derivatives need."""

    ratio: Array
    floored: Array
    denominator: Array


def _dense(votes: Array) -> Array:
    return votes.toarray() if hasattr(votes, "toarray") else votes
