"""One interface to rows wherever they are: map a function over row blocks, add up the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device
from array_api_compat import numpy as numpy_array_api

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import Task
from sparsebag.sources.sampling import draw_rows

FACE_BYTES = 256 << 20
"""Columns of some members may be copied up to this size, or an eighth of the evidence: peak memory
stays near the evidence itself."""


class Source(ABC):
    """Blocks of rows: `OOBEvidence` at first, or what a function made of each.

    Attributes
    ----------
    n_members : int
        N, the same in every block.
    task : {"classification", "regression"}
    classes : ndarray or None
    has_mask : bool
        Whether members vote only on the rows out of their bags.
    is_streamed : bool
        Whether every `sum` reads the rows anew from where they are.
    xp, device
        Array namespace and device of what is added up.
    """

    n_members: int
    task: Task
    classes: np.ndarray | None
    has_mask: bool
    is_streamed: bool = False
    xp: Any = numpy_array_api
    device: Any = "cpu"

    @abstractmethod
    def derived(self, function: Callable[..., Any], *args: Any) -> Source:
        """Blocks ``function(block, *args)``: kept beside the rows, or made at every read.

        Parameters
        ----------
        function : function
        *args : object

        Returns
        -------
        Source
        """

    @abstractmethod
    def sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """The sum of ``function(block, *args)`` over all blocks.

        Parameters
        ----------
        function : function
            Its results can be added; None adds nothing.
        *args : object

        Returns
        -------
        object
            None where no block has anything to add.
        """

    @abstractmethod
    def sample(self, n_rows: int, seed: int) -> OOBEvidence:
        """Rows drawn at random by their weight, in memory; all of them where there are no more.

        Parameters
        ----------
        n_rows, seed : int

        Returns
        -------
        OOBEvidence
            Drawn rows count for those like them that were not.
        """

    def can_hold(self, nbytes: int, share: float) -> bool:
        """Whether copying a share of the columns is worth it and within the memory allowed.

        Parameters
        ----------
        nbytes : int
            Of all columns.
        share : float

        Returns
        -------
        bool
        """
        return share < 1.0 and share * nbytes <= max(FACE_BYTES, nbytes / 8)


class MemoryRows(Source):
    """All rows in memory, or on one device, as one block.

    Parameters
    ----------
    evidence : OOBEvidence

    Examples
    --------
    >>> rows = MemoryRows(OOBEvidence(np.eye(3), None, np.zeros(3), "regression"))
    >>> rows.sum(lambda block: block.n_rows)
    3
    """

    def __init__(self, evidence: OOBEvidence) -> None:
        self.block: Any = evidence
        self.n_members, self.task = evidence.n_members, evidence.task
        self.classes, self.has_mask = evidence.classes, evidence.oob_mask is not None
        self.xp, self.device = array_namespace(evidence.votes), device(evidence.votes)

    def derived(self, function: Callable[..., Any], *args: Any) -> MemoryRows:
        """``function(block, *args)``."""
        other = copy(self)
        other.block = function(self.block, *args)
        return other

    def sum(self, function: Callable[..., Any], *args: Any) -> Any:
        """``function(block, *args)``: there is one block."""
        return function(self.block, *args)

    def sample(self, n_rows: int, seed: int) -> OOBEvidence:
        """Rows drawn at random by their weight; all of them where there are no more."""
        rows: OOBEvidence = self.block
        if n_rows >= rows.n_rows:
            return rows
        rng, weight = np.random.default_rng(seed), rows.sample_weight
        drawn, counts = draw_rows(
            rows.n_rows, None if weight is None else on_host(weight), n_rows, rng
        )
        found = rows.take(self.xp.asarray(drawn, device=self.device))
        if counts is None:
            return found
        counts = self.xp.asarray(counts, dtype=self.xp.float64, device=self.device)
        return replace(found, sample_weight=counts)
