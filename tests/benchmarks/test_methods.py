"""The methods of the paper benchmark and their scores, on data that scikit-learn bundles."""

from functools import cache

import numpy as np
import pytest
import sklearn
from benchmarks.datasets import PAPER
from benchmarks.methods import METHODS, Model, xgboost
from benchmarks.problem import BASES, N_MEMBERS, make_problem
from benchmarks.scoring import figures_on_test_rows, score
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score

from bagged_problems import DIABETES, IRIS, problem

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
def test_votes_are_the_ensembles_and_average_to_scikit_learns_out_of_bag(task):
    p = problem(task)
    bag = p.ensemble
    (model,) = METHODS["uniform"].run(p, None)
    predict = bag.predict_proba if task == "classification" else bag.predict
    np.testing.assert_allclose(model.predict(p.X_test), predict(p.X_test), rtol=1e-12)
    with_oob = type(bag)(bag.estimator, n_estimators=100, oob_score=True, random_state=42)
    with_oob.fit(p.X, p.y)
    theirs = getattr(with_oob, "oob_decision_function_", None)
    theirs = with_oob.oob_prediction_[:, None] if theirs is None else theirs
    ours = p.oob_votes.sum(axis=1) / p.oob_mask.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


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


def test_scores_are_scikit_learns():
    p = problem()
    proba = p.ensemble.predict_proba(p.X_test)
    scores = score([Model(p.ensemble.predict_proba, 100, 100, p.ensemble)], p)
    assert scores["accuracy"] == accuracy_score(p.y_test, p.ensemble.predict(p.X_test))
    assert scores["log_loss"] == log_loss(p.y_test, proba)
    assert scores["brier"] == pytest.approx(((proba - np.eye(3)[p.y_test]) ** 2).sum(axis=1).mean())
    p = problem("regression")
    scores = score([Model(p.ensemble.predict, 100, 100, p.ensemble)], p)
    assert scores["mse"] == mean_squared_error(p.y_test, p.ensemble.predict(p.X_test))
    assert scores["r2"] == r2_score(p.y_test, p.ensemble.predict(p.X_test))
