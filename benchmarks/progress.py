"""Progress on standard error: a bar in a terminal, a line a step elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

BAR = 24


class Progress:
    """Counts steps and says how long the rest will take at the mean pace so far.

    Parameters
    ----------
    total : int
        Steps to do.
    stream : file, optional
        Where to write; standard error by default.
    """

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.total, self.done = total, 0
        self.stream = sys.stderr if stream is None else stream
        self.start = time.perf_counter()

    def step(self, label: str) -> None:
        """One step is done."""
        self.done += 1
        left = self.seconds / self.done * (self.total - self.done)
        text = f"{self.done}/{self.total}  {label}  {_clock(left)} left"
        if self.stream.isatty():
            filled = BAR * self.done // self.total
            self.stream.write(f"\r\x1b[K[{'#' * filled}{'.' * (BAR - filled)}] {text}")
            self.stream.write("\n" if self.done == self.total else "")
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self.start


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"
