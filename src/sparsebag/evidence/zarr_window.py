"""A Zarr array whose chunks are decompressed once, however short the slices asked for."""

from __future__ import annotations

from typing import Any

import numpy as np


class ZarrWindow:
    """Rows of a Zarr array, read by whole chunks; the last of them are held.

    Slices shorter than a chunk, or across two, would decompress it again for each of them.

    Parameters
    ----------
    array : zarr.Array
        Anything with ``shape``, ``dtype``, ``chunks`` and slices.

    Examples
    --------
    >>> class Chunked(np.ndarray):
    ...     chunks = (2, 2)
    >>> rows = ZarrWindow(np.arange(8.0).reshape(4, 2).view(Chunked))
    >>> rows[1:3].tolist()
    [[2.0, 3.0], [4.0, 5.0]]
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self.shape: tuple[int, ...] = tuple(int(n) for n in array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self._rows_each = max(1, int(array.chunks[0]))
        self._number = -1
        self._held: np.ndarray | None = None

    def __getitem__(self, rows: slice) -> np.ndarray:
        start, stop, step = rows.indices(self.shape[0])
        if step != 1 or stop <= start:
            return np.empty((0, *self.shape[1:]), dtype=self.dtype)
        numbers = range(start // self._rows_each, (stop - 1) // self._rows_each + 1)
        found = None if len(numbers) == 1 else np.empty((stop - start, *self.shape[1:]), self.dtype)
        for number in numbers:
            first = number * self._rows_each
            rows_of_it = self._chunk_rows(number)[max(start - first, 0) : stop - first]
            if found is None:
                return rows_of_it
            at = max(first - start, 0)
            found[at : at + len(rows_of_it)] = rows_of_it  # no list of parts: that is all twice
        assert found is not None
        return found

    def _chunk_rows(self, number: int) -> np.ndarray:
        """All rows of the chunks that begin with this one."""
        if number != self._number or self._held is None:
            self._held = None  # before the next are read: two would be held
            rows = slice(number * self._rows_each, (number + 1) * self._rows_each)
            self._held, self._number = np.asarray(self._array[rows]), number
        return self._held
