"""What all commands share: groups of options, what is printed, and how a command fails.

A group of options is a dataclass whose fields are annotated as typer's options: a command takes
one as a parameter, and its fields become options of the command.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import inspect
import json
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from enum import IntEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

from rich.console import Console
from rich.progress import Progress
from typer import Argument, BadParameter, Exit, Option

from sparsebag.progress import SECONDS_BETWEEN_LINES, Event

TRUST = "Allow pickles, which can run any code: only for files you made yourself."
TRUST_TYPE = "A type in a skops file to trust; repeatable."
TABLE = "A table: CSV with a header (.gz too) or Parquet; - is CSV on standard input."
Model = Annotated[Path, Argument(help="A .sbag file.", metavar="MODEL")]
Data = Annotated[Path, Argument(help=TABLE, metavar="DATA")]
CANNOT_WRITE = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EROFS, errno.EACCES)
SHELL = {
    r"sparsebag\.compress\(model, X_new, y_new, evidence='holdout'\)": "--evidence holdout",
    r"evidence='holdout'": "--evidence holdout",
    r"measure it with report\(X_test, y_test\)": "add --test test.csv",
    r"report\(X_test, y_test\), or --test on the command line": "--test",
    r"allow_pickle=True( here and to load)?": "--trust-pickle",
    r"pass trusted=": "add --trust-type with each of ",
    r"\bmax_(bytes|nodes|estimators)\b=?": r"--max-\1",
}
"""What the library's sentences say in Python, and the same on the command line."""


def threads(n_jobs: int) -> int:
    """Any number but 0."""
    if n_jobs == 0:
        raise BadParameter("0 is not a number of threads; -1 uses all processors.")
    return n_jobs


Jobs = Annotated[int, Option("--jobs", help="Threads; -1 uses all processors.", callback=threads)]


@dataclasses.dataclass(frozen=True)
class Trust:
    """What may be loaded of files whose content could do harm."""

    trust_pickle: Annotated[bool, Option("--trust-pickle", help=TRUST)] = False
    trust_type: Annotated[list[str] | None, Option(help=TRUST_TYPE)] = None


class ExitCode(IntEnum):
    """What the shell sees. 2 is typer's own, for options that do not exist or make no sense."""

    DONE = 0
    BUG = 1
    USAGE = 2
    BAD_INPUT = 3
    CANNOT_WRITE = 4
    MISSING_EXTRA = 5
    INTERRUPTED = 130
    CLOSED_PIPE = 141


class CommandError(Exception):
    """What went wrong, in one sentence for the user, and the exit code."""

    def __init__(self, sentence: str, code: ExitCode = ExitCode.BAD_INPUT) -> None:
        super().__init__(sentence)
        self.code = code


class WrongKind(CommandError):
    """A table in place of a model, or a model in place of a table."""


class Stopped(KeyboardInterrupt):
    """The signal that came; a KeyboardInterrupt, so that everything is tidied up for it."""

    came: int | None = None


def end_on_signals() -> None:
    """Ctrl-C, kill and a closed terminal end a command alike: clean, each with its own code."""

    def stop(number: int, frame: FrameType | None) -> None:
        Stopped.came = number
        raise Stopped

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # Windows knows no SIGHUP
        number = getattr(signal, name, None)
        # What nohup, or a shell in the background, has told us to ignore stays ignored.
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


