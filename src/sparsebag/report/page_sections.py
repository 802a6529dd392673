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
    found.append(
        Section("frontier", "The frontier: each size judged, and its price", _frontier(details))
    )
    if details.reliability is not None:
        found.append(
            Section("reliability", "Can its probabilities be believed?", _reliability(details))
        )
    found.append(Section("weights", "The weights", _weights(details)))
    if details.trusted is not None:
        found.append(
            Section("trusted", "Where which members are trusted", _trusted(details.trusted))
        )
    if details.changed is not None:
        found.append(Section("changed", "What changed", changed_section(details.changed)))
    found.append(Section("coverage", "What the choice rests on", _coverage(details)))
    found.append(Section("settings", "Settings and versions", _settings(details)))
    return found


def cards(report: CompressionReport) -> str:
    """The few figures a hurried reader wants.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    str
    """
    from sparsebag.report.compression_report import COMPILED, PICKLED, SPEED

    full, small = list(report.rows.values())[:2]
    n = f"{full['members']:.0f}"
    noun = "members" if report.details is None else report.details.noun
    shown = [(f"{small['members']:.0f}", f"of {n} {noun}")]
    if PICKLED in full:
        sizes = f"smaller: {small[PICKLED]:,.0f} of {full[PICKLED]:,.0f} kB, pickled"
        shown.append((ratio(full[PICKLED], small[PICKLED]), sizes))
    if report.details and report.details.file_bytes:
        kilobytes = report.details.file_bytes / 1000
        shown.append((f"{kilobytes:,.0f} kB", "as a .sbag file, ready to serve"))
    if SPEED in full:
        times = f"as fast: {small[SPEED]:.2f} of {full[SPEED]:.2f} ms for 1000 rows"
        shown.append((ratio(full[SPEED], small[SPEED]), times))
    if COMPILED in full:
        alike = f"as fast as all {n} compiled alike ({full[COMPILED]:.2f} ms)"
        shown.append((ratio(full[COMPILED], small[COMPILED]), alike))
    for change in report.changes[:1] + report.changes[3:]:
        shown.append(
            (f"{change.after:.4g}", f"{change.name}, was {change.before:.4g}: {change.verdict}")
        )
    return (
        "<div class='sb-cards'>"
        + "".join(
            f"<p class='sb-card'><strong>{html.escape(head)}</strong> "
            f"<span>{html.escape(text)}</span></p>"
            for head, text in shown
        )
        + "</div>"
    )


def ratio(before: float, after: float) -> str:
    """How many times smaller or faster.

    Parameters
    ----------
    before, after : float

    Returns
    -------
    str

    Examples
    --------
    >>> ratio(300.0, 60.0), ratio(1000.0, 1.0)
    ('5.0×', '1,000×')
    """
    times = before / max(after, 1e-9)
    return f"{times:.1f}×" if times < 10.0 else f"{times:,.0f}×"


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

    caption = (
        f"{report.n_rows:,} {report.rows_are}"
        if report.n_rows
        else "Sizes; no test rows were given"
    )
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
            "equally weighted: what a size is worth without choosing. Times are the best of five "
            "calls on the machine that made this report, one thread: first as each is served (the "
            "full ensemble by its own library, sparsebag compiled), then all compiled alike, "
            "which leaves what having fewer members is worth.</p>"
        )
    parts.append(_sizes(report))
    parts += [f"<p>{html.escape(note)}</p>" for note in report.notes]
    return "".join(parts)


def _sizes(report: CompressionReport) -> str:
    """Which of a model's sizes is which."""
    details = report.details
    if details is None:
        return ""
    told = "“Pickled” is what Python writes of the members, with all that training left in them."
    if details.frontier is not None and details.frontier.bytes_are == "in memory":
        at = details.frontier.chosen
        kilobytes = float(details.frontier.table.bytes[at]) / 1000
        told += (
            f" In memory their nodes and leaves take {kilobytes:,.0f} kB: that is what the "
            "frontier shows and max_bytes limits."
        )
    if details.file_bytes is not None:
        told += (
            f" The .sbag file has {details.file_bytes / 1000:,.0f} kB: only what predicting needs, "
            "and what you deploy."
        )
    return f"<p class='sb-soft'>{told}</p>"


