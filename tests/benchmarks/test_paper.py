"""The paper benchmark: every row once, by one source, and what stops it loses nothing."""

import csv
import importlib.util
from dataclasses import replace

import pytest
from benchmarks.methods import METHODS
from benchmarks.results_store import ResultsStore

from bagged_problems import IRIS
from benchmarks import paper, problem

SIZED = METHODS["random_k"].size_from


def stopping(problem, k):
    raise KeyboardInterrupt


def failing(problem, k):
    raise ZeroDivisionError("of no use")


def run(path, datasets=(IRIS,), bases=("DecisionTree",)):
    cells = [(dataset, base, 42) for dataset in datasets for base in bases]
    paper.run(cells, ResultsStore(path, paper.COLUMNS, paper.KEY))
    return table(path)


def table(path):
    with path.open(newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


@pytest.fixture(autouse=True)
def few_members(monkeypatch):
    """Thirty trees instead of a hundred: enough to leave no row without a vote."""
    monkeypatch.setitem(problem.N_MEMBERS, "DecisionTree", 30)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.csv"


@pytest.fixture
def replace_run(monkeypatch):
    return lambda name, run: monkeypatch.setitem(METHODS, name, replace(METHODS[name], run=run))


def test_every_method_gives_a_row(path):
    rows = run(path, bases=["DecisionTree", "none"])
    assert set(rows) == set(METHODS)
    has_xgboost = importlib.util.find_spec("xgboost") is not None
    assert rows.pop("xgboost")["status"] == ("ok" if has_xgboost else "skipped")
    for row in rows.values():
        assert row["status"] == "ok", row["reason"]
        empty = {"reason", "mse", "r2", "xgboost"}
        assert {name for name in paper.COLUMNS if not row[name]} <= empty
    assert rows["random_k"]["survivors"] == rows[SIZED]["survivors"]


def test_rows_by_this_source_are_not_run_again_and_others_are(path, replace_run):
    before = run(path)
    replace_run("uniform", stopping)
    assert run(path) == before
    store = ResultsStore(path, paper.COLUMNS, paper.KEY)
    store.add({**before["uniform"], "source": "older"})
    with pytest.raises(KeyboardInterrupt):
        run(path)


def test_ctrl_c_keeps_the_finished_rows_and_the_next_run_goes_on(path, replace_run):
    random_k = METHODS["random_k"].run
    replace_run("random_k", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(path)
    kept = table(path)
    assert set(kept) == {"uniform", "lasso_pruned", "scsb_paper"}
    replace_run("random_k", random_k)
    after = run(path)
    assert {name: after[name] for name in kept} == kept
    assert "random_k" in after


def test_an_error_is_a_row_and_the_others_go_on(path, replace_run):
    replace_run("scsb_paper", failing)
    rows = run(path)
    assert rows["scsb_paper"]["status"] == "failed"
    assert rows["scsb_paper"]["reason"] == "ZeroDivisionError: of no use"
    assert rows["random_k"]["reason"] == "scsb_paper gave no size to match"
    assert rows["sparsebag_default"]["status"] == "ok"
