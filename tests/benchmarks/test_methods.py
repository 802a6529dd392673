from dataclasses import replace

import numpy as np
import pytest
from benchmarks.base_models import BASE_MODELS
from benchmarks.methods import METHODS, boosting
from benchmarks.methods.base import Skipped
from benchmarks.methods.selection import DRAWS, greedy_picks
from benchmarks.methods.uniform import at_temperature, fit_temperature, uniform_oob_vote
from benchmarks.problem import make_problem

from bagged_problems import IRIS, problem
from sparsebag.settings import DEFAULT_FLOOR

TASKS = ["classification", "regression"]


@pytest.mark.parametrize("task", TASKS)
def test_uniform_is_the_ensemble_itself(task):
    p = problem(task)
    (model,) = METHODS["uniform"].run(p, None)
    predict = p.ensemble.predict_proba if task == "classification" else p.ensemble.predict
    np.testing.assert_allclose(model.predict(p.X_test), predict(p.X_test), rtol=1e-12)


@pytest.mark.parametrize("task", TASKS)
def test_shared_votes_average_to_scikit_learns_oob_prediction(task):
    p = problem(task)
    bag = p.ensemble
    with_oob = type(bag)(bag.estimator, n_estimators=100, oob_score=True, random_state=42)
    with_oob.fit(p.X, p.y)
    if task == "classification":
        theirs = with_oob.oob_decision_function_
    else:
        theirs = with_oob.oob_prediction_[:, None]
    np.testing.assert_allclose(uniform_oob_vote(p), theirs, rtol=1e-12)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("k", [1, 7, 40, 100])
@pytest.mark.parametrize("name", ["random_k", "best_k", "caruana", "random_k_default"])
def test_size_matched_methods_keep_k_members(name, k, task):
    models = METHODS[name].run(problem(task), k)
    assert [model.survivors for model in models] == [k] * len(models)
    assert len(models) == (DRAWS if name.startswith("random_k") else 1)


@pytest.mark.parametrize(
    ("plain", "with_floor"), [("uniform", "uniform_floored"), ("random_k", "random_k_default")]
)
def test_the_fair_rivals_have_our_defaults_floor(plain, with_floor):
    p = problem()
    raw, floored = (METHODS[m].run(p, 2)[0].predict(p.X_test) for m in (plain, with_floor))
    np.testing.assert_allclose(floored, (1 - DEFAULT_FLOOR) * raw + DEFAULT_FLOOR / 3)
    assert raw.min() == 0 < floored.min()
    (default,) = METHODS["sparsebag_default"].run(p, None)
    assert default.predict(p.X_test).min() > 0.5 * floored.min()
    p = problem("regression")
    raw, floored = (METHODS[m].run(p, 2)[0].predict(p.X_test) for m in (plain, with_floor))
    np.testing.assert_array_equal(raw, floored)


def test_random_draws_differ_and_repeat():
    p = problem("regression")
    first, second = (METHODS["random_k"].run(p, 5) for _ in range(2))
    predictions = [model.predict(p.X_test) for model in first]
    assert not np.allclose(predictions[0], predictions[1])
    for model, repeated in zip(predictions, second, strict=True):
        np.testing.assert_array_equal(model, repeated.predict(p.X_test))


def test_the_greedy_search_starts_with_the_best_member():
    p = problem("regression")
    mask, error = p.oob.mask, np.square(p.oob.judged - p.y[:, None])
    alone = (error * mask).sum(axis=1) / mask.sum(axis=1)
    charged = np.where(mask, error, alone[:, None]).mean(axis=0)
    assert greedy_picks(p, 1)[np.argmin(charged)] == 1


def test_the_temperature_does_not_raise_oob_log_loss():
    p = problem()
    vote = uniform_oob_vote(p)

    def loss(temperature):
        scaled = at_temperature(vote, temperature)
        return -np.log(scaled[np.arange(len(p.y)), p.y]).mean()

    best = fit_temperature(vote, p)
    assert loss(best) <= loss(1.0)
    assert loss(best) <= min(loss(0.9 * best), loss(1.1 * best))


def test_the_temperature_has_nothing_to_do_in_regression():
    with pytest.raises(Skipped, match="no probabilities"):
        METHODS["uniform_temperature"].run(problem("regression"), None)


def test_xgboost_is_skipped_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr(boosting, "xgboost", None)
    with pytest.raises(Skipped, match="pip install xgboost-cpu"):
        METHODS["xgboost"].run(make_problem(IRIS, "none", 42), None)


@pytest.mark.parametrize("task", TASKS)
def test_lasso_weights_are_a_vote(task):
    p = problem(task)
    (model,) = METHODS["lasso_pruned"].run(p, None)
    assert 1 <= model.survivors <= model.members == 100
    predicted = model.predict(p.X_test)
    if task == "classification":
        np.testing.assert_allclose(predicted.sum(axis=1), 1.0)
    else:
        assert p.y.min() <= predicted.min() <= predicted.max() <= p.y.max()


@pytest.mark.parametrize("base", BASE_MODELS, ids=lambda base: f"{base.task}-{base.name}")
def test_every_base_model_can_be_compressed(base):
    few = replace(base, n_members=4)
    p = problem(base.task)
    X, y = p.X[:80], p.y[:80]
    bag = few.fit_ensemble(X, y, seed=0)
    small_problem = replace(p, base=base.name, X=X, y=y, ensemble=bag)
    (model,) = METHODS["best_k"].run(small_problem, 2)
    predicted = model.predict(p.X_test)
    classification = base.task == "classification"
    assert predicted.shape == ((len(p.X_test), 3) if classification else (len(p.X_test),))
    assert np.all(np.isfinite(predicted))
