"""What calibration leaves of a risk is measured with the calibrators that will be deployed."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_classification
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import train_test_split

import sparsebag as sb
from sparsebag.selection.calibration_effect import CalibratedShare, CalibrationEffect


def weighted_brier(model, X, y, weight):
    return np.average(2 * (model.predict_proba(X)[:, 1] - y) ** 2, weights=weight)


def test_rows_that_weigh_more_than_they_did_in_the_forest():
    """A shift of the classes is what such weights ask for; a temperature cannot give it."""
    X, y = make_classification(
        9000, 8, n_informative=4, weights=[0.96], flip_y=0.02, random_state=3
    )
    weight = np.where(y == 1, 20.0, 1.0)
    forest = RandomForestClassifier(50, random_state=0, min_samples_leaf=5).fit(X[:3000], y[:3000])
    small = sb.compress(forest, X[:3000], y[:3000], sample_weight=weight[:3000], refine=None)
    assert small.calibration_.kind == "vector_scaling"
    found = weighted_brier(small, X[3000:], y[3000:], weight[3000:])
    assert small.selection_.expected_risk == pytest.approx(found, rel=0.25)
    assert small.selection_.expected_risk < 0.8 * small.selection_.uncalibrated_risk


def test_few_rows_do_not_make_one_member_the_best():
    X, y = load_wine(return_X_y=True)
    X, _, y, _ = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    forest = RandomForestClassifier(60, random_state=0).fit(X, y)
    small = sb.compress(
        forest, X, y, max_estimators=10, tolerance=None, calibration="isotonic", refine=None
    )
    risk = small.path_.expected_risk
    assert risk[0] > risk[8]  # one member, and nine
    assert small.n_active_ > 1


def test_a_share_that_is_possible_is_left_alone():
    share = CalibratedShare((0.1, 0.2), np.array([0.4, 0.6, 0.8, 1.0]), np.ones((3, 4)))
    assert share.possible() is share


def test_the_share_of_all_sizes_keeps_its_error():
    rng = np.random.default_rng(0)
    means, rows = np.array([0.6, 0.4, 0.8, 1.2]), 1e-4 * rng.normal(size=(50, 4))
    share = CalibratedShare((0.1, 0.2), means, rows)
    moved = CalibratedShare((0.1, 0.2), means + rows[7], rows)
    change = moved.possible().means - share.possible().means
    np.testing.assert_allclose(share.possible().rows[7], change, rtol=2e-3, atol=1e-8)


def test_nothing_is_called_calibrated_that_is_not():
    none = CalibratedShare.none(4)
    assert CalibrationEffect(none, none, 0.1).is_none
    some = CalibratedShare((0.1, 0.2), np.array([0.4, 0.6, 0.8, 1.0]), np.ones((4, 4)))
    assert not CalibrationEffect(some, none, 0.1).is_none
    X, y = load_wine(return_X_y=True)
    few = np.random.default_rng(0).permutation(len(y))[:30]
    forest = RandomForestClassifier(40, random_state=0).fit(X[few], y[few])
    told = str(sb.compress(forest, X[few], y[few], max_estimators=5, tolerance=None).selection_)
    assert "The vote is not calibrated" in told
    assert "calibrated likewise" not in told


def test_a_regressor_has_nothing_to_calibrate():
    X = np.random.default_rng(0).normal(size=(100, 3))
    forest = RandomForestRegressor(20, random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="calibration='temperature' corrects class probabilities"):
        sb.compress(forest, X, X[:, 0], calibration="temperature")


def test_trees_of_two_levels_are_calibrated_as_they_vote_themselves():
    """Those that are kept are surer than others; others' temperature would be far too sharp."""
    X, y = make_classification(6800, 10, n_informative=5, flip_y=0.0, random_state=105)
    forest = RandomForestClassifier(100, max_depth=2, random_state=105).fit(X[:800], y[:800])
    small = sb.compress(forest, X[:800], y[:800], max_estimators=20, tolerance=None, refine=None)
    assert small.calibration_.whose == "own"
    assert "each row by those of them that had not seen it" in str(small.calibration_)
    voted = small.predict_proba(X[800:])
    sharper = voted**1.5 / np.sum(voted**1.5, axis=1, keepdims=True)
    softer = voted ** (1 / 1.5) / np.sum(voted ** (1 / 1.5), axis=1, keepdims=True)
    own, *others = (sb.metrics.log_loss(y[800:], p) for p in (voted, sharper, softer))
    assert own < min(others)


def test_more_left_of_few_members_raises_their_risk_alone():
    some = CalibratedShare((0.1, 0.2), np.array([0.4, 0.6, 0.8, 1.0]), np.ones((4, 4)))
    effect = CalibrationEffect(some, some, 0.1)
    more = effect.with_more_left(1.5)
    np.testing.assert_allclose(more.small.of(0.15), 1.5 * effect.small.of(0.15))
    assert more.whole is effect.whole
