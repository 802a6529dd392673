"""Markdown tables and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

ABSENT = "–"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table whose first ``left`` columns are text and the others numbers."""
    rule = [":--"] * left + ["--:"] * (len(header) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def decimals(printed: str) -> int:
    """Digits after the point of a printed number."""
    return len(printed.partition(".")[2])


def number(value: float | None, places: int = 4) -> str:
    if value is None or not np.isfinite(value):
        return ABSENT
    text = f"{value:.{places}f}"
    return text.lstrip("-") if float(text) == 0 else text


def signed(value: float, places: int = 4) -> str:
    text = f"{value:+.{places}f}".replace("-", "−")
    return number(0.0, places) if not text.strip("+−0.") else text


def significant(value: float, digits: int = 3) -> str:
    """For quantities of any size: 3 significant digits, never in exponent form above 1e-4."""
    if not np.isfinite(value):
        return ABSENT
    if value == 0:
        return "0"
    if abs(value) < 1e-4:
        text = f"{value:.{digits - 1}e}"
    else:
        places = max(0, digits - 1 - int(np.floor(np.log10(abs(value)))))
        text = f"{value:.{places}f}"
    return text.replace("-", "−", 1) if value < 0 else text


def percent(share: float, places: int = 0) -> str:
    return f"{100 * share:.{places}f} %" if np.isfinite(share) else ABSENT


def out_of(count: int, total: int) -> str:
    return f"{count} of {total}"
