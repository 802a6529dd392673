"""``sparsebag demo``: the whole way on data that comes with scikit-learn, in half a minute."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsebag.cli import options
from sparsebag.cli.compressing import Destination, compress_and_write, print_result
from sparsebag.cli.failures import guarded
from sparsebag.cli.fit import Task, grow_forest
from sparsebag.cli.terminal import Steps

TREES = 300
HELD_OUT = 0.3
NOISY_ROWS = 5000


@guarded
def demo(
    folder: Annotated[
        Path,
        typer.Argument(help="Where models and the report go.", file_okay=False, metavar="FOLDER"),
    ] = Path(),
    open_report: Annotated[
        bool, typer.Option("--open", help="Open the report in a browser.")
    ] = False,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
) -> None:
    """Compress two forests of 300 trees: handwritten digits, and a noisy signal.

    Writes the models and a report, in half a minute.

    Example: sparsebag demo --open
    """
    from sklearn.datasets import load_digits, make_friedman1

    digits = Destination(folder / "sparsebag_demo.sbag", folder / "sparsebag_report.html")
    noisy = Destination(folder / "sparsebag_noisy.sbag", None)
    digits.check()
    noisy.check()
    steps = Steps(quiet or as_json)
    rows = load_digits(return_X_y=True)
    result = _compressed(steps, rows, Task.CLASSIFICATION, digits)
    rows = make_friedman1(NOISY_ROWS, noise=3.0, random_state=0)
    other = _compressed(steps, rows, Task.REGRESSION, noisy)
    result["text"] = (
        f"Handwritten digits, {TREES} trees\n{result['text']}\n\n"
        f"A noisy signal (make_friedman1), {TREES} trees\n{other.pop('text')}\n\n"
        f"Next: open {digits.report} in a browser\n"
        f"      sparsebag inspect {digits.model}\n"
        "      sparsebag fit your_table.csv --target your_column --report report.html"
    )
    print_result({**result, "noisy": other}, as_json=as_json)
    if open_report and digits.report is not None:
        webbrowser.open(digits.report.absolute().as_uri())


def _compressed(steps: Steps, rows: Any, task: Task, destination: Destination) -> dict[str, Any]:
    from sklearn.model_selection import train_test_split

    X, X_test, y, y_test = train_test_split(*rows, test_size=HELD_OUT, random_state=0)
    forest = grow_forest(steps, X, y, task, TREES, 0, -1)
    test = (X_test, y_test)
    return compress_and_write(steps, forest, X, y, destination, how={"n_jobs": -1}, test=test)
