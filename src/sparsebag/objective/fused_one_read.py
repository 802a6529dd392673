"""Value and gradient on a CUDA device in a single read of the evidence.

The general way reads votes and mask twice, for the forward and the transposed product. A kernel
that knows the loss keeps a row in registers between the two, and fetches the next rows meanwhile.
`python -m benchmarks.scale_gpu` has its share of the card's bandwidth beside that of two reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sparsebag.evidence.evidence import Channels, OOBEvidence
from sparsebag.evidence.torch_loan import as_torch, bytes_as_torch, returned
from sparsebag.objective.losses import Brier, LogLoss, Loss, SquaredError
from sparsebag.objective.row_facts import RowFacts
from sparsebag.objective.triton_device import can_fuse, kernels, on_device_of

Array = Any

KNOWN_LOSSES: tuple[type, ...] = (LogLoss, SquaredError, Brier)
FEWEST_MEMBERS, MOST_MEMBERS = 500, 12288
"""Shorter rows are over before the next has come; of longer ones three do not fit the shared
memory of a multiprocessor (228 KiB). Both are then read twice."""
STAGES, WARPS = 3, 8
"""Rows on the way at a time and warps at a row: among the fastest of those `scale_gpu` tries, and
for votes of two bytes the fastest."""
ROWS_EACH = 512
"""Most rows whose shares of the gradient are added up in float32."""
LONG_ROW, MOST_AT_ONCE = 8192, 8
"""Members from which on a multiprocessor has room for one program; shorter rows leave room for
more of them, up to eight of eight warps."""


@dataclass(frozen=True)
class FusedOneRead:
    """Evidence the kernel can read, and what it needs to know of the objective beside weights."""

    like: Array
    votes: Any
    mask: Any
    uniform_vote: Any
    target: Any
    row_weight: Any
    is_log_loss: bool
    least_vote: float
    kept_share: float
    floor: float
    multiplicity: float
    stages: int = STAGES
    warps: int = WARPS

    def loss_and_gradient(
        self, weights: Array, *, prior_mass: float, least_denominator: float
    ) -> tuple[float, Array]:
        """The loss of all rows and its gradient.

        Parameters
        ----------
        weights : array of shape (N,)
        prior_mass, least_denominator : float
            τ, and what is added to every denominator.

        Returns
        -------
        loss : float
        gradient : array of shape (N,)
        """
        import torch

        n_rows, n_members = self.votes.shape
        given = as_torch(weights)
        rows_each = self._rows_each(given.device)
        groups = -(-n_rows // rows_each)
        n, d = torch.empty((2, n_rows), dtype=torch.float32, device=given.device)
        sums = torch.empty((groups, n_members), dtype=torch.float32, device=given.device)
        left = 1 << (n_members.bit_length() - 1)
        with on_device_of(given):
            kernels().one_read_kernel[(groups,)](
                self.votes,
                self.mask,
                given.float().contiguous(),
                self.uniform_vote,
                self.target,
                self.row_weight,
                n,
                d,
                sums,
                n_rows,
                n_members,
                rows_each,
                self.votes.stride(0),
                self.mask.stride(0),
                float(prior_mass),
                float(least_denominator),
                self.least_vote,
                self.kept_share,
                self.floor,
                self.multiplicity,
                IS_LOG_LOSS=self.is_log_loss,
                LEFT=left,
                RIGHT=1 << max(n_members - left - 1, 0).bit_length(),
                STAGES=self.stages,
                num_warps=self.warps,
            )
        q = (n.double() + prior_mass * self.uniform_vote) / (
            d.double() + prior_mass + least_denominator
        )
        p = self.kept_share * q.clamp(min=self.least_vote) + self.floor
        losses = -torch.log(p) if self.is_log_loss else (p - self.target) ** 2
        loss = self.multiplicity * float(self.row_weight @ losses)
        return loss, returned(sums.sum(dim=0, dtype=torch.float64), self.like)

    def _rows_each(self, device: Any) -> int:
        """Rows a program: at most `ROWS_EACH`, and every multiprocessor as many as the others."""
        import torch

        n_rows = int(self.votes.shape[0])
        at_once = min(MOST_AT_ONCE, max(1, LONG_ROW // int(self.votes.shape[1])))
        if device.type == "cuda":
            at_once *= torch.cuda.get_device_properties(device).multi_processor_count
        rounds = max(1, -(-n_rows // (at_once * ROWS_EACH)))
        return max(1, -(-n_rows // (at_once * rounds)))


def make_fused_one_read(
    evidence: OOBEvidence, channels: Channels, facts: RowFacts, loss: Loss, floor: float
) -> FusedOneRead | None:
    """What the kernel reads; None where two reads are to be taken.

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
    FusedOneRead or None
    """
    fits = (
        type(loss) in KNOWN_LOSSES
        and len(channels.votes) == 1
        and evidence.oob_mask is not None
        and FEWEST_MEMBERS <= evidence.n_members <= MOST_MEMBERS
    )
    if not fits or not can_fuse(channels.votes, evidence.oob_mask):
        return None
    return FusedOneRead(
        like=channels.votes[0],
        votes=as_torch(channels.votes[0]),
        mask=bytes_as_torch(evidence.oob_mask),
        uniform_vote=_doubles(facts.uniform_vote[0, :]),
        target=_doubles(channels.targets[0, :]),
        row_weight=_doubles(facts.row_weight),
        is_log_loss=isinstance(loss, LogLoss),
        least_vote=float(getattr(loss, "clip", -float("inf"))),
        kept_share=1.0 - floor,
        floor=floor / (evidence.n_classes or 1),
        multiplicity=channels.multiplicity,
    )


def _doubles(values: Array) -> Any:
    return as_torch(values).double().contiguous()
