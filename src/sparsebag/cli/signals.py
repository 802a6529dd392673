"""Ctrl-C, kill and a closed terminal end a command alike: clean, each with its own code."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any

HANDLED = ("SIGINT", "SIGTERM", "SIGHUP")
"""SIGHUP is not known on Windows."""


class Stopped(KeyboardInterrupt):
    """The signal that came; a KeyboardInterrupt, so that everything is tidied up for it.

    Parameters
    ----------
    number : int
        Of the signal.
    """

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.number = int(number)


_came: list[int] = []


def die_quietly() -> None:
    """While modules are imported: end at once, without a traceback of the import system."""
    _install(signal.SIG_DFL)


def tidy_up() -> None:
    """From here on a signal raises `Stopped`, so that half-written files go."""
    _install(_raise)


def check_stopped() -> None:
    """Raise for a signal that somebody swallowed: callbacks of the interpreter can.

    Called between steps and before a file takes its name.
    """
    if _came:
        raise Stopped(_came[0])


def _install(handler: Any) -> None:
    for name in HANDLED:
        number = getattr(signal, name, None)
        # What nohup, or a shell in the background, has told us to ignore stays ignored.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _raise(number: int, frame: FrameType | None) -> None:
    _came.append(number)
    raise Stopped(number)
