"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

import sparsebag
from sparsebag.cli.bench import bench
from sparsebag.cli.compress import compress
from sparsebag.cli.demo import demo
from sparsebag.cli.export import export
from sparsebag.cli.fit import fit
from sparsebag.cli.inspect import inspect
from sparsebag.cli.predict import predict

app = typer.Typer(
    name="sparsebag",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 2 wrong options, 3 input that cannot be used, 4 output that cannot "
    "be written, 5 a missing extra, 130 interrupted (129, 143: hung up, "
    "terminated), 1 a bug.",
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


for command in (demo, fit, compress, predict, inspect, export):
    app.command()(command)
app.add_typer(bench, name="bench")
