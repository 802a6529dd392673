"""Whether a store still holds what was stored: a stamp that is cheap, a digest where it differs.

Shapes say nothing of votes that another program wrote over others. The stamp of the store's files
does: each one's name, size, time of its last write and of its last change of any kind (`cp -p`,
`rsync -a` and a restore keep the former, and not the latter). A copied folder has other times too;
so where the stamp differs, every 61st row is read and compared by a digest, however the rows are
cut into blocks now, and where it agrees the new stamp is written down. A change that touches none
of those rows is not seen.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence, zero_in_bag
from sparsebag.evidence.row_stream import RowStream
from sparsebag.evidence.same_rows import ChangedRowsError

EVERY = 61
"""Rows from one that enters the digest to the next: a prime, lest rows in some order be missed."""
ROWS_FILES = ("votes.npy", "oob_mask.npy", "y.npy", "sample_weight.npy", "rows.parquet")
ZARR_FOLDER = "rows.zarr"
ZARR_HEADERS = ("zarr.json", ".zgroup", ".zarray", ".zattrs", ".zmetadata")


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
        self._add_sampled(block.take(slice(-self._n_rows % EVERY, None, EVERY)))
        self._n_rows += block.n_rows

    def add_all(self, rows: RowStream) -> None:
        """All rows of a stream; where it hands out single rows, no others are read.

        Parameters
        ----------
        rows : RowStream
        """
        take, n_each = getattr(rows, "take", None), getattr(rows, "block_rows", None)
        if take is None or n_each is None or rows.n_rows is None:
            for block in rows.blocks():
                self.add(block)
            return
        sampled = np.arange(0, rows.n_rows, EVERY)
        for part in np.split(
            sampled, np.searchsorted(sampled, np.arange(n_each, rows.n_rows, n_each))
        ):
            if len(part):
                self._add_sampled(take(part))

    def _add_sampled(self, some: OOBEvidence) -> None:
        mask = None if some.oob_mask is None else on_host(some.oob_mask) != 0
        votes = np.ascontiguousarray(on_host(some.votes), dtype=np.float32)
        columns = [zero_in_bag(votes, mask), mask, some.target, some.sample_weight]
        for k in range(some.n_rows):
            for column in columns:
                if column is not None:
                    entry = np.asarray(on_host(column)[k])
                    entry = entry.astype(np.float64) if entry.ndim == 0 else entry
                    self.digest = zlib.crc32(entry.tobytes(), self.digest)


def stamp_of(folder: Path) -> str:
    """A store's files as they are now, without reading them; what else lies there is no part of it.

    Parameters
    ----------
    folder : Path

    Returns
    -------
    str
    """
    found = hashlib.blake2b(digest_size=16)
    for path in sorted(_files_of(folder)):
        seen = path.stat()
        about = (path.relative_to(folder).as_posix(), seen.st_size, seen.st_mtime_ns)
        found.update(repr((*about, seen.st_ctime_ns)).encode())
    return found.hexdigest()


@dataclass
class SealedStore:
    """A store as it was opened, so that one overwritten since then can be told.

    Parameters
    ----------
    folder : Path
    stamp : str
        What `stamp_of` returned when it was opened.
    digest : int or None
        Of its rows; None where it was not written down.
    reopen : callable
        Opens the folder anew, targets included.
    """

    folder: Path
    stamp: str
    digest: int | None
    reopen: Callable[[], RowStream]

    def check(self) -> bool:
        """Refuse a store whose rows are others now, in one sentence.

        Returns
        -------
        bool
            Whether its files have another stamp now, though their rows are the same.
        """
        now = stamp_of(self.folder)
        if now == self.stamp:
            return False
        found = StoreSeal()
        if self.digest is not None:
            found.add_all(self.reopen())
        if found.digest != self.digest:
            raise ChangedRowsError(
                f"{self.folder} was overwritten since it was stored or opened: its shape is the "
                "same, its rows are not; store them again, in another folder."
            )
        self.stamp = now
        return True


def check_store(stream: RowStream) -> None:
    """Refuse a stream whose store was overwritten since it was opened; others pass.

    Parameters
    ----------
    stream : RowStream
    """
    store: SealedStore | None = getattr(stream, "store", None)
    if store is not None:
        store.check()


def _files_of(folder: Path) -> Iterator[Path]:
    for name in ROWS_FILES:
        if (folder / name).is_file():
            yield folder / name
    for path in (folder / ZARR_FOLDER).rglob("*"):
        # A chunk is named by its place: 3, or 3.0 in older stores.
        is_chunk = path.name.replace(".", "").isdigit()
        if (is_chunk or path.name in ZARR_HEADERS) and path.is_file():
            yield path


def unfinished_files(folder: Path, arrays: set[str]) -> list[str]:
    """Arrays of a store that was never finished, which one of these arrays would not overwrite.

    Parameters
    ----------
    folder : Path
    arrays : set of str
        Names of those about to be written as ``.npy``.

    Returns
    -------
    list of str
        Names of files.
    """
    names = (name for name in ROWS_FILES if name.endswith(".npy"))
    return [n for n in names if n.removesuffix(".npy") not in arrays and (folder / n).exists()]
