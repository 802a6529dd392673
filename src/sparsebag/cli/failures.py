"""How a command fails: one sentence and an exit code."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import signal
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import typer


class ExitCode(IntEnum):
    """What the shell sees. 2 is typer's own, for options that do not exist or make no sense."""

    DONE = 0
    BUG = 1
    USAGE = 2
    BAD_INPUT = 3
    CANNOT_WRITE = 4
    MISSING_EXTRA = 5
    HUNG_UP = 129
    INTERRUPTED = 130
    CLOSED_PIPE = 141
    TERMINATED = 143


class CommandError(Exception):
    """What went wrong, in one sentence for the user, and the exit code.

    Parameters
    ----------
    sentence : str
    code : ExitCode

    Examples
    --------
    >>> CommandError("'a.csv' is empty.").code
    <ExitCode.BAD_INPUT: 3>
    """

    def __init__(self, sentence: str, code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(sentence)
        self.code = code


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one sentence on standard error and an exit code.

    What the library refuses (ValueError, TypeError) is the user's input, and its messages are
    written for users. With ``--json`` the sentence is also an object on standard output.
    ``SPARSEBAG_DEBUG=1`` lets tracebacks through.

    Parameters
    ----------
    command : callable

    Returns
    -------
    callable
    """

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        try:
            command(*args, **options)
            sys.stdout.flush()
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt as stopped:
            code = 128 + getattr(stopped, "number", signal.SIGINT)
            print("sparsebag: interrupted; nothing was left half-written.", file=sys.stderr)
            if options.get("as_json"):
                print(json.dumps({"error": "interrupted", "exit_code": code}))
            raise typer.Exit(code) from None
        except BrokenPipeError:
            _close_quietly()
            raise typer.Exit(ExitCode.CLOSED_PIPE) from None
        except Exception as error:
            if os.environ.get("SPARSEBAG_DEBUG"):
                raise
            sentence, code = _told(error)
            print(f"sparsebag: {sentence}", file=sys.stderr)
            if options.get("as_json"):
                print(json.dumps({"error": sentence, "exit_code": int(code)}))
            raise typer.Exit(code) from None

    return run


def _told(error: Exception) -> tuple[str, ExitCode]:
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, ImportError):
        return one_line(error), ExitCode.MISSING_EXTRA
    if isinstance(error, OSError):
        if error.errno == errno.ENOSPC and not error.filename:
            return "standard output could not be written (disk full).", ExitCode.CANNOT_WRITE
        full = error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES)
        return one_line(error), ExitCode.CANNOT_WRITE if full else ExitCode.BAD_INPUT
    if isinstance(error, MemoryError):
        return "there is not enough memory for this.", ExitCode.BAD_INPUT
    if isinstance(error, (ValueError, TypeError)):
        return one_line(error), ExitCode.BAD_INPUT
    name = type(error).__name__
    return (
        f"this should not happen ({name}: {one_line(error)}); please report it, with what "
        "SPARSEBAG_DEBUG=1 prints.",
        ExitCode.BUG,
    )


def one_line(error: BaseException) -> str:
    r"""An error's message without line breaks.

    Parameters
    ----------
    error : exception

    Returns
    -------
    str

    Examples
    --------
    >>> one_line(ValueError("two\n  lines"))
    'two lines'
    """
    text = " ".join(str(error).split()) or type(error).__name__
    return text.replace("evidence='holdout'", "--evidence holdout")  # as the shell has it


def _close_quietly() -> None:
    """Nobody reads standard output any more; Python must not complain when it exits."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
