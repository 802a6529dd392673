"""Before and after as one object: text, Markdown, a data frame, a notebook's cell, a page."""

from __future__ import annotations

import contextlib
import os
import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from sparsebag.judge.curve import NO_RATIO
from sparsebag.judge.selection import Selection
from sparsebag.report.changes import UNCLEAR, PredictionChanges, ScoreChange
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.sources.whole_file import write_whole

PICKLED, FILE = "pickled (kB)", "file (kB)"
SPEED, COMPILED = "µs per row", "µs, compiled"
"""Sizes and times: first of the models as they are served, then of all in sparsebag's own form."""

FORMATS = {
    **{"members": ".0f", "nodes": ",.0f", PICKLED: ",.0f", FILE: ",.1f"},
    **{SPEED: ".2f", COMPILED: ".2f"},
}


@dataclass(frozen=True, repr=False)
class CompressionReport:
    """Sizes, times and scores of the full ensemble and of the small one.

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
    weighted : str
        "class-weighted" or "weighted", as scores are, or "".
    on_training_rows : bool
        Whether the ensemble was trained on these rows.
    is_part, is_collapsed : bool
        Whether sizes leave out steps around the ensemble, and whether members became one.
    selection : Selection or None
        What was kept, and what every size is expected to cost.
    cautions : tuple of str
        What must be known before the figures are believed.
    settings, versions : dict of str to str
    reliability : tuple of two ReliabilityCurve, or None
        Before and after.
    changed : PredictionChanges or None

    Examples
    --------
    >>> rows = {"full ensemble": {"members": 100.0, "log-loss": 0.3111},
    ...         "sparsebag": {"members": 9.0, "log-loss": 0.2875}}
    >>> report = CompressionReport(rows, n_rows=500)
    >>> print(report)
    9 of 100 members kept.
    <BLANKLINE>
              full ensemble  sparsebag
    members             100          9
    log-loss         0.3111     0.2875
    >>> print(report.to_markdown())
    |          | full ensemble | sparsebag |
    |----------|---------------|-----------|
    | members  |           100 |         9 |
    | log-loss |        0.3111 |    0.2875 |
    """

    rows: dict[str, dict[str, float]]
    n_rows: int
    notes: tuple[str, ...] = ()
    changes: tuple[ScoreChange, ...] = ()
    weighted: str = ""
    on_training_rows: bool = False
    is_part: bool = False
    is_collapsed: bool = False
    selection: Selection | None = None
    cautions: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    reliability: tuple[ReliabilityCurve, ReliabilityCurve] | None = None
    changed: PredictionChanges | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Cautions, then notes: what is under the table."""
        return (*self.cautions, *self.notes)

    @property
    def rows_are(self) -> str:
        """What to call the rows: ``class-weighted test rows``."""
        return f"{self.weighted} {'training' if self.on_training_rows else 'test'} rows".strip()

    def label(self, name: str) -> str:
        """A figure's name, with ``class-weighted`` before that of a weighted score.

        Parameters
        ----------
        name : str

        Returns
        -------
        str
        """
        is_score = name in {change.name for change in self.changes}
        return f"{self.weighted} {name}".strip() if is_score else name

    def headline(self) -> str:
        """What was kept, in a few words.

        Returns
        -------
        str
        """
        full, small = list(self.rows.values())[:2]
        if self.is_collapsed:
            return f"{full['members']:.0f} members collapsed into one linear model"
        of = "nodes" if "nodes" in full else "members"
        return f"{small[of]:,.0f} of {full[of]:,.0f} {of} kept"

    def verdict(self) -> str:
        """What was gained and what it cost, in one sentence.

        Returns
        -------
        str

        Examples
        --------
        >>> rows = {"full": {"members": 100.0, "pickled (kB)": 2000.0},
        ...         "sparsebag": {"members": 9.0, "file (kB)": 20.0}}
        >>> CompressionReport(rows, n_rows=0).verdict()
        '100× smaller.'
        """
        full, small = list(self.rows.values())[:2]
        as_file = full.get(FILE, 0.0) / small.get(FILE, 1.0)
        of_same = [f"{_times(as_file)}× in the same file format"] if as_file else []
        of_same = ["by its file format"] if 0.0 < as_file <= 1.1 else of_same
        told = "; ".join(["ensemble only"] * self.is_part + of_same)
        gains = {
            f"smaller ({told})" if told else "smaller": (PICKLED, FILE),
            "faster in batches": (SPEED, SPEED),
        }
        gained = [
            f"{_times(full[before] / small[after])}× {gain}"
            for gain, (before, after) in gains.items()
            if full.get(before, 0.0) > 1.1 * small.get(after, float("inf"))
        ]
        facts = [", ".join(gained)] if gained else []
        chosen, words = self.selection, []
        curve = None if chosen is None else chosen.curve
        for verdict, said in (("better", "better"), ("worse", "worse"), (UNCLEAR, f"{UNCLEAR} in")):
            # A clear loss is told of every score.
            is_loss = verdict == "worse" and not self.on_training_rows
            heard = [c for c in self.changes if c.verdict == verdict and (c.is_main or is_loss)]
            of = " and ".join(", ".join(c.name for c in heard).rsplit(", ", 1))
            words += [" ".join(filter(None, [said, self.weighted, of]))] if of else []
        which = "training rows, which flatter the full ensemble most"
        which = which if self.on_training_rows else "test rows"
        facts += [f"{', '.join(words)} on {self.n_rows:,} {which}"] if words else []
        if chosen is not None and curve is not None and chosen.ratio < NO_RATIO:
            seen = [c.after / c.before - 1.0 for c in self.changes if c.is_judged and c.before]
            measured = bool(seen) and not self.on_training_rows
            then = f", {seen[0]:+.1%} measured" if measured else " on new rows"
            facts.append(f"{curve.score} {chosen.ratio - 1.0:+.1%} expected{then}")
        return f"{'; '.join(facts) or self.headline()}."

    def lines(self) -> list[list[str]]:
        """A figure a line, a model a column; the interval and verdict of a change beside it.

        Returns
        -------
        list of list of str
            The first is the head.
        """
        changes = {c.name: [c.interval, c.verdict] for c in self.changes}
        head = ["", *self.rows, *(["95% interval of change", ""] if changes else [])]
        body = (
            [self.label(name), *(figure(name, row[name]) for row in self.rows.values())]
            + (changes.get(name, ["", ""]) if changes else [])
            for name in next(iter(self.rows.values()))
        )
        return [head, *body]

    def to_markdown(self) -> str:
        """The table in Markdown.

        Returns
        -------
        str
        """
        head, *body = (f"| {' | '.join(cells)} |" for cells in _padded(self.lines()))
        rule = re.sub(r"[^|]", "-", head)
        return "\n\n".join(["\n".join([head, rule, *body]), *self.remarks])

    def to_html(self) -> str:
        """The report as one self-contained HTML page (needs jinja2): nothing is fetched.

        Returns
        -------
        str
        """
        from sparsebag.report.page import render

        return render(self)

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
        """A figure a line, a model a column: fits a terminal of eighty characters."""
        table = "\n".join("  ".join(cells).rstrip() for cells in _padded(self.lines()))
        first, *notes = (
            textwrap.fill(text, 80, break_on_hyphens=False)
            for text in (self.verdict(), *self.remarks)
        )
        return "\n\n".join([first, table, *notes])

    def _repr_html_(self) -> str | None:
        """For notebooks: without the page's style, which would restyle the whole notebook."""
        from sparsebag.report.page import render

        with contextlib.suppress(ImportError):
            return render(self, in_notebook=True)
        return None


def figure(name: str, value: float) -> str:
    """A figure of the table as text.

    Examples
    --------
    >>> figure("nodes", 1234.0), figure("log-loss", 0.123456)
    ('1,234', '0.1235')
    """
    return format(value, FORMATS.get(name, ".4g"))


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < 10 else f"{float(f'{ratio:.2g}'):,.0f}"


def _padded(lines: list[list[str]]) -> list[list[str]]:
    """Cells as wide as their column: labels and verdicts at its left, figures at its right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        [
            c.ljust(w) if i in (0, 4) else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        for line in lines
    ]
