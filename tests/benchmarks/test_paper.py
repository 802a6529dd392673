import csv
import importlib.util
import time
from dataclasses import replace

import benchmarks.problem
import pytest
from benchmarks.base_models import base_model
from benchmarks.datasets import Dataset
from benchmarks.environment import environment, source_hash
from benchmarks.methods import METHODS
from benchmarks.problem import make_problem
from benchmarks.results_store import COLUMNS, ResultsStore

from bagged_problems import DIABETES, IRIS
from benchmarks import paper

FAST = ["uniform", "scsb_paper", "random_k", "best_k"]


def unavailable():
    raise OSError("no network")


def stopping(problem, k):
    raise KeyboardInterrupt


def failing(problem, k):
    raise ZeroDivisionError("of no use")


def table(path):
    with path.open(newline="") as file:
        return {row["method"]: row for row in csv.DictReader(file)}


def run(path, methods=FAST, datasets=(IRIS,), bases=("DecisionTree",), **settings):
    cells = paper.plan(datasets, bases, methods, [42])
    paper.run(cells, ResultsStore(path), **settings)
    return table(path)


@pytest.fixture(autouse=True)
def few_members(monkeypatch):
    """Thirty trees instead of a hundred: enough to leave no row without a vote."""

    def smaller(task, name):
        return replace(base_model(task, name), n_members=30)

    monkeypatch.setattr(benchmarks.problem, "base_model", smaller)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.csv"


@pytest.fixture
def replace_run(monkeypatch):
    def replaced(name, run):
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], run=run))

    return replaced


def test_every_method_gives_a_row(path):
    rows = run(path, methods=list(METHODS), bases=["DecisionTree", "none"])
    assert set(rows) == set(METHODS)
    has_xgboost = importlib.util.find_spec("xgboost") is not None
    assert rows.pop("xgboost")["status"] == ("ok" if has_xgboost else "skipped")
    for row in rows.values():
        assert row["status"] == "ok", row["reason"]
        assert row["mse"] == ""
        empty = {"reason", "mse", "r2", "xgboost"}
        empty |= set() if METHODS[row["method"]].ours else {"speedup"}
        assert {name for name in COLUMNS if not row[name]} <= empty
        size_from = METHODS[row["method"]].size_from or row["method"]
        assert row["survivors"] == rows[size_from]["survivors"]


def test_a_finished_row_is_not_run_again(path, monkeypatch):
    run(path)
    before = path.read_bytes()
    monkeypatch.setattr(paper, "make_problem", stopping)
    run(path)
    assert path.read_bytes() == before


def test_only_what_is_missing_is_run(path, replace_run):
    run(path, methods=["uniform"])
    replace_run("uniform", stopping)
    assert set(run(path)) == set(FAST)


