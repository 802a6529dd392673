"""What a benchmark prints, on the screen and in its file of results."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO


class _Tee(io.StringIO):
    def __init__(self, screen: TextIO) -> None:
        super().__init__()
        self.screen = screen

    def write(self, text: str) -> int:
        self.screen.write(text)
        return super().write(text)

    def flush(self) -> None:
        self.screen.flush()


@contextmanager
def kept_output(path: Path | None) -> Iterator[None]:
    """Print as ever, and at the end write all of it to a file; a run that fails writes none.

    Parameters
    ----------
    path : Path or None
        None: nothing is written.
    """
    text = _Tee(sys.stdout)
    with redirect_stdout(text):
        yield
    if path is not None:
        path.write_text(text.getvalue(), encoding="utf-8")
