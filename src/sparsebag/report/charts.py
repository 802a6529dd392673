"""The report's charts: frontier, reliability diagram, weights' spectrum."""

from __future__ import annotations

import json

import numpy as np

from sparsebag.report.frontier import Frontier
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.svg import AFTER, BEFORE, RANDOM, Axis, Chart, padded

SHOWN_FROM = 3
"""One and two members lose so much that the rest would be a flat line; they lie above the top."""
DRAWN_WEIGHTS = 400
"""Bars beyond this many would be thinner than a pixel."""


def frontier_chart(frontier: Frontier, by: str) -> str:
    """Expected risk against what a size costs, random members beside it, the kept size marked.

    Parameters
    ----------
    frontier : Frontier
    by : {"members", "bytes", "latency"}

    Returns
    -------
    str
        An ``<svg>`` with a marker of class ``sb-marker`` that carries the path's coordinates.
    """
    table = frontier.table
    costs: dict[str, tuple[str, np.ndarray | None]] = {
        "members": ("members kept", table.k),
        "bytes": ("bytes of the members", table.bytes),
        "latency": ("ms for 1000 rows, compiled", frontier.latency),
    }
    label, cost = costs[by]
    assert cost is not None
    x, order = cost.astype(float), np.argsort(cost, kind="stable")
    risk, error = table.expected_risk, table.standard_error
    seen = table.k >= min(SHOWN_FROM, int(table.k.max()))
    around = np.concatenate([(risk - error)[seen], (risk + error)[seen]])
    # Risks fall by factors: a logarithmic axis shows what is won at the end, too.
    is_log = bool(np.min(around) > 0.0 and np.max(around) > 2.0 * np.min(around))
    low, high = np.exp(padded(np.log(around))) if is_log else padded(around)
    spread = x[x > 0]
    chart = Chart(
        Axis(label, float(spread.min()), float(spread.max()), is_log=True),
        Axis(f"expected {frontier.score}", max(float(low), 0.0), float(high), is_log=is_log),
    )
    chart.band(x[order], (risk - error)[order], (risk + error)[order], AFTER)
    chart.line(x[order], table.random_risk[order], RANDOM, dashed=True)
    chart.line(x[order], risk[order], AFTER)
    if by == "latency":
        at = frontier.measured
        chart.dots(x[at], risk[at], AFTER, radius=2.5)
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
        f'r="5" style="fill:{AFTER};stroke:var(--sb-page, #fff)" '
        f"data-path='{json.dumps(path)}'/>"
    )
    words = (
        f"Kept: {int(table.k[chosen])} members, expected {frontier.score} {risk[chosen]:.4g}; all "
        f"{int(table.k[-1])}: {risk[-1]:.4g}. The dashed line is as many members drawn at random; "
        "the shaded band is one standard error."
    )
    return chart.svg(f"sb-frontier-{by}", f"Expected {frontier.score} against {label}", words)


def reliability_chart(before: ReliabilityCurve, after: ReliabilityCurve) -> str:
    """How often predictions come true against how sure they are, before and after.

    Parameters
    ----------
    before, after : ReliabilityCurve

    Returns
    -------
    str
    """
    chart = Chart(Axis("stated confidence", 0.0, 1.0), Axis("share that is right", 0.0, 1.0))
    chart.line([0.0, 1.0], [0.0, 1.0], RANDOM, dashed=True)
    for curve, colour in ((before, BEFORE), (after, AFTER)):
        chart.line(curve.confidence, curve.accuracy, colour, faint=True)
        largest = float(np.max(curve.count))
        for confidence, accuracy, count in zip(
            curve.confidence, curve.accuracy, curve.count, strict=True
        ):
            low, high = share_interval(accuracy, count)
            chart.line([confidence, confidence], [low, high], colour, faint=True)
            chart.dots(
                [confidence], [accuracy], colour, radius=2.0 + 4.0 * (count / largest) ** 0.5
            )
    return chart.svg(
        "sb-reliability",
        "Reliability diagram",
        "Points on the diagonal are honest: of predictions stated with confidence p, a share p is "
        "right. Above it a model is too unsure, below it too sure. Larger points hold more rows; "
        "the thin bars are 95 % intervals of the share. "
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
    for curve, colour, first in ((before, BEFORE, 0.06), (after, AFTER, 0.5)):
        for (low, high), count in zip(curve.edges, curve.count, strict=True):
            width = high - low
            chart.bar(low + first * width, low + (first + 0.44) * width, count, colour)
    return chart.svg(
        "sb-bins",
        "Rows in each bin of confidence",
        "How often each confidence is stated, before and after. The table of bins has the figures.",
    )


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
        width=560.0,
        height=220.0,
    )
    kept = np.flatnonzero(ordered)
    for i in kept[:DRAWN_WEIGHTS]:
        chart.bar(i + 0.1, i + 0.9, float(ordered[i]), AFTER)
    chart.line([0.0, n], [1.0 / n, 1.0 / n], BEFORE, dashed=True)
    return chart.svg(
        "sb-spectrum",
        "Spectrum of the weights",
        f"{len(kept)} of {n} weights are above zero; the largest is {ordered[0]:.4g}, the dashed "
        f"line is the equal weight {1.0 / n:.4g} every member had before.",
    )
