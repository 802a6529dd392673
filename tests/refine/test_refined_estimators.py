"""Refitted leaves from the user's side: better where it says so, harmless where not."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_breast_cancer, load_digits, make_friedman1
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.naive_bayes import GaussianNB

import sparsebag as sb
from grown_trees import hand_made_bag

pytestmark = pytest.mark.filterwarnings("ignore::sparsebag.RegretWarning")
refined = partial(sb.compress, refine="auto", calibration="auto")


def friedman(n_rows=800, noise=0.5):
    return make_friedman1(n_rows, noise=noise, random_state=0)


@pytest.fixture(scope="module")
def regression():
    X, y = friedman(2800)
    forest = RandomForestRegressor(60, random_state=0).fit(X[:800], y[:800])
    return forest, X[:800], y[:800], X[800:], y[800:]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    forest = RandomForestClassifier(60, random_state=0).fit(X[:900], y[:900])
    return forest, X[:900], y[:900], X[900:], y[900:]


def brier(y, proba):
    return np.mean(np.sum((proba - np.eye(proba.shape[1])[y]) ** 2, axis=1))


# -- what it promises -------------------------------------------------------------------------


def test_ten_refitted_trees_beat_sixty_of_a_clean_regression(regression):
    forest, X, y, X_new, y_new = regression
    small = refined(forest, X, y, max_estimators=10)
    plain = refined(forest, X, y, max_estimators=10, refine=None)
    full = np.mean((forest.predict(X_new) - y_new) ** 2)
    deployed = np.mean((small.predict(X_new) - y_new) ** 2)
    assert small.refinement_.used
    assert small.refinement_.distilled
    assert small.refinement_.twicing > 0  # clean data: bias is what is left to remove
    assert deployed < full < np.mean((plain.predict(X_new) - y_new) ** 2)
    # the honest word on what is deployed, relative to the whole ensemble
    assert 1 + small.selection_.increase == pytest.approx(deployed / full, rel=0.08)
    assert small.selection_.full_risk == pytest.approx(full, rel=0.15)


def test_ten_refitted_trees_beat_sixty_on_digits(digits):
    forest, X, y, X_new, y_new = digits
    small = refined(forest, X, y, max_estimators=10, calibration=None)
    full = brier(y_new, forest.predict_proba(X_new))
    deployed = brier(y_new, small.predict_proba(X_new))
    assert small.refinement_.used
    assert 1 + small.selection_.increase == pytest.approx(deployed / full, rel=0.08)
    calibrated = refined(forest, X, y, max_estimators=10)
    assert calibrated.temperature_ < 1
    loss = [
        -np.mean(np.log(model.predict_proba(X_new)[np.arange(len(y_new)), y_new] + 1e-12))
        for model in (calibrated, small)
    ]
    assert loss[0] < loss[1]


def test_pure_noise_is_not_made_worse():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1600, 5)), rng.integers(0, 2, 1600)
    forest = RandomForestClassifier(60, random_state=0).fit(X[:300], y[:300])
    plain = refined(forest, X[:300], y[:300], max_estimators=10, refine=None)
    small = refined(forest, X[:300], y[:300], max_estimators=10)
    new = X[300:], y[300:]
    assert brier(new[1], small.predict_proba(new[0])) <= 1.01 * brier(
        new[1], plain.predict_proba(new[0])
    )


def test_where_the_estimate_sees_no_gain_nothing_is_refitted(regression, monkeypatch):
    forest, X, y, *_ = regression
    from sparsebag.refine import refitted_trees

    honest = refitted_trees.choose_strength

    def no_gain(*args, **kwargs):
        found = honest(*args, **kwargs)
        return replace(found, score=1.01 * found.plain_score)

    monkeypatch.setattr(refitted_trees, "choose_strength", no_gain)
    small = refined(forest, X, y, max_estimators=10)
    assert not small.refinement_.used
    assert "not expected to have a lower squared error" in str(small.refinement_)
    plain = refined(forest, X, y, max_estimators=10, refine=None)
    assert_array_equal(small.predict(X), plain.predict(X))
    assert refined(forest, X, y, max_estimators=10, refine="leaves").refinement_.used


def test_the_choice_in_words(regression):
    forest, X, y, *_ = regression
    small = refined(forest, X, y, max_estimators=10)
    refinement, words = small.refinement_, str(small.selection_)
    assert f"Kept {small.n_active_} of 60 trees" in words
    assert "leaf values were refitted on all training rows, and then adjusted so that" in words
    assert f"{refinement.n_synthetic:,} made-up rows" in words
    assert "Tested on 10 trees drawn at random: a squared error of" in words
    assert refinement.judged_members == 10
    assert refinement.risk_after < refinement.risk_before
    assert refinement.smoothing in (0.0, 0.5, 2.0, 8.0)


# -- what it must not touch -------------------------------------------------------------------


def test_the_users_trees_are_not_changed(digits):
    forest, X, y, *_ = digits
    before = copy.deepcopy([tree.tree_.__getstate__() for tree in forest.estimators_])
    said = forest.predict_proba(X)
    small = refined(forest, X, y, max_estimators=5)
    assert small.refinement_.used
    for tree, state in zip(forest.estimators_, before, strict=True):
        assert_array_equal(tree.tree_.__getstate__()["nodes"], state["nodes"])
        assert_array_equal(tree.tree_.__getstate__()["values"], state["values"])
    assert_array_equal(forest.predict_proba(X), said)
    for j, kept in zip(small.active_, small.estimators_, strict=True):
        assert kept is not forest.estimators_[j]
        assert_array_equal(kept.apply(X), forest.estimators_[j].apply(X))


@pytest.mark.parametrize("data", ["digits", "regression"])
def test_the_survivors_say_what_is_deployed(data, request):
    forest, X, y, X_new, _ = request.getfixturevalue(data)
    options = {} if data == "regression" else {"calibration": None, "floor": 0.0}
    small = refined(forest, X, y, max_estimators=5, **options)
    assert small.refinement_.used
    again = pickle.loads(pickle.dumps(small))
    for model in (small, again):
        predict = "predict" if data == "regression" else "predict_proba"
        votes = [getattr(tree, predict)(X_new) for tree in model.estimators_]
        said = np.tensordot(model.weights_[model.active_], votes, 1)
        if data == "digits":  # refitted leaves may leave the simplex; the vote is put back on it
            said = np.clip(said, 0.0, None)
            said /= said.sum(axis=1, keepdims=True)
        assert_allclose(said, getattr(small, predict)(X_new), atol=1e-6)


def test_threads_and_repetition_do_not_change_the_result(digits):
    forest, X, y, X_new, _ = digits
    one, two = (refined(forest, X, y, max_estimators=5, n_jobs=n) for n in (None, 2))
    assert_array_equal(one.weights_, two.weights_)
    assert_array_equal(one.predict_proba(X_new), two.predict_proba(X_new))
    assert one.refinement_ == two.refinement_


def test_pickles_files_and_reports_keep_refitted_leaves(digits, tmp_path):
    forest, X, y, X_new, y_new = digits
    small = refined(forest, X, y, max_estimators=5)
    proba = small.predict_proba(X_new)
    assert proba.min() >= 0
    assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    assert_array_equal(pickle.loads(pickle.dumps(small)).predict_proba(X_new), proba)
    small.save(tmp_path / "m.sbag")
    assert_array_equal(sb.load(tmp_path / "m.sbag").predict_proba(X_new), proba)
    assert_allclose(small._vote.predict_proba(X_new), proba, atol=1e-12)
    assert small.report(X_new, y_new).n_rows == len(y_new)


def test_the_papers_way_stops_at_the_weights(digits):
    forest, X, y, *_ = digits
    small = sb.compress(forest, X, y, preset="paper")
    assert not small.refinement_.used
    assert small.calibrator_ is None
    asked = sb.compress(forest, X, y, preset="paper", refine="leaves", calibration="temperature")
    assert asked.refinement_.used
    assert asked.temperature_ is not None
    assert_array_equal(asked.weights_, small.weights_)


def test_a_penalty_chooses_the_weights_and_nothing_after_them(digits):
    forest, X, y, X_new, y_new = digits
    small = sb.compress(forest, X, y, lam=0.0)
    plain = sb.compress(forest, X, y, lam=0.0, refine=None, calibration=None)
    assert small.refinement_.used
    assert small.calibrator_ is not None
    assert not plain.refinement_.used
    assert plain.calibration_ is None
    assert_array_equal(small.weights_, plain.weights_)
    assert brier(y_new, small.predict_proba(X_new)) < brier(y_new, plain.predict_proba(X_new))


# -- kinds of ensembles and rows --------------------------------------------------------------


def test_sparse_rows_are_refitted_but_not_distilled(digits):
    forest, X, y, X_new, _ = digits
    small = refined(forest, sp.csr_array(X), y, max_estimators=10, refine="leaves")
    assert small.refinement_.used
    assert not small.refinement_.distilled
    assert "rows between sparse ones are not sparse" in str(small.refinement_)
    assert_array_equal(small.predict(sp.csr_array(X_new)), small.predict(X_new))


def test_missing_values(regression):
    _, X, y, X_new, y_new = regression
    rng = np.random.default_rng(0)
    gaps, gaps_new = (np.where(rng.random(Z.shape) < 0.05, np.nan, Z) for Z in (X, X_new))
    forest = RandomForestRegressor(60, random_state=0).fit(gaps, y)
    small = refined(forest, gaps, y, max_estimators=10)
    assert small.refinement_.distilled
    full = np.mean((forest.predict(gaps_new) - y_new) ** 2)
    plain = refined(forest, gaps, y, max_estimators=10, refine=None)
    deployed = np.mean((small.predict(gaps_new) - y_new) ** 2)
    assert deployed < np.mean((plain.predict(gaps_new) - y_new) ** 2)
    assert deployed < 1.05 * full


def test_columns_drawn_and_classes_missing():
    X, y = load_digits(return_X_y=True)
    rare = (y != 9) | (np.cumsum(y == 9) <= 2)
    X, y = X[rare][:700], y[rare][:700]
    bag = hand_made_bag(X, y, 40)
    small = refined(
        bag.models,
        X,
        y,
        estimators_samples=bag.estimators_samples,
        estimators_features=bag.estimators_features,
        max_estimators=10,
        refine="leaves",
    )
    proba = small.predict_proba(X)
    assert proba.shape == (700, 10)
    assert np.mean(proba.argmax(axis=1) == y) > 0.9


def test_extra_trees_with_a_bootstrap(digits):
    _, X, y, X_new, y_new = digits
    trees = ExtraTreesClassifier(60, bootstrap=True, random_state=0).fit(X, y)
    small = refined(trees, X, y, max_estimators=10, calibration=None)
    assert small.refinement_.used
    plain = refined(trees, X, y, max_estimators=10, calibration=None, refine=None)
    deployed = brier(y_new, small.predict_proba(X_new))
    assert deployed < brier(y_new, plain.predict_proba(X_new))


def test_sample_weight(digits):
    _, X, y, *_ = digits
    weight = np.where(np.arange(len(y)) % 3 == 0, 3.0, 1.0)
    forest = RandomForestClassifier(40, random_state=0).fit(X, y, sample_weight=weight)
    small = refined(forest, X, y, max_estimators=10, sample_weight=weight)
    scaled = refined(forest, X, y, max_estimators=10, sample_weight=5 * weight)
    assert small.refinement_.used
    assert_allclose(scaled.predict_proba(X), small.predict_proba(X), atol=1e-6)
    other = refined(forest, X, y, max_estimators=10)
    assert not np.allclose(other.predict_proba(X), small.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize(
    ("ensemble", "reason"),
    [
        (RandomForestClassifier(30, class_weight="balanced", random_state=0), "class weights"),
        (RandomForestClassifier(10, random_state=0), "fewer than 20 trees"),
        (
            BaggingClassifier(GaussianNB(), 20, random_state=0),
            "only decision trees have leaves",
        ),
        (
            RandomForestClassifier(30, monotonic_cst=[1] + [0] * 29, random_state=0),
            "a monotonic constraint",
        ),
    ],
)
def test_what_cannot_be_refitted_says_why(ensemble, reason):
    X, y = load_breast_cancer(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = sb.SparseBaggingClassifier(ensemble, max_estimators=5, refine="auto").fit(X, y)
        assert not small.refinement_.used
        assert reason in str(small.refinement_)
        asked = sb.SparseBaggingClassifier(ensemble, max_estimators=5, refine="leaves")
        with pytest.raises(ValueError, match=f"refine='leaves' cannot refit.*{reason}"):
            asked.fit(X, y)


def test_medians_are_left_alone():
    X, y = friedman(100)
    forest = RandomForestRegressor(40, criterion="absolute_error", random_state=0).fit(X, y)
    small = refined(forest, X, y, max_estimators=5)
    assert "not means of their targets" in str(small.refinement_)


def test_held_out_rows_refit_nothing(digits):
    forest, _, _, X_new, y_new = digits
    small = refined(forest, X_new, y_new, max_estimators=10, evidence="holdout")
    assert "not those the trees were trained on" in small.refinement_.reason
    assert small.calibrator_ is not None


def test_unknown_words():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="refine='leafs' is not known; use 'auto', 'leaves'"):
        refined(forest, X, y, refine="leafs")
    with pytest.raises(ValueError, match="calibration='heat' is not known"):
        refined(forest, X, y, calibration="heat")


def test_the_expected_risk_is_that_of_the_calibrated_vote_on_rows_never_used():
    X, y = load_digits(return_X_y=True)
    before, after, covered = [], [], 0
    for split in range(3):
        order = np.random.default_rng(split).permutation(len(y))
        train, test = order[:900], order[900:]
        forest = RandomForestClassifier(40, random_state=0).fit(X[train], y[train])
        small = refined(forest, X[train], y[train], max_estimators=10, tolerance=None)
        hot = y[test][:, None] == small.classes_
        deployed = np.mean(np.sum((small.predict_proba(X[test]) - hot) ** 2, axis=1))
        chosen = small.selection_
        before.append(chosen.uncalibrated_risk / deployed - 1)
        after.append(chosen.expected_risk / deployed - 1)
        covered += chosen.interval[0] < deployed < chosen.interval[1]
    assert abs(np.mean(after)) < 0.15
    assert covered >= 2
    assert np.mean(before) > 0.4  # what calibration saves


def test_few_members_are_no_match_for_a_calibrated_whole_by_being_sharper():
    """On digits a forest is so unsure that a few sharpened trees beat it as it is."""
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(60, random_state=0).fit(X[:1000], y[:1000])
    alone = sb.compress(forest, X[:1000], y[:1000], tolerance=0.05, calibration=None)
    small = sb.compress(forest, X[:1000], y[:1000], tolerance=0.05)
    assert small.n_active_ > alone.n_active_
    assert small.selection_.full_risk < 0.7 * alone.selection_.full_risk  # calibrated too
    assert small.score(X[1000:], y[1000:]) > forest.score(X[1000:], y[1000:]) - 0.02


def test_what_is_not_calibrated_has_one_risk(regression):
    forest, X, y, *_ = regression
    selection = refined(forest, X, y, max_estimators=5, tolerance=None).selection_
    assert selection.uncalibrated_risk == selection.expected_risk
