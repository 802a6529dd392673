"""Before and after as one object: text, Markdown, a data frame, a notebook's cell, a page."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparsebag.deploy.from_members import COLLAPSED
from sparsebag.deploy.whole_file import write_whole
from sparsebag.report.details import Details
from sparsebag.report.score_changes import ScoreChange

RANDOM_DRAWS = 5
"""Draws averaged for the random-members row: one draw is luck."""

PICKLED, FILE = "pickled (kB)", "file (kB)"
SPEED, COMPILED = "ms / 1000 rows", "ms, compiled"
"""Sizes and times: first of the models as they are served, then of all in sparsebag's own form."""

_FORMATS: dict[str, Callable[[float], str]] = {
    "members": lambda v: f"{v:.0f}",
    "nodes": lambda v: f"{v:,.0f}",
    PICKLED: lambda v: f"{v:,.0f}",
    FILE: lambda v: f"{v:,.1f}",
    SPEED: lambda v: f"{v:.2f}",
    COMPILED: lambda v: f"{v:.2f}",
}


@dataclass(frozen=True, repr=False)
class CompressionReport:
    """Scores of the full ensemble, the small one, and as many random members.

    ``print`` it, leave it at the end of a notebook's cell, or ``save("report.html")``.

    Attributes
    ----------
    rows : dict of str to dict
        One entry a model: column name to figure.
    n_rows : int
        Test rows the figures are from; 0 where none were given, and ``rows`` holds sizes only.
    notes : tuple of str
        Sentences that belong under the table.
    changes : tuple of ScoreChange
        Every score before and after, with a paired bootstrap interval of the difference.
    details : Details or None
        What the page draws beside the table.
    rows_are : {"test rows", "training rows"}

    Examples
    --------
    >>> rows = {"full ensemble (100)": {"members": 100.0, "log-loss": 0.3111},
    ...         "sparsebag (9)": {"members": 9.0, "log-loss": 0.2875}}
    >>> report = CompressionReport(rows, n_rows=500)
    >>> print(report)
    9 of 100 members kept (500 test rows)
    <BLANKLINE>
              full ensemble  sparsebag
                      (100)        (9)
    members             100          9
    log-loss         0.3111     0.2875
    >>> print(report.to_markdown())
    |                     | members | log-loss |
    |---------------------|---------|----------|
    | full ensemble (100) |     100 |   0.3111 |
    | sparsebag (9)       |       9 |   0.2875 |
    """

    rows: dict[str, dict[str, float]]
    n_rows: int
    notes: tuple[str, ...] = ()
    changes: tuple[ScoreChange, ...] = ()
    details: Details | None = None
    rows_are: str = "test rows"

    @property
    def columns(self) -> list[str]:
        """Names of the figures, in order."""
        return list(next(iter(self.rows.values())))

    def headline(self) -> str:
        """What was kept, in a few words.

        Returns
        -------
        str
        """
        full, small = list(self.rows.values())[:2]
        if COLLAPSED in self.notes:
            return f"{full['members']:.0f} members collapsed into one linear model"
        return f"{small['members']:.0f} of {full['members']:.0f} members kept"

    def sentence(self) -> str:
        """What was kept and what it cost, in one sentence.

        Returns
        -------
        str

        Examples
        --------
        >>> rows = {"full": {"members": 100.0, "pickled (kB)": 2000.0},
        ...         "sparsebag": {"members": 9.0, "file (kB)": 20.0}}
        >>> CompressionReport(rows, n_rows=0).sentence()
        '9 of 100 members kept: 20.0 kB in place of 2.0 MB.'
        """
        full, small = list(self.rows.values())[:2]
        noun = "members" if self.details is None else self.details.selection.noun
        told = []
        if FILE in small and PICKLED in full:
            told.append(f"{_bytes(small[FILE])} in place of {_bytes(full[PICKLED])}")
        if SPEED in full:
            told.append(
                f"{_times(full[SPEED], small[SPEED])} times as fast "
                f"({_times(full[COMPILED], small[COMPILED])} times the ensemble compiled)"
            )
        if self.changes:
            shown = [c for c in self.changes if c.name in ("log-loss", "accuracy", "MSE", "R²")]
            scores = [f"{c.name} {c.before:.4g} → {c.after:.4g} ({c.verdict})" for c in shown]
            told.append(f"{' and '.join(scores)} on {self.n_rows:,} {self.rows_are}")
        elif self.details is not None and self.details.selection.curve is not None:
            low, high = (end - 1.0 for end in self.details.selection.interval)
            score, change = self.details.selection.curve.score, self.details.selection.ratio - 1.0
            told.append(f"expected {score} {change:+.1%} ({low:+.1%} to {high:+.1%})")
        head = f"{small['members']:.0f} of {full['members']:.0f} {noun} kept"
        return f"{head}: {', '.join(told)}." if told else f"{head}."

    def to_markdown(self) -> str:
        """The tables in Markdown.

        Returns
        -------
        str
        """
        head = ["", *self.columns]
        body = [[name, *self._cells(row)] for name, row in self.rows.items()]
        parts = [_markdown([head, *body])]
        if self.changes:
            parts.append(_markdown([CHANGES_HEAD, *(_change_cells(c) for c in self.changes)]))
        return "\n\n".join([*parts, *self.notes])

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame (needs pandas).

        Returns
        -------
        pandas.DataFrame
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas; install it, or use to_markdown.") from error
        return pd.DataFrame.from_dict(self.rows, orient="index")

    def to_html(self) -> str:
        """The report as one self-contained HTML page: nothing is fetched from anywhere.

        Returns
        -------
        str
        """
        from sparsebag.report.page import page

        return page(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the report: ``.html`` as a page, ``.md`` as Markdown.

        A crash or a full disk leaves the old report, never half a new one.

        Parameters
        ----------
        path : path-like
        """
        target = Path(path)
        writers = {".html": self.to_html, ".md": self.to_markdown}
        write = writers.get(target.suffix.lower())
        if write is None:
            raise ValueError(f"cannot write a report to {target.name!r}; use .html or .md.")
        write_whole(target, (write() + "\n").encode())

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        head = self.headline()
        if self.n_rows:
            head += f" ({self.n_rows:,} {self.rows_are})"
        return "\n\n".join([head, self._as_text(), *self._changes_as_text(), *self.notes])

    def _repr_html_(self) -> str:
        """For notebooks: without the page's style, which would restyle the whole notebook."""
        from sparsebag.report.page import fragment

        return fragment(self)

    def _cells(self, row: dict[str, float]) -> list[str]:
        return [figure(name, value) for name, value in row.items()]

    def _as_text(self) -> str:
        """A figure a line, a model a column: fits a terminal of eighty characters."""
        names = [name.rpartition(" (") for name in self.rows]
        over = ["", *(a if a else c for a, _, c in names)]
        under = ["", *(f"({c}" if a else "" for a, _, c in names)]
        cells = [self._cells(row) for row in self.rows.values()]
        lines = [over, under] if any(under) else [over]
        lines += [[c, *(column[i] for column in cells)] for i, c in enumerate(self.columns)]
        return _aligned(lines)

    def _changes_as_text(self) -> list[str]:
        if not self.changes:
            return []
        return [_aligned([CHANGES_HEAD, *(_change_cells(c) for c in self.changes)])]


CHANGES_HEAD = ["full → sparsebag", "change", "95 % interval", ""]


def figure(name: str, value: float) -> str:
    """A figure of the table as text.

    Parameters
    ----------
    name : str
        Its column.
    value : float

    Returns
    -------
    str

    Examples
    --------
    >>> figure("nodes", 1234.0), figure("log-loss", 0.123456)
    ('1,234', '0.1235')
    """
    return _FORMATS.get(name, _four_digits)(value)


def _change_cells(change: ScoreChange) -> list[str]:
    interval = f"{change.low:+.3g} to {change.high:+.3g}"
    return [change.name, f"{change.difference:+.3g}", interval, change.verdict]


def _four_digits(value: float) -> str:
    return f"{value:.4g}"


def _times(before: float, after: float) -> str:
    ratio = before / max(after, 1e-9)
    return f"{ratio:.2g}" if ratio < 10 else f"{ratio:,.0f}"


def _bytes(kilobytes: float) -> str:
    return f"{kilobytes / 1e3:,.1f} MB" if kilobytes >= 1e3 else f"{kilobytes:.1f} kB"


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return "\n".join("  ".join(_justified(line, widths)).rstrip() for line in lines)


def _markdown(lines: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = ["| " + " | ".join(_justified(line, widths)) + " |" for line in lines]
    return "\n".join([shown[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *shown[1:]])


def _justified(cells: list[str], widths: list[int]) -> list[str]:
    return [
        c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))
    ]
