"""What a person sees: progress on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from sparsebag.cli.signals import check_stopped

COUNTED = re.compile(r"^\[\w+\] (?P<what>.*?),? ?(?:on )?(?:member|fold) (?P<i>\d+) of (?P<n>\d+)$")
"""The library's progress lines: what is done, how far it is, and how far it goes."""
STEP_NAMES = {
    "": "asking every member about rows it never saw",
    "pairs of members": "comparing pairs of members",
    "paths judged": "judging every size on unseen rows",
}


class Steps:
    """The steps of a command: a bar with the time left in a terminal, one line each elsewhere.

    Everything goes to standard error, so that standard output holds results only.

    Parameters
    ----------
    quiet : bool
        Say nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        # The stream of now: while the library reports progress, sys.stderr is another.
        self.console = Console(file=sys.stderr, highlight=False)
        self.shows_bars = self.console.is_terminal and not quiet
        self.quiet = quiet
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
            disable=not self.shows_bars,
        )

    def __enter__(self) -> Steps:
        self.progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.progress.stop()

    @contextlib.contextmanager
    def step(self, text: str, total: float | None = None) -> Iterator[Step]:
        """One step, timed; ``total`` units of work where that is known.

        Parameters
        ----------
        text : str
        total : float, optional

        Yields
        ------
        Step
        """
        check_stopped()
        if not self.shows_bars and not self.quiet:
            print(f"{text} ...", file=self.console.file, flush=True)
        task = self.progress.add_task(text, total=total)
        started = time.perf_counter()
        try:
            yield Step(self.progress, task)
        finally:
            self.progress.remove_task(task)
        if self.shows_bars:
            seconds = time.perf_counter() - started
            self.console.print(f"[green]✓[/green] {text} [dim]({seconds:.1f} s)[/dim]")

    def say(self, text: str) -> None:
        """A line for people.

        Parameters
        ----------
        text : str
        """
        if not self.quiet:
            self.console.print(text, markup=False, soft_wrap=True)

    def notes(self, caught: list[warnings.WarningMessage]) -> list[str]:
        """Say the library's warnings as notes, each once.

        Parameters
        ----------
        caught : list of warnings

        Returns
        -------
        list of str
        """
        told = list(dict.fromkeys(" ".join(str(w.message).split()) for w in caught))
        for text in told:
            self.say(f"note: {text}")
        return told


class Step:
    """One step under way: a rich task, and what the library says while it works.

    Parameters
    ----------
    progress : rich.progress.Progress
    task : TaskID
    """

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.progress, self.task = progress, task

    def at(self, completed: float, total: float | None = None) -> None:
        """How far it is.

        Parameters
        ----------
        completed : float
        total : float, optional
        """
        self.progress.update(self.task, completed=completed, total=total)

    @contextlib.contextmanager
    def following_the_library(self) -> Iterator[None]:
        """Turn the progress lines of ``verbose=1`` into the bar's position.

        Yields
        ------
        None
        """
        with contextlib.redirect_stderr(_ProgressLines(self)):
            yield

    def enter(self, text: str, i: int, n: int) -> None:
        """A part of the step, ``i`` of ``n`` done.

        Parameters
        ----------
        text : str
        i, n : int
        """
        if self.progress.tasks and self.progress.tasks[-1].description != text:
            self.progress.reset(self.task, description=text)
        self.at(i, n)


class _ProgressLines(io.TextIOBase):
    """A stream that reads the library's progress lines and passes anything else on."""

    def __init__(self, step: Step) -> None:
        self.step, self.real = step, sys.stderr

    def write(self, text: str) -> int:
        for line in text.splitlines():
            found = COUNTED.match(line)
            if found:
                what = found["what"].strip()
                self.step.enter(STEP_NAMES.get(what, what), int(found["i"]), int(found["n"]))
            elif line.strip() and not line.startswith("["):
                print(line, file=self.real)
        return len(text)


def print_json(result: dict[str, Any]) -> None:
    """One object on standard output, for machines.

    Parameters
    ----------
    result : dict
    """
    print(json.dumps(result, allow_nan=False, default=_plain))


def print_text(text: str) -> None:
    """Text on standard output, wrapped at words where it is a terminal.

    Parameters
    ----------
    text : str
    """
    console = Console(highlight=False)
    console.print(text, markup=False, soft_wrap=not console.is_terminal)


def finite(value: Any) -> float | None:
    """A number JSON can hold; None where there is none.

    Parameters
    ----------
    value : float

    Returns
    -------
    float or None

    Examples
    --------
    >>> finite(float("inf")) is None, finite(2)
    (True, 2.0)
    """
    number = float(value)
    return number if abs(number) < float("inf") else None


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
