"""Options that make no sense: typer's box for people, one object for machines."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

import typer
from typer import rich_utils

from sparsebag.cli.app import app
from sparsebag.cli.failures import ExitCode, one_line


def run() -> None:
    """Run the command named on the command line and exit with its code."""
    try:
        code = app(standalone_mode=False)
    except typer.Abort:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        # Not by its class: typer has its own copy of click in some versions.
        code = getattr(error, "exit_code", None)
        if code is None or not hasattr(error, "format_message"):
            raise
        if "--json" in sys.argv and error.format_message():
            sentence = one_line(Exception(error.format_message()))
            print(f"sparsebag: {sentence}", file=sys.stderr)
            print(json.dumps({"error": sentence, "exit_code": int(code)}))
        else:
            rich_utils.rich_format_error(cast(Any, error))
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)
