"""The report's charts as SVG text: lines, bands and points on two axes; no library, no network.

Colours are CSS variables with a fallback, so that a page can change them for dark mode and a
notebook needs no style sheet. Every chart has a title and a description for screen readers.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sparsebag.judge.curve import RiskCurve
from sparsebag.report.metrics import ReliabilityCurve

Numbers = Sequence[float] | np.ndarray

BEFORE = "var(--sb-before, #4b6584)"
AFTER = "var(--sb-after, #c2410c)"
DIAGONAL = "var(--sb-random, #6b7280)"
GRID = "var(--sb-grid, #d7dce2)"
PAGE = "var(--sb-page, #fff)"
MIDDLE = 'text-anchor="middle"'
DASHED, FAINT = ";stroke-dasharray:6 4", ";stroke-width:1;stroke-opacity:.55"
LEFT, RIGHT, TOP, BOTTOM = 62.0, 12.0, 12.0, 44.0
"""Room for labels around a chart's area, in pixels."""
SMALL = (440.0, 300.0)
"""Width and height of a chart whose text can be read on a phone."""
MOST_CHANGE = 100.0
"""Percent: sizes that lose more are cut off at the top of the chart, lest they flatten the rest."""


def curve_chart(curve: RiskCurve, kept: int, prefix: str = "sb") -> str:
    """Expected change of the loss in percent against size, the kept size marked.

    The marker of class ``sb-marker`` carries the coordinates of every size for the slider.
    """
    has_nodes = bool(np.all(curve.n_nodes > 0))
    x = (curve.n_nodes if has_nodes else curve.n_members).astype(float)
    change, error = 100.0 * (curve.ratio - 1.0), 100.0 * curve.error
    seen = is_on_chart(curve, kept)
    around = np.concatenate([(change - error)[seen], (change + error)[seen], [0.0]])
    room = 0.06 * (np.ptp(around) or 1.0)
    high = float(around.max() + room)
    chart = Chart(
        Axis("nodes" if has_nodes else "members", x.min(), x.max(), is_log=True),
        Axis("change of the loss, %", float(around.min() - room), high),
        *SMALL,
    )
    drawn = np.minimum(np.nan_to_num(change, posinf=1e9), high + MOST_CHANGE)
    chart.band(x, drawn - error, drawn + error, AFTER)
    chart.line(x[[0, -1]], [0.0, 0.0], BEFORE, DASHED)
    chart.line(x, drawn, AFTER)
    chart.dots(x, drawn, AFTER, radius=2.5)
    path = {"x": [chart.left(v) for v in x], "y": [max(chart.top(v), TOP) for v in drawn]}
    at = f'cx="{path["x"][kept]}" cy="{path["y"][kept]}"'
    chart.marks.append(
        f'<circle class="sb-chosen" {at} r="8" style="fill:none;stroke:{AFTER};stroke-width:2"/>'
        f'<circle class="sb-marker" {at} r="5" style="fill:{AFTER};stroke:{PAGE}" '
        f"data-path='{json.dumps(path)}'/>"
    )
    return chart.svg(
        f"{prefix}-curve",
        f"Expected change of the {curve.score} against size",
        f"Kept: {x[kept]:,.0f} of {x[-1]:,.0f} {chart.x.label}, {curve.score} {change[kept]:+.1f}% "
        f"± {error[kept]:.1f}%. The shaded band is one standard error.",
    )


def is_on_chart(curve: RiskCurve, kept: int) -> np.ndarray:
    """Of each size, whether the chart shows it: the kept one, and what loses not far more."""
    change = 100.0 * (curve.ratio - 1.0)
    return np.isfinite(change) & (change <= max(MOST_CHANGE, float(change[kept])))


def reliability_chart(before: ReliabilityCurve, after: ReliabilityCurve, prefix: str = "sb") -> str:
    """How often predictions come true against how sure they are, before and after."""
    least = min(float(np.min(v)) for c in (before, after) for v in (c.confidence, c.accuracy))
    low = max(math.floor(10.0 * least - 0.01) / 10.0, 0.0)  # where predictions are
    chart = Chart(
        Axis("predicted probability", low, 1.0), Axis("share correct", low, 1.0), 440.0, 340.0
    )
    chart.line([low, 1.0], [low, 1.0], DIAGONAL, DASHED)
    for curve, colour in ((before, BEFORE), (after, AFTER)):
        chart.line(curve.confidence, curve.accuracy, colour, FAINT)
        for x, y, n in zip(curve.confidence, curve.accuracy, curve.count, strict=True):
            chart.line([x, x], share_interval(y, n), colour, FAINT)
            radius = 2.0 + 4.0 * (n / float(np.max(curve.count))) ** 0.5
            chart.dots([x], [y], colour, radius=radius, hollow=curve is before)
    return chart.svg(
        f"{prefix}-reliability",
        "Reliability diagram",
        "A calibrated model lies on the diagonal: of predictions with probability p, a share p is "
        "correct. Above it a model is underconfident, below it overconfident. Larger points hold "
        "more rows; the thin bars are 95% intervals. Open squares: the full ensemble; filled "
        "discs: sparsebag. The table of bins has the figures.",
    )


