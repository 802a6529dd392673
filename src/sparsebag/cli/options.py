"""Options that several commands share, with one help text each."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class LocalWeights(StrEnum):
    """Weights that depend on the row."""

    AUTO = "auto"
    LINEAR = "linear"
    REGIONS = "regions"


Target = Annotated[str, typer.Option("--target", "-t", help="Column to predict.")]
MaxEstimators = Annotated[
    int | None, typer.Option(help="Keep at most this many members.", min=1, rich_help_panel="Size")
]
MaxNodes = Annotated[
    int | None, typer.Option(help="Keep at most this many nodes.", min=1, rich_help_panel="Size")
]
MaxBytes = Annotated[
    int | None,
    typer.Option(help="Keep at most this many bytes of members.", min=1, rich_help_panel="Size"),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="Relative rise of the expected Brier score or squared error you accept: the smallest "
        "model within it is kept. Default: 0.01; with a budget, the best within the budget.",
        min=0.0,
        rich_help_panel="Size",
    ),
]
Local = Annotated[
    LocalWeights | None,
    typer.Option(
        help="Let the members' weights depend on the row: smoothly in the columns (linear), by "
        "regions of a shallow tree (regions), or whichever held-out rows are sure of (auto). "
        "Default: the same weights for every row.",
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", help="Where the small model goes.", dir_okay=True)
]
Report = Annotated[
    Path | None,
    typer.Option(help="Write the report page here (.html, or .md for the tables alone)."),
]
TestTable = Annotated[
    Path | None,
    typer.Option(
        "--test",
        help="Rows nobody has trained on, with the target: the report compares before and after "
        "on them.",
    ),
]
TrustPickle = Annotated[
    bool,
    typer.Option(
        "--trust-pickle",
        help="Load pickles, and store members that have no other form as such. A pickle can run "
        "any code when it is loaded: only for files you made yourself.",
    ),
]
Jobs = Annotated[int, typer.Option(help="Threads; -1 is one a processor.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for machines.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]
