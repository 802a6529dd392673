"""An ``.npy`` file of which only the rows asked for are mapped into memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

AHEAD = 8
"""Slices mapped at a time where they are short, for those that come next,"""
MOST_AHEAD = 4 << 20
"""and the bytes up to which they are: a page mapped by itself costs several times one of many."""
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class NpyWindow:
    """Rows of an ``.npy`` file, mapped a slice at a time.

    A map of the whole file would count against an address-space limit as a whole, and its pages
    against the resident memory until the system takes them back; a window goes with the next one.

    Parameters
    ----------
    path : path
        Of an array in C order.

    Examples
    --------
    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "votes.npy")
    >>> np.save(path, np.arange(6.0).reshape(3, 2))
    >>> NpyWindow(path)[1:3].tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = os.fspath(path)
        with open(self._path, "rb") as file:
            try:
                version = np.lib.format.read_magic(file)
            except ValueError as error:
                raise ValueError(
                    f"{self._path} is not an .npy file; write it with numpy.save."
                ) from error
            read = _HEADERS.get(version)
            if read is None:
                raise ValueError(f"{self._path} has .npy version {version}, which is not known.")
            shape, fortran_order, dtype = read(file)
            self._offset = file.tell()
            there = os.fstat(file.fileno()).st_size - self._offset
        if fortran_order and len(shape) > 1:
            raise ValueError(f"{self._path} is in Fortran order; store it in C order.")
        if dtype.hasobject:
            raise ValueError(f"{self._path} holds Python objects; store numbers.")
        wanted = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if there < wanted:
            raise ValueError(
                f"{self._path} is cut short: its header says {wanted} bytes of shape {shape}, and "
                f"{there} are there; write it again."
            )
        self.shape: tuple[int, ...] = shape
        self.dtype: np.dtype[Any] = dtype
        self._first, self._mapped = 0, np.empty((0, *shape[1:]), dtype=dtype)

    def __getstate__(self) -> dict[str, Any]:
        """Without the rows that happen to be mapped."""
        return {**self.__dict__, "_first": 0, "_mapped": self._mapped[:0].copy()}

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(self.shape[0])
        if step != 1 or stop <= start:
            return np.empty((0, *self.shape[1:]), dtype=self.dtype)
        if not self._first <= start < stop <= self._first + len(self._mapped):
            self._map(start, stop)
        return self._mapped[start - self._first : stop - self._first]

    def _map(self, start: int, stop: int) -> None:
        rest = self.shape[1:]
        a_row = self.dtype.itemsize * int(np.prod(rest, dtype=np.int64))
        n_rows = stop - start
        ahead = min(AHEAD * n_rows, MOST_AHEAD // max(a_row, 1), self.shape[0] - start)
        self._mapped = np.empty((0, *rest), dtype=self.dtype)  # before the next: two would be held
        self._first = start
        self._mapped = np.asarray(
            np.memmap(
                self._path,
                dtype=self.dtype,
                mode="r",
                offset=self._offset + start * a_row,
                shape=(max(n_rows, ahead), *rest),
            )
        )
