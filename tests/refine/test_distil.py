"""Synthetic rows, and few trees fitted to what many say of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from grown_trees import KINDS, parts
from sparsebag.refine.distil import Distillery, backfit
from sparsebag.refine.synthetic_rows import synthetic_rows


def test_synthetic_rows_lie_between_training_rows():
    routed, _, _ = parts("regression")
    X = np.asarray(routed.X)
    made = synthetic_rows(routed, 4000)
    assert made.shape == (4000, X.shape[1])
    assert made.dtype == np.float32
    assert np.all(made >= X.min(axis=0) - 1e-6)
    assert np.all(made <= X.max(axis=0) + 1e-6)
    known = np.isin(made, X).all(axis=1)  # swapped ones take each number from a training row
    assert 0.45 < known.mean() < 0.55
    assert_array_equal(made, synthetic_rows(routed, 4000))
    assert not np.array_equal(made, synthetic_rows(routed, 4000, seed=1))


def test_missing_values_are_taken_over_not_mixed():
    routed, _, _ = parts("regression")
    X = np.array(routed.X)
    X[::3, 0] = np.nan
    routed.X = X
    made = synthetic_rows(routed, 4000)
    assert 0.2 < np.isnan(made[:, 0]).mean() < 0.45
    assert not np.isnan(made[:, 1:]).any()


def test_backfitting_finds_the_least_squares():
    rng = np.random.default_rng(0)
    leaves = [rng.integers(0, 4, 200), rng.integers(0, 3, 200)]
    goal, weights = rng.normal(size=(200, 2)), np.array([0.6, 0.4])
    start = [np.zeros((4, 2)), np.zeros((3, 2))]
    values = backfit(start, leaves, weights, goal, ridge=0.0, sweeps=200)
    said = sum(w * v[leaf] for w, v, leaf in zip(weights, values, leaves, strict=True))
    design = np.concatenate([np.eye(4)[leaves[0]], np.eye(3)[leaves[1]]], axis=1)
    best = design @ np.linalg.lstsq(design, goal, rcond=None)[0]
    assert_allclose(said, best, atol=1e-8)
    assert_array_equal(start[0], np.zeros((4, 2)))


def test_leaves_without_synthetic_rows_stay_where_they_were():
    start = [np.arange(3.0)[:, None]]
    (values,) = backfit(start, [np.zeros(50, dtype=int)], np.ones(1), np.full((50, 1), 5.0))
    assert values[0, 0] > 4
    assert_allclose(values[1:], start[0][1:])


@pytest.mark.parametrize("kind", KINDS)
def test_distilled_trees_are_nearer_to_the_teacher(kind):
    routed, targets, _ = parts(kind)
    distillery = Distillery(routed, targets, 0.5, 0.5)
    members, weights = np.arange(8), np.full(8, 1 / 8)
    values, missed = distillery.distil(members, weights)
    start = [distillery.start(j) for j in members]
    n = distillery.n_synthetic

    def distance(tables):
        said = sum(
            w * v[distillery._leaf(int(j))[n:]]
            for w, v, j in zip(weights, tables, members, strict=True)
        )
        difference = distillery._as_columns(said) - distillery._teacher[n:]
        return np.mean(np.sum(difference**2, axis=1)) * targets.multiplicity

    assert missed == pytest.approx(1.4 * distance(values))
    assert distance(values) < 0.8 * distance(start)
    if targets.n_columns > 1:  # class shares still sum to one
        assert all(np.allclose(v.sum(axis=1), 1.0) for v in values)
