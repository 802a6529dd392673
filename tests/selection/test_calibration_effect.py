"""What calibration leaves of a risk, by size."""

from __future__ import annotations

import numpy as np
import pytest

from sparsebag.objective.full_vote_risk import Exchangeable
from sparsebag.selection.calibration_effect import CalibratedShare, CalibrationEffect


def share(after, before, at=(0.05, 0.2), noise=0.0, rows=400):
    rng = np.random.default_rng(0)
    means = np.array([*after, *before])
    return CalibratedShare(at, means, noise * rng.normal(size=(rows, 4)) * means / rows)


def test_levels_go_through_both_measurements():
    """Members all alike, calibrated: at both concentrations the share of what it was."""
    measured = share((0.4, 0.6), (0.8, 1.0))
    levels = Exchangeable(own=2.0, pair=0.7)
    calibrated = measured.levels(levels)
    for at, kept in ((0.05, 0.5), (0.2, 0.6)):
        assert calibrated.at(at) == pytest.approx(kept * levels.at(at))


def test_votes_left_as_they_are():
    nothing = CalibratedShare.none(10)
    levels = Exchangeable(own=2.0, pair=0.7)
    assert nothing.levels(levels).own == pytest.approx(levels.own)
    assert nothing.levels(levels).pair == pytest.approx(levels.pair)
    effect = CalibrationEffect(nothing, nothing, 0.01)
    assert effect.error(np.array([0.01, 0.5])) == pytest.approx(0.0)
    assert effect.of_whole(levels) == pytest.approx(1.0)
    assert effect.of_differences == 1.0


def test_the_whole_ensemble_is_on_the_line_of_its_members():
    """All N random members are the whole: both must be said to have one risk."""
    measured, levels = share((0.4, 0.6), (0.8, 1.0)), Exchangeable(own=2.0, pair=0.7)
    kept = CalibrationEffect(measured, measured, 0.01).of_whole(levels)
    assert kept * levels.random_k(100) == pytest.approx(measured.levels(levels).random_k(100))


def test_a_calibrator_that_harms_the_whole_is_no_reference():
    harmful, levels = share((0.9, 1.2), (0.8, 1.0)), Exchangeable(own=2.0, pair=0.7)
    assert CalibrationEffect(harmful, harmful, 0.01).of_whole(levels) == 1.0


def test_the_whole_ensemble_beside_itself_is_known():
    """The same share on the same rows: no error where the sizes are alike, some where not."""
    measured = share((0.4, 0.6), (0.8, 1.0), noise=1.0)
    effect = CalibrationEffect(measured, measured, 0.05)
    same, fewer = effect.error(np.array([0.05, 0.2]))
    assert same == pytest.approx(0.0, abs=1e-12)
    assert fewer > 0.01


def test_error_is_that_of_resampled_rows():
    measured = share((0.4, 0.6), (0.8, 1.0), noise=1.0)
    effect = CalibrationEffect(measured, measured, 0.05)
    at, rng, ratios = 0.2, np.random.default_rng(1), []
    for _ in range(2000):
        drawn = measured.means + rng.normal(size=len(measured.rows)) @ measured.rows
        again = CalibratedShare(measured.at, drawn, measured.rows)
        ratios.append(float(np.log(again.of(at) / again.of(0.05))))
    assert effect.error(np.array([at]))[0] == pytest.approx(np.std(ratios), rel=0.1)


def test_surer_votes_spread_more():
    rows = np.zeros((2, 4))
    rows[:, 0], rows[:, 2] = [3.0, -3.0], [1.0, -1.0]
    assert CalibratedShare((0.1, 0.2), np.ones(4), rows).spread == pytest.approx(3.0)
