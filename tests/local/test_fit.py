"""Gates are fitted where they gain, judged on rows they have not seen, and declined elsewhere."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import check_grad
from sklearn.datasets import load_breast_cancer, make_friedman1
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.local import gate as gate_module
from sparsebag.local.fit import GateProblem, RowVotes, Shape, fit_gate
from sparsebag.local.gate import CLIP
from synthetic_gates import linear_gate

K = 8


def experts(n_classes=None, n=600, seed=0, oob=0.6):
    """Rows, targets and votes of members that know the truth on one side of the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    knows = (X[:, :1] > 0.0) == (np.arange(K) % 2 == 0)
    if n_classes is None:
        y = X[:, 1] + X[:, 2]
        votes = np.where(knows, y[:, None], 0.0) + 0.3 * rng.normal(size=(n, K))
        planes, task, classes = None, "regression", None
    else:
        y = rng.integers(n_classes, size=n)
        logits = rng.normal(size=(n, K, n_classes))
        logits += 3.0 * knows[:, :, None] * np.eye(n_classes)[y][:, None, :]
        proba = np.exp(logits) / np.exp(logits).sum(axis=2, keepdims=True)
        votes = proba[np.arange(n), :, y]
        planes, task = tuple(proba.transpose(2, 0, 1)), "classification"
        classes = np.arange(n_classes)
    mask, known = rng.random((n, K)) < oob, {"classes": classes, "class_votes": planes}
    evidence = OOBEvidence(np.where(mask, votes, 0.0), mask, y, task, **known)
    return evidence, X, np.full(K, 1 / K), votes, y


def loss_of(votes, y, weights, regression):
    vote = np.sum(weights * votes, axis=1)
    return float(np.mean((vote - y) ** 2 if regression else -np.log(vote)))


@pytest.mark.parametrize("n_classes", [None, 2, 3])
def test_the_gradient_is_that_of_the_objective(n_classes):
    evidence, X, weights, _, _ = experts(n_classes, n=60)
    rows = RowVotes.read(evidence, X, weights)
    problem = GateProblem(rows, 1e-3, *rows.moments())
    for rank in (1, 3):
        shape = Shape(1.5, 4.0, rank)
        flat = np.random.default_rng(0).normal(size=(4 + 1 + K) * rank)
        value, slope = (lambda x, s=shape, i=i: problem.objective(x, s)[i] for i in (0, 1))
        assert check_grad(value, slope, flat) < 1e-5


@pytest.mark.parametrize("n_classes", [None, 2, 3])
@pytest.mark.parametrize("local", ["auto", True])
def test_experts_get_a_gate_that_gains_on_other_rows(n_classes, local):
    evidence, X, weights, *_ = experts(n_classes)
    found = fit_gate(evidence, X, weights, local=local, floor=1e-3)
    assert found.used
    assert found.gain > 3 * found.gain_error > 0.0
    assert found.loss_before - found.loss_after == pytest.approx(found.gain)
    _, X_new, _, votes, y = experts(n_classes, n=3000, seed=1)
    knows = (X_new[:, :1] > 0.0) == (np.arange(K) % 2 == 0)
    before, after, oracle = (
        loss_of(votes, y, w, n_classes is None)
        for w in (weights, found.gate.weights(X_new), knows / (K / 2))
    )
    assert before - after > 0.8 * (before - oracle)
    assert len(str(found).splitlines()) == 3


def test_the_estimate_is_that_of_the_vote_of_all_members():
    evidence, X, weights, *_ = experts(n=2000, oob=0.37)
    found = fit_gate(evidence, X, weights, local=True, floor=0.0)
    _, X_new, _, votes, y = experts(n=20000, seed=1)
    assert found.loss_before == pytest.approx(loss_of(votes, y, weights, True), rel=0.1)
    # Rows whose trusted members have all seen them count as no gain.
    deployed = loss_of(votes, y, found.gate.weights(X_new), True)
    assert deployed < found.loss_after < found.loss_before - 3 * found.gain_error


@pytest.mark.parametrize("seed", [0, 1])
def test_auto_declines_on_plain_forests(seed):
    X, y = make_friedman1(600, noise=1.0, random_state=seed)
    cancer = load_breast_cancer(return_X_y=True)
    for kind, (rows, target) in (RandomForestRegressor, (X, y)), (RandomForestClassifier, cancer):
        forest = kind(40, random_state=seed)
        evidence = collect_evidence(read_ensemble(forest.fit(rows, target)), rows, target)
        found = fit_gate(evidence, rows, np.full(40, 1 / 40), local="auto", floor=1e-3)
        assert not found.used
        assert "no significant gain" in str(found)
        assert len(str(found).splitlines()) == 2


