"""Directions in feature space: sums of standardised features that a gate of regions may split on.

Numpy only: a deployed model has its gate without scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.refine.gate import CLIP, finite_array, standardised

LARGEST_SUM = 1e30
"""Far from where float32 ends; a fitted direction has length one."""
MOST_TERMS, LEAST_TERM = 6, 0.02
"""Features that a direction is told of in words, and their least share of the largest."""
SUM_LANES = 4
"""Partial sums, as kernel/gate.h has them."""


@dataclass(frozen=True, eq=False)
class Directions:
    """Sums ``down @ z`` of standardised features, read as further columns of a row.

    ``z = clip((x - mean) / scale, -clip, clip)`` of x rounded to float32; NaN and infinities are
    read as the mean. Sums are rounded to float32 too, so that a tree reads them as it reads
    features; they are never missing.

    Attributes
    ----------
    mean, scale : float64 ndarrays of shape (n_features,)
        Scales are above zero.
    down : float64 ndarray of shape (n_directions, n_features)
    clip : float

    Examples
    --------
    >>> both = Directions(np.zeros(2), np.ones(2), np.array([[0.5, 0.5]]))
    >>> both.of(np.array([[1.0, 2.0], [np.nan, 9.0]])).tolist()
    [[1.5], [2.5]]
    """

    mean: np.ndarray
    scale: np.ndarray
    down: np.ndarray
    clip: float = CLIP

    def __post_init__(self) -> None:
        for name in ("mean", "scale", "down"):
            object.__setattr__(self, name, finite_array(name, getattr(self, name)))
        d = len(self.mean) if self.mean.ndim == 1 else 0
        fits = self.down.ndim == 2 and self.scale.shape == (d,) and self.down.shape[1] == d
        if d == 0 or not fits or len(self.down) == 0:
            raise ValueError("the arrays of the gate do not fit together.")
        if not np.all(self.scale >= np.finfo(np.float64).tiny):  # one over less is infinite
            raise ValueError("a scale of the gate is not above zero.")
        if not (np.isfinite(self.clip) and self.clip > 0.0):
            raise ValueError("the gate's clip is not a number above zero.")
        with np.errstate(over="ignore"):
            largest = float(np.abs(self.down).sum(axis=1).max()) * self.clip
        if not largest <= LARGEST_SUM:
            raise ValueError("the gate's coefficients are too large.")

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.mean)

    def of(self, X: np.ndarray) -> np.ndarray:
        """The sums of rows.

        Parameters
        ----------
        X : ndarray of shape (rows, n_features)

        Returns
        -------
        float32 ndarray of shape (rows, n_directions)
        """
        used = np.flatnonzero(np.any(self.down != 0.0, axis=0))
        z = standardised(X[:, used], self.mean[used], self.scale[used], self.clip)
        lanes = np.zeros((SUM_LANES, len(X), len(self.down)))
        # Feature after feature, to one of a few sums, as the kernel adds: a matrix product has an
        # order of its own, and a row at a threshold would go another way.
        for f, (column, slopes) in enumerate(zip(z.T, self.down[:, used].T, strict=True)):
            lanes[f % SUM_LANES] += column[:, None] * slopes
        sums = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
        return np.asarray(sums, dtype=np.float32)

    def in_words(self, names: tuple[str, ...], at: int, cut: float) -> tuple[str, float, float]:
        """A direction in the features' own units, and a threshold of it.

        Coefficients have three digits, and features of little weight are only counted. Both are
        taken as if the features were at their means, so what is left out is a small part of their
        deviations, wherever zero is.

        Parameters
        ----------
        names : tuple of str
            Of the features.
        at : int
            Which direction.
        cut : float
            The threshold of its sum.

        Returns
        -------
        text : str
            A sum of features, the largest part first; its first coefficient is 1 or -1.
        cut : float
        unit : float
            How far the sum moves with one standard deviation of its largest part.

        Examples
        --------
        >>> both = Directions(np.array([1.0, 0.0]), np.array([1.0, 2.0]), np.array([[0.5, -1.0]]))
        >>> both.in_words(("age", "size"), 0, 0.0)
        ('-size + age', 1.0, 2.0)
        """
        parts = np.abs(self.down[at])
        order = np.argsort(-parts, kind="stable")
        order = order[parts[order] > 0.0]
        if len(order) == 0:
            return "0", cut, 1.0
        told = order[:MOST_TERMS]
        told = told[parts[told] >= LEAST_TERM * parts[told[0]]]
        slopes = self.down[at] / self.scale
        first = abs(float(slopes[told[0]]))
        text, middle = "", 0.0
        for f in told:
            size = float(f"{abs(slopes[f]) / first:.3g}")
            sign = "-" if slopes[f] < 0.0 else "+"
            part = names[f] if size == 1.0 else f"{size:.3g} {names[f]}"
            text += f" {sign} {part}" if text else f"{'-' if sign == '-' else ''}{part}"
            middle += float(np.sign(slopes[f])) * size * float(self.mean[f])
        left_out = len(order) - len(told)
        if left_out:
            text += f" + ({left_out} smaller term{'s' * (left_out > 1)})"
        return text, float(cut) / first + middle, float(self.scale[told[0]])
