"""The paper's problem in NumPy is the problem that `preset="paper"` solves."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.datasets import Unavailable
from benchmarks.paper_experiments import PaperProblem, main, measure

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


def test_votes_differ_in_the_last_bit_and_differently_each_draw():
    f = PaperProblem.of(problem())
    first, second = (f.with_last_bits(draw).votes for draw in (1, 2))
    voted = f.votes > 0
    assert 0.3 < np.mean(first[voted] < f.votes[voted]) < 0.7
    np.testing.assert_allclose(first, f.votes, rtol=3e-16)
    assert not np.array_equal(first, second)


def test_what_is_measured(monkeypatch):
    for name in ("FITS", "STARTS", "POINTS"):
        monkeypatch.setattr(paper_experiments, name, 2)
    found = measure(problem("regression"))
    assert [len(found[n]) for n in ("fits", "random_starts", "least_curvature")] == [2, 2, 2]
    for fit in found["fits"]:
        assert fit["survivors"] + fit["tiny"] + fit["exact_zeros"] == found["members"] == 100
        assert fit["mse"] > 0


def test_without_the_data_nothing_is_written(monkeypatch, tmp_path, capsys):
    def absent(*args):
        raise Unavailable("spambase: not under SPARSEBAG_DATA, and no network")

    monkeypatch.setattr(paper_experiments, "PAPER", {"spambase": SimpleNamespace(load=absent)})
    monkeypatch.setattr("sys.argv", ["paper_experiments", f"--out={tmp_path / 'e.json'}"])
    assert main() == 1
    assert capsys.readouterr().err.startswith("Nothing was written: spambase: not under")
    assert not list(tmp_path.iterdir())