def share_interval(share: float, n: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95% interval of a share of ``n`` rows.

    Examples
    --------
    >>> [round(end, 2) for end in share_interval(1.0, 2)]
    [0.34, 1.0]
    """
    centre = (share + z * z / (2.0 * n)) / (1.0 + z * z / n)
    half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)) ** 0.5
    return max(centre - half, 0.0), min(centre + half, 1.0)


@dataclass(frozen=True)
class Axis:
    """A range of values and how it is spread over pixels.

    Examples
    --------
    >>> Axis("members", 1.0, 100.0, is_log=True).share(10.0)
    0.5
    >>> Axis("", 0.0, 1.0).ticks()
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """

    label: str
    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies: from 0 to 1 within the range, beyond them outside it."""
        low, high, at = self.low, self.high, float(value)
        if self.is_log:
            low, high, at = (math.log(max(v, 1e-300)) for v in (low, high, at))
        return (at - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[float]:
        """Round values to write at the axis."""
        if not self.high > self.low:
            return [self.low]
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            digits = (1, 2, 5) if self.high < 500.0 * self.low else (1,)
            marks = [m * 10.0**p for p in powers for m in digits]
            within = [m for m in marks if self.low * 0.999 <= m <= self.high * 1.001]
            if len(within) > 1:
                return within
        rough = (self.high - self.low) / 5
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in (1.0, 2.0, 5.0, 10.0) if s * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


@dataclass
class Chart:
    """Marks on two axes, collected and then written as one ``<svg>``."""

    x: Axis
    y: Axis
    width: float = 560.0
    height: float = 300.0
    marks: list[str] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)

    def left(self, value: float) -> float:
        """Pixels from the left."""
        return round(LEFT + self.x.share(value) * (self.width - LEFT - RIGHT), 2)

    def top(self, value: float) -> float:
        """Pixels from the top; values beyond the axis lie beyond the area, where lines are cut."""
        return round(TOP + (1.0 - self.y.share(value)) * (self.height - TOP - BOTTOM), 2)

    def line(self, xs: Numbers, ys: Numbers, colour: str, style: str = "") -> None:
        """A line through points, cut where it leaves the area."""
        self.clipped.append(
            f'<polyline points="{self._points(xs, ys)}" '
            f'style="fill:none;stroke:{colour};stroke-width:2{style}"/>'
        )

    def band(self, xs: Numbers, low: Numbers, high: Numbers, colour: str) -> None:
        """A shaded area between two lines."""
        around = self._points([*xs, *xs[::-1]], [*high, *low[::-1]])
        self.clipped.append(
            f'<polygon points="{around}" style="fill:{colour};fill-opacity:.15;stroke:none"/>'
        )

    def dots(
        self, xs: Numbers, ys: Numbers, colour: str, *, radius: float, hollow: bool = False
    ) -> None:
        """Discs, or open squares, known apart without colour; those above the area are left out."""
        for a, b in zip(xs, ys, strict=True):
            x, y = self.left(a), self.top(b)
            if y < TOP:
                continue
            self.marks.append(
                f'<rect x="{x - radius:.2f}" y="{y - radius:.2f}" width="{2 * radius:.2f}" '
                f'height="{2 * radius:.2f}" style="fill:{PAGE};stroke:{colour};stroke-width:1.5"/>'
                if hollow
                else f'<circle cx="{x}" cy="{y}" r="{radius:.3g}" style="fill:{colour}"/>'
            )

    def svg(self, name: str, title: str, description: str) -> str:
        """The chart as text; its name must be unique in the page."""
        width, height = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM
        return (
            f'<svg class="sb-chart" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" style="font:12px system-ui,sans-serif;'
            f'fill:currentColor;max-width:100%;height:auto">'
            f'<title id="{name}-title">{html.escape(title)}</title>'
            f'<desc id="{name}-desc">{html.escape(description)}</desc>{self._axes()}'
            f'<clipPath id="{name}-area"><rect x="{LEFT:g}" y="{TOP:g}" width="{width:g}" '
            f'height="{height:g}"/></clipPath>'
            f'<g clip-path="url(#{name}-area)">{"".join(self.clipped)}</g>'
            f"{''.join(self.marks)}</svg>"
        )

    def _points(self, xs: Numbers, ys: Numbers) -> str:
        return " ".join(f"{self.left(a)},{self.top(b)}" for a, b in zip(xs, ys, strict=True))

    def _axes(self) -> str:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        across = (TOP + bottom) / 2.0
        parts = [
            f'<line x1="{LEFT:g}" x2="{right:g}" y1="{at}" y2="{at}" style="stroke:{GRID}"/>'
            f'<text x="{LEFT - 6:g}" y="{at + 4}" text-anchor="end">{shown(value)}</text>'
            for value, at in ((v, self.top(v)) for v in self.y.ticks())
        ]
        for value in self.x.ticks():
            at, text = self.left(value), shown(value)
            # At the right edge a label ends with the chart, lest the edge cut it.
            is_cut = at + 3.6 * len(text) > self.width
            place = f'x="{self.width:g}" text-anchor="end"' if is_cut else f'x="{at}" {MIDDLE}'
            parts.append(
                f'<line x1="{at}" x2="{at}" y1="{bottom:g}" y2="{bottom + 4:g}" '
                f'style="stroke:currentColor"/><text {place} y="{bottom + 17:g}">{text}</text>'
            )
        return "".join(parts) + (
            f'<line x1="{LEFT:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}" '
            'style="stroke:currentColor"/>'
            f'<text x="{(LEFT + right) / 2.0:g}" y="{self.height - 8:g}" {MIDDLE}>'
            f"{html.escape(self.x.label)}</text>"
            f'<text x="18" y="{across:g}" {MIDDLE} '
            f'transform="rotate(-90 18 {across:g})">{html.escape(self.y.label)}</text>'
        )


def shown(value: float) -> str:
    """A number for an axis: short, with k, M, G for thousands and beyond.

    Examples
    --------
    >>> shown(2_000_000), shown(20_000), shown(0.035), shown(0)
    ('2M', '20k', '0.035', '0')
    """
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / size:g}{unit}"
    return f"{value:.6g}"
