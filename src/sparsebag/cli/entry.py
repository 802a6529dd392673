"""Where the ``sparsebag`` script begins: light, so that a missing extra is one clear sentence."""

from __future__ import annotations

import sys

from sparsebag.cli.signals import die_quietly, tidy_up

EXTRA = {"typer", "click", "rich", "pandas", "pyarrow"}
"""What the ``cli`` extra installs."""


def main() -> None:
    """Run the command line; never shows a traceback for what a user can mend."""
    die_quietly()
    try:
        from sparsebag.cli.usage import run
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.exit(
            f"sparsebag: the command line needs {error.name}, which is not installed; "
            "run: pip install 'sparsebag[cli]'"
        )
    tidy_up()
    run()
