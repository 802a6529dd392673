"""The commands, gathered."""

from __future__ import annotations

import sys
from typing import Annotated, Any, cast

import typer
from typer import rich_utils

import sparsebag
from sparsebag.cli.command import ExitCode, command, end_on_signals, one_line, print_error
from sparsebag.cli.compress import compress, demo, fit
from sparsebag.cli.inspect import bench, export, inspect
from sparsebag.cli.predict import predict

app = typer.Typer(
    name="sparsebag",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 wrong options, 3 input that cannot be used, 4 output that cannot "
    "be written, 5 a missing extra, 130 interrupted (129, 141, 143: hung "
    "up, nobody reads, terminated), 1 a bug.",
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"sparsebag {sparsebag.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Make a fitted bagging ensemble smaller, faster and better calibrated."""


for function in (demo, fit, compress, predict, inspect, export, bench):
    app.command()(command(function))


def run() -> None:
    """Run the command named on the command line and exit with its code."""
    end_on_signals()
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
            print_error(one_line(error.format_message()), code, as_json=True)
        else:
            rich_utils.rich_format_error(cast(Any, error))
    sys.exit(code if isinstance(code, int) else ExitCode.DONE)
