"""The methods of the paper benchmark, on data that scikit-learn bundles."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import sklearn
from benchmarks.datasets import PAPER
from benchmarks.methods import DRAWS, METHODS, Skipped, at_temperature, xgboost
from benchmarks.problem import BASES, N_MEMBERS, make_problem
from benchmarks.scoring import figures_on_test_rows

from bagged_problems import DIABETES, IRIS, problem
from benchmarks import methods

TASKS = ["classification", "regression"]
# Data set, base, method, score, what the authors' code gave, its survivors.
RECORDED = [
    ("breast_cancer", "DecisionTree", "uniform", "log_loss", "0.112532", 100),
    ("breast_cancer", "DecisionTree", "lasso_pruned", "log_loss", "0.105782", 53),
    ("breast_cancer", "none", "xgboost", "log_loss", "0.080558", 100),
    ("diabetes_reg", "DecisionTree", "uniform", "mse", "2908.81", 100),
    ("diabetes_reg", "DecisionTree", "lasso_pruned", "mse", "2998.13", 53),
    ("diabetes_reg", "Ridge", "uniform", "mse", "3116.53", 50),
    ("diabetes_reg", "Ridge", "lasso_pruned", "mse", "3123.13", 39),
    ("diabetes_reg", "none", "xgboost", "mse", "3513.66", 100),
]

cached_problem = cache(make_problem)


@pytest.mark.skipif(
    not sklearn.__version__.startswith("1.9."), reason="recorded with scikit-learn 1.9"
)
@pytest.mark.parametrize(("dataset", "base", "method", "column", "figure", "survivors"), RECORDED)
def test_the_protocol_gives_the_figures_of_the_authors_code(
    dataset, base, method, column, figure, survivors
):
    if method == "xgboost" and xgboost is None:
        pytest.skip("xgboost is not installed")
    p = cached_problem(PAPER[dataset], base, 42)
    (model,) = METHODS[method].run(p, None)
    assert f"{figures_on_test_rows(model, p)[column]:.6g}" == figure
    assert model.survivors == survivors


@pytest.mark.parametrize("task", TASKS)
def test_uniform_is_the_ensemble_itself(task):
    p = problem(task)
    (model,) = METHODS["uniform"].run(p, None)
    predict = p.ensemble.predict_proba if task == "classification" else p.ensemble.predict
    np.testing.assert_allclose(model.predict(p.X_test), predict(p.X_test), rtol=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_out_of_bag_votes_average_to_scikit_learns(task):
    p = problem(task)
    bag = p.ensemble
    with_oob = type(bag)(bag.estimator, n_estimators=100, oob_score=True, random_state=42)
    with_oob.fit(p.X, p.y)
    theirs = getattr(with_oob, "oob_decision_function_", None)
    theirs = with_oob.oob_prediction_[:, None] if theirs is None else theirs
    ours = p.oob_votes.sum(axis=1) / p.oob_mask.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_random_draws_differ_and_repeat():
    p = problem("regression")
    first, second = (METHODS["random_k"].run(p, 5) for _ in range(2))
    assert [model.survivors for model in first] == [5] * DRAWS
    predictions = [model.predict(p.X_test) for model in first]
    assert not np.allclose(predictions[0], predictions[1])
    for model, repeated in zip(predictions, second, strict=True):
        np.testing.assert_array_equal(model, repeated.predict(p.X_test))


def test_the_temperature_does_not_raise_oob_log_loss():
    p = problem()
    (model,) = METHODS["uniform_temperature"].run(p, None)
    vote = p.oob_votes.sum(axis=1) / p.oob_mask.sum(axis=1, keepdims=True)

    def loss(temperature):
        return -np.log(at_temperature(vote, temperature)[np.arange(len(p.y)), p.y]).mean()

    best = model.parts[1]
    assert loss(best) <= min(loss(t) for t in (1.0, 0.9 * best, 1.1 * best))


def test_xgboost_is_skipped_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(methods, "xgboost", None)
    with pytest.raises(Skipped, match="pip install xgboost-cpu"):
        METHODS["xgboost"].run(make_problem(IRIS, "none", 42), None)


@pytest.mark.parametrize(("task", "base"), [(task, base) for task in TASKS for base in BASES[task]])
def test_every_base_model_votes(task, base, monkeypatch):
    monkeypatch.setitem(N_MEMBERS, base, 4)
    p = make_problem(IRIS if task == "classification" else DIABETES, base, 42)
    model = METHODS["random_k"].run(p, 2)[0]
    predicted = model.predict(p.X_test)
    assert (model.survivors, model.members) == (2, 4)
    assert predicted.shape == ((len(p.y_test), 3) if task == "classification" else p.y_test.shape)
    if task == "classification":
        np.testing.assert_allclose(predicted.sum(axis=1), 1.0)
