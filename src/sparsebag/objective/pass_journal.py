"""What passes over a stream have found, on disk: a killed solve goes on where it was.

Solvers are deterministic, so their state need not be saved: a solve that starts again asks for the
same passes in the same order, and the journal answers those already made without reading the
evidence. A pass that was cut short goes on from its last saved block, with the very sums it had.
The digest of every block read is on record too, so that sums are never added to other rows'.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from sparsebag.evidence.same_rows import BlockDigests

FORMAT = 8
SAVE_EVERY_SECONDS = 0.5
"""How much work a kill may cost, at most, beside the block that was being read."""

SINGLE_EPS = float(np.finfo(np.float32).eps)


class JournalError(ValueError):
    """A checkpoint that cannot be used, and why."""


@dataclass(frozen=True)
class PassSums:
    """Sums over the first blocks of a stream, at some weights.

    Attributes
    ----------
    weights, gradient : ndarray of shape (N,)
        Where the pass was made; the loss's gradient, weighted by rows.
    value : float
        The loss, weighted by rows.
    total : float
        Weight of the rows.
    scale, square : float
        Row-weighted loss of the uniform ensemble, and squared target (regression).
    squared_weight : float
        Sum of the squares of the rows' weights.
    n_rows, n_covered, n_voted, nbytes : int
        Rows read, those some member has out of bag, votes that are not zero, and bytes of votes
        and masks.
    vote_eps : float
        Of the votes' precision, which decides what differences between values mean.
    n_blocks : int
        Blocks read.
    is_done : bool
        Whether those are all.
    """

    weights: np.ndarray
    gradient: np.ndarray
    value: float = 0.0
    total: float = 0.0
    scale: float = 0.0
    square: float = 0.0
    squared_weight: float = 0.0
    n_rows: int = 0
    n_covered: int = 0
    n_voted: int = 0
    nbytes: int = 0
    vote_eps: float = SINGLE_EPS
    n_blocks: int = 0
    is_done: bool = False

    @classmethod
    def start(cls, weights: np.ndarray) -> PassSums:
        """Nothing read yet.

        Parameters
        ----------
        weights : ndarray of shape (N,)

        Returns
        -------
        PassSums
        """
        return cls(weights.copy(), np.zeros(len(weights)))

    def now(self, value: float, gradient: np.ndarray, total: float, n_blocks: int) -> PassSums:
        """With the sums that depend on the weights as they stand after some blocks.

        Parameters
        ----------
        value, gradient, total, n_blocks
            As the attributes.

        Returns
        -------
        PassSums
        """
        return replace(self, value=value, gradient=gradient, total=total, n_blocks=n_blocks)

    def with_survey(self, known: PassSums) -> PassSums:
        """With what another pass over the same rows found that does not depend on the weights.

        Parameters
        ----------
        known : PassSums

        Returns
        -------
        PassSums
        """
        return replace(self, **{name: getattr(known, name) for name in SURVEYED})


@dataclass(frozen=True)
class BlockCut:
    """How a stream was cut into the blocks that sums are added up by.

    Attributes
    ----------
    memory_limit : int
        As the user gave it, whatever part of it the blocks were cut for; 0 where nobody asked.
    n_blocks : int or None
    """

    memory_limit: int = 0
    n_blocks: int | None = None


SURVEYED = (
    "scale",
    "square",
    "squared_weight",
    "n_rows",
    "n_covered",
    "n_voted",
    "nbytes",
    "vote_eps",
)
SCALARS = [name for name in PassSums.__dataclass_fields__ if name not in ("weights", "gradient")]


class PassJournal:
    """A file of pass sums, replaced as a whole or not at all.

    Parameters
    ----------
    path : path
        The checkpoint file. One that exists is read, and must be of the same evidence and
        objective.
    fingerprint : str
        What the sums belong to: the evidence's shape and the objective's settings.
    cut : BlockCut, optional
        The blocks; a record of others is refused.

    Attributes
    ----------
    blocks : BlockDigests
        Of the blocks that were read so far, here or before a kill.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> path = Path(tempfile.mkdtemp()) / "solve.ckpt"
    >>> journal = PassJournal(path, "these rows, this loss")
    >>> w = np.array([0.5, 0.5])
    >>> journal.save(replace(PassSums.start(w), value=1.5, is_done=True))
    >>> PassJournal(path, "these rows, this loss").recall(w).value
    1.5
    """

    def __init__(
        self, path: str | os.PathLike[str], fingerprint: str, cut: BlockCut | None = None
    ) -> None:
        self.path = Path(path)
        self.fingerprint, self.cut = fingerprint, cut or BlockCut()
        self._passes: list[PassSums] = []
        self._cursor = 0
        self._last_save = time.monotonic()
        self.blocks = BlockDigests()
        if self.path.is_dir():
            raise JournalError(
                f"checkpoint {self.path} is a folder; pass the name of a file, such as "
                f"{self.path / 'solve.ckpt'}."
            )
        if self.path.exists():
            self._passes = self._read()
        elif not self.path.parent.is_dir():
            raise JournalError(
                f"checkpoint {self.path} is in a folder that does not exist; make it first."
            )

    @property
    def n_recorded(self) -> int:
        """Passes on record, the unfinished one included."""
        return len(self._passes)

    def recall(self, weights: np.ndarray) -> PassSums:
        """What is known of the next pass: all, some blocks, or nothing.

        Parameters
        ----------
        weights : ndarray of shape (N,)
            Where the pass is to be made. If the record has another place here, it and what
            follows are forgotten.

        Returns
        -------
        PassSums
        """
        if self._cursor < len(self._passes):
            known = self._passes[self._cursor]
            if np.array_equal(known.weights, weights):
                self._cursor += known.is_done
                return known
            del self._passes[self._cursor :]
        return PassSums.start(weights)

    def save(self, sums: PassSums) -> None:
        """Put the sums of the current pass on record.

        Parameters
        ----------
        sums : PassSums
        """
        del self._passes[self._cursor :]
        self._passes.append(sums)
        self._cursor += sums.is_done
        self._write()

    @property
    def is_due(self) -> bool:
        """Whether half a second has passed since sums were put on record."""
        return time.monotonic() - self._last_save >= SAVE_EVERY_SECONDS

    def _write(self) -> None:
        arrays = {"format": np.array(FORMAT), "fingerprint": np.array(self.fingerprint)}
        arrays["memory_limit"] = np.array(self.cut.memory_limit)
        arrays["n_blocks_cut"] = np.array(_or_unknown(self.cut.n_blocks))
        arrays["weights"] = np.array([p.weights for p in self._passes])
        arrays["gradient"] = np.array([p.gradient for p in self._passes])
        for name in SCALARS:
            arrays[name] = np.array([getattr(p, name) for p in self._passes])
        arrays["blocks"] = self.blocks.table
        arrays["has_all_blocks"] = np.array(self.blocks.is_complete)
        draft = self.path.with_name(self.path.name + ".part")
        with open(draft, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, self.path)  # a kill leaves the old file or the new one, never half
        self._last_save = time.monotonic()

    def _read(self) -> list[PassSums]:
        try:
            with open(self.path, "rb") as file, np.load(file, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            if int(arrays["format"]) != FORMAT:
                raise KeyError("format")
            owner = str(arrays["fingerprint"])
            blocks = arrays["blocks"], bool(arrays["has_all_blocks"])
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise JournalError(
                f"checkpoint {self.path} is damaged, or was not written by this version of "
                "sparsebag; delete it to start afresh, or name another file."
            ) from error
        if owner != self.fingerprint:
            raise JournalError(
                f"checkpoint {self.path} belongs to other evidence or other settings; delete it to "
                "start afresh, or name another file."
            )
        recorded, limit = int(arrays["memory_limit"]), self.cut.memory_limit
        if int(arrays["n_blocks_cut"]) != _or_unknown(self.cut.n_blocks):
            raise JournalError(
                f"checkpoint {self.path} has its sums by other blocks: it was written with "
                f"memory_limit={recorded}, and goes on with that or more and the same block_rows, "
                f"not with {limit}; or delete it to start afresh."
            )
        written = "" if recorded == limit else f" (written with memory_limit={recorded})"
        self.blocks = BlockDigests(*blocks, origin=f"checkpoint {self.path}{written}")
        n_passes = len(arrays["weights"])
        return [
            PassSums(
                arrays["weights"][k],
                arrays["gradient"][k],
                **{name: arrays[name][k].item() for name in SCALARS},
            )
            for k in range(n_passes)
        ]


def recorded_cut(path: str | os.PathLike[str]) -> BlockCut | None:
    """How the blocks of a checkpoint were cut; None where there is none that can be read.

    Parameters
    ----------
    path : path

    Returns
    -------
    BlockCut or None

    Examples
    --------
    >>> recorded_cut("nowhere.ckpt") is None
    True
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as found:
            n_blocks = int(found["n_blocks_cut"])
            return BlockCut(int(found["memory_limit"]), None if n_blocks < 0 else n_blocks)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None  # PassJournal says what is wrong with it


def _or_unknown(n_blocks: int | None) -> int:
    return -1 if n_blocks is None else n_blocks