def test_members_without_weight_have_no_part():
    evidence, X, weights, *_ = experts()
    weights = np.where(np.isin(np.arange(K), [1, 4]), 0.0, weights)
    found = fit_gate(evidence, X, weights, local=True, floor=0.0)
    kept = evidence.take_members(np.flatnonzero(weights))
    alone = fit_gate(kept, X, np.full(6, 1 / 6), local=True, floor=0.0)
    assert found.gate.n_members == 6
    np.testing.assert_allclose(found.gate.weights(X), alone.gate.weights(X), atol=1e-6)


def test_units_outliers_and_missing_values_of_features():
    evidence, X, weights, *_ = experts()
    expected = fit_gate(evidence, X, weights, local=True, floor=0.0)
    moved = X * [1e-6, 1e6, 1.0, 1.0] + [0.0, 0.0, 100.0, 0.0]
    moved = np.hstack([moved, np.full((600, 1), 7.0), np.full((600, 1), np.nan)])
    moved[3, 0], moved[4, 1], moved[5, 2] = 1e9, np.inf, np.nan
    found = fit_gate(evidence, moved, weights, local=True, floor=0.0)
    assert found.gain == pytest.approx(expected.gain, rel=0.05)


def test_row_weights_count():
    evidence, X, weights, *_ = experts()
    weight = np.where(np.arange(600) < 150, 1.0, 0.0)
    few = OOBEvidence(evidence.votes, evidence.oob_mask, evidence.target, "regression", weight)
    found = fit_gate(few, X, weights, local="auto", floor=0.0)
    assert not found.used
    assert "fewer than 200 rows" in found.reason


def test_a_gate_makes_votes_surer_or_less_sure():
    evidence, X, weights, *_ = experts(2)
    assert fit_gate(evidence, X, weights, local=True, floor=1e-3).temperature_ratio > 1.2
    assert fit_gate(*experts()[:3], local=True, floor=0.0).temperature_ratio == 1.0


def test_what_cannot_be_fitted_is_said():
    evidence, X, weights, *_ = experts(3)
    with pytest.raises(ValueError, match="local=True cannot fit a gate, because one member has"):
        fit_gate(evidence, X, np.eye(K)[0], local=True, floor=0.0)
    with pytest.raises(ValueError, match="one row for each of the 600 rows"):
        fit_gate(evidence, X[:3], weights, local=True, floor=0.0)


@given(
    X=arrays(np.float64, (7, 3), elements=st.floats(width=64)),
    spread=st.sampled_from([0.0, 1.0, 1e3, 1e90]),
)
@settings(max_examples=60, deadline=None)
def test_weights_are_on_the_simplex(X, spread):
    weights = linear_gate(5, 3, spread=spread).weights(X)
    assert np.all(weights >= 0.0)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)


def test_the_formula_where_missing_infinite_and_too_large_values_are_the_mean():
    gate, x = linear_gate(4, 3), np.array([0.5, -2.0, 99.0], dtype=np.float32)
    z = np.clip((x.astype(float) - gate.mean) / gate.scale, -CLIP, CLIP)
    h = gate.down @ z + gate.offset
    odds = np.exp(gate.base + gate.up @ (h / np.sqrt(1 + h**2)))
    np.testing.assert_allclose(gate.weights(x[None])[0], odds / odds.sum(), rtol=1e-12)
    order = np.array([2, 0, 3, 1])  # members in another order
    turned = gate.take(order).weights(x[None])
    np.testing.assert_allclose(turned, gate.weights(x[None])[:, order], rtol=1e-14)
    at_mean = replace(gate, mean=gate.mean.astype(np.float32)).weights(gate.mean[None])
    for value in (np.nan, np.inf, -np.inf, 1e300):
        np.testing.assert_allclose(gate.weights(np.full((1, 3), value)), at_mean, atol=1e-6)


def test_sparse_rows_and_blocks_change_nothing(monkeypatch):
    gate, X = linear_gate(4, 3), np.random.default_rng(0).normal(size=(50, 3))
    expected = gate.weights(X)
    monkeypatch.setattr(gate_module, "BLOCK_ELEMENTS", 21)
    np.testing.assert_allclose(gate.weights(X), expected, rtol=1e-13)
    np.testing.assert_allclose(gate.weights(sp.csr_matrix(X)), expected, rtol=1e-13)
    assert gate.weights(X[:0]).shape == (0, 4)
    with pytest.raises(ValueError, match="the gate reads 3 features"):
        gate.weights(X[:, :2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mean": np.zeros(2)}, "do not fit together"),
        ({"up": np.zeros((4, 1))}, "do not fit together"),
        ({"offset": np.zeros(())}, "do not fit together"),
        ({"base": np.zeros(0)}, "do not fit together"),
        ({"base": np.full(4, np.nan)}, "base is not finite"),
        ({"scale": np.zeros(3)}, "scale of the gate is not above zero"),
        ({"up": np.full((4, 2), 1e200)}, "coefficients are too large"),
        ({"down": np.full((2, 3), 1e308)}, "coefficients are too large"),
    ],
)
def test_what_is_no_gate_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(linear_gate(4, 3), **change)
