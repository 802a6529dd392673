"""A model from weights that were found somewhere else."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import BaggingRegressor, RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.metrics import accuracy_score

import sparsebag as sb


@pytest.fixture(scope="module")
def forest():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return RandomForestClassifier(20, random_state=0).fit(X, y), X, y


def test_streamed_weights_become_a_model(forest, tmp_path):
    model, X, y = forest
    solution = sb.fit_weights(sb.stream_members(model, X.to_numpy(), y.to_numpy()))
    small = sb.with_weights(model, solution.weights, floor=0.0)
    votes = [tree.predict_proba(X.to_numpy()) for tree in model.estimators_]
    assert small.n_models == solution.n_active < 20
    assert_allclose(small.predict_proba(X), np.tensordot(solution.weights, votes, 1), atol=1e-12)
    sb.save(small, tmp_path / "small.sbag")
    again = sb.load(tmp_path / "small.sbag")
    np.testing.assert_array_equal(again.predict_proba(X), small.predict_proba(X))
    with pytest.raises(ValueError, match="column"):
        small.predict_proba(X.rename(columns={"mean radius": "radius"}))


def test_the_score_is_scikit_learns(forest):
    model, X, y = forest
    heavy = np.linspace(0.0, 1.0, len(y))
    uniform = sb.with_weights(model, np.full(20, 0.05))
    assert uniform.score(X, y) == accuracy_score(y, uniform.predict(X))
    assert uniform.score(X, y, heavy) == accuracy_score(y, uniform.predict(X), sample_weight=heavy)
    rows, targets = load_diabetes(return_X_y=True)
    bag = BaggingRegressor(Ridge(), n_estimators=5, random_state=0).fit(rows, targets)
    line = sb.with_weights(bag, np.full(5, 0.2))
    assert line.score(rows, targets) == pytest.approx(bag.score(rows, targets), rel=1e-12)


def test_it_is_saved_by_its_own_method(forest, tmp_path):
    model, X, _ = forest
    uniform = sb.with_weights(model, np.full(20, 0.05))
    uniform.save(tmp_path / "once.sbag")
    loaded = sb.load(tmp_path / "once.sbag")
    loaded.save(tmp_path / "twice.sbag", allow_pickle=False)
    assert (tmp_path / "once.sbag").read_bytes() == (tmp_path / "twice.sbag").read_bytes()
    np.testing.assert_array_equal(loaded.predict_proba(X), uniform.predict_proba(X))


def test_a_solution_is_printed_in_one_sentence(forest):
    model, X, y = forest
    solution = sb.fit_weights(sb.stream_members(model, X.to_numpy(), y.to_numpy()))
    said = str(solution)
    assert f"Weights of {solution.n_active} of 20 members" in said
    assert f"{solution.objective:.7g}" in said
    assert "CONVERGED: the stationarity gap is below the tolerance (mirror, " in said
    assert f"{solution.n_passes:.3g} passes" in said
    assert "\n" not in said
    assert "array" in repr(solution)


def test_floored_as_the_weights_were_fitted(forest):
    model, X, _ = forest
    one = np.eye(20)[3]
    assert 0.0 < sb.with_weights(model, one).predict_proba(X).min() < 1e-3
    assert sb.with_weights(model, one, floor=0.0).predict_proba(X).min() == 0.0


def test_linear_regressors_become_one_line():
    X, y = load_diabetes(return_X_y=True)
    bag = BaggingRegressor(Ridge(), n_estimators=5, random_state=0).fit(X, y)
    weights = np.array([0.5, 0.0, 0.25, 0.25, 0.0])
    small = sb.with_weights(bag, weights)
    assert small.n_models == 1
    votes = [member.predict(X) for member in bag.estimators_]
    assert_allclose(small.predict(X), weights @ np.array(votes), rtol=1e-12)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full(19, 1 / 19), r"shape \(20,\), one for each member; got shape \(19,\)"),
        (np.full(20, 0.1), "sum of 2"),
        (np.r_[-0.1, 1.1, np.zeros(18)], "smallest of -0.1"),
        (np.r_[np.nan, np.zeros(19)], "finite"),
        (object(), "weights must be numbers, one for each member.*got object"),
    ],
)
def test_weights_off_the_simplex_are_refused(forest, weights, message):
    with pytest.raises(ValueError, match=message):
        sb.with_weights(forest[0], weights)


def test_a_solution_stands_for_its_weights(forest):
    model, X, y = forest
    solution = sb.fit_weights(sb.stream_members(model, X.to_numpy(), y.to_numpy()))
    np.testing.assert_array_equal(
        sb.with_weights(model, solution).predict_proba(X),
        sb.with_weights(model, solution.weights).predict_proba(X),
    )


@pytest.mark.parametrize("floor", ["x", None, True, 1.0, np.nan])
def test_a_floor_of_another_kind_is_refused(forest, floor):
    with pytest.raises(ValueError, match="floor must be a number, at least 0 and below 1; got"):
        sb.with_weights(forest[0], np.full(20, 0.05), floor=floor)


def test_what_is_saved_is_compressed(forest, tmp_path):
    model, X, y = forest
    with pytest.raises(TypeError, match=r"RandomForestClassifier; compress it.*small\.save"):
        sb.save(model, tmp_path / "forest.sbag")
    small = sb.compress(model, X, y, preset="paper")
    sb.save(small, tmp_path / "small.sbag")
    again = sb.load(tmp_path / "small.sbag")
    np.testing.assert_array_equal(again.predict(X), small.predict(X))
