"""A path with the risk to expect at each of its points, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from sparsebag.objective.full_vote_risk import SMALLEST_SHARE, Exchangeable
from sparsebag.objective.pair_shrinkage import Shrinkage
from sparsebag.objective.vote_disagreement import DisagreementShrinkage
from sparsebag.selection.calibration_effect import CalibrationEffect
from sparsebag.selection.interval import degrees_of_freedom
from sparsebag.selection.path import PathPoint
from sparsebag.selection.row_risks import RowRisks


@dataclass(frozen=True)
class CrossFittedPath:
    """A budget path with the risk to expect at each point, and how sure that is.

    Attributes
    ----------
    points : list of PathPoint
        Fitted on all rows.
    deviation : ndarray of shape (N, N)
        What the risk matrix adds to that of members all alike, as held-out rows confirm it.
    rows : RowRisks
    random : Exchangeable
        Random members' risk, in closed form.
    shrinkage : Shrinkage or DisagreementShrinkage
        How much of the members' differences was real.
    slope, slope_error : float
        Share of the gain predicted that held-out or new rows keep, and its standard error.
    n_members : int
        Of the whole ensemble.
    refitted : Exchangeable, optional
        Own and pair risk of members with refitted leaves, where these will be deployed.
    votes_a_member : float, default 1
        How many votes a deployed member is worth.
    shared : float, default 0
        What is added to each point's concentration: that of the votes members were fitted to.
    measured : float, optional
        Concentration found of the only point, in place of the expected one.
    scale : float, default 1
        What the members' differences are multiplied by: what calibration leaves of them.
    calibration : CalibrationEffect, optional
        What the risks were calibrated by.
    doubt : tuple of float, default (0, 0)
        Standard errors that no row shows: as a share of the risk, and of what the members add to
        the risk of the votes they were fitted to.
    """

    points: list[PathPoint]
    deviation: np.ndarray
    rows: RowRisks
    random: Exchangeable
    shrinkage: Shrinkage | DisagreementShrinkage
    slope: float
    slope_error: float
    n_members: int
    refitted: Exchangeable | None = None
    votes_a_member: float = 1.0
    shared: float = 0.0
    measured: float | None = None
    scale: float = 1.0
    calibration: CalibrationEffect | None = None
    doubt: tuple[float, float] = (0.0, 0.0)

    @property
    def sizes(self) -> np.ndarray:
        """Members of each point."""
        return np.array([len(point.members) for point in self.points])

    @property
    def full_risk(self) -> float:
        """Expected risk of the whole ensemble."""
        if self.rows.full is not None:
            return max(float(self.rows.weight @ self.rows.full), 0.0)
        return max(float(self.random.random_k(self.n_members)), 0.0)

    @property
    def full_error(self) -> float:
        """Standard error of `full_risk`."""
        at = np.array([1.0 / self.n_members, 1.0 - 1.0 / self.n_members])
        if self.rows.full is not None:
            at = np.array([0.0, 0.0, 1.0])
        return float(np.sqrt(at @ self.rows.covariance() @ at))

    def degrees_of_freedom(self) -> float:
        """Of the rows' spread, for intervals: see `interval.degrees_of_freedom`."""
        return degrees_of_freedom(self.rows.pair, self.rows.weight)

    @cached_property
    def concentration(self) -> np.ndarray:
        """Sum of squared weights of each point; its inverse is an effective number of votes."""
        if self.measured is not None:
            return np.array([self.measured])
        squares = np.array([float(point.weights @ point.weights) for point in self.points])
        return self.shared + squares / self.votes_a_member

    @cached_property
    def gain(self) -> np.ndarray:
        """What each point's risk differs from that of random members by."""
        return np.array([self.gain_of(point) for point in self.points])

    def gain_of(self, point: PathPoint) -> float:
        """What one point's risk differs from that of random members by."""
        return collected(self.deviation, point)

    @cached_property
    def gain_error(self) -> np.ndarray:
        """Standard error of `gain`: of the members' differences, and of the slope."""
        n = self.n_members
        spread = [self.shrinkage.variance_of(p.members, p.weights, n) for p in self.points]
        of_slope = self.slope_error * self.gain / self.slope if self.slope else 0.0 * self.gain
        return np.asarray(np.sqrt(self.scale**2 * np.array(spread) + of_slope**2))

    def expected(self) -> np.ndarray:
        """Expected risk at each point.

        Returns
        -------
        ndarray of shape (points,)
        """
        levels = self.random if self.refitted is None else self.refitted
        # Products of two residuals may be negative on a handful of rows; a risk may not.
        return np.asarray(np.maximum(levels.at(self.concentration) + self.gain, 0.0))

    def error_of(self, share: float = 0.0) -> np.ndarray:
        """Standard error of ``expected - share × full_risk``, the same rows in both.

        Parameters
        ----------
        share : float, default 0
            0: of the expected risk itself.

        Returns
        -------
        ndarray of shape (points,)
        """
        own, pair = self.concentration, 1.0 - self.concentration
        if self.rows.full is None:
            own, pair = own - share / self.n_members, pair - share * (1.0 - 1.0 / self.n_members)
            at = np.stack([own, pair])
        else:
            at = np.stack([own, pair, np.full_like(own, -share)])
        of_rows = np.einsum("ak,ab,bk->k", at, self.rows.covariance(), at)
        doubt = self._doubt()
        if self.calibration is not None:
            of_share = self.calibration.error(self.concentration)
            doubt = np.hypot(doubt, share * of_share * self.full_risk)
        return np.asarray(np.sqrt(np.maximum(of_rows, 0.0) + self.gain_error**2 + doubt**2))

    def _doubt(self) -> np.ndarray:
        if self.refitted is None or not any(self.doubt):
            return np.zeros(len(self.points))
        of_risk, of_added = self.doubt
        added = (self.refitted.own - self.refitted.pair) * (self.concentration - self.shared)
        return np.asarray(np.hypot(of_risk * self.expected(), of_added * added))

    def only(self, point: PathPoint, measured: float | None = None) -> CrossFittedPath:
        """The same judgement of one other point, with the concentration found of it."""
        return replace(self, points=[point], measured=measured)

    def calibrated(self, effect: CalibrationEffect) -> CrossFittedPath:
        """The same points, and the whole ensemble, each with a calibrator.

        Parameters
        ----------
        effect : CalibrationEffect
            What calibration leaves of the risk of a few members, and of the whole ensemble's.

        Returns
        -------
        CrossFittedPath
        """
        rows, at = self.rows, 1.0 / self.n_members
        full = rows.own * at + rows.pair * (1.0 - at) if rows.full is None else rows.full
        levels = self.random if self.refitted is None else self.refitted
        spread = effect.small.spread
        random = effect.small if self.refitted is None else effect.whole
        calibrated = RowRisks(
            own=spread * rows.own,
            pair=spread * rows.pair,
            weight=rows.weight,
            full=rows.about(full, effect.of_whole(self.random), effect.whole.spread),
        )
        return replace(
            self,
            rows=calibrated,
            deviation=effect.of_differences * self.deviation,
            random=random.levels(self.random),
            refitted=effect.small.levels(levels),
            scale=effect.of_differences * self.scale,
            calibration=effect,
        )

    def as_measured(self, point: PathPoint, measured: float) -> CrossFittedPath:
        """All points, with what measuring one of them tells of a deployed member's votes.

        Parameters
        ----------
        point : PathPoint
        measured : float
            Concentration found of it.

        Returns
        -------
        CrossFittedPath
        """
        squares = float(point.weights @ point.weights)
        votes = squares / max(measured - self.shared, SMALLEST_SHARE)
        return replace(self, votes_a_member=votes)

    def as_deployed(
        self,
        rows: RowRisks,
        random: Exchangeable,
        *,
        votes_a_member: float,
        shared: float,
        doubt: tuple[float, float] = (0.0, 0.0),
    ) -> CrossFittedPath:
        """The same points, with refitted leaves.

        Parameters
        ----------
        rows : RowRisks
            Own and pair risk of refitted members; risk of the whole ensemble as it was.
        random : Exchangeable
            Members as they were, on the same rows.
        votes_a_member : float
            How many votes a deployed member is worth; above one, members are fitted to each other
            and what they were worth alone no longer counts.
        shared : float
            Concentration of what they are fitted to.
        doubt : tuple of float
            As in the attributes.

        Returns
        -------
        CrossFittedPath
        """
        refitted = Exchangeable(float(rows.own @ rows.weight), float(rows.pair @ rows.weight))
        alone = 1.0 if votes_a_member == 1.0 else 0.0
        return replace(
            self,
            rows=rows,
            random=random,
            refitted=refitted,
            votes_a_member=votes_a_member,
            shared=shared,
            doubt=doubt,
            deviation=alone * self.deviation,
            slope=alone * self.slope,
            slope_error=alone * self.slope_error,
        )


def collected(deviation: np.ndarray, point: PathPoint) -> float:
    """What a point's weights collect of a matrix of deviations."""
    part = deviation[np.ix_(point.members, point.members)]
    return float(point.weights @ part @ point.weights)
