"""Value and gradient of a stream's block in a single read of it, compiled.

As `one_read`, but nothing of the rows need be known beforehand: the prior vote of a row that is not
held is found from its votes while they are read, at the same bits, so that a pass costs about the
same however many rows the memory allowed has room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import Task
from sparsebag.objective import _passes
from sparsebag.objective.fused_one_read import KNOWN_LOSSES
from sparsebag.objective.losses import LogLoss, Loss
from sparsebag.objective.one_read import mask_bytes
from sparsebag.objective.pass_threads import pass_threads

Array = Any

NOT_KNOWN = np.empty(0, dtype=np.float32)
NOT_GIVEN = np.empty(0)
SMALLEST_DIVISOR = float(np.finfo(np.float64).tiny)
"""Rows that weigh less are as good as weightless; one over it is still finite."""


@dataclass(frozen=True)
class BlockKernel:
    """What the kernel needs to know of an objective beside weights and rows.

    Attributes
    ----------
    is_log_loss : bool
        Else a squared difference.
    reads_target : bool
        Whether votes are compared with the rows' targets; else with 1, the true class's.
    least_vote, kept_share, floor, multiplicity : float
        The loss's clip, 1 - ε, ε / C, and how often each row's loss counts.
    """

    is_log_loss: bool
    reads_target: bool
    least_vote: float
    kept_share: float
    floor: float
    multiplicity: float

    def add(
        self,
        block: OOBEvidence,
        weights: np.ndarray,
        gradient: np.ndarray,
        *,
        prior: np.ndarray = NOT_KNOWN,
        prior_mass: float,
        least_denominator: float,
        found_prior: np.ndarray = NOT_KNOWN,
    ) -> tuple[float, float]:
        """Add a block's share to the gradient; its loss and the weight of its rows.

        Parameters
        ----------
        block : OOBEvidence
            Must be `is_readable`; of all members where ``prior`` is not given.
        weights : ndarray of shape (N,), float32
        gradient : ndarray of shape (N,), float64
            Of the rows so far; is added to.
        prior : ndarray of shape (B,), float32, optional
            The whole ensemble's votes, NaN where no member has the row out of bag.
        prior_mass, least_denominator : float
            τ, and what is added to every denominator.
        found_prior : ndarray of shape (B,), float32, optional
            Where the prior is to be written.

        Returns
        -------
        loss, total : float
            Sums over the rows, by weight.
        """
        row_weight, largest = NOT_GIVEN, 1.0
        if block.sample_weight is not None:
            row_weight = np.ascontiguousarray(on_host(block.sample_weight), dtype=np.float64)
            largest = (
                float(row_weight.max(initial=0.0)) or 1.0
            )  # huge ones would overflow in single precision
            largest = max(largest, SMALLEST_DIVISOR)
        share = gradient if largest == 1.0 else np.zeros(len(gradient))
        loss, total = _passes.block_loss_and_gradient(
            block.votes,
            mask_bytes(block.oob_mask, block.n_members),
            weights,
            prior,
            found_prior,
            np.ascontiguousarray(block.target, dtype=np.float64)
            if self.reads_target
            else NOT_GIVEN,
            row_weight,
            1.0 / largest,
            self.is_log_loss,
            prior_mass,
            least_denominator,
            self.least_vote,
            self.kept_share,
            self.floor,
            self.multiplicity,
            block.is_zeroed,
            pass_threads(),
            share,
        )
        if largest != 1.0:
            with np.errstate(over="ignore", invalid="ignore"):  # then the total is infinite too
                gradient += largest * share
        return largest * loss, largest * total

    def find_prior(self, block: OOBEvidence) -> np.ndarray:
        """The whole ensemble's uniform out-of-bag votes, NaN where no member has the row so.

        Parameters
        ----------
        block : OOBEvidence
            Of all members.

        Returns
        -------
        ndarray of shape (B,), float32
        """
        n = block.n_members
        found = np.empty(block.n_rows, dtype=np.float32)
        self.add(
            block,
            np.full(n, 1.0 / n, dtype=np.float32),
            np.zeros(n),
            prior_mass=1.0,
            least_denominator=0.0,
            found_prior=found,
        )
        return found


def make_block_kernel(
    loss: Loss, floor: float, task: Task, n_classes: int | None
) -> BlockKernel | None:
    """How the kernel reads blocks; None where it does not know the loss.

    Parameters
    ----------
    loss : Loss
    floor : float
        ε, ignored for regression.
    task : {"classification", "regression"}
    n_classes : int or None

    Returns
    -------
    BlockKernel or None

    Examples
    --------
    >>> make_block_kernel(LogLoss(), 0.1, "classification", 2).floor
    0.05
    """
    reads_target = loss.channel == "prediction"
    every_class = loss.channel == "every_class"
    if type(loss) not in KNOWN_LOSSES or (every_class and n_classes != 2):
        return None
    floor = floor if task == "classification" else 0.0
    return BlockKernel(
        is_log_loss=isinstance(loss, LogLoss),
        reads_target=reads_target,
        least_vote=float(getattr(loss, "clip", -np.inf)),
        kept_share=1.0 - floor,
        floor=floor / (n_classes or 1),
        # Binary: both classes' squared errors are equal.
        multiplicity=2.0 if every_class else 1.0,
    )
