"""Files written whole or not at all, and errors that speak of the path the user gave."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def write_whole(path: Any, content: bytes) -> None:
    """Write a file; a crash or a full disk leaves the old one, never half a new one.

    Parameters
    ----------
    path : path-like
    content : bytes
    """
    with whole_file(path) as file:
        file.write(content)


@contextlib.contextmanager
def whole_file(path: Any) -> Iterator[Any]:
    """A new file that takes its name when it is complete; what was there before stays till then.

    An old file's permissions stay, and a link is followed.

    Parameters
    ----------
    path : path-like

    Yields
    ------
    binary file
    """
    target = Path(os.path.realpath(os.fsdecode(path)))
    partial = target.with_name(f".{secrets.token_hex(8)}.part")  # names have a longest length
    try:
        _check_ordinary(Path(os.fsdecode(path)))
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        # A new file is as the umask has it; in place of a private one it is private from the start.
        with _new_file(partial, 0o666 if mode is None else 0o600) as file:
            if mode is not None:
                os.chmod(partial, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())  # the data before the name
        os.replace(partial, target)
    except OSError as error:
        if error.errno is None:  # ours already
            raise
        name, folder, why = os.fsdecode(path), target.parent, _why(error)
        sentence = f"{name!r} could not be written ({why}); what was there before is unchanged."
        if not folder.exists():
            sentence = f"{name!r} cannot be written: the folder {str(folder)!r} does not exist."
        elif not folder.is_dir():
            sentence = f"{name!r} cannot be written: {str(folder)!r} is a file, not a folder."
        raise _told(error, sentence) from None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(partial)


def read_whole(path: Any, *, n_first: int, check: Callable[[bytes, int], None]) -> bytes:
    """The content of a file, read only where its first bytes and its size promise one.

    Parameters
    ----------
    path : path-like
    n_first : int
        How many bytes are looked at first.
    check : callable
        Takes these and the file's size, and raises where no more should be read.

    Returns
    -------
    bytes
    """
    name = os.fsdecode(path)
    _check_ordinary(Path(name))
    try:
        with open(name, "rb") as file:
            first = file.read(n_first)
            size = os.fstat(file.fileno()).st_size
            check(first, size)
            return first + file.read(max(size - len(first), 0))
    except MemoryError:
        raise OSError(f"{name!r} cannot be loaded: it does not fit into memory.") from None
    except FileNotFoundError as error:
        raise _told(error, f"{name!r} cannot be loaded: no such file.") from None
    except OSError as error:
        raise _told(error, f"{name!r} cannot be loaded ({_why(error)}).") from None


def _new_file(path: Path, mode: int) -> Any:
    # Not mkstemp, whose private files would have to be opened to others by guessing the umask.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return os.fdopen(os.open(path, flags, mode), "wb")


def _check_ordinary(path: Path) -> None:
    """A folder, a device or a pipe is no file; replacing a device would even remove it."""
    if path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; name a file.")
    if path.exists() and not path.is_file():
        raise OSError(f"{str(path)!r} is a device or a pipe; name a file.")


def _told(error: OSError, sentence: str) -> OSError:
    """The same error in a sentence about the user's file, not our partial one."""
    told = type(error)(sentence)
    told.errno = error.errno
    return told


def _why(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
