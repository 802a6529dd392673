"""The latency benchmark times what it says: the same trees, different rows, engines in turn."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.latency import (
    FEWEST_TURNS,
    MOST_CALLS,
    SAME_TREES,
    Missing,
    Trees,
    blocks_of,
    made,
    quiet,
    timed,
)
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier
from sklearn.tree import DecisionTreeClassifier

from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble


@pytest.fixture(scope="module")
def trees():
    X, y = load_breast_cancer(return_X_y=True)
    bag = BaggingClassifier(DecisionTreeClassifier(), 5, random_state=0).fit(X, y)
    pool, weights = read_ensemble(bag), np.full(5, 0.2)
    compiled = compile_members(pool, weights)
    return Trees("all", export_sklearn(compiled), bag, compiled), X


def test_every_engine_predicts_the_same(trees):
    trees, X = trees
    rows = X[:50].astype(np.float32)
    expected = trees.bag.predict_proba(rows)
    names = [name for name in SAME_TREES if name != "treelite compiled C"]  # it takes a compiler
    for name, engine in made({name: SAME_TREES[name] for name in names}, trees, 1).items():
        if isinstance(engine, str):
            continue
        out = np.asarray(engine(rows)).reshape(50, 2)
        assert np.abs(out - expected).max() < 1e-6, name


def test_an_engine_that_is_missing_says_why():
    def maker(trees, n_threads):
        raise Missing("it is not installed")

    assert made({"absent": maker}, None, 1) == {"absent": "it is not installed"}


def test_calls_get_different_rows_and_engines_take_turns():
    rows = np.arange(300.0).reshape(100, 3)
    blocks = blocks_of(rows, 10)
    assert len(blocks) == MOST_CALLS
    assert len({block.tobytes() for block in blocks}) == len(blocks)
    order = []
    engines = {name: lambda X, name=name: order.append(name) for name in "ab"}
    times = timed(engines, blocks[:4], budget=0.0)
    assert [len(seconds) for seconds in times.values()] == [FEWEST_TURNS, FEWEST_TURNS]
    assert order[4:] == ["a", "b"] * FEWEST_TURNS
    assert quiet(np.array([3.0, 1.0, 2.0])) == 1.0
