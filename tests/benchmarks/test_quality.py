"""The benchmarks of quality, exports and latency: bookkeeping, baselines, engines in turn."""

import numpy as np
import pandas as pd
import pytest
from benchmarks.environment import environment, source_hash
from benchmarks.latency import SAME_TREES, Missing, Trees, made
from benchmarks.results_store import ResultsStore
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import BaggingClassifier

from benchmarks import check_figures, quality, quality_summary
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble


@pytest.fixture(scope="module")
def run():
    return quality.fit("breast_cancer", "forest", 0)


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


@pytest.mark.parametrize(("name", "mark"), [("a.py", "#"), ("walk.h", "//")])
def test_other_code_or_another_name_is_other_source_and_comments_are_not(name, mark, tmp_path):
    doc = '"""What it is."""\n' * (name == "a.py")
    (tmp_path / name).write_text('x = "1"')
    first = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("not source")
    (tmp_path / name).write_text(f'{doc}{mark} why\nx =  "1"  {mark} one\n')
    assert source_hash(tmp_path) == first
    (tmp_path / name).write_text(f'x = "1 {mark}"')
    second = source_hash(tmp_path)
    (tmp_path / name).rename(tmp_path / f"b_{name}")
    assert len({first, second, source_hash(tmp_path)}) == 3
    assert environment()["source"] == source_hash()
    assert len(source_hash()) == 12


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
        kept = ["a.txt", "b.txt", "c.csv", "d.csv", "e.json", "g.txt", "h.txt"]
        assert [check_figures.main(name) for name in kept] == [0, 1, 0, 1, 1, 1, 1]
    monkeypatch.setattr(check_figures.picture, "picture", lambda table: "<svg/>")
    assert check_figures.main() == 1
    assert "size_against_loss.svg is not what `make figures` writes" in capsys.readouterr().out


X, Y = load_breast_cancer(return_X_y=True)


@pytest.fixture(scope="module")
def bag():
    return BaggingClassifier(None, 5, random_state=0).fit(X, Y)


def test_every_engine_predicts_the_same_or_says_why_it_is_missing(bag):
    rows = X[:50].astype(np.float32)
    engines = {name: SAME_TREES[name] for name in SAME_TREES if name != "treelite compiled C"}

    def absent(*_):
        raise Missing("it is not installed")

    compiled = compile_members(read_ensemble(bag), np.full(5, 0.2))
    trees = Trees("all", export_sklearn(compiled), bag, compiled)
    ready = made({**engines, "absent": absent}, trees, 1)
    assert ready.pop("absent") == "it is not installed"
    for name, engine in ready.items():
        if not isinstance(engine, str):
            out = np.asarray(engine(rows)).reshape(50, 2)
            assert np.abs(out - bag.predict_proba(rows)).max() < 1e-6, name