def test_ctrl_c_keeps_the_finished_rows_and_the_next_run_goes_on(path, replace_run):
    best_k = METHODS["best_k"].run
    replace_run("best_k", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(path)
    kept = table(path)
    assert set(kept) == {"uniform", "scsb_paper", "random_k"}
    replace_run("best_k", best_k)
    after = run(path)
    assert set(after) == set(FAST)
    assert {name: after[name] for name in kept} == kept


def test_the_command_says_so_when_it_is_stopped(path, monkeypatch, capsys):
    monkeypatch.setattr(paper, "run", stopping_run)
    assert paper.main(["--out", str(path)]) == paper.STOPPED
    assert "stopped; 0 rows" in capsys.readouterr().err


def stopping_run(*args, **kwargs):
    raise KeyboardInterrupt


def test_an_error_is_a_row_and_the_others_go_on(path, replace_run):
    replace_run("uniform", failing)
    rows = run(path)
    assert rows["uniform"]["status"] == "failed"
    assert rows["uniform"]["reason"] == "ZeroDivisionError: of no use"
    assert rows["best_k"]["status"] == "ok"


def test_an_ensemble_that_cannot_be_fitted_fails_every_row_of_it(path, monkeypatch):
    def no_problem(*args):
        raise RuntimeError("cannot be fitted")

    monkeypatch.setattr(paper, "make_problem", no_problem)
    rows = run(path)
    assert {row["reason"] for row in rows.values()} == {"RuntimeError: cannot be fitted"}
    assert len(rows) == len(FAST)


def test_data_that_cannot_be_had_is_skipped_with_the_reason_and_tried_again(path):
    absent = Dataset("tiny_absent", "classification", unavailable)
    rows = run(path, datasets=[absent])
    assert {row["status"] for row in rows.values()} == {"skipped"}
    assert all("no network" in row["reason"] for row in rows.values())
    there = replace(IRIS, name="tiny_absent")
    assert {row["status"] for row in run(path, datasets=[there]).values()} == {"ok"}


def test_without_a_size_there_is_nothing_to_match(path, replace_run):
    replace_run("scsb_paper", failing)
    rows = run(path)
    assert (rows["random_k"]["status"], rows["uniform"]["status"]) == ("skipped", "ok")
    assert "no size to match" in rows["random_k"]["reason"]


def test_a_method_that_does_not_apply_is_skipped_with_the_reason(path):
    (row,) = run(path, methods=["uniform_temperature"], datasets=[DIABETES]).values()
    assert row["status"] == "skipped"
    assert "regression" in row["reason"]


def test_again_refreshes_a_method(path, replace_run):
    before = run(path)
    replace_run("uniform", failing)
    assert run(path)["uniform"] == before["uniform"]
    assert run(path, again=["uniform"])["uniform"]["status"] == "failed"


def test_rows_of_ours_made_by_other_source_are_run_again_and_no_others(path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(paper, "environment", lambda: environment() | {"source": "another"})
        before = run(path)
    after = run(path)
    assert before["scsb_paper"]["source"] == "another"
    assert after["scsb_paper"]["source"] == source_hash()
    assert all(after[name] == before[name] for name in FAST if name != "scsb_paper")


def test_rows_of_a_size_are_run_again_when_the_size_has_changed(path, replace_run):
    before = run(path)
    replace_run("best_k", failing)
    assert run(path, again=["scsb_paper"])["best_k"] == before["best_k"]
    random_k = METHODS["random_k"].run
    replace_run("scsb_paper", lambda problem, k: random_k(problem, 3)[:1])
    after = run(path, again=["scsb_paper"])
    assert after["best_k"]["status"] == "failed"
    assert after["random_k"]["survivors"] == "3"


def test_a_changed_size_is_noticed_after_a_stop_too(path, replace_run):
    run(path)
    random_k = METHODS["random_k"].run
    replace_run("random_k", stopping)
    replace_run("scsb_paper", lambda problem, k: random_k(problem, 3)[:1])
    with pytest.raises(KeyboardInterrupt):
        run(path, again=["scsb_paper"])
    replace_run("random_k", random_k)
    assert {run(path)[name]["survivors"] for name in ("random_k", "best_k")} == {"3"}


def test_a_file_from_before_the_new_columns_is_read_and_completed(path):
    before = run(path)
    with path.open("w", newline="") as file:
        new = ("source", "mean_confidence", "speedup", "wall_seconds")
        writer = csv.DictWriter(file, [c for c in COLUMNS if c not in new], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(before.values())
    after = run(path)
    assert [name for name in FAST if after[name]["source"]] == ["uniform", "scsb_paper"]
    assert after["scsb_paper"]["log_loss"] == before["scsb_paper"]["log_loss"]
    old = {"log_loss", "survivors", "fit_seconds"}
    assert all(after["best_k"][name] == before["best_k"][name] for name in old)


def test_where_a_method_does_not_apply_no_ensemble_is_fitted_for_it(path, monkeypatch):
    monkeypatch.setattr(paper, "make_problem", stopping)
    (row,) = run(path, methods=["uniform_temperature"], datasets=[DIABETES]).values()
    assert (row["status"], row["reason"]) == (
        "skipped",
        "regression has no probabilities to scale",
    )
    before = path.read_bytes()
    run(path, methods=["uniform_temperature"], datasets=[DIABETES])
    assert path.read_bytes() == before


def test_wall_time_holds_the_ensemble_too(path, monkeypatch):
    def slow(*args):
        time.sleep(0.3)
        return make_problem(*args)

    monkeypatch.setattr(paper, "make_problem", slow)
    rows = run(path, methods=["uniform", "uniform_temperature"])
    assert float(rows["uniform"]["wall_seconds"]) > 0.3
    assert float(rows["uniform_temperature"]["wall_seconds"]) < 0.3


def test_a_size_matched_method_brings_the_paper_along():
    (cell,) = paper.plan([IRIS], ["DecisionTree"], ["random_k"], [42])
    assert [method.name for method in cell.methods] == ["scsb_paper", "random_k"]
    (cell,) = paper.plan([IRIS], ["DecisionTree"], ["random_k_default"], [42])
    assert [method.name for method in cell.methods] == ["sparsebag_default", "random_k_default"]


def test_the_plan_pairs_bases_with_tasks_and_ensembles_with_methods():
    bases = ["LogisticRegression", "Ridge", "none"]
    cells = paper.plan([IRIS, DIABETES], bases, ["uniform", "xgboost"], [42, 43])
    assert [(c.dataset.task, c.base, c.seed, *(m.name for m in c.methods)) for c in cells][:4] == [
        ("classification", "LogisticRegression", 42, "uniform"),
        ("classification", "none", 42, "xgboost"),
        ("regression", "Ridge", 42, "uniform"),
        ("regression", "none", 42, "xgboost"),
    ]
    assert len(cells) == 8


def test_progress_works_without_a_terminal(path, capsys):
    run(path, methods=["uniform"])
    assert "1/1  tiny_iris DecisionTree uniform 42: ok  0:00 left" in capsys.readouterr().err


def test_absent_data_is_asked_for_once(path):
    asked = []

    def ask():
        asked.append(1)
        raise OSError("no network")

    absent = Dataset("tiny_absent", "classification", ask)
    run(path, datasets=[absent], bases=["DecisionTree", "SVM", "MLP"])
    assert len(asked) == 1
