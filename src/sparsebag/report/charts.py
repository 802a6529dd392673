"""The report's charts: frontier, reliability diagram, weights' spectrum, a gate's members."""

from __future__ import annotations

import html
import json

import numpy as np

from sparsebag.report.frontier import Frontier
from sparsebag.report.legend import legend
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.svg import AFTER, BEFORE, LEFT, PAGE, RANDOM, TOP, Axis, Chart, padded
from sparsebag.report.trusted_members import TrustedMembers, axis_range

SHOWN_FROM = 3
"""One and two members lose so much that the rest would be a flat line; they lie above the top."""
FEW_SIZES = 4
"""Fewer than this are all shown: there is nothing that they would flatten."""
DRAWN_WEIGHTS = 400
"""Bars beyond this many would be thinner than a pixel."""
MARKS = (
    ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", AFTER),
    ("M-3.5,-3.5h7v7h-7z", BEFORE),
    ("M0,-4.5l4.5,8h-9z", "var(--sb-good, #14713b)"),
    ("M0,-5l5,5l-5,5l-5,-5z", "var(--sb-fourth, #8a3ffc)"),
    ("M-3,-3l6,6m0,-6l-6,6", RANDOM),
)
"""Shape and colour of each group of rows: either alone tells them apart."""
LEGEND_LINE = 17.0
"""Pixels from one line of a legend to the next."""


def frontier_key(frontier: Frontier) -> str:
    """What is drawn how in `frontier_chart`.

    Parameters
    ----------
    frontier : Frontier

    Returns
    -------
    str
    """
    entries = [
        ("chosen members, ± one standard error", AFTER, "line"),
        ("as many random members", RANDOM, "dashed"),
    ]
    for gap in frontier.gaps[:1]:
        out = frontier.left_out(gap) if len(frontier.gaps) == 1 else "Other sizes were not judged"
        entries.append((f"{out}: joins two that were", AFTER, "dotted"))
    return legend(*entries)


def frontier_chart(frontier: Frontier, by: str, prefix: str = "sb") -> str:
    """Expected risk against what a size costs, random members beside it, the kept size marked.

    Where sizes were left out, lines are dotted and there is no band: nothing is known there.

    Parameters
    ----------
    frontier : Frontier
    by : {"members", "bytes", "latency"}
    prefix : str
        Of the ids: another one for every report in the same document.

    Returns
    -------
    str
        An ``<svg>`` with a marker of class ``sb-marker`` that carries the path's coordinates.
    """
    table = frontier.table
    costs: dict[str, tuple[str, np.ndarray | None]] = {
        "members": ("members kept", table.k),
        "bytes": (f"bytes {frontier.bytes_are}", table.bytes),
        "latency": ("ms for 1000 rows, compiled", frontier.latency),
    }
    label, cost = costs[by]
    assert cost is not None
    x = cost.astype(float)
    risk, error = table.expected_risk, table.standard_error
    seen = (table.k >= SHOWN_FROM) | table.chosen
    if np.sum(seen) < FEW_SIZES:
        seen[:] = True
    around = np.concatenate([(risk - error)[seen], (risk + error)[seen]])
    # Risks fall by factors: a logarithmic axis shows what is won at the end, too.
    is_log = bool(np.min(around) > 0.0 and np.max(around) > 2.0 * np.min(around))
    low, high = np.exp(padded(np.log(around))) if is_log else padded(around)
    spread = x[x > 0]
    chart = Chart(
        Axis(label, float(spread.min()), float(spread.max()), is_log=True),
        Axis(f"expected {frontier.score}", max(float(low), 0.0), float(high), is_log=is_log),
    )
    for run in frontier.runs():
        if len(run) == 1:
            interval = np.append(risk[run] - error[run], risk[run] + error[run])
            chart.line(np.repeat(x[run], 2), interval, AFTER, faint=True)
            continue
        at = run[np.argsort(cost[run], kind="stable")]
        chart.band(x[at], (risk - error)[at], (risk + error)[at], AFTER)
        chart.line(x[at], table.random_risk[at], RANDOM, drawn="dashed")
        chart.line(x[at], risk[at], AFTER)
    for gap in frontier.gaps:
        ends = [gap, gap + 1]
        chart.line(x[ends], table.random_risk[ends], RANDOM, drawn="dotted")
        chart.line(x[ends], risk[ends], AFTER, drawn="dotted")
    single = frontier.measured if by == "latency" else frontier.stands_alone()
    chart.dots(x[single], risk[single], AFTER, radius=2.5)
    chosen = frontier.chosen
    chart.raw(
        f'<circle class="sb-chosen" cx="{chart.left(x[chosen])}" cy="{chart.top(risk[chosen])}" '
        f'r="8" style="fill:none;stroke:{AFTER};stroke-width:2"/>'
    )
    # A size above the top is marked at its edge.
    edge = chart.top(chart.y.high)
    path = {"x": [chart.left(v) for v in x], "y": [max(chart.top(v), edge) for v in risk]}
    chart.raw(
        f'<circle class="sb-marker" cx="{path["x"][chosen]}" cy="{path["y"][chosen]}" '
        f'r="5" style="fill:{AFTER};stroke:{PAGE}" '
        f"data-path='{json.dumps(path)}'/>"
    )
    words = (
        f"Kept: {frontier.members_at(chosen)}, expected {frontier.score} {risk[chosen]:.4g}; all "
        f"{int(table.k[-1])}: {risk[-1]:.4g}. The dashed line is as many members drawn at random; "
        "the shaded band is one standard error."
    )
    words += "".join(f" {frontier.left_out(gap)}." for gap in frontier.gaps)
    return chart.svg(f"{prefix}-frontier-{by}", f"Expected {frontier.score} against {label}", words)


