"""``sparsebag demo``: the whole way on data that comes with scikit-learn, in half a minute."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from sparsebag.cli import options
from sparsebag.cli.compressing import Destination, Size, compress_and_write, print_result
from sparsebag.cli.failures import guarded
from sparsebag.cli.fit import Task, grow_forest
from sparsebag.cli.terminal import Steps

TREES, KEPT = 300, 50
HELD_OUT = 0.3


@guarded
def demo(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Where the model and the report go.", file_okay=False, metavar="FOLDER"
        ),
    ] = Path(),
    open_report: Annotated[
        bool, typer.Option("--open", help="Open the report in a browser.")
    ] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Compress a forest of 300 trees to 50 on the bundled digits, with a report, in 20 seconds.

    Example: sparsebag demo --open
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    destination = Destination(folder / "sparsebag_demo.sbag", folder / "sparsebag_report.html")
    destination.check()
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=HELD_OUT, stratify=y, random_state=0)
    with Steps(quiet or as_json) as steps:
        steps.say(f"The digits: {len(X)} images to learn from, {len(X_test)} held out, 10 classes.")
        forest = grow_forest(steps, X, y, Task.CLASSIFICATION, TREES, 0, -1)
        result = compress_and_write(
            steps,
            forest,
            X,
            y,
            size=Size(max_estimators=KEPT),
            destination=destination,
            test=(X_test, y_test),
        )
    result["text"] += (
        f"\nNext: sparsebag inspect {destination.model}\n"
        "      sparsebag fit your_table.csv --target your_column --report report.html"
    )
    print_result(result, as_json=as_json)
    if open_report and destination.report is not None:
        webbrowser.open(destination.report.absolute().as_uri())
