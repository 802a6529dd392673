"""Weights refitted on another loss, where held-out rows say that helps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

import problems
from sparsebag import RegretWarning
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import LogLoss
from sparsebag.selection import select as select_module
from sparsebag.selection.budget import Budget, Prices
from sparsebag.selection.refit import Refit, RefitBy, refit
from sparsebag.selection.select import select_members

BY = RefitBy(LogLoss(), "auto", floor=1e-3, prior_mass=0.02, drop_threshold=1e-5)


def test_bad_weights_are_beaten_on_held_out_rows():
    evidence = problems.evidence("log_loss", n_rows=800, n_members=6)
    alone = problems.objective("log_loss", n_rows=800, n_members=6)
    worst = np.argmax([alone.loss_value(np.eye(6)[j]) for j in range(6)])
    again = refit(evidence, 0.9 * np.eye(6)[worst] + 0.1 / 6, BY)
    assert again.helps
    assert again.gain > 0.05
    assert again.weights.sum() == pytest.approx(1)
    assert again.weights[worst] < 0.5


def test_the_losss_own_weights_are_not():
    evidence = problems.evidence("log_loss", n_rows=800, n_members=6)
    again = refit(evidence, BY.solve(evidence, np.full(6, 1 / 6)), BY)
    assert not again.helps


def test_what_only_fits_the_rows_at_hand_does_not_help():
    """Members all alike and few rows: on these rows refitting gains, on others it loses."""
    gains = []
    for seed in range(5):
        votes = np.random.default_rng(seed).beta(4, 2, (60, 15))
        target = np.zeros(60, dtype=int)
        evidence = OOBEvidence(votes, None, target, "classification", classes=np.arange(2))
        equal = np.full(15, 1 / 15)
        again = refit(evidence, equal, BY)
        objective = BY.objective(evidence)
        assert objective.value(again.weights) < objective.value(equal)
        assert not again.helps
        gains.append(again.gain)
    assert np.mean(gains) < 0


def test_gain_must_be_sure():
    assert Refit(np.ones(1), 0.6, 0.2).helps
    assert not Refit(np.ones(1), 0.5, 0.2).helps
    assert not Refit(np.ones(1), 0.0, 0.0).helps


@pytest.mark.parametrize("n_rows", [1, 2, 3])
def test_a_handful_of_rows_decides_nothing_without_breaking(n_rows):
    evidence = problems.evidence("log_loss", n_rows=n_rows, n_members=3, holdout=True)
    again = refit(evidence, np.full(3, 1 / 3), BY)
    assert again.weights.sum() == pytest.approx(1)
    assert n_rows > 1 or not again.helps


def test_rows_without_weight_are_not_judged():
    evidence = problems.evidence("log_loss", n_rows=200, n_members=4, weighted=True)
    weight = np.where(np.arange(200) % 2, evidence.sample_weight, 0.0)
    start = np.array([0.7, 0.1, 0.1, 0.1])
    whole = refit(replace(evidence, sample_weight=weight), start, BY)
    part = refit(replace(evidence, sample_weight=weight).take(weight > 0), start, BY)
    assert_allclose(whole.weights, part.weights, atol=5e-3)
    assert whole.gain == pytest.approx(part.gain, abs=0.02)


# -- in the selection -------------------------------------------------------------------------


def selected(monkeypatch, answer, tolerance):
    """A selection of several members whose refit answers as it is told to."""
    calls = []

    def told(evidence, weights, by, *, seed):
        calls.append(evidence.n_members)
        return answer(weights)

    monkeypatch.setattr(select_module, "refit", told)
    rng = np.random.default_rng(0)
    votes = np.clip(0.65 + 0.3 * rng.normal(size=(400, 12)), 0, 1)
    target = np.zeros(400, dtype=int)
    evidence = OOBEvidence(votes, None, target, "classification", classes=np.arange(2))
    prices = Prices(np.full(12, 10), np.full(12, 1000))
    selection = select_members(
        evidence, prices, budget=Budget(), tolerance=tolerance, refit_by=BY, floor=1e-3
    )
    assert len(calls) == 1
    assert calls[0] >= selection.table.k[selection.table.chosen][0]
    return selection


def without_the_first(weights):
    w = np.append(0.0, weights[1:])
    return w / w.sum()


def test_a_refit_that_helps_is_kept_and_said(monkeypatch):
    plain = selected(monkeypatch, lambda w: Refit(w, -1.0, 0.1), 0.3)
    same = selected(monkeypatch, lambda w: Refit(w, 1.0, 0.1), 0.3)
    assert plain.refitted_on is None
    assert "refitted" not in plain.explanation
    assert same.refitted_on == "log_loss"
    assert "weights were refitted on log-loss, which was lower on held-out" in same.explanation
    assert same.bound <= 0.3


def test_members_the_refit_drops_are_not_counted(monkeypatch):
    plain = selected(monkeypatch, lambda w: Refit(w, -1.0, 0.1), 0.3)
    k = np.count_nonzero(plain.weights)

    def answer(weights):
        return Refit(without_the_first(weights), 1.0, 0.3)

    monkeypatch.setattr(select_module, "upper_bound", lambda path, tolerance: np.zeros(1))
    monkeypatch.setattr(select_module, "MOST_FOR_LOSS", np.inf)
    fewer = selected(monkeypatch, answer, 0.3)
    assert np.count_nonzero(fewer.weights) == k - 1
    assert fewer.explanation.startswith(f"Kept {k - 1} of 12 members (")
    assert fewer.expected_risk != plain.expected_risk
    assert fewer.table.k[fewer.table.chosen] == k - 1


def test_a_refit_that_costs_much_of_the_risk_is_not_kept(monkeypatch):
    """With a budget and no tolerance there is no promise to break, and yet a price."""
    monkeypatch.setattr(select_module, "upper_bound", lambda path, tolerance: np.zeros(1))
    plain = selected(monkeypatch, lambda w: Refit(w, -1.0, 0.1), 0.3)
    same = selected(monkeypatch, lambda w: Refit(without_the_first(w), 1.0, 0.3), 0.3)
    assert same.refitted_on is None
    assert same.expected_risk == plain.expected_risk


def test_a_refit_that_would_break_the_promise_is_not_kept(monkeypatch):
    def one_member(weights):
        return Refit(np.eye(len(weights))[0], 1.0, 0.3)

    kept = selected(monkeypatch, one_member, 0.05)
    plain = selected(monkeypatch, lambda w: Refit(w, -1.0, 0.1), 0.05)
    assert kept.refitted_on is None
    assert_allclose(kept.weights, plain.weights)


def test_quadratic_losses_are_not_refitted(monkeypatch):
    def never(*args, **kwargs):
        raise AssertionError("there is no other loss to refit on")

    monkeypatch.setattr(select_module, "refit", never)
    evidence = problems.evidence("squared_error", n_rows=200, n_members=8)
    prices = Prices(np.full(8, 10), np.full(8, 1000))
    with pytest.warns(
        RegretWarning, match="within max_estimators=2 no ensemble is sure to stay within the 0.0%"
    ):
        select_members(evidence, prices, budget=Budget(max_estimators=2), tolerance=0.0)
