"""Rehearsals: copies of the ensemble, fitted without the rows that judge them."""

import pickle
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from sparsebag.judge import rehearsal
from sparsebag.judge.rehearsal import _splits
from toy import CANCER, DIABETES, IRIS


def fits_of(kind):
    """Calls of a kind's ``fit``: (estimator, X, y, sample_weight)."""
    calls, own = [], kind.fit

    def fit(self, X, y, sample_weight=None, **how):
        calls.append((self, np.asarray(X), np.asarray(y), sample_weight))
        return own(self, X, y, sample_weight=sample_weight, **how)

    return calls, patch.object(kind, "fit", fit)


@pytest.mark.parametrize("folds", [None, 2, 7])
@pytest.mark.parametrize(
    ("kind", "data"), [(RandomForestClassifier, CANCER), (RandomForestRegressor, DIABETES)]
)
def test_copies_are_not_the_users_model_and_each_row_is_held_out_of_one(kind, data, folds):
    X, y = data
    forest = kind(60, random_state=5, max_depth=6).fit(X, y)
    before = pickle.dumps(forest)
    calls, patched = fits_of(kind)
    with patched:
        small = sb.compress(forest, X, y, max_nodes=0.2, rehearsal=folds or "auto")
    assert pickle.dumps(forest) == before
    assert small.path_.judged_by == "rehearsal"
    assert len(calls) == (folds or rehearsal.FOLDS)
    every = {row.tobytes() for row in X.astype(np.float32)}
    held, counts = [], []
    for copy, rows, labels, _ in calls:
        assert copy is not forest
        assert copy.max_depth == 6
        assert copy.n_estimators == min(60, rehearsal.TREES)
        held += every - {row.tobytes() for row in rows.astype(np.float32)}
        counts.append(np.unique(labels, return_counts=True)[1] if data is CANCER else [0])
    assert len(held) == len(every) == len(y)
    assert set(held) == every
    assert np.ptp(counts, axis=0).max() <= 1  # every class is spread evenly


def test_of_many_rows_some_are_held_out_once():
    target = np.eye(2)[np.arange(70_000) % 2]
    (rows,) = _splits(target, None, is_classification=True)
    assert len(np.unique(rows)) == len(rows) == rehearsal.MOST_HELD_OUT
    assert abs(target[rows].mean(axis=0) - 0.5).max() < 0.01
    assert len(_splits(target, 2, is_classification=True)) == 2  # unless folds are asked for


def test_sample_weights_reach_the_copies():
    X, y = CANCER
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    forest = RandomForestClassifier(20, random_state=0).fit(X, y, weight)
    calls, patched = fits_of(RandomForestClassifier)
    with patched:
        sb.compress(forest, X, y, sample_weight=weight)
    of_row = {row.tobytes(): w for row, w in zip(X.astype(np.float32), weight, strict=True)}
    for _, rows, _, given in calls:
        expected = [of_row[row.tobytes()] for row in rows.astype(np.float32)]
        np.testing.assert_allclose(given, expected)


def test_without_a_rehearsal_nothing_is_fitted_and_nothing_promised():
    X, y = CANCER
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    calls, patched = fits_of(RandomForestClassifier)
    with patched:
        small = sb.compress(forest, X, y, rehearsal=False)
    assert not calls
    assert small.path_ is None
    assert np.isnan(small.selection_.ratio)
    assert "not estimated" in str(small.selection_)
    assert small.n_nodes_ <= 0.1 * small.selection_.before.nodes
    assert small.score(X, y) > 0.9
    budget = sb.compress(forest, X, y, rehearsal=False, max_nodes=0.3)
    assert small.n_nodes_ < budget.n_nodes_ <= 0.3 * small.selection_.before.nodes


def test_a_class_that_a_copy_never_sees():
    X, y = IRIS
    y = y.copy()
    y[7] = 3  # one row of a class of its own
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y)
    assert small.predict_proba(X).shape == (150, 4)
    assert np.isfinite(small.predict_log_proba(X)).all()
    tiny = sb.compress(forest, X, y, max_nodes=0.1)
    np.testing.assert_allclose(tiny.predict_proba(X).sum(axis=1), 1.0)


def test_one_leaf_is_no_model_of_classes_that_are_told_apart():
    X, y = IRIS[0], IRIS[1] == 0
    rows, others = np.split(np.random.default_rng(0).permutation(len(y)), 2)
    forest = RandomForestClassifier(40, min_samples_leaf=2, random_state=0).fit(X[rows], y[rows])
    assert sb.compress(forest, X[rows], y[rows]).score(X[others], y[others]) > 0.95


def test_held_out_rows_need_no_copy():
    X, y = CANCER
    forest = RandomForestClassifier(30, random_state=0).fit(X[:300], y[:300])
    calls, patched = fits_of(RandomForestClassifier)
    with patched:
        small = sb.compress(forest, X[300:], y[300:], evidence="holdout", max_nodes=0.2)
    assert not calls
    assert small.path_.judged_by == "held-out rows"
    assert small.n_nodes_ <= 0.2 * small.selection_.before.nodes


@pytest.mark.parametrize("bootstrap", [True, False])
def test_ensembles_without_bags(bootstrap):
    X, y = CANCER
    trees = ExtraTreesClassifier(30, bootstrap=bootstrap, random_state=0).fit(X, y)
    small = sb.compress(trees, X, y, max_nodes=0.2)
    assert small.path_.judged_by == "rehearsal"
    assert small.n_nodes_ <= 0.2 * small.selection_.before.nodes


def hand_made(X, y, n=25):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, len(y), len(y)) for _ in range(n)]
    return [DecisionTreeClassifier(random_state=0).fit(X[r], y[r]) for r in rows], rows


def test_what_cannot_be_fitted_again_gets_weights_or_is_taught_without_a_rehearsal():
    X, y = CANCER
    models, rows = hand_made(X, y)
    small = sb.compress(models, X, y, estimators_samples=rows, max_estimators=4)
    assert small.refinement_ is None
    assert small.path_.judged_by == "out-of-bag rows"
    assert all(kept is models[j] for j, kept in zip(small.active_, small.estimators_, strict=True))
    voter = VotingClassifier([("a", models[0]), ("b", models[1])], voting="soft").fit(X, y)
    held = sb.compress(voter, X + 1e-3, y, evidence="holdout")
    assert held.path_.judged_by == "held-out rows"
    small = sb.compress(models, X, y, estimators_samples=rows, rehearsal=False, max_nodes=0.3)
    assert small.refinement_ is not None
    assert small.n_nodes_ <= 0.3 * small.selection_.before.nodes


@pytest.mark.parametrize(
    "bag",
    [
        BaggingClassifier(n_estimators=20, max_samples=100, random_state=0),
        BaggingClassifier(n_estimators=20, max_samples=0.5, max_features=0.5, random_state=0),
        RandomForestClassifier(20, warm_start=True, oob_score=True, random_state=0),
    ],
    ids=["rows counted", "shares", "warm start"],
)
def test_settings_of_a_copy(bag):
    X, y = CANCER
    calls, patched = fits_of(type(bag))
    bag.fit(X, y)
    with patched:
        sb.compress(bag, X, y, max_nodes=0.2)
    for copy, rows, _, _ in calls:
        assert copy.warm_start is False
        assert copy.oob_score is False
        if bag.max_samples == 100:
            assert copy.max_samples == round(100 * len(rows) / len(y))
