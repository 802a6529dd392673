"""The sections of the report page, each from plain data to HTML."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sparsebag.report import charts
from sparsebag.report.details import Details
from sparsebag.report.html_table import table
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.prediction_changes import PredictionChanges
from sparsebag.report.slider import slider_points
from sparsebag.report.svg import AFTER, BEFORE, RANDOM
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
    found.append(Section("frontier", "The frontier: every size and its price", _frontier(details)))
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
        found.append(Section("changed", "What changed", _changed(details.changed)))
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
    full, small = list(report.rows.values())[:2]
    shown = [
        (
            f"{small['members']:.0f}",
            f"of {full['members']:.0f} members",
        )
    ]
    for column, what in (("size (kB)", "smaller"), ("ms / 1000 rows", "as fast")):
        if column in full:
            shown.append((ratio(full[column], small[column], what), _of(full, small, column)))
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


def ratio(before: float, after: float, what: str) -> str:
    """How many times smaller or faster, in words.

    Parameters
    ----------
    before, after : float
    what : str

    Returns
    -------
    str

    Examples
    --------
    >>> ratio(300.0, 60.0, "smaller"), ratio(1.0, 1.0, "as fast")
    ('5.0× smaller', '1.0× as fast')
    """
    times = before / max(after, 1e-9)
    return f"{times:.1f}× {what}" if times < 10.0 else f"{times:,.0f}× {what}"


def _of(full: dict[str, float], small: dict[str, float], column: str) -> str:
    if column.startswith("ms"):
        return f"{small[column]:.2f} of {full[column]:.2f} ms for 1000 rows"
    return f"{small[column]:,.0f} of {full[column]:,.0f} kB, pickled"


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

    caption = f"{report.n_rows:,} test rows" if report.n_rows else "Sizes; no test rows were given"
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
            "equally weighted: what a size is worth without choosing. Times are the best "
            "of five calls on the machine that made this report, one thread.</p>"
        )
    parts += [f"<p>{html.escape(note)}</p>" for note in report.notes]
    return "".join(parts)


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
            ("bytes", "bytes of the members"),
            ("latency", "1000 rows"),
        )
    )
    key = _key(("chosen members, ± one standard error", AFTER, ""), ("random members", RANDOM, "d"))
    words = "" if details.selection is None else f"<pre>{html.escape(str(details.selection))}</pre>"
    return (
        f"{words}"
        f"{key}"
        f"<div class='sb-row'>{figures}</div>"
        "<div class='sb-slider'><label for='sb-size'>Walk along the frontier</label> "
        "<button type='button' id='sb-back'>back to the size that was kept</button>"
        f"<input id='sb-size' type='range' min='0' max='{len(frontier.table) - 1}' step='1' "
        f"value='{chosen}' aria-valuetext='{html.escape(first['words'], quote=True)}' "
        "aria-describedby='sb-size-help'>"
        f"<dl>{readout}</dl></div>"
        "<p class='sb-soft' id='sb-size-help'>Arrow keys move by one size. The expected risk comes "
        "from the training rows alone (out of bag, cross-fitted"
        f"{', both sides calibrated' if frontier.score == 'Brier score' else ''}); the kept size "
        "may lie above the line because the optimism of having been picked is added to it. Sizes "
        "of one and two members lie above the top. Times between the dots are interpolated.</p>"
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
        f"{_key(('full ensemble', BEFORE, ''), ('sparsebag', AFTER, ''), ('honest', RANDOM, 'd'))}"
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
        f"{_key(('weight', AFTER, ''), ('equal weight of all members', BEFORE, 'd'))}"
        f"<figure style='max-width:40rem'>{charts.spectrum_chart(weights)}</figure>"
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


def _changed(changed: PredictionChanges) -> str:
    share = changed.n_changed / max(changed.n_rows, 1)
    if not changed.classes:
        text = (
            f"{changed.n_changed:,} of {changed.n_rows:,} predictions ({share:.1%}) moved by more "
            f"than a tenth of the targets' spread: {changed.mended:,} closer to the target, "
            f"{changed.broken:,} farther from it."
        )
        quantiles = [[name, f"{value:.4g}"] for name, value in changed.quantiles.items()]
        tables_of = table("Absolute change of the prediction", ["", "change"], quantiles)
    else:
        text = (
            f"{changed.n_changed:,} of {changed.n_rows:,} rows ({share:.1%}) are predicted "
            f"otherwise: {changed.mended:,} were wrong and are right now, {changed.broken:,} were "
            "right and are wrong now."
        )
        lines = [
            [
                c.label,
                f"{c.n_rows:,}",
                f"{c.right_before:,}",
                f"{c.right_after:,}",
                f"{c.changed:,}",
            ]
            for c in changed.classes
        ]
        head = ["class", "rows", "right before", "right after", "predicted otherwise"]
        tables_of = table("Rows by their true class", head, lines)
        if changed.moves:
            moves = [[f"{a} → {b}", f"{n:,}"] for a, b, n in changed.moves]
            tables_of += table("Most frequent moves", ["label before → after", "rows"], moves)
    return f"<p>{text}</p><div class='sb-row'>{tables_of}</div>{_changed_rows(changed)}"


def _changed_rows(changed: PredictionChanges) -> str:
    if not changed.rows:
        return ""
    lines = [
        [
            f"{row.row}",
            row.truth,
            _sure(row.before, row.sure_before),
            _sure(row.after, row.sure_after),
        ]
        for row in changed.rows
    ]
    head = ["test row (from 0)", "truth", "before", "after"]
    rows = table("Rows whose prediction moved most", head, lines)
    return f"<details><summary>{len(lines)} rows that moved most</summary>{rows}</details>"


def _sure(label: str, sure: float | None) -> str:
    return label if sure is None else f"{label} ({sure:.0%})"


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


def _key(*entries: tuple[str, str, str]) -> str:
    lines = "".join(
        f"<li><i aria-hidden='true'{' class=sb-dash' if dashed else ''} "
        f"style='border-color:{colour}'></i>{html.escape(text)}</li>"
        for text, colour, dashed in entries
    )
    return f"<ul class='sb-key'>{lines}</ul>"
