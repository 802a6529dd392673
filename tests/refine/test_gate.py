"""Gates: weights on the simplex whatever the row, and arrays that cannot send a walk astray."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.tree import DecisionTreeRegressor

from made_up_gates import linear_gate, oblique_gate, region_gate, region_gate_of
from sparsebag.deploy.gate import GATES, rebuild_gate
from sparsebag.refine.directions import Directions
from sparsebag.refine.gate import LinearGate, sparsemax_rows
from sparsebag.solvers.simplex import project_to_simplex

EVERY = [
    linear_gate(5, 4, 0),
    linear_gate(5, 4, 0, bounded=True),
    region_gate(5, 4, 0),
    oblique_gate(5, 4, 0),
]

any_rows = arrays(np.float64, (7, 4), elements=st.floats(width=64))


@settings(max_examples=40, deadline=None)
@given(any_rows, st.integers(0, 99), st.sampled_from(["softmax", "sparsemax"]))
def test_weights_of_any_row_are_on_the_simplex(X, seed, activation):
    smooth = (linear_gate(5, 4, seed, activation=activation, bounded=b) for b in (False, True))
    for gate in (*smooth, region_gate(5, 4, seed), oblique_gate(5, 4)):
        w, t = gate.weights(X), gate.temperatures(X)
        assert w.shape == (7, 5)
        assert w.min() >= 0.0
        np.testing.assert_allclose(w.sum(axis=1), 1.0, atol=1e-12)
        assert np.all((t >= 0.05 - 1e-12) & (t <= 20.0 + 1e-12))


@pytest.mark.parametrize("activation", ["softmax", "sparsemax"])
def test_without_slopes_a_linear_gate_is_the_global_weights(activation):
    gate = linear_gate(6, 3, 0, activation=activation)
    gate = replace(gate, up=np.zeros_like(gate.up))
    own = np.exp(gate.base) if activation == "softmax" else gate.base
    X = np.random.default_rng(0).normal(size=(20, 3)) * 1e6
    np.testing.assert_allclose(gate.weights(X), np.tile(own, (20, 1)), rtol=1e-13)


def test_precision_of_the_rows_makes_no_difference():
    gate, X = linear_gate(4, 3, 1), np.random.default_rng(0).normal(size=(50, 3))
    np.testing.assert_array_equal(gate.weights(X), gate.weights(X.astype(np.float32)))


def test_missing_and_infinite_values_are_read_as_the_mean():
    gate = linear_gate(4, 3, 1)
    at_mean = gate.weights(gate.mean[None])
    for value in (np.nan, np.inf, -np.inf):
        np.testing.assert_allclose(gate.weights(np.full((1, 3), value)), at_mean, rtol=1e-6)


def test_a_row_far_outside_has_no_more_say_than_one_at_the_clip():
    gate = linear_gate(4, 3, 1)
    far, edge = (gate.mean + s * gate.scale for s in (1e12, gate.clip))
    np.testing.assert_allclose(gate.weights(far[None]), gate.weights(edge[None]), rtol=1e-12)


@settings(max_examples=40, deadline=None)
@given(arrays(np.float64, (1, 6), elements=st.floats(-50, 50)))
def test_sparsemax_is_the_projection_on_the_simplex(logits):
    np.testing.assert_allclose(sparsemax_rows(logits)[0], project_to_simplex(logits[0]), atol=1e-12)


def test_regions_are_the_leaves_of_scikit_learns_tree():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X[rng.random(X.shape) < 0.1] = np.nan
    tree = DecisionTreeRegressor(max_depth=3, random_state=0).fit(X, np.nan_to_num(X[:, 0]) ** 2)
    gate = region_gate_of(tree, 5)
    fresh = rng.normal(size=(2000, 4))
    fresh[rng.random(fresh.shape) < 0.2] = np.nan
    # at the thresholds, where float32 and float64 part
    inner = np.flatnonzero(tree.tree_.children_left >= 0)
    fresh[: len(inner), :] = tree.tree_.threshold[inner, None]
    np.testing.assert_array_equal(gate.region[tree.apply(fresh)], gate.regions(fresh))


@pytest.mark.parametrize("gate", EVERY)
def test_arrays_hold_the_whole_gate(gate):
    again = rebuild_gate(gate.kind, gate.arrays(), gate.settings())
    X = np.random.default_rng(0).normal(size=(50, 4))
    np.testing.assert_array_equal(again.weights(X), gate.weights(X))
    np.testing.assert_array_equal(again.temperatures(X), gate.temperatures(X))
    assert GATES[gate.kind] is type(gate)


@pytest.mark.parametrize("gate", EVERY)
def test_members_in_another_order(gate):
    X, order = np.random.default_rng(0).normal(size=(50, 4)), np.array([3, 0, 4, 1, 2])
    np.testing.assert_allclose(gate.take(order).weights(X), gate.weights(X)[:, order], rtol=1e-12)


@pytest.mark.parametrize("gate", EVERY)
def test_sparse_rows_and_many_rows(gate, monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 4))
    X[X < 0.5] = 0.0
    whole = gate.weights(X)
    monkeypatch.setattr("sparsebag.refine.gate.BLOCK_ELEMENTS", 40)
    np.testing.assert_allclose(gate.weights(X), whole, rtol=1e-12)
    np.testing.assert_allclose(gate.weights(sp.csr_array(X)), whole, rtol=1e-12)
    with pytest.raises(ValueError, match="reads 4 features"):
        gate.weights(X[:, :3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": np.array([1.0, 0.0, 1.0])}, "not above zero"),
        ({"scale": np.array([1.0, 5e-324, 1.0])}, "not above zero"),
        ({"mean": np.zeros(2)}, "do not fit together"),
        ({"up": np.zeros((4, 5))}, "do not fit together"),
        ({"base": np.zeros(0)}, "do not fit together"),
        ({"log_temperature": np.zeros(1)}, "do not fit together"),
        ({"up": np.full((4, 2), np.nan)}, "up is not finite"),
        ({"up": np.full((4, 2), 1e200)}, "too large"),
        ({"down": np.full((2, 3), 1e308)}, "too large"),
        ({"activation": "relu"}, "not softmax or sparsemax"),
        ({"clip": np.inf}, "clip"),
        ({"offset": np.zeros(3)}, "do not fit together"),
        ({"offset": np.full(2, np.inf)}, "offset is not finite"),
        ({"offset": np.full(2, 1e200)}, "too large"),
    ],
)
def test_linear_gates_that_cannot_be(change, message):
    with pytest.raises(ValueError, match=message):
        replace(linear_gate(4, 3, 0), **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": [0, -1, -1]}, "no parent, or two"),
        ({"left": [2, -1, -1]}, "no parent, or two"),
        ({"right": [5, -1, -1]}, "no parent, or two"),
        ({"right": [-1, -1, -1]}, "one child"),
        ({"left": [1, -1, -2]}, "one child"),
        ({"feature": [2, 0, 0]}, "does not exist"),
        ({"feature": [-1, 0, 0]}, "does not exist"),
        ({"region": [-1, 0, 2]}, "without weights"),
        ({"region": [-1, -1, 0]}, "has no region"),
        ({"region": [-1, -5, 0]}, "without weights"),
        ({"region_weights": [[0.5, 0.6], [0.5, 0.5]]}, "not on the simplex"),
        ({"region_weights": [[1.5, -0.5], [0.5, 0.5]]}, "not on the simplex"),
        ({"threshold": [np.nan, 0.0, 0.0]}, "threshold of the gate is no number"),
        ({"temperature": [1.0, 0.0]}, "one a region"),
        ({"temperature": [1.0]}, "one a region"),
        ({"missing_left": [1]}, "do not fit together"),
    ],
)
def test_region_gates_that_cannot_be(change, message):
    gate = region_gate_of(None, 2)
    with pytest.raises(ValueError, match=message):
        replace(gate, **{name: np.array(value) for name, value in change.items()})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": np.array([1.0, 0.0, 1.0])}, "not above zero"),
        ({"mean": np.zeros(2)}, "do not fit together"),
        ({"down": np.zeros((0, 3))}, "do not fit together"),
        ({"down": np.full((1, 3), np.nan)}, "down is not finite"),
        ({"down": np.full((1, 3), 1e40)}, "too large"),
        ({"clip": 0.0}, "clip"),
    ],
)
def test_directions_that_cannot_be(change, message):
    own = Directions(np.zeros(3), np.ones(3), np.ones((1, 3)))
    with pytest.raises(ValueError, match=message):
        replace(own, **change)


def test_regions_with_directions_of_other_features_are_refused():
    gate = oblique_gate(3, 4)
    with pytest.raises(ValueError, match="another number of features"):
        replace(gate, directions=Directions(np.zeros(3), np.ones(3), np.ones((2, 3))))
    with pytest.raises(ValueError, match="does not exist"):
        replace(gate, directions=None)


def test_a_bounded_gate_has_no_say_beyond_its_slopes():
    """Far from a plane, weights are those of its side, however steep it is."""
    steep = LinearGate(
        mean=np.zeros(1),
        scale=np.ones(1),
        down=np.array([[50.0]]),
        up=np.array([[1.0], [0.9], [-1.0]]),
        base=np.zeros(3),
        offset=np.array([25.0]),
    )
    weights = steep.weights(np.array([[-4.0], [-0.6], [-0.5], [-0.4], [4.0]]))
    np.testing.assert_allclose(weights[2], 1.0 / 3.0)
    expected = np.exp([1.0, 0.9, -1.0]) / np.exp([1.0, 0.9, -1.0]).sum()
    np.testing.assert_allclose(weights[4], expected, atol=1e-4)
    np.testing.assert_allclose(weights[3], expected, atol=0.02)
    np.testing.assert_allclose(
        weights[0], np.exp([-1, -0.9, 1]) / np.exp([-1, -0.9, 1]).sum(), 1e-3
    )


def test_a_cycle_is_refused():
    """Node 1 and 2 are each other's children: every node has one parent, and no walk ends."""
    with pytest.raises(ValueError, match="before its parent"):
        replace(
            region_gate_of(None, 2),
            feature=np.zeros(5),
            threshold=np.zeros(5),
            left=np.array([-1, 2, 1, -1, -1]),
            right=np.array([-1, 3, 4, -1, -1]),
            missing_left=np.zeros(5),
            region=np.array([0, -1, -1, 0, 1]),
        )


def test_a_kind_that_is_not_known():
    with pytest.raises(ValueError, match="'neural' is not known to this version; it knows linear"):
        rebuild_gate("neural", {}, {})


def test_large_offsets_lose_little():
    """Features of any scale: seconds since 1970, as trees read them, beside fractions."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2))
    own = LinearGate(np.zeros(2), np.ones(2), np.eye(2), rng.normal(size=(3, 2)), np.zeros(3))
    scale, mean = np.array([1e-9, 1e6]), np.array([0.0, 1.7e9])
    moved = replace(own, mean=mean, scale=scale)
    np.testing.assert_allclose(moved.weights(X * scale + mean), own.weights(X), atol=1e-3)


def test_gates_without_new_parts_are_stored_as_ever():
    """Files of earlier versions hold just this, and are read by it."""
    axis, plain = region_gate(3, 4), linear_gate(3, 4)
    assert axis.settings() == {"n_features": 4}
    assert set(axis.arrays()).isdisjoint({"mean", "scale", "down"})
    assert "offset" not in plain.arrays()
    assert rebuild_gate("regions", axis.arrays(), {"n_features": 4}).directions is None
    assert rebuild_gate("linear", plain.arrays(), plain.settings()).offset is None
