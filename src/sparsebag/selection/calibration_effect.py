"""What calibration leaves of a risk, for few members and for the whole ensemble.

Before and after calibration alike the risk is linear in the concentration of the votes, but not by
the same line: surer votes show more of what few members differ by. Both lines are measured at two
numbers of voters, on the same rows, and hold for every size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.objective.full_vote_risk import Exchangeable

LEAST_KEPT = 0.25
"""Of a measured risk, at concentrations far from where it was measured."""


@dataclass(frozen=True)
class CalibratedShare:
    """The share of a risk that calibration leaves, by concentration.

    Attributes
    ----------
    at : tuple of float
        Two concentrations it was measured at, ascending.
    means : ndarray of shape (4,)
        Risk after calibration at both, and before.
    rows : ndarray of shape (M, 4)
        What each row adds to them, less its part of the mean; 0 for rows not judged.

    Examples
    --------
    >>> share = CalibratedShare((0.1, 0.2), np.array([0.4, 0.6, 0.8, 1.0]), np.zeros((1, 4)))
    >>> share.of(np.array([0.1, 0.2, 0.3])).round(3).tolist()
    [0.5, 0.6, 0.667]
    """

    at: tuple[float, float]
    means: np.ndarray
    rows: np.ndarray

    @classmethod
    def none(cls, n_rows: int) -> CalibratedShare:
        """Of votes that are left as they are."""
        return cls((0.0, 1.0), np.ones(4), np.zeros((n_rows, 4)))

    @property
    def is_none(self) -> bool:
        """Whether votes are left as they are."""
        return bool(np.all(self.means[:2] == self.means[2:])) and not self.rows.any()

    def possible(self) -> CalibratedShare:
        """The same, or one share for all sizes where fewer voters seem to have the lower risk.

        They cannot: so few rows are behind it that the line would promise a single member a risk
        of nothing.

        Returns
        -------
        CalibratedShare

        Examples
        --------
        >>> share = CalibratedShare((0.1, 0.2), np.array([0.6, 0.4, 0.8, 1.2]), np.zeros((1, 4)))
        >>> share.possible().of(np.array([0.1, 1.0])).tolist()
        [0.5, 0.5]
        """
        if self.means[1] >= self.means[0]:
            return self
        after, before = self.means[:2].sum(), self.means[2:].sum()
        share = after / before
        means = np.concatenate([share * self.means[2:], self.means[2:]])
        of_share = self.rows[:, :2].sum(axis=1) / after - self.rows[:, 2:].sum(axis=1) / before
        moved = share * (self.rows[:, 2:] + of_share[:, None] * self.means[2:])
        return CalibratedShare(self.at, means, np.concatenate([moved, self.rows[:, 2:]], axis=1))

    @property
    def spread(self) -> float:
        """What calibration makes of the rows' spread; surer votes lower the mean and raise it."""
        after, _, before, _ = np.linalg.norm(self.rows, axis=0)
        return float(after / before) if before > 0 else 1.0

    def of(self, concentration: np.ndarray | float) -> np.ndarray:
        """The share at concentrations."""
        after, before = self._lines(np.asarray(concentration, dtype=np.float64))
        return np.asarray(after / before)

    def levels(self, levels: Exchangeable) -> Exchangeable:
        """Own and pair risk of members all alike, after calibration."""
        low, high = self.at
        first, second = (float(self.of(c)) * float(levels.at(c)) for c in self.at)
        slope = (second - first) / (high - low)
        return Exchangeable(own=first + slope * (1.0 - low), pair=first - slope * low)

    def slopes(self, concentration: np.ndarray | float) -> np.ndarray:
        """Change of the share's logarithm with each of the means, shape (..., 4)."""
        at = np.asarray(concentration, dtype=np.float64)
        after, before = self._lines(at)
        way = self._way(at)
        parts = [(1.0 - way) / after, way / after, -(1.0 - way) / before, -way / before]
        return np.stack(parts, axis=-1)

    def _way(self, concentration: np.ndarray) -> np.ndarray:
        low, high = self.at
        return np.asarray((concentration - low) / (high - low))

    def _lines(self, concentration: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        way = self._way(concentration)
        after = (1.0 - way) * self.means[0] + way * self.means[1]
        before = (1.0 - way) * self.means[2] + way * self.means[3]
        least = LEAST_KEPT * np.minimum(self.means[0], self.means[2])
        return np.maximum(after, least), np.maximum(before, least)


@dataclass(frozen=True)
class CalibrationEffect:
    """What calibration leaves of the risk: of a few members', of the whole ensemble's.

    Attributes
    ----------
    small, whole : CalibratedShare
    whole_at : float
        Concentration of the whole ensemble.
    """

    small: CalibratedShare
    whole: CalibratedShare
    whole_at: float

    @property
    def is_none(self) -> bool:
        """Whether neither is changed by calibration."""
        return self.small.is_none and self.whole.is_none

    def with_more_left(self, times: float) -> CalibrationEffect:
        """The same where calibration leaves so many times as much of the few members' risk.

        Parameters
        ----------
        times : float

        Returns
        -------
        CalibrationEffect
        """
        small, after = self.small, np.array([times, times, 1.0, 1.0])
        left = CalibratedShare(small.at, small.means * after, small.rows * after)
        return CalibrationEffect(left, self.whole, self.whole_at)

    def of_whole(self, levels: Exchangeable) -> float:
        """The whole ensemble's share, on the line of members all alike.

        A calibrator that does it harm is no reference: it is then left as it is.

        Parameters
        ----------
        levels : Exchangeable
            Own and pair risk of its members, before calibration.

        Returns
        -------
        float
        """
        calibrated = float(self.whole.levels(levels).at(self.whole_at))
        return min(calibrated / float(levels.at(self.whole_at)), 1.0)

    @property
    def of_differences(self) -> float:
        """What is left of the members' differences.

        They differ partly by how sure they are, and that a calibrator evens out.
        """
        share = float(self.small.of(self.small.at[0]))
        return share * min(share, 1.0)

    def error(self, concentration: np.ndarray) -> np.ndarray:
        """Standard error of a few members' share over the whole's, relative to it.

        Parameters
        ----------
        concentration : ndarray of shape (points,)

        Returns
        -------
        ndarray of shape (points,)
        """
        rows = np.concatenate([self.small.rows, self.whole.rows], axis=1)
        of_whole = np.broadcast_to(-self.whole.slopes(self.whole_at), (len(concentration), 4))
        slopes = np.concatenate([self.small.slopes(concentration), of_whole], axis=1)
        squared = np.einsum("ka,ab,kb->k", slopes, rows.T @ rows, slopes)
        return np.asarray(np.sqrt(np.maximum(squared, 0.0)))  # rounding: the same share twice
