"""Small charts as SVG text: lines, bands and points on two axes; no library, no network.

Colours are CSS variables with a fallback, so that a page can change them for dark mode and a
notebook needs no style sheet. Every chart has a title and a description for screen readers.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

Numbers = Sequence[float] | np.ndarray

BEFORE = "var(--sb-before, #4b6584)"
AFTER = "var(--sb-after, #c2410c)"
RANDOM = "var(--sb-random, #6b7280)"
FAINT = "var(--sb-grid, #d7dce2)"
PAGE = "var(--sb-page, #fff)"
LEFT, RIGHT, TOP, BOTTOM = 56.0, 12.0, 12.0, 44.0
"""Room for labels around a chart's area, in pixels."""
HALF_LETTER = 3.6
"""Half the width of a digit of a tick's label, in pixels."""
TICKS = 5
STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """A range of values and how it is spread over pixels.

    Attributes
    ----------
    label : str
    low, high : float
    is_log : bool

    Examples
    --------
    >>> Axis("members", 1.0, 100.0, is_log=True).share(10.0)
    0.5
    """

    label: str
    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """Where a value lies: from 0 to 1 within the range, beyond them outside it.

        Parameters
        ----------
        value : float

        Returns
        -------
        float
        """
        low, high, at = self.low, self.high, float(value)
        if self.is_log:
            low, high, at = (math.log(max(v, 1e-300)) for v in (low, high, at))
        return (at - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[float]:
        """Round values to write at the axis.

        Returns
        -------
        list of float

        Examples
        --------
        >>> Axis("", 0.0, 1.0).ticks()
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
        """
        if not self.high > self.low:
            return [self.low]
        if self.is_log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            few = len(powers) <= 4
            marks = [m * 10.0**p for p in powers for m in ((1, 2, 5) if few else (1,))]
            within = [m for m in marks if self.low * 0.999 <= m <= self.high * 1.001]
            if len(within) > 1:
                return within
        rough = (self.high - self.low) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in STEPS if s * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [float(f"{i * step:.12g}") for i in range(first, last + 1)]


@dataclass
class Chart:
    """Marks on two axes, collected and then written as one ``<svg>``.

    Attributes
    ----------
    x, y : Axis
    width, height : float
    """

    x: Axis
    y: Axis
    width: float = 360.0
    height: float = 260.0
    marks: list[str] = field(default_factory=list)
    clipped: list[str] = field(default_factory=list)

    def left(self, value: float) -> float:
        """Pixels from the left.

        Parameters
        ----------
        value : float

        Returns
        -------
        float
        """
        return round(LEFT + self.x.share(value) * (self.width - LEFT - RIGHT), 2)

    def top(self, value: float) -> float:
        """Pixels from the top; values beyond the axis lie beyond the area, where lines are cut.

        Parameters
        ----------
        value : float

        Returns
        -------
        float
        """
        return round(TOP + (1.0 - self.y.share(value)) * (self.height - TOP - BOTTOM), 2)

    def line(
        self,
        xs: Numbers,
        ys: Numbers,
        colour: str,
        *,
        dashed: bool = False,
        faint: bool = False,
    ) -> Chart:
        """A line through points.

        Parameters
        ----------
        xs, ys : sequence of float
        colour : str
        dashed, faint : bool

        Returns
        -------
        Chart
        """
        points = " ".join(f"{self.left(a)},{self.top(b)}" for a, b in zip(xs, ys, strict=True))
        dash = ";stroke-dasharray:6 4" if dashed else ""
        width = "1;stroke-opacity:.55" if faint else "2"
        self.clipped.append(
            f'<polyline points="{points}" '
            f'style="fill:none;stroke:{colour};stroke-width:{width}{dash}"/>'
        )
        return self

    def band(self, xs: Numbers, low: Numbers, high: Numbers, colour: str) -> Chart:
        """A shaded area between two lines.

        Parameters
        ----------
        xs, low, high : sequence of float
        colour : str

        Returns
        -------
        Chart
        """
        there = [f"{self.left(a)},{self.top(b)}" for a, b in zip(xs, high, strict=True)]
        back = [f"{self.left(a)},{self.top(b)}" for a, b in zip(xs, low, strict=True)][::-1]
        self.clipped.append(
            f'<polygon points="{" ".join(there + back)}" '
            f'style="fill:{colour};fill-opacity:.15;stroke:none"/>'
        )
        return self

    def dots(
        self,
        xs: Numbers,
        ys: Numbers,
        colour: str,
        *,
        radius: float = 3.5,
        hollow: bool = False,
    ) -> Chart:
        """A point for each pair; points above the area are left out, as lines are cut there.

        Parameters
        ----------
        xs, ys : sequence of float
        colour : str
        radius : float
        hollow : bool
            Open squares in place of discs: known apart without colour.

        Returns
        -------
        Chart
        """
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
        return self

    def raw(self, mark: str) -> Chart:
        """A mark of your own.

        Parameters
        ----------
        mark : str

        Returns
        -------
        Chart
        """
        self.marks.append(mark)
        return self

    def svg(self, name: str, title: str, description: str) -> str:
        """The chart as text.

        Parameters
        ----------
        name : str
            Unique in the page.
        title, description : str
            Read aloud by screen readers.

        Returns
        -------
        str
        """
        return (
            f'<svg class="sb-chart" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" style="font:12px system-ui,sans-serif;'
            f'fill:currentColor;max-width:100%;height:auto">'
            f'<title id="{name}-title">{html.escape(title)}</title>'
            f'<desc id="{name}-desc">{html.escape(description)}</desc>'
            f"{self._axes()}{self._cut(name)}{''.join(self.marks)}</svg>"
        )

    def _cut(self, name: str) -> str:
        """Lines and bands, cut where they leave the area."""
        if not self.clipped:
            return ""
        width, height = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM
        return (
            f'<clipPath id="{name}-area"><rect x="{LEFT:g}" y="{TOP:g}" width="{width:g}" '
            f'height="{height:g}"/></clipPath>'
            f'<g clip-path="url(#{name}-area)">{"".join(self.clipped)}</g>'
        )

    def _axes(self) -> str:
        bottom, right = self.height - BOTTOM, self.width - RIGHT
        parts = []
        for value in self.y.ticks():
            at = self.top(value)
            parts.append(
                f'<line x1="{LEFT:g}" x2="{right:g}" y1="{at}" y2="{at}" style="stroke:{FAINT}"/>'
                f'<text x="{LEFT - 6:g}" y="{at + 4}" text-anchor="end">{shown(value)}</text>'
            )
        for value in self.x.ticks():
            at = self.left(value)
            parts.append(
                f'<line x1="{at}" x2="{at}" y1="{bottom:g}" y2="{bottom + 4:g}" '
                'style="stroke:currentColor"/>'
                f"{self._tick_label(at, bottom + 17.0, shown(value))}"
            )
        middle = (LEFT + right) / 2.0
        across = (TOP + bottom) / 2.0
        parts.append(
            f'<line x1="{LEFT:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}" '
            'style="stroke:currentColor"/>'
            f'<text x="{middle:g}" y="{self.height - 8:g}" text-anchor="middle">'
            f"{html.escape(self.x.label)}</text>"
            f'<text x="13" y="{across:g}" text-anchor="middle" '
            f'transform="rotate(-90 13 {across:g})">{html.escape(self.y.label)}</text>'
        )
        return "".join(parts)

    def _tick_label(self, at: float, y: float, text: str) -> str:
        """Under its tick; at the right edge it ends with the chart, lest the edge cut it."""
        if at + HALF_LETTER * len(text) > self.width:
            return f'<text x="{self.width:g}" y="{y:g}" text-anchor="end">{text}</text>'
        return f'<text x="{at}" y="{y:g}" text-anchor="middle">{text}</text>'


def shown(value: float) -> str:
    """A number for an axis: short, with k, M, G for thousands and beyond.

    Parameters
    ----------
    value : float

    Returns
    -------
    str

    Examples
    --------
    >>> shown(2_000_000), shown(0.035), shown(0)
    ('2M', '0.035', '0')
    """
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if unit == 'k' else size):g}{unit}"
    return f"{value:.6g}"


def padded(values: Numbers, share: float = 0.06) -> tuple[float, float]:
    """A range a little wider than the values, for an axis.

    Parameters
    ----------
    values : sequence of float
    share : float

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> padded([0.0, 1.0], 0.5)
    (-0.5, 1.5)
    """
    low, high = float(np.min(values)), float(np.max(values))
    room = share * ((high - low) or abs(high) or 1.0)
    return low - room, high + room
