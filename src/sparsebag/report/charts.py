"""The report's charts: loss against size, reliability, a gate's members."""

from __future__ import annotations

import html
import json

import numpy as np

from sparsebag.judge.curve import RiskCurve
from sparsebag.report.legend import legend
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.svg import AFTER, BEFORE, LEFT, PAGE, RANDOM, TOP, Axis, Chart, padded
from sparsebag.report.trusted_members import TrustedMembers, axis_range

HIGHEST_RATIO = 2.0
"""Sizes that lose more are cut off at the top of the chart, lest they flatten the rest."""
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


def curve_key() -> str:
    """What is drawn how in `curve_chart`.

    Returns
    -------
    str
    """
    return legend(
        ("expected, ± one standard error", AFTER, "line"), ("whole ensemble", BEFORE, "dashed")
    )


def curve_chart(curve: RiskCurve, kept: int, prefix: str = "sb") -> str:
    """Expected loss over the whole ensemble's against size, the kept size marked.

    Parameters
    ----------
    curve : RiskCurve
    kept : int
        Position of the size that was kept.
    prefix : str
        Of the ids: another one for every report in the same document.

    Returns
    -------
    str
        An ``<svg>`` with a marker of class ``sb-marker`` that carries the curve's coordinates.
    """
    has_nodes = bool(np.all(curve.n_nodes > 0))
    x = (curve.n_nodes if has_nodes else curve.n_members).astype(float)
    ratio, error = curve.ratio, curve.error
    # A size far above the others, or one that nothing is known of, would flatten the rest.
    seen = np.isfinite(ratio) & (ratio <= HIGHEST_RATIO)
    seen[kept] = np.isfinite(ratio[kept])
    around = np.concatenate([(ratio - error)[seen], (ratio + error)[seen], [1.0]])
    low, high = padded(around)
    chart = Chart(
        Axis("nodes" if has_nodes else "members", x.min(), x.max(), is_log=True),
        Axis(f"{curve.score} over the ensemble's", max(low, 0.0), high),
        width=560.0,
        height=300.0,
    )
    drawn = np.minimum(np.nan_to_num(ratio, posinf=2.0 * high), 2.0 * high)
    chart.band(x, drawn - error, drawn + error, AFTER)
    chart.line(x[[0, -1]], [1.0, 1.0], BEFORE, dashed=True)
    chart.line(x, drawn, AFTER)
    chart.dots(x, drawn, AFTER, radius=2.5)
    edge = chart.top(chart.y.high)  # a size above the top is marked there
    path = {"x": [chart.left(v) for v in x], "y": [max(chart.top(v), edge) for v in drawn]}
    at = f'cx="{path["x"][kept]}" cy="{path["y"][kept]}"'
    chart.raw(
        f'<circle class="sb-chosen" {at} r="8" style="fill:none;stroke:{AFTER};stroke-width:2"/>'
    )
    chart.raw(
        f'<circle class="sb-marker" {at} r="5" style="fill:{AFTER};stroke:{PAGE}" '
        f"data-path='{json.dumps(path)}'/>"
    )
    return chart.svg(
        f"{prefix}-curve",
        f"Expected {curve.score} against size",
        f"Kept: {x[kept]:,.0f} of {x[-1]:,.0f} {chart.x.label}, expected {curve.score} "
        f"{ratio[kept]:.3f} ± {error[kept]:.3f} times the whole ensemble's. The shaded band is one "
        "standard error.",
    )


def reliability_key() -> str:
    """What is drawn how in `reliability_chart`.

    Returns
    -------
    str
    """
    return legend(
        ("full ensemble: open", BEFORE, "square"),
        ("sparsebag: filled", AFTER, "circle"),
        ("perfectly calibrated", RANDOM, "dashed"),
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
    chart.line([0.0, 1.0], [0.0, 1.0], RANDOM, dashed=True)
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
        "A calibrated model lies on the diagonal: of predictions stated with confidence p, p are "
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
        f"Where members are trusted, by {trusted.labels[0]} and {trusted.labels[1]}",
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
