"""What is kept of a stream's blocks from their first read, so that later passes ask Python less.

A pass over a block is one call of the kernel; what surrounds it (who votes on which rows, which
kernel reads them) is the same every time and, in an interpreter whose code the block's bytes have
just pushed out of the cache, costs a fifth of the call.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.one_read import OneRead, is_readable
from sparsebag.objective.row_facts import RowFacts
from sparsebag.objective.simplex_objective import SimplexObjective


@dataclass
class KnownBlocks:
    """Facts of blocks by their number, as many as fit.

    Parameters
    ----------
    allowed_bytes : int
        What all of them may take together.

    Examples
    --------
    >>> known = KnownBlocks(1 << 20)
    >>> known.keep(0, None)
    >>> known.is_idle(0), known.facts(0), known.is_idle(1)
    (True, None, False)
    """

    allowed_bytes: int

    def __post_init__(self) -> None:
        self._facts: dict[int, RowFacts | None] = {}
        self._reads: dict[int, OneRead] = {}
        self._held = 0

    def keep(self, number: int, part: SimplexObjective | None) -> None:
        """Keep a block's facts, where there is room; None: none of its rows has weight.

        Parameters
        ----------
        number : int
        part : SimplexObjective or None
        """
        if part is None:
            self._facts[number] = None
            return
        read = part.one_read
        own = () if read is None or read.target is read.row_weight else (read.target,)
        arrays = (part.facts.row_weight, part.facts.uniform_vote, *own)
        nbytes = sum(int(array.nbytes) for array in arrays)
        if self._held + nbytes > self.allowed_bytes:
            return
        self._held += nbytes
        self._facts[number] = part.facts
        if read is not None:
            self._reads[number] = read.without_evidence()

    def is_idle(self, number: int) -> bool:
        """Whether a block is known to have no row of weight."""
        return number in self._facts and self._facts[number] is None

    def facts(self, number: int) -> RowFacts | None:
        """A block's facts; None where they are not known."""
        return self._facts.get(number)

    def read(self, number: int, block: OOBEvidence) -> tuple[OneRead, float] | None:
        """How the kernel reads a block, and the weight of its rows; None where that is not known.

        Parameters
        ----------
        number : int
        block : OOBEvidence
            Of all members, or of some.

        Returns
        -------
        read : OneRead
            Without the evidence, which is the block's.
        total : float
        """
        read, facts = self._reads.get(number), self._facts.get(number)
        if read is None or facts is None or not is_readable(block.votes, block.oob_mask):
            return None
        return (read, facts.total) if block.n_rows == len(read.row_weight) else None
