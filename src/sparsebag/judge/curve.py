"""`RiskCurve`: what each size is expected to cost, whoever drew it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.isotonic import isotonic_regression

FEWEST_ROWS = 30
"""Fewer rows say nothing for sure, whatever they agree on."""
SAME_SIZE = 0.01
"""Relative difference of shares that are one size: a budget counts whole nodes."""
NO_RATIO = 1e6
"""Of a loss to none: beyond every tolerance, and finite, so that neighbours can be averaged."""


@dataclass(frozen=True)
class RiskCurve:
    """Expected Brier score or squared error of every size, against the whole ensemble's.

    The last size is the whole ensemble. Errors are standard errors of the paired differences on
    the same held-out rows.

    Attributes
    ----------
    share : ndarray of shape (S,)
        Of the ensemble's nodes, or of its members where these are no trees. Rising.
    n_nodes, n_members : ndarray of shape (S,)
        What a model of that size has.
    ratio, error : ndarray of shape (S,)
        Risk over that of the ensemble as it is.
    ratio_calibrated, error_calibrated : ndarray of shape (S,)
        Risk over that of the ensemble, floored and calibrated as the small model is; the same as
        ``ratio`` for regressors.
    whole_risk : float
        Risk of the ensemble as it is.
    score : str
        "Brier score" or "squared error"; before it "class-weighted" or "weighted", where rows are.
    judged_by : {"rehearsal", "held-out rows", "out-of-bag rows"}
    is_weighted : bool
        Whether rows count by their class or their weight.
    kept : int or None
        Position of the size that was kept.
    tolerance : float or None
        The limit of ``ratio_calibrated - 1 + margin · error``; None where a budget decided.
    margin : float
        Standard errors that a size must be better than the tolerance.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = RandomForestRegressor(20, random_state=0).fit(X, y)
    >>> curve = sb.compress(forest, X, y).path_
    >>> bool(curve.share[-1] == 1.0), curve.score
    (True, 'squared error')
    """

    share: np.ndarray
    n_nodes: np.ndarray
    n_members: np.ndarray
    ratio: np.ndarray
    error: np.ndarray
    ratio_calibrated: np.ndarray
    error_calibrated: np.ndarray
    whole_risk: float
    score: str
    judged_by: str
    is_weighted: bool = False
    kept: int | None = None
    tolerance: float | None = None
    margin: float = 0.0

    def __len__(self) -> int:
        return len(self.share)

    def against_calibrated(self) -> RiskCurve:
        """The curve for a user whose own model is calibrated already.

        Returns
        -------
        RiskCurve
        """
        ratio, error, risk = self.ratio_calibrated, self.error_calibrated, self.whole_risk
        return replace(self, ratio=ratio, error=error, whole_risk=risk * float(self.ratio[-1]))

    def at(self, share: float) -> tuple[RiskCurve, int]:
        """The curve with a size between its sizes, and that size's position.

        Losses are interpolated over the logarithm of the share, and below the smallest size that
        was judged go on as from the size before; above the largest, the whole apart, they are its.

        Parameters
        ----------
        share : float

        Returns
        -------
        curve : RiskCurve
        position : int
        """
        near = np.isclose(self.share, share, rtol=SAME_SIZE)
        if near.any():
            return self, int(np.argmax(near))
        position = min(int(np.searchsorted(self.share, share)), len(self) - 1)
        judged = np.log(self.share[:-1])

        def inserted(name: str) -> np.ndarray:
            values = getattr(self, name)
            between = np.interp(np.log(share), judged, values[:-1])
            if position == 0 and len(judged) > 1 and name.startswith("ratio"):
                slope = (values[1] - values[0]) / (judged[1] - judged[0])
                between += slope * (np.log(share) - judged[0])
            return np.insert(values, position, between)

        columns = [name for name, value in vars(self).items() if np.ndim(value) == 1]
        changed: dict[str, Any] = {name: inserted(name) for name in columns}
        changed["share"][position] = share
        changed["n_nodes"][position] = share * self.n_nodes[-1]
        changed["n_members"] = np.round(changed["n_members"])
        return replace(self, **changed), position

    def to_frame(self) -> Any:
        """The curve as a pandas DataFrame, a row a size.

        Returns
        -------
        pandas.DataFrame
        """
        import pandas as pd

        columns = {name: value for name, value in vars(self).items() if np.ndim(value) == 1}
        whole = {name: np.round(columns[name]).astype(int) for name in ("n_nodes", "n_members")}
        return pd.DataFrame(columns | whole | {"kept": np.arange(len(self)) == self.kept})

    def __str__(self) -> str:
        title = f"change of {self.score}"
        changes = [(self.ratio, self.error)]
        if not np.array_equal(self.ratio, self.ratio_calibrated):
            changes.append((self.ratio_calibrated, self.error_calibrated))
        columns = [[f"{r - 1.0:+.1%} ± {e:.1%}" for r, e in zip(*c, strict=True)] for c in changes]
        rows = [
            f"{share:>7.2%} {nodes:>9,.0f} {members:>7.0f}  {told[0]:<{len(title)}}  "
            + "".join(told[1:])
            for share, nodes, members, *told in zip(
                self.share, self.n_nodes, self.n_members, *columns, strict=True
            )
        ]
        kept = None if self.kept is None else rows[self.kept]
        # Halves of the members may be the same ones.
        lines = [row + " *" * (row == kept) for row in dict.fromkeys(rows)]
        has_two = len(changes) > 1
        head = f"{'share':>7} {'nodes':>9} {'members':>7}  {title}  {'vs calibrated' * has_two}"
        feet = ["± one standard error" + ("" if kept is None else "; * kept")]
        if has_two:
            feet.append("vs calibrated: the full ensemble, calibrated as the small model is")
        if self.tolerance is not None:
            limited = "the last column" if has_two else "the change"
            limited += f" plus {self.margin:.3g} of its error"
            feet.append(f"tolerance {self.tolerance:+.1%}: of {limited}")
        if np.any(np.diff(self.ratio[:-1]) == 0.0):
            feet.append("equal changes: noise hides their order; averaged")
        return "\n".join(line.rstrip() for line in [head, *lines, *feet])

    def _repr_html_(self) -> str:
        """A small picture and the table, for notebooks."""
        return f"{_picture(self)}<pre>{self}</pre>"


def expected(
    losses: list[np.ndarray], whole: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Ratios of mean losses to the whole ensemble's, falling with size, and their errors.

    The true loss does not rise with size, so neighbours that say otherwise are averaged
    (isotonic regression): a single size is not chosen for its noise.

    Parameters
    ----------
    losses : list of ndarray of shape (rows,)
        Of each size, rising; the last is the whole ensemble's, which is judged by itself. Rows
        of which a size says nothing are NaN and left out of its comparison.
    whole : ndarray of shape (rows,)
    weight : ndarray of shape (rows,)

    Returns
    -------
    ratio, error : ndarray of shape (sizes,)

    Examples
    --------
    >>> ratio, error = expected([np.full(40, 2.0), np.ones(40)], np.ones(40), np.ones(40))
    >>> ratio.tolist(), error.tolist()
    ([2.0, 1.0], [0.0, 0.0])
    """
    found = [_ratio(loss, whole, weight) for loss in losses]
    ratio, error = (np.array(part) for part in zip(*found, strict=True))
    ratio[:-1] = isotonic_regression(ratio[:-1], increasing=False)
    return ratio, error


