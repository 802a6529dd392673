"""The export and latency benchmarks: the same model everywhere, different rows, engines in turn."""

import numpy as np
import pytest
from benchmarks.latency import (
    FEWEST_TURNS,
    MOST_CALLS,
    SAME_TREES,
    Missing,
    Trees,
    blocks_of,
    quiet,
    timed,
)
from benchmarks.latency import made as made_engines
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from benchmarks import exports
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble

X, Y = load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="module")
def bag():
    return BaggingClassifier(DecisionTreeClassifier(), 5, random_state=0).fit(X, Y)


@pytest.fixture(scope="module")
def small(bag):
    return sb.compress(bag, X, Y, max_estimators=3, rehearsal=False)


def test_a_right_export_is_counted_and_a_wrong_one_names_its_setting(small):
    line = exports.Line()
    line.add(lambda model, folder: model.predict_proba, small, X, {})
    assert (line.equal, line.failures) == (1, [])
    assert "1 of 1" in str(line)
    wrong = lambda model, folder: lambda rows: np.roll(model.predict_proba(rows), 1, axis=1)  # noqa: E731
    line.add(wrong, small, X, {"calibration": "isotonic"})
    assert line.equal == 1
    assert "isotonic" in line.failures[0]


def test_every_engine_predicts_the_same_or_says_why_it_is_missing(bag):
    def absent(trees, n_threads):
        raise Missing("it is not installed")

    rows = X[:50].astype(np.float32)
    expected = bag.predict_proba(rows)
    engines = {name: SAME_TREES[name] for name in SAME_TREES if name != "treelite compiled C"}
    compiled = compile_members(read_ensemble(bag), np.full(5, 0.2))
    trees = Trees("all", export_sklearn(compiled), bag, compiled)
    made = made_engines({**engines, "absent": absent}, trees, 1)
    assert made.pop("absent") == "it is not installed"
    for name, engine in made.items():
        if not isinstance(engine, str):
            out = np.asarray(engine(rows)).reshape(50, 2)
            assert np.abs(out - expected).max() < 1e-6, name


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
