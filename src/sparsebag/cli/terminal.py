"""What a person sees: progress on standard error, results on standard output."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

from rich.console import Console

from sparsebag.cli.signals import check_stopped


class Steps:
    """The steps of a command, a line each on standard error.

    Parameters
    ----------
    quiet : bool
        Say nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet

    def begin(self, text: str) -> None:
        """Say which step begins; a signal that somebody swallowed ends the command here.

        Parameters
        ----------
        text : str
        """
        check_stopped()
        self.say(f"{text} ...")

    def say(self, text: str) -> None:
        """A line for people.

        Parameters
        ----------
        text : str
        """
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

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


def finite(value: float) -> float | None:
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
