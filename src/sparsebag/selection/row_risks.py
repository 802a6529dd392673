"""Each row's share in the risk: where standard errors come from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RowRisks:
    """Each row's risk, for members all alike: what standard errors come from.

    Attributes
    ----------
    own, pair : ndarray of shape (rows,)
        Mean squared residual, and mean product of two members' residuals.
    weight : ndarray of shape (rows,)
        Summing to one.
    full : ndarray of shape (rows,), optional
        Risk of the whole ensemble, where it is not what own and pair risk give for equal weights:
        they are those of other (refitted) leaves, or it has weights of its own.
    """

    own: np.ndarray
    pair: np.ndarray
    weight: np.ndarray
    full: np.ndarray | None = None

    def about(self, values: np.ndarray, mean: float, spread: float) -> np.ndarray:
        """Rows' values with their mean, and what they differ from it by, multiplied by shares."""
        middle = float(self.weight @ values)
        return np.asarray(mean * middle + spread * (values - middle))

    def covariance(self) -> np.ndarray:
        """Of the weighted means of own, pair and (where given) full risk, from the rows' spread."""
        each = np.stack([self.own, self.pair, *([] if self.full is None else [self.full])])
        deviation = (each - (each @ self.weight)[:, None]) * self.weight
        used = max(int(np.count_nonzero(self.weight)), 2)
        return np.asarray(deviation @ deviation.T * used / (used - 1))
