"""Where the ``sparsebag`` script begins: light, so that a missing extra is one clear sentence."""

from __future__ import annotations

import signal
import sys

EXTRA = {"typer", "click", "rich", "pandas", "pyarrow"}
"""What the ``cli`` extra installs."""


def main() -> None:
    """Run the command line; never shows a traceback for what a user can mend."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as nohup may have set it
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of an import
    try:
        from sparsebag.cli.app import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.exit(
            f"sparsebag: the command line needs {error.name}, which is not installed; "
            "run: pip install 'sparsebag[cli]'"
        )
    run()


if __name__ == "__main__":
    main()
