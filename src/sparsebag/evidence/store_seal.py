"""Whether a store still holds what was stored: a stamp that is cheap, a digest where it differs.

Shapes say nothing of votes that another program wrote over others. The stamp, bytes on disk and the
time of the last write, does, but a copied folder has another one too; so where it differs, every
61st row is read and compared by a digest, however the rows are cut into blocks now. A change that
touches none of them is not seen.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.row_stream import RowStream

EVERY = 61
"""Rows from one that enters the digest to the next: a prime, lest rows in some order be missed."""


class StoreSeal:
    """The digest of rows that come block by block.

    Examples
    --------
    >>> e = OOBEvidence(np.eye(200), None, np.arange(200.0), "regression")
    >>> whole, halves = StoreSeal(), StoreSeal()
    >>> whole.add(e)
    >>> for half in (slice(0, 90), slice(90, 200)):
    ...     halves.add(e.take(half))
    >>> whole.digest == halves.digest
    True
    """

    def __init__(self) -> None:
        self.digest, self._n_rows = 0, 0

    def add(self, block: OOBEvidence) -> None:
        """The next rows.

        Parameters
        ----------
        block : OOBEvidence
        """
        some = block.take(slice(-self._n_rows % EVERY, None, EVERY))
        self._n_rows += block.n_rows
        mask = None if some.oob_mask is None else on_host(some.oob_mask) != 0
        votes = np.ascontiguousarray(on_host(some.votes), dtype=np.float32)
        columns = [zero_in_bag(votes, mask), mask, some.target, some.sample_weight]
        for k in range(some.n_rows):
            for column in columns:
                if column is not None:
                    entry = np.asarray(on_host(column)[k])
                    entry = entry.astype(np.float64) if entry.ndim == 0 else entry
                    self.digest = zlib.crc32(entry.tobytes(), self.digest)

    def stamped(self, folder: Path, description: str) -> dict[str, Any]:
        """What to write beside a store that is complete.

        Parameters
        ----------
        folder : Path
        description : str
            The file this will be written to, which is no part of the rows.

        Returns
        -------
        dict
        """
        return {"stamp": _stamp(folder, description), "digest": self.digest}


def check_seal(folder: Path, description: str, sealed: dict[str, Any], rows: RowStream) -> None:
    """Refuse a store whose rows were overwritten, in one sentence.

    Parameters
    ----------
    folder : Path
    description : str
    sealed : dict
        What `StoreSeal.stamped` returned when it was written.
    rows : RowStream
        The folder, opened.
    """
    if sealed["stamp"] == _stamp(folder, description):
        return
    found = StoreSeal()
    for block in rows.blocks():
        found.add(block)
    if found.digest != sealed["digest"]:
        raise ValueError(
            f"{folder} was overwritten since it was stored: its shape is the same, its rows are "
            "not; store them again, in another folder."
        )


def _stamp(folder: Path, description: str) -> list[int]:
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.startswith(description))
    found = [path.stat() for path in files]
    return [sum(s.st_size for s in found), max((s.st_mtime_ns for s in found), default=0)]
