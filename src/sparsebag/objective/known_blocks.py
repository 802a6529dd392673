"""What is kept of a stream's blocks from their first read, so that later passes need not find it.

Of rows the compiled kernel reads that is the whole ensemble's vote alone, four bytes a row: weights
and targets come with every block. Where it is not kept, the kernel finds it while it reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.block_kernel import NOT_KNOWN
from sparsebag.objective.row_facts import RowFacts, facts_of_prior


@dataclass
class KnownBlocks:
    """Prior votes of blocks by their number, as many as fit.

    Parameters
    ----------
    allowed_bytes : int
        What all of them may take together.

    Examples
    --------
    >>> known = KnownBlocks(1 << 20)
    >>> known.keep_prior(0, np.array([0.5, np.nan], dtype=np.float32))
    >>> known.is_known(0), known.is_known(1)
    (True, False)
    """

    allowed_bytes: int

    def __post_init__(self) -> None:
        self._priors: dict[int, np.ndarray] = {}
        self._facts: dict[int, RowFacts | None] = {}
        self._held = 0

    def keep_prior(self, number: int, prior: np.ndarray) -> None:
        """Keep what `BlockKernel.find_prior` found, where there is room.

        Parameters
        ----------
        number : int
        prior : ndarray of shape (B,)
        """
        if self._has_room(int(prior.nbytes)):
            self._priors[number] = prior

    def keep_facts(self, number: int, facts: RowFacts | None) -> None:
        """Keep a block's facts, where there is room; None: none of its rows has weight.

        Parameters
        ----------
        number : int
        facts : RowFacts or None
        """
        nbytes = 0 if facts is None else facts.row_weight.nbytes + facts.uniform_vote.nbytes
        if self._has_room(int(nbytes)):
            self._facts[number] = facts

    def is_known(self, number: int) -> bool:
        """Whether the other members' columns of a block need not be read."""
        return number in self._priors or self._facts.get(number) is not None

    def has_prior(self, number: int) -> bool:
        """Whether a block's prior votes are kept as the kernel takes them."""
        return number in self._priors

    def is_idle(self, number: int) -> bool:
        """Whether a block is known to have no row of weight."""
        return number in self._facts and self._facts[number] is None

    def prior(self, number: int) -> np.ndarray:
        """A block's prior votes; `NOT_KNOWN` where they are not kept."""
        return self._priors.get(number, NOT_KNOWN)

    def facts(self, number: int, block: OOBEvidence) -> RowFacts | None:
        """A block's facts; None where they are not known.

        Parameters
        ----------
        number : int
        block : OOBEvidence
            The block, for its rows' weights.

        Returns
        -------
        RowFacts or None
        """
        if number in self._priors:
            return facts_of_prior(self._priors[number], block.sample_weight)
        return self._facts.get(number)

    def _has_room(self, nbytes: int) -> bool:
        fits = self._held + nbytes <= self.allowed_bytes
        self._held += nbytes if fits else 0
        return fits
