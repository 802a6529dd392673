"""Files a command writes: checked before the work, written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from sparsebag.cli.failures import CommandError, ExitCode
from sparsebag.cli.signals import check_stopped

LONGEST_NAME = 200
"""Bytes of a name that leave room for what is added; file systems end at 255."""


def check_can_be_written(path: Path | None, *, unlike: tuple[Path | None, ...] = ()) -> None:
    """Refuse a path that cannot be written, before hours are spent on what belongs there.

    Parameters
    ----------
    path : Path or None
    unlike : tuple of Path
        Files that are read, or written too.
    """
    if path is None:
        return
    folder = path.absolute().parent
    if path.is_dir():
        raise CommandError(f"'{path}' is a folder; name a file in it.", ExitCode.CANNOT_WRITE)
    if path.exists() and not path.is_file():
        raise CommandError(
            f"'{path}' is a device or a pipe; name a file, which is written whole or not at all.",
            ExitCode.CANNOT_WRITE,
        )
    if not folder.is_dir():
        raise CommandError(
            f"'{path}' cannot be written: the folder '{folder}' does not exist.",
            ExitCode.CANNOT_WRITE,
        )
    if not os.access(folder, os.W_OK):
        raise CommandError(
            f"'{path}' cannot be written: the folder '{folder}' may not be written to.",
            ExitCode.CANNOT_WRITE,
        )
    for other in unlike:
        if other is not None and path.resolve() == other.resolve():
            raise CommandError(
                f"'{path}' is named twice, and one would overwrite the other; name another file.",
                ExitCode.USAGE,
            )


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[Any]]:
    """A new file that takes its name when it is complete; what was there before stays till then.

    Parameters
    ----------
    path : Path

    Yields
    ------
    binary file
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name[:LONGEST_NAME]}.{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # the data before the name
        check_stopped()
        if target.exists():
            os.chmod(partial, target.stat().st_mode & 0o7777)
        os.replace(partial, target)
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise cannot_write(path, error) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()


def cannot_write(path: Path, error: OSError) -> CommandError:
    """The sentence for a file that could not be written.

    Parameters
    ----------
    path : Path
    error : OSError

    Returns
    -------
    CommandError
    """
    why = os.strerror(error.errno).lower() if error.errno else str(error)
    return CommandError(
        f"'{path}' could not be written ({why}); what was there before is untouched.",
        ExitCode.CANNOT_WRITE,
    )
