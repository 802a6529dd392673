"""Reading fitted forests: seeds instead of rows, class weights, pickles."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.ensemble import (
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator

from evidence.votes import classes, evidence_of, numbers
from sparsebag.evidence.from_ensemble import read_ensemble


@pytest.mark.parametrize("settings", [{}, {"max_samples": 0.3}, {"class_weight": "balanced"}])
def test_in_bag_rows_are_redrawn_one_member_at_a_time(settings):
    X, y = classes()
    forest = RandomForestClassifier(6, random_state=0, **settings).fit(X, y)
    in_bag = read_ensemble(forest).in_bag
    assert len(in_bag) == 6
    for j, rows in enumerate(forest.estimators_samples_):
        np.testing.assert_array_equal(in_bag[j], rows)


@pytest.mark.parametrize("forest", [RandomForestRegressor, ExtraTreesRegressor])
def test_votes_are_the_trees_predictions(forest):
    X, y = numbers()
    fitted = forest(5, bootstrap=True, random_state=0).fit(X, y)
    evidence = evidence_of(fitted, X, y, dtype=np.float64)
    for j, tree in enumerate(fitted.estimators_):
        rows = evidence.oob_mask[:, j]
        np.testing.assert_array_equal(evidence.votes[rows, j], tree.predict(X[rows]))
        assert np.all(evidence.votes[~rows, j] == 0)


def test_warm_start_keeps_every_seed():
    X, y = classes()
    forest = RandomForestClassifier(3, warm_start=True, random_state=0).fit(X, y)
    forest.set_params(n_estimators=8).fit(X, y)
    whole = RandomForestClassifier(8, random_state=0).fit(X, y)
    votes = evidence_of(forest, X, y).votes
    np.testing.assert_array_equal(votes, evidence_of(whole, X, y).votes)


def test_pickled_copied_and_frozen_forests_give_the_same_evidence():
    X, y = classes()
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    votes = evidence_of(forest, X, y).votes
    copies = (pickle.loads(pickle.dumps(forest)), copy.deepcopy(forest), FrozenEstimator(forest))
    for again in copies:
        np.testing.assert_array_equal(evidence_of(again, X, y).votes, votes)


def test_reading_leaves_the_forest_as_it_was():
    X, y = classes()
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    before = pickle.dumps(forest)
    evidence_of(forest, X, y)
    assert pickle.dumps(forest) == before


def test_a_forest_of_another_version_says_so():
    """An old pickle lacks what today's scikit-learn redraws the bootstrap from."""
    X, y = classes()
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    del forest._n_samples_bootstrap
    with pytest.raises(
        ValueError, match=r"RandomForestClassifier cannot be redrawn.*another version"
    ):
        evidence_of(forest, X, y)
    assert evidence_of(forest, X, y, source="holdout").n_members == 5


def test_labels_of_every_kind():
    X, y = classes()
    kinds = {
        "floats": np.array([0.0, 1.0, 2.0])[y],
        "booleans": y > 0,
        "negative": np.array([-5, 0, 7])[y],
        "strings": np.array(["b", "a", "c"])[y],
        "objects": np.array(["b", "a", "c"], dtype=object)[y],
    }
    for labels in kinds.values():
        forest = RandomForestClassifier(4, random_state=0).fit(X, labels)
        evidence = evidence_of(forest, X, labels)
        np.testing.assert_array_equal(evidence.classes[evidence.target], labels)


def test_targets_that_single_precision_blurs_are_kept_in_double():
    X, y = numbers()
    seconds = 1.7e9 + np.round(y)  # clock times of one day, in seconds since 1970
    forest = RandomForestRegressor(30, random_state=0).fit(X, seconds)
    evidence = evidence_of(forest, X, seconds)
    assert evidence.votes.dtype == np.float64
    rows = evidence.oob_mask[:, 0]
    np.testing.assert_array_equal(evidence.votes[rows, 0], forest.estimators_[0].predict(X[rows]))
