"""What a long call is doing, for whoever wants to know."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

Listener = Callable[[str, float], None]


def to_stderr(step: str, seconds: float) -> None:
    """Print a step on standard error.

    Parameters
    ----------
    step : str
    seconds : float
        Since the call began.
    """
    print(f"[sparsebag] {seconds:5.1f} s  {step}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Progress:
    """Steps of a call, told to a listener as they begin.

    Attributes
    ----------
    listener : callable or None
        Takes a step and the seconds since the call began.

    Examples
    --------
    >>> Progress(lambda step, seconds: print(step)).say("reading")
    reading
    """

    listener: Listener | None = None
    began: float = field(default_factory=time.perf_counter)

    def say(self, step: str) -> None:
        """Tell the listener, if there is one."""
        if self.listener is not None:
            self.listener(step, time.perf_counter() - self.began)