@dataclasses.dataclass
class Screen:
    """What is printed: progress on standard error, results on standard output."""

    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only errors.")] = False

    def __post_init__(self) -> None:
        self.quiet = self.quiet or self.as_json
        self._bar: Progress | None = None
        self._told = ("", 0.0)

    def step(self, text: str, number: int = 0, total: int = 0) -> None:
        """Say which step begins, or how far it is: a bar in a terminal, lines elsewhere."""
        if Stopped.came is not None:  # somebody swallowed the exception, as callbacks can
            raise Stopped
        if self.quiet:
            return
        if not sys.stderr.isatty():
            if text != self._told[0] or time.monotonic() > self._told[1] + SECONDS_BETWEEN_LINES:
                self.say(f"{text} {number} of {total} ..." if number else f"{text} ...")
                self._told = text, time.monotonic()
            return
        if self._bar is None or self._bar.tasks[0].description != text:
            self.close()
            # The default columns: description, bar, share and time left.
            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.add_task(text, total=total or None)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=max(number - 1, 0))

    def listen(self, event: Event) -> None:
        """The library's progress as steps: for ``verbose=``."""
        self.step(event.step, event.number, event.total)

    def say(self, text: str) -> None:
        """A line for people."""
        if not self.quiet:
            self.close()
            print(text, file=sys.stderr, flush=True)

    def notes(self, sentences: list[str]) -> list[str]:
        """Say what a user should know, and give it back for the result."""
        for sentence in sentences:
            self.say(f"note: {sentence}")
        return sentences

    @contextlib.contextmanager
    def noting(self) -> Iterator[list[str]]:
        """Say the library's warnings as notes, each once; gives a list of them at the end."""
        notes: list[str] = []
        with warnings.catch_warnings(record=True, action="always") as caught:
            yield notes
        notes += self.notes(list(dict.fromkeys(one_line(warning.message) for warning in caught)))

    def result(self, facts: dict[str, Any], text: str) -> None:
        """What came of it: text for people, wrapped in a terminal, or one object."""
        self.close()
        if self.as_json:
            # JSON has no NaN: what is not known is null.
            plain = json.loads(json.dumps(facts, default=_plain), parse_constant=lambda _: None)
            print(json.dumps(plain))
        elif text and not self.quiet:
            Console(highlight=False).print(text, markup=False, soft_wrap=not sys.stdout.isatty())

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command for typer: its groups become options, its errors one sentence and an exit code.

    What the library refuses (ValueError, TypeError) is the user's input, and its messages are
    written for users. With ``--json`` the sentence is also an object on standard output.
    ``SPARSEBAG_DEBUG=1`` lets tracebacks through.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for own in inspect.signature(function, eval_str=True).parameters.values():
        if dataclasses.is_dataclass(own.annotation):
            group: Any = own.annotation
            groups[own.name] = group
            parameters += inspect.signature(group, eval_str=True).parameters.values()
        else:
            parameters.append(own)
    for parameter in parameters:
        for option in getattr(parameter.annotation, "__metadata__", ()):
            option.readable = False  # not typer but `tables.check_readable` refuses files
            # A switch takes no value.
            option.metavar = "" if parameter.annotation.__origin__ is bool else option.metavar

    @functools.wraps(function)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{f.name: given.pop(f.name) for f in dataclasses.fields(group)})
        screen = given["screen"]
        try:
            function(**given)
            sys.stdout.flush()
        except BrokenPipeError:  # nobody reads: Python must not complain when it exits
            with contextlib.suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise Exit(ExitCode.CLOSED_PIPE) from None
        except (Exception, KeyboardInterrupt) as error:
            if os.environ.get("SPARSEBAG_DEBUG"):
                raise
            sentence, code = _told(error)
            if isinstance(error, WrongKind) and {"model", "data"} <= given.keys():
                sentence = f"{sentence[:-1]}; MODEL comes before DATA."
            screen.close()
            print_error(sentence, code, as_json=screen.as_json)
            raise Exit(code) from None
        finally:
            screen.close()

    shown = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in shown}
    return run


def print_error(sentence: str, code: int, *, as_json: bool) -> None:
    """What went wrong: a sentence for people, and an object for machines."""
    told, console = f"sparsebag: {sentence}", Console(stderr=True, highlight=False)
    console.print(told, markup=False, soft_wrap=not sys.stderr.isatty())
    if as_json:
        print(json.dumps({"error": sentence, "exit_code": int(code)}))


def _told(error: BaseException) -> tuple[str, int]:
    told = one_line(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; no partial file was left.", 128 + (Stopped.came or signal.SIGINT)
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, MemoryError):
        return "not enough memory.", ExitCode.BAD_INPUT
    if isinstance(error, ModuleNotFoundError):  # the library's own say what to install
        name = str(error.name).partition(".")[0]
        told = f"this needs {name}, which is not installed; run: pip install 'sparsebag[cli]'"
    if isinstance(error, ImportError):
        return told, ExitCode.MISSING_EXTRA
    if isinstance(error, OSError) and error.errno in CANNOT_WRITE:
        return told, ExitCode.CANNOT_WRITE
    if isinstance(error, (OSError, ValueError, TypeError)):
        return told, ExitCode.BAD_INPUT
    told = f"unexpected {type(error).__name__}: {told} (a bug: please report it with the output of "
    return f"{told}SPARSEBAG_DEBUG=1)", ExitCode.BUG


def one_line(message: Any) -> str:
    r"""A message without line breaks, in the shell's words.

    Examples
    --------
    >>> one_line(ValueError("two\n  lines; raise max_bytes."))
    'two lines; raise --max-bytes.'
    """
    text = " ".join(str(message).split()) or type(message).__name__
    for python, shell in SHELL.items():
        text = re.sub(python, shell, text)
    return text


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as JSON has them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)
