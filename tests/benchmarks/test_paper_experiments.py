"""The experiments on every bag fit what `preset="paper"` fits."""

import warnings

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the figures' module needs matplotlib")
from benchmarks.figures import every_bag
from benchmarks.figures.every_bag import PaperFit

import sparsebag as sb
from bagged_problems import problem
from sparsebag.fit_weights import solve_weights


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_fit_is_the_presets(task):
    p = problem(task)
    theirs = sb.compress(p.ensemble, p.X, p.y, preset="paper").weights_
    np.testing.assert_array_equal(PaperFit(p).weights(), theirs)


def test_votes_differ_in_the_last_bit_and_differently_each_draw(monkeypatch):
    fit, seen = PaperFit(problem()), []

    def solve(evidence, settings):
        seen.append(np.asarray(evidence.votes))
        return solve_weights(evidence, settings)

    monkeypatch.setattr(every_bag, "solve_weights", solve)
    weights = fit.of_last_bits(0), fit.of_last_bits(1)
    votes = np.asarray(fit.evidence.votes)
    for lower in seen:
        assert 0.3 < np.mean(lower[votes > 0] < votes[votes > 0]) < 0.7
        np.testing.assert_allclose(lower, votes, rtol=3e-16)
    assert not np.array_equal(*seen)
    assert all(w.sum() == pytest.approx(1) for w in weights)


def test_what_is_measured(monkeypatch):
    monkeypatch.setattr(every_bag, "STARTS", 2)
    monkeypatch.setattr(every_bag, "PERTURBED", 2)
    monkeypatch.setattr(every_bag, "_problems", lambda: iter([problem("regression")]))
    (measured,) = every_bag.measure().values()
    assert measured["survivors"] < measured["members"] == 100
    assert len(measured["perturbed"]) == measured["starts"]["n_starts"] == 2
    assert measured["starts"]["best"] <= measured["starts"]["uniform"]
    assert measured["test_score"] > 0
