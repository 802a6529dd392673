"""What a benchmark prints, on the screen and in its file of results."""

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TextIO

from benchmarks.environment import environment

RESULTS = Path(__file__).parent / "results"


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
    """Print as ever, and at the end write it to the file, if any; a run that fails writes none."""
    text = _Tee(sys.stdout)
    with redirect_stdout(text):
        yield
    if path is not None:
        path.write_text(text.getvalue(), encoding="utf-8")


@contextmanager
def results_of(name: str, *, keep: bool) -> Iterator[None]:
    """The output of a benchmark, after its versions and machine; in results/ if it is whole."""
    with kept_output(RESULTS / f"{name}.txt" if keep else None):
        print(f"python -m benchmarks.{name}")
        print(", ".join(f"{part} {value}" for part, value in environment().items() if value))
        yield


def options(description: str | None, quick: str = "") -> argparse.ArgumentParser:
    """A parser of a benchmark's options, with ``--quick`` where that means something."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    if quick:
        parser.add_argument("--quick", action="store_true", help=f"{quick}; nothing is kept")
    return parser
