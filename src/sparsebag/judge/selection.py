"""`Selection`: what was kept and what it is expected to cost, in a few lines."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, replace

import numpy as np

from sparsebag.judge.curve import NO_RATIO, RiskCurve


@dataclass(frozen=True)
class Size:
    """How large a model is.

    Attributes
    ----------
    members, nodes : int
        Members, and nodes of those that are trees.
    nbytes : int
        Of the saved file; of the whole ensemble, about those of its pickle.
    comparisons : float
        That a row meets on its way through all trees; 0 where there are none.
    """

    members: int
    nodes: int
    nbytes: int
    comparisons: float


@dataclass(frozen=True)
class Selection:
    """What was kept, and what it is expected to cost. ``print`` it.

    Attributes
    ----------
    before, after : Size
    curve : RiskCurve or None
        Every size that was considered; None where nothing judged them.
    position : int
        Of the chosen size in the curve.
    tolerance : float or None
        The increase that was accepted; None where a budget decided.
    done : str
        What was done, in a few words.
    noun : {"trees", "members"}
    is_part : bool
        Whether a Pipeline or another model is around the ensemble, which sizes leave out.
    """

    before: Size
    after: Size
    curve: RiskCurve | None
    position: int
    tolerance: float | None
    done: str
    noun: str
    is_part: bool = False

    def __post_init__(self) -> None:
        if self.curve is not None:
            told = replace(self.curve, kept=self.position, tolerance=self.tolerance)
            object.__setattr__(self, "curve", told)

    @property
    def ratio(self) -> float:
        """Expected loss over that of the ensemble as it is; NaN where nothing judged it."""
        return float("nan") if self.curve is None else float(self.curve.ratio[self.position])

    @property
    def interval(self) -> tuple[float, float]:
        """Where ``ratio`` is with 95% confidence."""
        if self.curve is None:
            return float("nan"), float("nan")
        error = 1.96 * float(self.curve.error[self.position])
        return max(self.ratio - error, 0.0), self.ratio + error

    @property
    def expected_risk(self) -> float:
        """Expected Brier score or squared error on new rows."""
        return float("nan") if self.curve is None else self.ratio * self.curve.whole_risk

    @property
    def kept_whole(self) -> bool:
        """Whether every member was kept as it is."""
        return self.curve is not None and self.position == len(self.curve) - 1

    def in_words(self) -> dict[str, str]:
        """What was kept and what to expect, by a label each.

        Returns
        -------
        dict
        """
        a, b = self.before, self.after
        told = {self.noun: f"{a.members:,} → {b.members:,}"}
        if b.nodes:
            kept = 100.0 * b.nodes / a.nodes
            share = f"{kept:.0f}%" if kept >= 10.0 else f"{kept:.2g}%"
            told["nodes"] = f"{a.nodes:,} → {b.nodes:,} ({share})"
        was = f"{in_bytes(a.nbytes)} (pickle) → " if a.nbytes else ""
        told["file"] = was + in_bytes(b.nbytes) + " (ensemble only)" * self.is_part
        if b.comparisons:
            told["work"] = f"{a.comparisons:,.0f} → {b.comparisons:,.0f} comparisons per row"
        told |= {"quality": self._quality(), "method": self.done}
        if self.curve is not None and (b.nodes or b.members > 1):
            told["next"] = self._next()
        return told

    def __str__(self) -> str:
        return in_lines(self.in_words())

    def _repr_html_(self) -> str:
        """The same lines, for notebooks."""
        return f"<pre>{self}</pre>"

    def _quality(self) -> str:
        if self.curve is None:
            return "not estimated; measure it with report(X_test, y_test)"
        if self.ratio >= NO_RATIO:
            return "not comparable: the ensemble made no error on held-out rows"
        if self.kept_whole and np.isclose(self.ratio, 1.0):
            is_smaller = self.tolerance is None or self.after.members < self.before.members
            return "unchanged" if is_smaller else "unchanged: no smaller model within the tolerance"
        low, high = (_change(end) for end in self.interval)
        change = f"{self.curve.score} {_change(self.ratio)}"
        return f"{change} expected (95% interval {low} to {high})"

    def _next(self) -> str:
        if self.tolerance is None:
            return "for better quality, raise the budget; path_ shows what that gains"
        limit = "max_nodes" if self.noun == "trees" else "max_estimators"
        curve = self.curve
        if curve is not None and curve.ratio_calibrated[self.position] > 1.0 + self.tolerance:
            return "raise the budget: at this size, the loss exceeds the tolerance"
        if self.position == 0:
            return f"this is the smallest size judged; set {limit} for a smaller one"
        return f"for a smaller model, raise tolerance or set {limit}; see path_"


def _change(ratio: float) -> str:
    return f"{ratio - 1.0:+.1%}" if abs(ratio - 1.0) < 0.0995 else f"{ratio - 1.0:+.0%}"


def in_lines(told: dict[str, str]) -> str:
    """Facts with a label each, in lines of eighty columns.

    Examples
    --------
    >>> print(in_lines({"trees": "300 → 32", "work": "3,068 → 132 comparisons per row"}))
    trees    300 → 32
    work     3,068 → 132 comparisons per row
    """
    wrapped = textwrap.TextWrapper(80, subsequent_indent=" " * 9, break_long_words=False)
    return "\n".join(wrapped.fill(f"{label:<9}{text}") for label, text in told.items())


def in_bytes(n: float) -> str:
    """A size with its unit.

    Examples
    --------
    >>> in_bytes(870), in_bytes(48_231), in_bytes(17_500_000)
    ('870 bytes', '48.2 kB', '17.5 MB')
    """
    value, unit = float(n), "bytes"
    for larger in ("kB", "MB", "GB"):
        if value < 999.5:
            break
        value, unit = value / 1000.0, larger
    return f"{value:.0f} {unit}" if value >= 100.0 or unit == "bytes" else f"{value:.3g} {unit}"
