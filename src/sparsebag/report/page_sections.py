"""The sections of the report page, each from plain data to HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparsebag.report import charts
from sparsebag.report.changed_section import changed_section
from sparsebag.report.details import Details
from sparsebag.report.html_table import table
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.slider import slider_points
from sparsebag.report.trusted_members import TrustedMembers

if TYPE_CHECKING:
    from sparsebag.report.compression_report import CompressionReport

VERDICTS = {"better": "sb-better", "worse": "sb-worse"}


class Section(NamedTuple):
    """A part of the page: its anchor, its heading, its HTML."""

    name: str
    title: str
    body: str


def sections(report: CompressionReport) -> list[Section]:
    """All parts of the page that have something to show, in order.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    list of Section
    """
    found = [Section("scores", "Before and after", tables(report))]
    details = report.details
    if details is None:
        return found
    found.append(Section("sizes", "What each size costs", _sizes(details)))
    if details.reliability is not None:
        found.append(Section("reliability", "Reliability", _reliability(details)))
    if details.trusted is not None:
        found.append(Section("trusted", "Where members are trusted", _trusted(details.trusted)))
    if details.changed is not None:
        found.append(Section("changed", "What changed", changed_section(details.changed)))
    found.append(Section("settings", "Settings and versions", _settings(details)))
    return found


def warnings_box(report: CompressionReport) -> str:
    """What must be known before the figures are believed; empty where there is nothing.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    str
    """
    told = () if report.details is None else report.details.cautions
    if not told:
        return ""
    lines = "".join(f"<li>{html.escape(text)}</li>" for text in told)
    return f"<div class='sb-warnings' role='note' aria-label='Warnings'><ul>{lines}</ul></div>"


def tables(report: CompressionReport) -> str:
    """Before and after, and the change of every score with its interval.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    str
    """
    from sparsebag.report.compression_report import RANDOM_DRAWS, figure

    caption = f"{report.n_rows:,} {report.rows_are}" if report.n_rows else "No test rows"
    lines = [[name, *(figure(c, v) for c, v in row.items())] for name, row in report.rows.items()]
    parts = [table(caption, ["", *report.columns], lines)]
    if report.changes:
        changed = [
            [
                c.name,
                f"{c.before:.4g}",
                f"{c.after:.4g}",
                f"{c.difference:+.3g}",
                f"{c.low:+.3g} to {c.high:+.3g}",
                (c.verdict, VERDICTS.get(c.verdict, "")),
            ]
            for c in report.changes
        ]
        head = ["", "full ensemble", "sparsebag", "change", "95 % interval", "verdict"]
        parts.append(table("Change on the same rows, paired bootstrap", head, changed, left=(5,)))
        parts.append(
            f"<p class='sb-soft'>“random” is the mean of {RANDOM_DRAWS} draws of as many members, "
            "equally weighted. Times are the best of five calls on the machine that made this "
            "report, one thread: first as each model is served (the full ensemble by its own "
            "library, sparsebag compiled), then all of them compiled. Files likewise: “pickled” is "
            "what Python writes of the members, “file” the .sbag file.</p>"
        )
    parts += [f"<p>{html.escape(note)}</p>" for note in report.notes]
    return "".join(parts)


def _sizes(details: Details) -> str:
    chosen = details.selection
    words = f"<pre>{html.escape(str(chosen))}</pre>"
    if chosen.curve is None:
        return f"{words}<p>No other sizes were judged.</p>"
    points = slider_points(chosen.curve, chosen.position)
    first = points[chosen.position]
    readout = "".join(
        f"<div><dt>{html.escape(name)}</dt>"
        f"<dd data-figure='{key}'>{html.escape(first[key])}</dd></div>"
        for key, name in (
            ("share", "size"),
            ("nodes", "nodes"),
            ("members", chosen.noun),
            ("ratio", f"{chosen.curve.score} over the ensemble's"),
            ("change", "change"),
            ("risk", f"expected {chosen.curve.score}"),
        )
    )
    return (
        f"{words}{charts.curve_key()}"
        f"<figure style='max-width:40rem'>{charts.curve_chart(chosen.curve, chosen.position)}"
        "</figure>"
        # The script shows what only the script can move.
        "<div class='sb-slider'><div id='sb-controls' hidden>"
        "<label for='sb-size'>Other sizes</label> "
        "<button type='button' id='sb-back'>back to the size that was kept</button>"
        f"<input id='sb-size' type='range' min='0' max='{len(points) - 1}' step='1' "
        f"value='{chosen.position}' aria-valuetext='{html.escape(first['words'], quote=True)}' "
        "aria-describedby='sb-size-help'></div>"
        f"<dl>{readout}</dl></div>"
        f"<p class='sb-soft' id='sb-size-help'>Estimated by {chosen.curve.judged_by}. Sizes that "
        "lose far more lie above the top.</p>"
    )


def _reliability(details: Details) -> str:
    assert details.reliability is not None
    before, after = details.reliability
    lines = []
    for low, high in sorted({(float(a), float(b)) for c in (before, after) for a, b in c.edges}):
        cells = [cell for curve in (before, after) for cell in _bin_cells(curve, low)]
        lines.append([f"{low:.2f} to {high:.2f}", *cells])
    head = ["confidence", *("rows before", "stated", "right"), *("rows after", "stated", "right")]
    bins = table("Bins of the predicted class's probability", head, lines)
    return (
        f"{charts.reliability_key()}"
        f"<figure style='max-width:34rem'>{charts.reliability_chart(before, after)}</figure>"
        f"<details><summary>The bins as a table</summary>{bins}</details>"
    )


def _bin_cells(curve: ReliabilityCurve, low: float) -> list[str]:
    at = np.flatnonzero(np.isclose(curve.edges[:, 0], low))
    if not len(at):
        return ["0", "–", "–"]
    i = int(at[0])
    return [f"{curve.count[i]:,.0f}", f"{curve.confidence[i]:.3f}", f"{curve.accuracy[i]:.3f}"]


def _trusted(trusted: TrustedMembers) -> str:
    """Rows of two features by the member they trust more than globally; the same in figures."""
    head = ["rows that trust more than globally", "rows", "global weight", "mean weight there"]
    head.append("median there")
    lines = [[g.name, f"{g.n_rows:,}", g.usual, g.here, g.where] for g in trusted.groups]
    summary = html.escape(trusted.summary)
    return (
        f"<pre>{summary}</pre>"
        f"<div class='sb-row'><figure>{charts.trusted_chart(trusted)}</figure>"
        f"{table('The same in figures', head, lines, left=(len(head) - 1,))}</div>"
        "<p class='sb-soft'>Each mark is a test row, drawn by the two features that move most of "
        "the vote; its shape and colour say which member gained most over its global "
        "weight. <code>small.explain_weights(X)</code> has every row's weights.</p>"
    )


def _settings(details: Details) -> str:
    settings = table("Settings", ["", "value"], [[k, v] for k, v in details.settings.items()])
    made = table("Made with", ["", "version"], [[k, v] for k, v in details.versions.items()])
    return f"<div class='sb-row'>{settings}{made}</div>"