def _ratio(loss: np.ndarray, whole: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    known = np.isfinite(loss) & np.isfinite(whole) & (weight > 0.0)
    if not np.any(known):
        return NO_RATIO, 0.0
    share = weight[known] / weight[known].sum()
    level, mean = float(share @ whole[known]), max(float(share @ loss[known]), 0.0)
    unsure = 1.0 if np.count_nonzero(known) < FEWEST_ROWS else 0.0
    if level <= 0.0:  # the ensemble makes no mistake on these rows: any is too many
        return (NO_RATIO if mean > 0.0 else 1.0), unsure
    # The jackknife's, by row left out: where one row has most of the loss, the others decide.
    others = np.maximum(1.0 - share * whole[known] / level, 1.0 / NO_RATIO)
    moves = share * (loss[known] - mean / level * whole[known]) / others
    error = min(float(np.sqrt(np.sum(moves**2))) / level, NO_RATIO)
    return mean / level, max(error, unsure)


def _picture(curve: RiskCurve) -> str:
    """Ratio against share on a logarithmic axis, as SVG."""
    x = np.log(curve.share)
    x = 20 + 260 * (x - x.min()) / max(float(np.ptp(x)), 1e-9)
    low, high = min(0.9, curve.ratio.min()), max(1.1, min(curve.ratio.max(), 2.0))
    y = 10 + 100 * (high - np.clip(curve.ratio, low, high)) / (high - low)
    one = 10 + 100 * (high - 1.0) / (high - low)
    points = " ".join(f"{a:.0f},{b:.0f}" for a, b in zip(x, y, strict=True))
    return (
        '<svg width="300" height="120" role="img" aria-label="risk against size">'
        f'<line x1="20" x2="280" y1="{one:.0f}" y2="{one:.0f}" stroke="gray" stroke-dasharray="4"/>'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="2"/></svg>'
    )
