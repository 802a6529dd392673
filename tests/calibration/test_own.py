"""Calibrators of the user's own, in a function call and in `compress`."""

import pickle

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from calibration.drawn_votes import drawn, log_loss, scaled
from sparsebag.calibration.fit import fit_calibration
from sparsebag.calibration.own import OwnCalibrator
from toy import CANCER, IRIS


class Halves:
    """One class at a time, as scikit-learn's own calibrators."""

    def fit(self, scores, y):
        assert scores.ndim == 1
        assert set(y) <= {0, 1}
        return self

    def transform(self, scores):
        return 0.5 * scores


class Wrong:
    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return np.ones((len(X), 7))


@pytest.mark.parametrize(
    "own", [LogisticRegression(), IsotonicRegression(y_min=0.01, y_max=0.99)], ids=["all", "one"]
)
def test_they_are_fitted_on_copies_and_help(own):
    truth, target = drawn(3000, 2)
    votes = scaled(truth, 0.4)
    found = fit_calibration(own, votes, target, np.ones(3000))
    assert type(found.calibrator) is OwnCalibrator
    assert "coef_" not in vars(own)
    assert "X_min_" not in vars(own)
    out = found.calibrator.transform(votes)
    assert out.shape == votes.shape
    np.testing.assert_allclose(out.sum(axis=1), 1.0)
    assert log_loss(out, target) < log_loss(votes, target)
    assert str(found).startswith("calibrator of your own; held-out log-loss")


def test_row_weights_are_passed_on():
    truth, target = drawn(800, 2)
    weight = np.where(np.arange(800) < 400, 0.0, 1.0)
    half = fit_calibration(LogisticRegression(), truth, target, weight).calibrator
    other = fit_calibration(LogisticRegression(), truth[400:], target[400:], np.ones(400))
    np.testing.assert_allclose(half.transform(truth), other.calibrator.transform(truth), atol=1e-4)


def test_one_class_at_a_time_is_normalised_again_and_nonsense_is_told():
    three, labels = drawn(500, 3)
    found = fit_calibration(Halves(), three, labels, np.ones(500))
    np.testing.assert_allclose(found.calibrator.transform(three), three)
    assert len(found.calibrator.models) == 3
    with pytest.raises(ValueError, match=r"the calibrator Wrong returned shape \(\d+, 7\)"):
        fit_calibration(Wrong(), three, labels, np.ones(500))


@pytest.mark.parametrize("data", [CANCER, IRIS], ids=["cancer", "iris"])
@pytest.mark.parametrize("refine", [None, "auto"])
def test_compress_takes_them(data, refine, tmp_path):
    X, y = data
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    own = IsotonicRegression(y_min=0.01, y_max=0.99, out_of_bounds="clip")
    small = sb.compress(forest, X, y, calibration=own, refine=refine, max_estimators=5)
    proba = small.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    assert "calibrator of your own" in str(small.selection_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(small)).predict_proba(X), proba)
    with pytest.raises(ValueError, match="cannot be stored in a file"):
        small.save(tmp_path / "model.sbag")
    if refine == "auto":  # what a file would weigh keeps no size from being taken
        loose = sb.compress(forest, X, y, calibration=own, tolerance=0.3)
        assert loose.n_nodes_ < loose.selection_.before.nodes


def test_a_regressor_has_no_probabilities_to_calibrate():
    with pytest.raises(ValueError, match="corrects class probabilities, and a regressor has none"):
        sb.SparseBaggingRegressor(calibration=IsotonicRegression()).fit(*IRIS)


def test_an_object_that_learns_by_heart_is_not_flattered():
    rng = np.random.default_rng(0)
    votes = rng.dirichlet([1.0, 1.0], 600)
    target = (rng.random(600) < votes[:, 1]).astype(int)
    found = fit_calibration(DecisionTreeClassifier(random_state=0), votes, target, np.ones(600))
    assert found.brier_ratio > 1.2  # on its own rows it makes no mistake
