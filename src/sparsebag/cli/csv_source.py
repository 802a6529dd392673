"""Where a CSV table comes from: a file, or a pipe, which can be read only once."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

STDIN = Path("-")
HEAD_BYTES = 1 << 20
"""Read to learn the columns; at least one line must fit."""
GZIP = b"\x1f\x8b"


class CsvSource:
    """A CSV table that can be looked at and then read, even from a pipe.

    A pipe is read here and not by Arrow, whose threads would wait for it deaf to Ctrl-C.

    Parameters
    ----------
    path : Path
        A file, ``-`` for standard input, or another pipe. Gzipped ones are known by their first
        bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_piped = is_pipe(path)
        self._pipe: int | None = None
        self._first = b""

    def head(self) -> IO[bytes]:
        """The first lines of the table.

        Returns
        -------
        binary file
        """
        if self.is_piped:
            self._first = self._first or b"".join(_parts(self._opened(), HEAD_BYTES))
            text = self._first
        else:
            with open(self.path, "rb") as file:
                text = file.read(HEAD_BYTES)
        text = b"".join(_unpacked([text]))
        return io.BytesIO(text[: _last_line_end(text)] or text)

    @contextlib.contextmanager
    def whole(self) -> Iterator[Any]:
        """The whole of a file as a stream.

        Yields
        ------
        Arrow's stream
        """
        with open(self.path, "rb") as raw:
            stream = pa.PythonFile(raw, mode="r")
            is_gzip = raw.peek(2)[:2] == GZIP
            yield pa.CompressedInputStream(stream, "gzip") if is_gzip else stream

    def blocks(self, n_bytes: int) -> Iterator[bytes]:
        """A pipe's lines, some ``n_bytes`` at a time, each block with the header; only once.

        Parameters
        ----------
        n_bytes : int

        Yields
        ------
        bytes
        """
        header, pending = b"", b""
        for part in _unpacked(itertools.chain([self._first], _parts(self._opened(), None))):
            pending += part
            if not header:
                header = pending[: _first_line_end(pending)]
                pending = pending[len(header) :]
            end = _last_line_end(pending) if len(pending) >= n_bytes else 0
            if header and end:
                yield header + pending[:end]
                pending = pending[end:]
        if pending or header:
            yield header + pending

    def read(self) -> bytes:
        """The whole of a pipe at once.

        Returns
        -------
        bytes
        """
        return b"".join(_unpacked(itertools.chain([self._first], _parts(self._opened(), None))))

    def _opened(self) -> int:
        if self._pipe is None:
            self._pipe = 0 if self.path == STDIN else os.open(self.path, os.O_RDONLY)
        return self._pipe


def is_pipe(path: Path) -> bool:
    """Whether a path can be read only once.

    Parameters
    ----------
    path : Path

    Returns
    -------
    bool

    Examples
    --------
    >>> is_pipe(Path("-")), is_pipe(Path("table.csv"))
    (True, False)
    """
    return path == STDIN or path.is_fifo() or path.is_char_device() or path.is_socket()


def _parts(pipe: int, size: int | None) -> Iterator[bytes]:
    """What a pipe gives, a few bytes at a time, up to ``size`` in all."""
    found = 0
    while size is None or found < size:
        part = os.read(pipe, HEAD_BYTES if size is None else size - found)
        if not part:
            return
        found += len(part)
        yield part


def _unpacked(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts without gzip, where the first bytes say that there is one; it may be cut."""
    unpack: Any = None
    for i, part in enumerate(parts):
        if i == 0 and part[:2] == GZIP:
            unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
        if unpack is None:
            yield part
            continue
        while part:
            yield unpack.decompress(part)
            part = unpack.unused_data  # files that were put one after the other
            if part:
                unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)


def _last_line_end(text: bytes) -> int:
    """Where the last whole line ends; a line break inside quotes ends none."""
    end = text.rfind(b"\n") + 1
    while end and text.count(b'"', 0, end) % 2:
        end = text.rfind(b"\n", 0, end - 1) + 1
    return end


def _first_line_end(text: bytes) -> int:
    end = text.find(b"\n") + 1
    while end and text.count(b'"', 0, end) % 2:
        end = text.find(b"\n", end) + 1
    return end
