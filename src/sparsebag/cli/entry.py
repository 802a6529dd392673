"""Where the ``sparsebag`` script begins: light, so that a missing extra is one clear sentence."""

from __future__ import annotations

import sys

EXTRA = {"typer", "click", "rich", "pandas", "pyarrow"}
"""What the ``cli`` extra installs."""
INTERRUPTED = 130
"""As shells have it: 128 plus the number of SIGINT."""


def main() -> None:
    """Run the command line; never shows a traceback for what a user can mend."""
    try:
        from sparsebag.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.exit(
            f"sparsebag: the command line needs {error.name}, which is not installed; "
            "run: pip install 'sparsebag[cli]'"
        )
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    app()
