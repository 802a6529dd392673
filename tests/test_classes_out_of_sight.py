"""Bags drawn by class weights leave no row of a rare class to judge by; nothing is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb

pytestmark = pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")


@pytest.fixture(scope="module")
def rare():
    X, y = make_classification(
        3000, 8, n_informative=4, weights=[0.98], flip_y=0.005, class_sep=1.5, random_state=0
    )
    forest = RandomForestClassifier(60, random_state=0, class_weight="balanced")
    forest.fit(X[:1500], y[:1500])
    samples = np.array(forest.estimators_samples_)
    seen = np.array([np.isin(np.arange(1500), s) for s in samples])
    if not seen[:, y[:1500] == 1].all():
        pytest.skip("this scikit-learn does not draw bags by class weight")
    return forest, X, y


def test_the_rare_class_is_still_found(rare):
    forest, X, y = rare
    small = sb.compress(forest, X[:1500], y[:1500])
    assert small.calibrator_ is None
    found, before = (model.predict(X[1500:]) for model in (small, forest))
    assert np.count_nonzero(found) >= 0.8 * np.count_nonzero(before) > 0


def test_what_the_figures_are_not_about_is_said(rare):
    forest, X, y = rare
    told = str(sb.compress(forest, X[:1500], y[:1500]).selection_)
    n_rare = np.count_nonzero(y[:1500])
    assert f"{n_rare} of the {n_rare} rows of class 1 are in every bag" in told
    assert "not calibrated for that reason" in told
    told = str(sb.compress(forest, X[:1500], y[:1500], calibration=None).selection_)
    assert "not calibrated for that reason" not in told
    assert "in every bag" in told


def test_a_calibrator_that_is_asked_for_is_fitted_all_the_same(rare):
    forest, X, y = rare
    small = sb.compress(forest, X[:1500], y[:1500], calibration="temperature")
    assert small.temperature_ is not None


def test_leaves_are_not_refitted_either(rare):
    _, X, y = rare
    weight = np.where(y[:1500] == 1, 60.0, 1.0)
    forest = RandomForestClassifier(60, random_state=0).fit(X[:1500], y[:1500], weight)
    small = sb.compress(forest, X[:1500], y[:1500], sample_weight=weight)
    assert not small.refinement_.used
    assert "in every tree's bag" in str(small.refinement_)
    with pytest.raises(ValueError, match="refine='leaves' cannot refit leaves, because"):
        sb.compress(forest, X[:1500], y[:1500], sample_weight=weight, refine="leaves")
