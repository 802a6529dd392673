"""`LinearGate`: weights on the simplex, whatever the row; arrays that fit together."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from made_up_gates import linear_gate
from sparsebag.local import gate as gate_module
from sparsebag.local.gate import CLIP


@given(
    X=arrays(np.float64, (7, 3), elements=st.floats(width=64)),
    spread=st.sampled_from([0.0, 1.0, 1e3, 1e90]),
)
@settings(max_examples=60, deadline=None)
def test_weights_are_on_the_simplex(X, spread):
    weights = linear_gate(5, 3, spread=spread).weights(X)
    assert np.all(weights >= 0.0)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)


def test_the_formula():
    gate, x = linear_gate(4, 3), np.array([0.5, -2.0, 99.0], dtype=np.float32)
    z = np.clip((x.astype(float) - gate.mean) / gate.scale, -CLIP, CLIP)
    h = gate.down @ z + gate.offset
    odds = np.exp(gate.base + gate.up @ (h / np.sqrt(1 + h**2)))
    np.testing.assert_allclose(gate.weights(x[None])[0], odds / odds.sum(), rtol=1e-12)


def test_missing_infinite_and_too_large_values_are_the_mean():
    gate = linear_gate(4, 3)
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