def reliability_key() -> str:
    """What is drawn how in `reliability_chart` and `bin_counts_chart`.

    Returns
    -------
    str
    """
    return legend(
        ("full ensemble: open", BEFORE, "square"),
        ("sparsebag: filled", AFTER, "circle"),
        ("honest", RANDOM, "dashed"),
    )


def reliability_chart(before: ReliabilityCurve, after: ReliabilityCurve, prefix: str = "sb") -> str:
    """How often predictions come true against how sure they are, before and after.

    Parameters
    ----------
    before, after : ReliabilityCurve
    prefix : str
        Of the ids.

    Returns
    -------
    str
    """
    chart = Chart(Axis("stated confidence", 0.0, 1.0), Axis("share that is right", 0.0, 1.0))
    chart.line([0.0, 1.0], [0.0, 1.0], RANDOM, drawn="dashed")
    for curve, colour, hollow in ((before, BEFORE, True), (after, AFTER, False)):
        chart.line(curve.confidence, curve.accuracy, colour, faint=True)
        largest = float(np.max(curve.count))
        for confidence, accuracy, count in zip(
            curve.confidence, curve.accuracy, curve.count, strict=True
        ):
            low, high = share_interval(accuracy, count)
            chart.line([confidence, confidence], [low, high], colour, faint=True)
            radius = 2.0 + 4.0 * (count / largest) ** 0.5
            chart.dots([confidence], [accuracy], colour, radius=radius, hollow=hollow)
    return chart.svg(
        f"{prefix}-reliability",
        "Reliability diagram",
        "Points on the diagonal are honest: of predictions stated with confidence p, a share p is "
        "right. Above it a model is too unsure, below it too sure. Larger points hold more rows; "
        "the thin bars are 95 % intervals of the share. Open squares: the full ensemble; filled "
        "discs: sparsebag. "
        "The table of bins has the figures.",
    )


