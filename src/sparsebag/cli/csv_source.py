"""Where a CSV table comes from: a file, or a pipe, which can be read only once."""

from __future__ import annotations

import contextlib
import io
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

STDIN = Path("-")
HEAD_BYTES = 1 << 20
"""Read to learn the columns; at least one line must fit."""
GZIP = b"\x1f\x8b"


class CsvSource:
    """A CSV table that can be looked at and then read, even from a pipe.

    Parameters
    ----------
    path : Path
        A file, ``-`` for standard input, or another pipe. Gzipped ones are known by their first
        bytes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_piped = is_pipe(path)
        self.share_read: Callable[[], float] = lambda: 0.0
        self._pipe: IO[bytes] | None = None
        self._first = b""

    def head(self) -> IO[bytes]:
        """The first lines of the table.

        Returns
        -------
        binary file
        """
        if self.is_piped:
            self._first = self._first or _read(self._opened(), HEAD_BYTES)
            text = self._first
        else:
            with open(self.path, "rb") as file:
                text = file.read(HEAD_BYTES)
        if text[:2] == GZIP:  # cut in the middle, which only zlib itself bears
            text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(text)
        whole_lines = text[: text.rfind(b"\n") + 1]
        return io.BytesIO(whole_lines or text)

    @contextlib.contextmanager
    def whole(self) -> Iterator[Any]:
        """The whole table as a stream; of a pipe only once.

        Yields
        ------
        binary file
        """
        if self.is_piped:
            yield _unzipped(io.BufferedReader(_Replayed(self._first, self._opened())))
            return
        size = max(self.path.stat().st_size, 1)
        with open(self.path, "rb") as raw:
            self.share_read = lambda: min(raw.tell() / size, 1.0)
            yield _unzipped(raw)

    def read(self) -> bytes:
        """The whole table at once.

        Returns
        -------
        bytes
        """
        with self.whole() as stream:
            return _read(stream, None)

    def _opened(self) -> IO[bytes]:
        if self._pipe is None:
            # A pipe is read to its end by this process, which then ends.
            self._pipe = sys.stdin.buffer if self.path == STDIN else open(self.path, "rb")  # noqa: SIM115
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


class _Replayed(io.RawIOBase):
    """What was read of a pipe, and then the rest of it."""

    def __init__(self, first: bytes, rest: IO[bytes]) -> None:
        self.first, self.rest = first, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self.first[: len(buffer)] or self.rest.read(len(buffer))
        self.first = self.first[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def _unzipped(raw: Any) -> Any:
    """A stream of text bytes: gzip is undone where the first bytes say so."""
    is_gzip = raw.peek(2)[:2] == GZIP
    stream = pa.PythonFile(raw, mode="r")
    return pa.CompressedInputStream(stream, "gzip") if is_gzip else stream


def _read(stream: Any, size: int | None) -> bytes:
    """As many bytes as there are, up to ``size``; a pipe gives a few at a time."""
    parts, found = [], 0
    while size is None or found < size:
        part = stream.read(HEAD_BYTES if size is None else size - found)
        if not part:
            break
        parts.append(part)
        found += len(part)
    return b"".join(parts)
