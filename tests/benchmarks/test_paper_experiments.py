"""The paper's problem in NumPy is the problem that `preset="paper"` solves."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from benchmarks.paper_experiments import PaperProblem

import sparsebag as sb
from bagged_problems import problem
from benchmarks import paper_experiments

TASKS = ["classification", "regression"]


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("task", TASKS)
def test_the_objective_is_the_presets(task):
    p = problem(task)
    loss = "log_loss" if task == "classification" else "squared_error"
    votes = p.oob_votes if task == "classification" else p.oob_votes[:, :, 0]
    solution = sb.fit_weights(votes, p.oob_mask, p.y, loss=loss, preset="paper")
    value, _ = PaperProblem.of(p).value_and_gradient(solution.weights)
    assert value == pytest.approx(solution.objective, rel=1e-9)


@pytest.mark.parametrize("task", TASKS)
def test_gradient_and_curvature_are_those_of_the_value(task):
    p = problem(task)
    f = replace(PaperProblem.of(p), lam=0.0)
    if task == "classification":
        floored = (1 - paper_experiments.FLOOR) * f.votes + paper_experiments.FLOOR / 3
        f = replace(f, votes=floored * f.mask)
    rng = np.random.default_rng(0)
    w = rng.dirichlet(np.ones(100))
    step = rng.normal(size=100)
    step -= step.mean()
    step *= 1e-4 / np.linalg.norm(step)
    values = [f.value_and_gradient(w + s * step)[0] for s in (-1, 0, 1)]
    assert f.value_and_gradient(w)[1] @ step == pytest.approx((values[2] - values[0]) / 2, rel=1e-3)
    curved = (values[2] - 2 * values[1] + values[0]) / 1e-8
    least, *_, largest = PaperProblem.of(p).loss_curvature(w, p.n_classes)
    slack = 1e-3 * max(abs(least), abs(largest))
    assert least - slack <= curved <= largest + slack