def share_interval(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Where a share is with 95 % confidence, from how many rows it comes (Wilson's interval).

    Parameters
    ----------
    share, n : float
    z : float

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> [round(end, 2) for end in share_interval(1.0, 2)]
    [0.34, 1.0]
    """
    centre = (share + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)) ** 0.5
    return max(centre - half, 0.0), min(centre + half, 1.0)


def bin_counts_chart(before: ReliabilityCurve, after: ReliabilityCurve) -> str:
    """How many rows each bin of the reliability diagram holds, before and after.

    Parameters
    ----------
    before, after : ReliabilityCurve

    Returns
    -------
    str
    """
    most = float(max(before.count.max(), after.count.max()))
    chart = Chart(Axis("stated confidence", 0.0, 1.0), Axis("rows", 0.0, most * 1.05), height=260.0)
    for curve, colour, first in ((before, BEFORE, 0.06), (after, AFTER, 0.52)):
        for (low, high), count in zip(curve.edges, curve.count, strict=True):
            width = high - low
            ends = low + first * width, low + (first + 0.42) * width
            chart.bar(*ends, count, colour, hollow=colour == BEFORE)
    return chart.svg(
        "sb-bins",
        "Rows in each bin of confidence",
        "How often each confidence is stated, before (outlined) and after (filled). "
        "The table of bins has the figures.",
    )


def spectrum_key() -> str:
    """What is drawn how in `spectrum_chart`.

    Returns
    -------
    str
    """
    return legend(("weight", AFTER, "line"), ("equal weight of all members", BEFORE, "dashed"))


def spectrum_chart(weights: np.ndarray) -> str:
    """The weights in descending order, beside the equal weight of the whole ensemble.

    Parameters
    ----------
    weights : ndarray of shape (N,)

    Returns
    -------
    str
    """
    ordered = np.sort(weights)[::-1]
    n = len(ordered)
    chart = Chart(
        Axis("members, by weight", 0.0, float(n)),
        Axis("weight", 0.0, float(ordered[0]) * 1.08),
        width=460.0,
        height=200.0,
    )
    kept = np.flatnonzero(ordered)
    for i in kept[:DRAWN_WEIGHTS]:
        chart.bar(i + 0.1, i + 0.9, float(ordered[i]), AFTER)
    chart.line([0.0, n], [1.0 / n, 1.0 / n], BEFORE, drawn="dashed")
    return chart.svg(
        "sb-spectrum",
        "Spectrum of the weights",
        f"{len(kept)} of {n} weights are above zero; the largest is {ordered[0]:.4g}, the dashed "
        f"line is the equal weight {1.0 / n:.4g} every member had before.",
    )


def trusted_chart(trusted: TrustedMembers, prefix: str = "sb") -> str:
    """Rows by the two features that decide, each marked by the member it trusts more there.

    Parameters
    ----------
    trusted : TrustedMembers
    prefix : str
        Of the chart's ids, which no other chart on the page may have.

    Returns
    -------
    str
    """
    chart = Chart(Axis("", 0.0, 1.0), Axis("", 0.0, 1.0), width=460.0, height=340.0)
    lines = -(-len(trusted.groups) // 2)
    # The legend stands in a band above the rows, where the axis has nothing to show.
    area = chart.top(0.0) - chart.top(1.0)
    low, high = axis_range(trusted.y)
    top = high + (high - low) * lines * LEGEND_LINE / (area - lines * LEGEND_LINE)
    chart.x = Axis(trusted.labels[0], *axis_range(trusted.x))
    chart.y = Axis(trusted.labels[1], low, top)
    for x, y, group in zip(trusted.x, trusted.y, trusted.group_of, strict=True):
        if 0.0 <= chart.x.share(x) <= 1.0 and low <= y <= high:
            chart.raw(_mark(chart.left(x), chart.top(y), int(group)))
    for g, group in enumerate(trusted.groups):
        left = LEFT + 10.0 + g % 2 * 200.0
        line = TOP + 6.0 + g // 2 * LEGEND_LINE
        chart.raw(_mark(left, line, g))
        chart.raw(f'<text x="{left + 10:g}" y="{line + 4:g}">{html.escape(group.name)}</text>')
    told = "; ".join(f"{g.name}: {g.n_rows} rows, {g.where}" for g in trusted.groups)
    return chart.svg(
        f"{prefix}-trusted",
        f"Where which members are trusted, by {trusted.labels[0]} and {trusted.labels[1]}",
        f"Each mark is a row, its shape the member that gained most over its usual weight. {told}.",
    )


def _mark(left: float, top: float, group: int) -> str:
    shape, colour = MARKS[min(group, len(MARKS) - 1)]
    cross = group >= len(MARKS) - 1
    style = f"stroke:{colour};stroke-width:1.5;fill:none" if cross else f"fill:{colour}"
    return (
        f'<path d="{shape}" transform="translate({left:g} {top:g})" '
        f'style="{style};fill-opacity:.75"/>'
    )
