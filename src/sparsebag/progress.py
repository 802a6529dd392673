"""What a long call is doing: for ``verbose=``, and for the bars of the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple


class Event(NamedTuple):
    """A step that begins, or a part of it.

    Attributes
    ----------
    step : str
    seconds : float
        Since the call began.
    number, total : int
        Part and parts, from 1; 0 where a step has none.
    """

    step: str
    seconds: float
    number: int = 0
    total: int = 0


SECONDS_BETWEEN_LINES = 5.0
"""Of a step that goes on, where there is no terminal for a bar."""
Listener = Callable[[Event], None]


def to_stderr(event: Event) -> None:
    """Print an event on standard error, and how long its step takes yet at the pace so far."""
    part = f" {event.number} of {event.total}" if event.total else ""
    left = event.seconds / max(event.number - 1, 1) * (event.total - event.number + 1)
    part += f", about {left:.0f} s left" if event.number > 1 else ""
    print(f"[sparsebag] {event.seconds:5.1f} s  {event.step}{part}", file=sys.stderr, flush=True)


def listener_of(verbose: int | Listener) -> Listener | None:
    """Who is told, where ``verbose=`` asks for it."""
    return verbose if callable(verbose) else to_stderr if verbose else None


@dataclass(frozen=True)
class Progress:
    """Steps of a call, told to a listener as they begin.

    Examples
    --------
    >>> Progress(lambda event: print(event.step, event.number)).say("rehearsal", 1, 4)
    rehearsal 1
    """

    listener: Listener | None = None
    began: float = field(default_factory=time.perf_counter)

    def say(self, step: str, number: int = 0, total: int = 0) -> None:
        """Tell the listener, if there is one."""
        if self.listener is not None:
            self.listener(Event(step, time.perf_counter() - self.began, number, total))
