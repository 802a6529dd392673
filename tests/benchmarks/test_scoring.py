import time

import numpy as np
import pytest
from benchmarks.methods import Model
from benchmarks.scoring import score
from sklearn.metrics import accuracy_score, log_loss, mean_squared_error, r2_score

from bagged_problems import problem


def constant(value, survivors=2):
    return Model(lambda X: np.tile(value, (len(X), 1)).squeeze(), survivors, 4, [value])


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


def test_certainty_in_the_wrong_class_costs_scikit_learns_clip():
    p = problem()
    scores = score([constant([1.0 + 2e-16, 0.0, 0.0])], p)
    wrong = np.mean(p.y_test != 0)
    assert scores["log_loss"] == pytest.approx(-wrong * np.log(np.finfo(float).eps), rel=1e-6)


def test_several_models_are_scored_one_by_one_and_averaged():
    p = problem()
    each = [constant([0.5, 0.3, 0.2]), constant([0.1, 0.1, 0.8])]
    mean = np.mean([score([model], p)["log_loss"] for model in each])
    assert score(each, p)["log_loss"] == pytest.approx(mean)


def test_size_and_confidence():
    scores = score([constant([0.2, 0.5, 0.3], survivors=1)], problem())
    assert (scores["survivors"], scores["members"]) == (1, 4)
    assert scores["bytes"] > 0
    assert scores["mean_confidence"] == pytest.approx(0.5)


def test_a_model_and_the_full_ensemble_take_turns():
    calls = []

    def named(name, seconds):
        def predict(X):
            calls.append(name)
            time.sleep(seconds)
            return np.tile([0.5, 0.3, 0.2], (len(X), 1))

        return Model(predict, 1, 4, [])

    scores = score([named("model", 0.002)], problem(), full=named("full", 0.02))
    assert calls[1:] == ["model", "full"] * (len(calls) // 2)
    assert scores["speedup"] == pytest.approx(10, rel=0.5)