def _frontier(details: Details) -> str:
    frontier = details.frontier
    if frontier is None:
        return (
            "<p>The weights were fitted under a penalty (lam is a number), so no path of sizes was "
            "judged; with lam='auto' there is one.</p>"
        )
    chosen = frontier.chosen
    first = slider_points(frontier)[chosen]
    shown = (
        ("members", "bytes", "latency") if frontier.latency is not None else ("members", "bytes")
    )
    figures = "".join(f"<figure>{charts.frontier_chart(frontier, by)}</figure>" for by in shown)
    readout = "".join(
        f"<div><dt>{html.escape(name)}</dt>"
        f"<dd data-figure='{key}'>{html.escape(first[key])}</dd></div>"
        for key, name in (
            ("members", "members"),
            ("risk", f"expected {frontier.score}"),
            ("change", "against all members"),
            ("random", "as many at random"),
            ("nodes", "nodes"),
            ("bytes", f"bytes {frontier.bytes_are}"),
            ("latency", "1000 rows"),
        )
    )
    words = "" if details.selection is None else f"<pre>{html.escape(str(details.selection))}</pre>"
    return (
        f"{words}"
        f"{charts.frontier_key(frontier)}"
        f"<div class='sb-row'>{figures}</div>"
        # The script shows what only the script can move.
        "<div class='sb-slider'><div id='sb-controls' hidden>"
        "<label for='sb-size'>Walk along the frontier</label> "
        "<button type='button' id='sb-back'>back to the size that was kept</button>"
        f"<input id='sb-size' type='range' min='0' max='{len(frontier.table) - 1}' step='1' "
        f"value='{chosen}' aria-valuetext='{html.escape(first['words'], quote=True)}' "
        "aria-describedby='sb-size-help'></div>"
        f"<dl>{readout}</dl>"
        f"<p class='sb-note' data-figure='note'>{html.escape(first['note'])}</p></div>"
        "<p class='sb-soft' id='sb-size-help'>The expected risk comes "
        "from the training rows alone (out of bag, cross-fitted"
        f"{', both sides calibrated' if frontier.score == 'Brier score' else ''}); the kept size "
        "may lie above the line because the optimism of having been picked is added to it. Sizes "
        "that lose far more lie above the top. Times between the dots are interpolated.</p>"
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
        f"<div class='sb-row'><figure>{charts.reliability_chart(before, after)}</figure>"
        f"<figure>{charts.bin_counts_chart(before, after)}</figure></div>"
        f"<details><summary>The bins as a table</summary>{bins}</details>"
    )


def _bin_cells(curve: ReliabilityCurve, low: float) -> list[str]:
    at = np.flatnonzero(np.isclose(curve.edges[:, 0], low))
    if not len(at):
        return ["0", "–", "–"]
    i = int(at[0])
    return [f"{curve.count[i]:,.0f}", f"{curve.confidence[i]:.3f}", f"{curve.accuracy[i]:.3f}"]


def _weights(details: Details) -> str:
    weights = details.weights
    kept = weights[weights > 0.0]
    return (
        f"<p>{len(kept)} of {len(weights)} weights are above zero; they spread the vote as "
        f"{effective_members(weights):.1f} equal ones would. The largest is {kept.max():.4g}, the "
        f"smallest {kept.min():.4g}.</p>"
        f"{charts.spectrum_key()}"
        f"<figure style='max-width:34rem'>{charts.spectrum_chart(weights)}</figure>"
    )


def _trusted(trusted: TrustedMembers) -> str:
    """Rows of two features by the member they trust more than globally; the same in figures."""
    by_member = any(group.usual for group in trusted.groups)
    head = ["rows that trust more than globally" if by_member else "rows with", "rows"]
    head += ["global weight", "mean weight there"] if by_member else []
    head.append("middle values there")
    lines = [
        [g.name, f"{g.n_rows:,}", *((g.usual, g.here) if by_member else ()), g.where]
        for g in trusted.groups
    ]
    regions = ""
    if trusted.regions:
        titles = ["region", "test rows", "temperature", "members trusted more, from → to"]
        shown = table("Regions of the gate", titles, [list(r) for r in trusted.regions], left=(3,))
        regions = f"<details><summary>{len(trusted.regions)} regions</summary>{shown}</details>"
    summary = html.escape(trusted.summary)
    return (
        f"<pre>{summary}</pre>"
        f"<div class='sb-row'><figure>{charts.trusted_chart(trusted)}</figure>"
        f"{table('The same in figures', head, lines, left=(len(head) - 1,))}</div>{regions}"
        "<p class='sb-soft'>Each mark is a test row, drawn by the two features that move most of "
        "the vote; its shape and colour say which member gained most over its global "
        "weight. <code>small.explain_weights(X)</code> has every row's weights.</p>"
    )


def effective_members(weights: np.ndarray) -> float:
    """How many equally weighted members would spread the vote as much: ``1 / Σ w²``.

    Parameters
    ----------
    weights : ndarray

    Returns
    -------
    float

    Examples
    --------
    >>> effective_members(np.array([0.5, 0.5, 0.0]))
    2.0
    """
    return 1.0 / float(np.sum(np.square(weights)))


def _coverage(details: Details) -> str:
    found = details.coverage
    parts = []
    if found is not None:
        what = {"oob": "out-of-bag rows", "holdout": "held-out rows"}.get(found.source, "rows")
        lines = [
            ["rows", f"{found.n_rows:,}"],
            ["rows without a vote: no member has them out of bag", f"{found.n_uncovered:,}"],
            ["rows none of the survivors has out of bag", f"{found.n_without_survivor:,}"],
            ["members that vote on a row, mean", f"{found.voters:.1f}"],
            ["survivors that vote on a row, mean", f"{found.survivors:.1f}"],
        ]
        parts.append(table(f"Evidence: {what}", ["", "count"], lines))
    if details.cautions:
        parts.append("<p>Warnings are at the top of the page.</p>")
    else:
        parts.append("<p class='sb-ok'>No warnings.</p>")
    return "".join(parts)


def _settings(details: Details) -> str:
    settings = table("Settings", ["", "value"], [[k, v] for k, v in details.settings.items()])
    made = table("Made with", ["", "version"], [[k, v] for k, v in details.versions.items()])
    return f"<div class='sb-row'>{settings}{made}</div>"
