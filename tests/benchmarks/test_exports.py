"""The export and latency benchmarks: the same model everywhere, different rows, engines in turn."""

import numpy as np
import pytest
from benchmarks.datasets import Dataset
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

import sparsebag as sb
from benchmarks import exports
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.verification import NotExportable
from sparsebag.evidence.from_ensemble import read_ensemble

X, Y = load_breast_cancer(return_X_y=True)


def raising(error):
    def raises(*_):
        raise error

    return raises


@pytest.fixture(scope="module")
def bag():
    return BaggingClassifier(None, 5, random_state=0).fit(X, Y)


def test_right_exports_wrong_ones_and_refusals_are_told_apart(bag):
    small = sb.compress(bag, X, Y, max_estimators=3, rehearsal=False)
    line = exports.Line()
    line.add(lambda model, folder: model.predict_proba, small, X, {})
    assert (line.equal, line.failures) == (1, [])
    assert "1 of 1" in str(line)
    wrong = lambda model, folder: lambda rows: np.roll(model.predict_proba(rows), 1, axis=1)  # noqa: E731
    line.add(wrong, small, X, {"calibration": "isotonic"})
    assert line.equal == 1
    assert "isotonic" in line.failures[0]
    line.add(raising(NotExportable("it cannot be")), small, X, {})
    assert line.reasons == {"it cannot be": 1}
    with pytest.raises(ValueError, match="a fault of ours"):
        line.add(raising(ValueError("a fault of ours")), small, X, {})


def test_data_that_cannot_be_had_is_no_success(monkeypatch, capsys, tmp_path):
    absent = Dataset("absent", "classification", raising(OSError("no network")))
    monkeypatch.setattr(exports, "PAPER", {"absent": absent})
    assert exports.run(str(tmp_path), None) == 1
    assert "1 data sets were left out" in capsys.readouterr().out


def test_every_engine_predicts_the_same_or_says_why_it_is_missing(bag):
    rows = X[:50].astype(np.float32)
    engines = {name: SAME_TREES[name] for name in SAME_TREES if name != "treelite compiled C"}
    compiled = compile_members(read_ensemble(bag), np.full(5, 0.2))
    trees = Trees("all", export_sklearn(compiled), bag, compiled)
    ready = made({**engines, "absent": raising(Missing("it is not installed"))}, trees, 1)
    assert ready.pop("absent") == "it is not installed"
    for name, engine in ready.items():
        if not isinstance(engine, str):
            out = np.asarray(engine(rows)).reshape(50, 2)
            assert np.abs(out - bag.predict_proba(rows)).max() < 1e-6, name


def test_calls_get_different_rows_and_engines_take_turns():
    blocks = blocks_of(np.arange(300.0).reshape(100, 3), 10)
    assert len({block.tobytes() for block in blocks}) == len(blocks) == MOST_CALLS
    order = []
    engines = {name: lambda X, name=name: order.append(name) for name in "ab"}
    times = timed(engines, blocks[:4], budget=0.0)
    assert [len(seconds) for seconds in times.values()] == [FEWEST_TURNS, FEWEST_TURNS]
    assert order[4:] == ["a", "b"] * FEWEST_TURNS
    assert quiet(np.array([3.0, 1.0, 2.0])) == 1.0
