"""The benchmarks of quality, exports and latency: bookkeeping, baselines, engines in turn."""

import csv

import numpy as np
import pandas as pd
import pytest
from benchmarks.environment import environment, source_hash
from benchmarks.latency import (
    SAME_TREES,
    Missing,
    Trees,
    made,
)
from benchmarks.results_store import ResultsStore, key_of, rounded
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier

import sparsebag as sb
from benchmarks import check_figures, exports, quality, quality_summary
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.verification import NotExportable
from sparsebag.evidence.from_ensemble import read_ensemble


@pytest.fixture(scope="module")
def run():
    return quality.fit("breast_cancer", "forest", 0, None)


def test_rows_of_other_source_run_again_unless_sparsebag_did_not_make_them(tmp_path):
    row = {"dataset": "digits", "ensemble": "forest", "seed": 0, "status": "ok"}
    for file, method, source in (
        ("quality.csv", "k10", "today"),
        ("quality_1_of_2.csv", "k20", "older"),
        ("quality_2_of_2.csv", "tuned", "older"),
    ):
        store = ResultsStore(tmp_path / file, quality.COLUMNS, quality.KEY)
        store.add({**row, "method": method, "source": source})
    found = quality.finished_rows(tmp_path / "quality.csv", "today", keep_stale=False)
    assert {key[-1] for key in found} == {"k10", "tuned"}
    found = quality.finished_rows(tmp_path / "quality.csv", "today", keep_stale=True)
    assert {key[-1] for key in found} == {"k10", "k20", "tuned"}


def test_rows_become_a_summary(run, tmp_path, capsys):
    store = ResultsStore(tmp_path / "quality.csv", quality.COLUMNS, quality.KEY)
    for row in quality.rows_of(run, ["whole", "whole floored", "default", "n5"], "today"):
        assert row["status"] == "ok", row["reason"]
        if row["method"] == "whole":
            assert (row["ratio"], row["n_nodes"]) == (1.0, run.whole_nodes)
            assert row["ratio_error"] == pytest.approx(0.0)
        store.add(row)
    quality_summary.run([store.path], quality.KEY, {**environment(), "source": "today"})
    said = capsys.readouterr().out
    assert "5 % of the nodes" in said
    assert "floored" in said
    assert "default: 1 runs" in said


def test_ratios_are_of_means_over_seeds_that_both_have():
    rows = [("whole floored", 0, 1.0), ("whole floored", 1, 3.0), ("n5", 0, 2.0), ("n5", 1, 3.0)]
    rows.append(("whole floored", 2, 100.0))
    table = pd.DataFrame(rows, columns=["method", "seed", "score"])
    table = table.assign(dataset="d", ensemble="forest", task="regression")
    found = quality_summary.ratios(table, "n5", "whole floored")
    assert found.tolist() == [pytest.approx(5.0 / 4.0)]
    assert quality_summary.ratios(table, "n5", "tuned") is None


KEY = ("method", "seed")
COLUMNS = (*KEY, "status", "reason", "mse")
ROW = {"method": "m", "seed": 42, "status": "ok", "mse": 1 / 3}


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def store(path):
    return ResultsStore(path, COLUMNS, KEY)


def test_a_row_run_again_takes_its_old_place(tmp_path):
    path = tmp_path / "results" / "r.csv"
    first = store(path)
    first.add({**ROW, "status": "failed", "reason": "why, and\nwhere"})
    first.add({**ROW, "seed": 43})
    assert [row["reason"] for row in read(path)] == ["why, and where", ""]
    store(path).add(ROW)
    assert [(row["seed"], row["status"]) for row in read(path)] == [("42", "ok"), ("43", "ok")]
    assert tuple(read(path)[0]) == COLUMNS
    assert float(read(path)[0]["mse"]) == pytest.approx(1 / 3, rel=1e-9)


def test_a_line_cut_short_is_dropped_and_a_file_of_other_columns_is_not_written_to(tmp_path):
    path = tmp_path / "r.csv"
    first = store(path)
    first.add(ROW)
    whole = path.read_text()
    first.add({**ROW, "seed": 43})
    path.write_text(path.read_text()[:-5])
    assert list(store(path).rows) == [key_of(ROW, KEY)]
    assert path.read_text() == whole
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has other columns"):
        store(path)
    assert rounded({"a": [1 / 3, 2], "b": "c"}) == {"a": [0.333333, 2], "b": "c"}


@pytest.mark.parametrize(("name", "mark"), [("a.py", "#"), ("walk.h", "//")])
def test_other_code_or_another_name_is_other_source_and_comments_are_not(name, mark, tmp_path):
    (tmp_path / name).write_text('x = "1"')
    first = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("not source")
    (tmp_path / name).write_text(f'{mark} why\nx =  "1"  {mark} one\n')
    assert source_hash(tmp_path) == first
    (tmp_path / name).write_text(f'x = "1 {mark}"')
    second = source_hash(tmp_path)
    (tmp_path / name).rename(tmp_path / f"b_{name}")
    assert len({first, second, source_hash(tmp_path)}) == 3
    assert environment()["source"] == source_hash()
    assert len(source_hash()) == 12


def test_docstrings_are_no_source(tmp_path):
    code = '"""{0}"""\nA = 1\n"""{0}"""\ndef f():\n    """{0}"""\n    return "{1}"\n'
    found = []
    for docs, text in (("one", "same"), ("two", "same"), ("two", "other")):
        (tmp_path / "a.py").write_text(code.format(docs, text))
        found.append(source_hash(tmp_path))
    assert found[0] == found[1] != found[2]


def test_stale_figures_are_found(tmp_path, monkeypatch, capsys):
    today, older = "0123456789ab", "ba9876543210"
    texts = {
        "a.txt": f"sparsebag 0.1.0, source {today}, numpy 2",
        "b.txt": f"source: {older}",
        "c.csv": f"method,source\nwhole,\ndefault,{today}\n",
        "d.csv": f"method,source\nn5,{older}\ndefault,{today}\n",
        "e.json": f'{{"environment": {{"source": "{older}"}}}}',
        "f_gpu.txt": f"source {older}",
        "g.txt": "no word of it",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    assert list(check_figures.stale_results(tmp_path, today)) == [
        f"b.txt is of source {older}",
        f"d.csv is of source {today}, {older}",
        f"e.json is of source {older}",
        "g.txt names no source",
    ]
    monkeypatch.setattr(check_figures, "source_hash", lambda: today)
    with monkeypatch.context() as here:
        here.setattr(check_figures.picture, "RESULTS", tmp_path)
        assert [check_figures.main(f"{name}.txt") for name in "abgh"] == [0, 1, 1, 1]
    monkeypatch.setattr(check_figures.picture, "picture", lambda table: "<svg/>")
    assert check_figures.main() == 1
    assert "size_against_loss.svg is not what `make figures` writes" in capsys.readouterr().out


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
