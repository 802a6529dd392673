"""Options that several commands share, with one help text each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
COUNT = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>%|[kmg]?b)?", re.IGNORECASE)


class LocalWeights(StrEnum):
    """Weights that depend on the row."""

    AUTO = "auto"
    ALWAYS = "always"


def limit(text: str, units: Mapping[str, int] | None = None) -> float:
    """The most to keep: a whole number, or a share as ``5%`` or ``0.05``.

    Parameters
    ----------
    text : str
    units : mapping of str to int, optional
        Units that may follow a number.

    Returns
    -------
    int or float

    Examples
    --------
    >>> limit("20000"), limit("5%"), limit("0.05"), limit("100kB", BYTES)
    (20000, 0.05, 0.05, 100000)
    """
    found = COUNT.fullmatch(text.strip())
    unit = (found["unit"] or "").lower() if found else ""
    factor = {"": 1, "%": 1, **(units or {})}.get(unit)
    if found is None or factor is None:
        wanted = "bytes (100kB)" if units else "a whole number (20000)"
        raise typer.BadParameter(f"'{text}' is not {wanted} or a share (5%).")
    number = float(found["number"])
    if unit == "%" or (unit == "" and number < 1.0):
        share = number / 100 if unit == "%" else number
        if not 0.0 < share <= 1.0:
            raise typer.BadParameter(f"'{text}' is not a share between 0 and 100%.")
        return share
    return round(number * factor)


def byte_limit(text: str) -> float:
    """As `limit`, with units of bytes.

    Parameters
    ----------
    text : str

    Returns
    -------
    int or float

    Examples
    --------
    >>> byte_limit("1.5MB"), byte_limit("5%")
    (1500000, 0.05)
    """
    return limit(text, BYTES)


def _size(help: str, parser: Callable[[str], float] = limit, unit: str = "COUNT") -> Any:
    return typer.Option(help=help, parser=parser, metavar=f"{unit}|SHARE", rich_help_panel="Size")


Target = Annotated[str, typer.Option("--target", "-t", help="Column to predict.")]
MaxEstimators = Annotated[
    float | None, _size("Keep at most this many members, or this share: 30 or 10%.")
]
MaxNodes = Annotated[
    float | None, _size("Keep at most this many nodes, or this share: 20000 or 5%.")
]
MaxBytes = Annotated[
    float | None,
    _size("The largest file: 100kB, or a share of the whole ensemble's, 5%.", byte_limit, "BYTES"),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="Relative rise of the expected Brier score or squared error you accept: the smallest "
        "model within it is kept. Default: 0.01; with a budget, the budget is spent.",
        min=0.0,
        rich_help_panel="Size",
    ),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        help="Keep the tolerance with this confidence (0.95), not only as expected.",
        min=0.5,
        max=0.9999,
        rich_help_panel="Size",
    ),
]
NoRefine = Annotated[
    bool, typer.Option("--no-refine", help="Keep trees as they are; give them weights only.")
]
NoRehearsal = Annotated[
    bool,
    typer.Option(
        "--no-rehearsal",
        help="Do not refit forests on parts of the rows to judge sizes: faster, and the quality is "
        "not estimated.",
    ),
]
Local = Annotated[
    LocalWeights | None,
    typer.Option(
        help="Let the members' weights depend on the row: where out-of-bag rows show a gain beyond "
        "chance (auto), or always. Default: the same weights for every row.",
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
