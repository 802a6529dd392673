"""Linear regressors under a gate: the kernel's sum is the members', row by row."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge

from gated_ensembles import GATES
from sparsebag.deploy import _forest, gated_lines
from sparsebag.deploy._forest import instruction_sets, use_instructions
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.gate import CompiledGate
from sparsebag.evidence.from_ensemble import read_ensemble

WIDTHS = (1, 3, 8, 16, 21, 40)
"""Less than the kernel reads at once, exactly as much, and more."""


def gated(kind, d, k=7, n=200):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d))
    bag = BaggingRegressor(Ridge(), k, random_state=0).fit(X, X[:, 0] + rng.normal(size=n))
    gate = GATES[kind](k, d, temperature=False)
    pool = read_ensemble(bag)
    return compile_members(pool, np.ones(k), gate=gate), pool, gate, X


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("d", WIDTHS)
def test_the_sum_is_the_members_own(kind, d):
    model, pool, gate, X = gated(kind, d)
    votes = np.stack([member.predict(X) for member in pool.members], axis=1)
    expected = np.sum(gate.weights(X) * votes, axis=1)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12, atol=1e-13)
    whole = np.round(X * 3).astype(np.int64)
    votes = np.stack([member.predict(whole) for member in pool.members], axis=1)
    expected = np.sum(gate.weights(whole) * votes, axis=1)
    np.testing.assert_allclose(model.predict(whole), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_gets_the_same_bits_alone_and_among_others(kind, dtype):
    model, _, _, X = gated(kind, 21)
    X = X.astype(dtype)
    together = model.predict(X)
    np.testing.assert_array_equal([model.predict_one(row) for row in X], together)
    for n in (1, 63, 64, 65, 129):
        np.testing.assert_array_equal(model.predict(X[:n]), together[:n])
    np.testing.assert_array_equal(model.predict(np.asfortranarray(X)), together)
    np.testing.assert_array_equal(model.predict(np.repeat(X, 2, 1)[:, ::2]), together)
    np.testing.assert_array_equal(model.predict(X[::-1])[::-1], together)
    assert model.predict(X[:0]).shape == (0,)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), together)


@pytest.mark.parametrize("kind", GATES)
def test_every_machines_instructions_give_the_same_bits(kind):
    model, _, _, X = gated(kind, 21)
    best, found = instruction_sets()[-1], []
    try:
        for name in instruction_sets():
            use_instructions(name)
            found.append(model.predict(X))
    finally:
        use_instructions(best)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("kind", GATES)
def test_many_coefficients_and_sparse_rows_go_by_the_matrix_product(kind, monkeypatch):
    model, _, _, X = gated(kind, 21)
    expected = model.predict(X)
    monkeypatch.setattr(gated_lines, "MOST_IN_KERNEL", 0)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.predict(sp.csr_matrix(X)), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_raises(kind, value):
    model, _, _, X = gated(kind, 21)
    # A column that no member reads hides nothing: zero times infinity is no number.
    model.groups[0].coef[3] = 0.0
    if model._lines._region_slopes is not None:
        model._lines._region_slopes[:, 3] = 0.0
    for column in (0, 3, 20):
        rows = X.copy()
        rows[150, column] = value
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            model.predict(rows)
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            model.predict_one(rows[150])


def test_a_sum_that_is_too_large_is_infinite_as_it_is_without_a_gate():
    for kind in GATES:
        model, *_ = gated(kind, 3)
        model.groups[0].coef[:] = 1e10
        if model._lines._region_slopes is not None:
            model._lines._region_slopes[:] = 1e10
        assert np.isinf(model.predict(np.full((1, 3), 1e300))).all()


@pytest.mark.parametrize("kind", ["softmax", "regions"])
def test_the_kernel_refuses_what_does_not_fit(kind):
    gate = CompiledGate(GATES[kind](4, 3, temperature=False)).kernel
    X, out = np.zeros((5, 3)), np.empty(5)
    with pytest.raises(ValueError, match="wrong number of columns"):
        _forest.gated_lines(gate, np.zeros((5, 2)), np.zeros((3, 4)), np.zeros(4), out)
    with pytest.raises(ValueError, match="weighs other members"):
        _forest.gated_lines(gate, X, np.zeros((3, 5)), np.zeros(5), out)
    with pytest.raises(ValueError, match="wrong shape"):
        _forest.gated_lines(gate, X, np.zeros((3, 4)), np.zeros(4), np.empty(4))
    expected = "no regions" if kind == "softmax" else "other regions"
    with pytest.raises(ValueError, match=expected):
        _forest.region_lines(gate, X, np.zeros((99, 3)), np.zeros(99), out)
