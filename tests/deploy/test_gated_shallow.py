"""Shallow trees under a gate: weights are made a tree at a time, in every path to the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from gated_ensembles import GATES
from made_up_gates import linear_gate, oblique_gate
from sparsebag.deploy._forest import instruction_sets, use_instructions
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.gate import CompiledGate
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble


def steep(k, d, temperature=True):
    """Logits too far apart for their ends: the largest of every row is found."""
    gate = linear_gate(k, d, temperature=temperature, bounded=True)
    gate.up[:] *= 400.0
    return gate


def few_columns(k, d, temperature=True):
    """Most features have no say, those that have are in other places."""
    gate = linear_gate(k, d, temperature=temperature, bounded=True, rank=3)
    gate.down[:, np.arange(d) % 3 > 0] = 0.0
    return gate


SMOOTH = {
    f"bounded, rank {rank}": lambda k, d, temperature=True, rank=rank: linear_gate(
        k, d, temperature=temperature, bounded=True, rank=rank
    )
    for rank in (1, 2, 3, 4, 6)
}
KINDS = GATES | SMOOTH | {"steep": steep, "few columns": few_columns, "oblique": oblique_gate}
TASKS = "regression", "two classes", "three classes"


def shallow(task, kind, d, k, depth):
    rng = np.random.default_rng(1000 * d + k)
    X = rng.normal(size=(300, d))
    seed = {"random_state": 0}
    if task == "regression":
        bag = BaggingRegressor(DecisionTreeRegressor(max_depth=depth), k, **seed)
        bag.fit(X, X[:, 0] + rng.normal(size=300))
    else:
        bag = BaggingClassifier(DecisionTreeClassifier(max_depth=depth), k, **seed)
        bag.fit(X, np.arange(300) % (2 if task == "two classes" else 3))
    pool = read_ensemble(bag)
    gate = KINDS[kind](k, d, temperature=task != "regression")
    vote = WeightedVote(pool, np.ones(k), 1e-3 * (task != "regression"), None, gate)
    model = compile_members(pool, np.ones(k), 1e-3 * (task != "regression"), None, gate)
    return model, vote


def said(model, X):
    return model.predict(X) if model.classes is None else model.predict_proba(X)


def unusual(n, d, dtype=np.float64):
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-2, 3, size=(n, 1))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    return rows.astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TASKS)
def test_every_remainder_of_rows_gets_the_bits_of_one(task, kind):
    model, _ = shallow(task, kind, d=10, k=12, depth=3)
    for dtype in (np.float64, np.float32):
        rows = unusual(141, 10, dtype)
        one = model.predict_one if model.classes is None else model.predict_proba_one
        alone = np.array([one(row) for row in rows])
        for n in (*range(1, 20), *range(60, 76), 127, 128, 129, 135, 141):
            np.testing.assert_array_equal(said(model, rows[:n]), alone[:n])
        np.testing.assert_array_equal(said(model, np.asfortranarray(rows)), alone)
        np.testing.assert_array_equal(said(model, rows[::-1])[::-1], alone)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TASKS)
def test_every_machines_instructions_give_the_same_bits(task, kind):
    found = []
    best = instruction_sets()[-1]
    for d in (3, 4, 9, 30):
        model, _ = shallow(task, kind, d, k=12, depth=2)
        rows = unusual(141, d)
        try:
            for name in instruction_sets():
                use_instructions(name)
                found.append((said(model, rows), *model.gate.weigh(rows)))
        finally:
            use_instructions(best)
        for other in found[1:]:
            for a, b in zip(found[0], other, strict=True):
                np.testing.assert_array_equal(a, b)
        found.clear()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("d", "k", "depth"), [(2, 2, 1), (3, 3, 2), (5, 7, 4), (11, 150, 3)])
def test_the_vote_is_the_members_own(task, kind, d, k, depth):
    model, vote = shallow(task, kind, d, k, depth)
    X = np.random.default_rng(k).normal(size=(131, d))
    expected = vote.predict(X) if model.classes is None else vote.predict_proba(X)
    np.testing.assert_allclose(said(model, X), expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_that_are_none_are_the_mean_to_a_gate(kind):
    own = KINDS[kind](6, 9)
    X = unusual(101, 9)
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.inf
    X[np.random.default_rng(1).random(X.shape) < 0.1] = -1e300
    for rows in (X, np.asfortranarray(X)):
        weights, inverse = CompiledGate(own).weigh(rows)
        np.testing.assert_allclose(weights, own.weights(X), rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(inverse, 1.0 / own.temperatures(X), rtol=1e-11)
        np.testing.assert_array_equal(CompiledGate(own).weigh(rows[:1])[0], weights[:1])


def test_weights_are_those_of_numpy_to_the_last_digits():
    own = KINDS["bounded, rank 3"](20, 10, temperature=False)
    X = np.random.default_rng(0).normal(size=(500, 10))
    np.testing.assert_allclose(CompiledGate(own).weigh(X)[0], own.weights(X), rtol=2e-14)


def test_a_gate_deeper_than_its_steps():
    """A chain of splits, which walks of few steps have to look at more than once."""
    n = 30
    gate = GATES["regions"](3, 1, temperature=False)
    inner, leaf = np.arange(n), np.arange(n, 2 * n + 1)
    chain = {
        "feature": np.zeros(2 * n + 1, dtype=np.int32),
        "threshold": np.r_[inner.astype(float), np.zeros(n + 1)],
        "left": np.r_[leaf[:n], np.full(n + 1, -1)].astype(np.int32),
        "right": np.r_[inner[1:], leaf[n], np.full(n + 1, -1)].astype(np.int32),
        "missing_left": np.arange(2 * n + 1) % 2 == 0,
        "region": np.r_[np.full(n, -1), np.arange(n + 1)].astype(np.int32),
        "region_weights": np.random.default_rng(0).dirichlet(np.ones(3), size=n + 1),
    }
    deep = type(gate)(n_features=1, **chain)
    X = np.r_[np.arange(-1.0, n + 1.0, 0.5), np.nan][:, None]
    np.testing.assert_array_equal(CompiledGate(deep).weigh(X)[0], deep.weights(X))
