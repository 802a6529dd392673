"""Value and gradient of in-memory evidence in a single read of it, compiled.

The general way reads every row block twice, for the forward and the transposed product, with the
loss in between, in Python. Where the kernel knows the loss, it votes on a few rows,
differentiates, and adds their share of the gradient while they are still in the cache.
`make bench-scale` has its multiple of the bandwidth bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import is_numpy_array

from sparsebag.evidence.evidence import Channels, OOBEvidence
from sparsebag.objective import _passes
from sparsebag.objective.fused_one_read import KNOWN_LOSSES, FusedOneRead, make_fused_one_read
from sparsebag.objective.losses import LogLoss, Loss
from sparsebag.objective.pass_threads import pass_threads
from sparsebag.objective.row_facts import RowFacts

Array = Any


@dataclass(frozen=True)
class OneRead:
    """Evidence the kernel can read, and what it needs to know of the objective beside weights."""

    votes: np.ndarray
    mask: np.ndarray
    uniform_vote: np.ndarray
    target: np.ndarray
    row_weight: np.ndarray
    is_log_loss: bool
    least_vote: float
    kept_share: float
    floor: float
    multiplicity: float
    is_zeroed: bool

    def loss_and_gradient(
        self,
        weights: np.ndarray,
        *,
        prior_mass: float,
        least_denominator: float,
    ) -> tuple[float, np.ndarray]:
        """The loss of all rows and its gradient.

        Parameters
        ----------
        weights : ndarray of shape (N,)
        prior_mass, least_denominator : float
            τ, and what is added to every denominator.

        Returns
        -------
        loss : float
        gradient : ndarray of shape (N,)
        """
        gradient = np.zeros(len(weights))
        loss = _passes.loss_and_gradient(
            self.votes,
            self.mask,
            weights.astype(np.float32, copy=False),
            self.uniform_vote,
            self.target,
            self.row_weight,
            self.is_log_loss,
            float(prior_mass),
            float(least_denominator),
            self.least_vote,
            self.kept_share,
            self.floor,
            self.multiplicity,
            self.is_zeroed,
            pass_threads(),
            gradient,
        )
        return loss, gradient


def make_one_read(
    evidence: OOBEvidence, channels: Channels, facts: RowFacts, loss: Loss, floor: float
) -> OneRead | FusedOneRead | None:
    """What a kernel reads; None where the evidence or the loss is not of its kind.

    Doubles go the general way: who asks for them asks for its summation order too.

    Parameters
    ----------
    evidence : OOBEvidence
    channels : Channels
    facts : RowFacts
    loss : Loss
    floor : float
        ε, zero for regression.

    Returns
    -------
    OneRead, FusedOneRead or None
    """
    votes, mask = channels.votes[0], evidence.oob_mask
    known = type(loss) in KNOWN_LOSSES and len(channels.votes) == 1
    if not known or not is_readable(votes, mask, loss):
        return make_fused_one_read(evidence, channels, facts, loss, floor)
    is_log_loss = isinstance(loss, LogLoss)
    row_weight = np.ascontiguousarray(facts.row_weight)
    return OneRead(
        votes=votes,
        mask=mask_bytes(mask, votes.shape[1]),
        uniform_vote=np.ascontiguousarray(facts.uniform_vote[0]),
        # The true class's vote has no target; any array of its length will do.
        target=row_weight if is_log_loss else np.ascontiguousarray(channels.targets[0]),
        row_weight=row_weight,
        is_log_loss=is_log_loss,
        least_vote=float(getattr(loss, "clip", -np.inf)),
        kept_share=1.0 - floor,
        floor=floor / (evidence.n_classes or 1),
        multiplicity=channels.multiplicity,
        is_zeroed=evidence.is_zeroed,
    )


def is_readable(votes: Array, mask: Array | None, loss: Loss) -> bool:
    """Whether the host's kernel reads such votes and mask.

    Predictions without a mask go the general way: what is left of a prediction beside a target far
    from zero needs the digits of its sums, and whoever asks is told where even those are too few.

    Parameters
    ----------
    votes : array of shape (B, N)
    mask : array of shape (B, N) or None
    loss : Loss

    Returns
    -------
    bool
    """
    if mask is None and loss.channel == "prediction":
        return False
    return (
        is_numpy_array(votes)
        and votes.dtype == np.float32
        and votes.flags.c_contiguous
        and (mask is None or (mask.dtype in (np.bool_, np.uint8) and bool(mask.flags.c_contiguous)))
    )


def mask_bytes(mask: np.ndarray | None, n_members: int) -> np.ndarray:
    """A mask as the host's kernel takes it: bytes, without a row where there is no mask.

    Parameters
    ----------
    mask : ndarray of shape (B, N), bool or uint8, or None
    n_members : int

    Returns
    -------
    ndarray of shape (B, N) or (0, N), uint8

    Examples
    --------
    >>> mask_bytes(None, 5).shape
    (0, 5)
    """
    if mask is None:
        return np.empty((0, n_members), dtype=np.uint8)
    return mask.view(np.uint8)
