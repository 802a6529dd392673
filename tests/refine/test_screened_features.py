"""Very many features: which ones a gate's tree is grown on."""

from __future__ import annotations

import numpy as np
import pytest

from sparsebag.refine.directions import Directions
from sparsebag.refine.local_design import Deviation, RegionDesign
from sparsebag.refine.local_gates import gate_of
from sparsebag.refine.screened_features import MOST_FEATURES, _gains, screened

RNG = np.random.default_rng(0)


def test_few_features_are_all_read():
    X = RNG.normal(size=(50, MOST_FEATURES))
    np.testing.assert_array_equal(screened(X, X[:, :2], np.ones(50)), np.arange(MOST_FEATURES))


@pytest.mark.parametrize("change", [lambda x: x, np.exp, lambda x: 1e-9 * x, lambda x: x > 0.7])
def test_features_with_a_say_are_kept(change):
    X = RNG.normal(size=(400, 900))
    signal = np.sign(X[:, [3, 700]] - 0.7) + RNG.normal(size=(400, 2))
    X[:, [3, 700]] = change(X[:, [3, 700]])
    assert {3, 700} <= set(screened(X, signal, np.ones(400), most=20).tolist())


def test_unknown_values_and_constant_columns():
    X = RNG.normal(size=(400, 200))
    X[:, 5] = 7.0
    X[RNG.random(400) < 0.5, 9] = np.nan
    X[:, 10] = np.nan
    kept = screened(X, np.isnan(X[:, [9]]) + 0.0, np.ones(400), most=3)
    assert 9 in kept
    assert 5 not in kept
    assert 10 not in kept


def test_rows_count_by_their_weight():
    X = RNG.normal(size=(600, 300))
    signal = np.where(np.arange(600) < 300, np.sign(X[:, 4]), np.sign(X[:, 8]))[:, None]
    weight = np.where(np.arange(600) < 300, 1.0, 1e-12)
    kept = screened(X, signal, weight, most=1)
    np.testing.assert_array_equal(kept, [4])


def test_a_tree_of_some_features_is_a_gate_of_all():
    n, d = 500, 400
    X = RNG.normal(size=(n, d))
    signal = np.where(X[:, 333] > 0.2, 1.0, -1.0)[:, None]
    along = Directions(np.zeros(d), np.ones(d), np.eye(d)[[17]])
    for directions in (None, along):
        design = RegionDesign.grow(X, signal, np.full(n, 1 / n), 4, directions)
        assert len(design.read) == MOST_FEATURES
        gate = gate_of(
            np.array([0.5, 0.5]), Deviation(design, np.eye(design.n_columns)[:, :2]), None
        )
        assert gate.n_features == d
        assert gate.feature[0] == 333
        assert abs(gate.threshold[0] - 0.2) < 0.1
        expected = (design.regions(X)[:, None] == np.arange(design.n_columns)) @ gate.region_weights
        np.testing.assert_array_equal(gate.weights(X), expected)
    design = RegionDesign.grow(X, np.sign(X[:, [17]]), np.full(n, 1 / n), 2, along)
    assert design.feature[0] in (17, d)


def columns_of_every_kind(n=600, d=200):
    """Continuous, whole numbers, and zeros and ones of which either may be rare."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, d))
    X[:, ::3] = np.round(X[:, ::3])
    X[:, 1::3] = rng.random((n, len(range(1, d, 3)))) < np.linspace(0.01, 0.99, len(X[0, 1::3]))
    return X


@pytest.mark.parametrize("change", [lambda x: -x, lambda x: 1.0 - x])
def test_a_feature_and_its_negative_are_one_feature(change):
    X = columns_of_every_kind()
    rng = np.random.default_rng(6)
    signal = rng.normal(size=(600, 2)) + np.sign(X[:, [7, 12]])
    signal -= signal.mean(axis=0)
    summed = np.hstack([signal, np.ones((600, 1))]) / 600
    gains = _gains(X, summed)
    np.testing.assert_allclose(_gains(change(X), summed), gains, rtol=1e-4, atol=1e-9)
    assert np.all(gains > 0.0)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.5, 0.9, 0.98])
def test_zeros_and_ones_are_kept_however_they_are_coded(share):
    rng = np.random.default_rng(7)
    X = rng.normal(size=(800, 300))
    X[:, 40] = rng.random(800) < share
    signal = X[:, [40]] + 0.05 * rng.normal(size=(800, 1))
    kept = screened(X, signal, np.ones(800), most=5)
    assert 40 in kept
    X[:, 40] = 1.0 - X[:, 40]
    np.testing.assert_array_equal(screened(X, signal, np.ones(800), most=5), kept)


def test_numbers_that_float32_does_not_hold_apart_or_at_all():
    X = RNG.normal(size=(400, 200))
    side = RNG.random(400) < 0.9
    X[:, 3] = np.where(side, 1e300, -1e300)
    X[:, 4] = np.where(side, np.nextafter(np.float32(1.0), np.float32(2.0)), 1.0)
    assert {3, 4} <= set(screened(X, side[:, None] + 0.0, np.ones(400), most=3).tolist())
