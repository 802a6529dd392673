"""Rows of results: on disk at once, known to the next run, marked with the code that made them."""

import csv

import pytest
from benchmarks.environment import environment, source_hash
from benchmarks.results_store import ResultsStore, key_of

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


def test_a_line_cut_short_is_dropped_and_the_rest_kept(tmp_path):
    path = tmp_path / "r.csv"
    first = store(path)
    first.add(ROW)
    whole = path.read_text()
    first.add({**ROW, "seed": 43})
    path.write_text(path.read_text()[:-5])
    assert list(store(path).rows) == [key_of(ROW, KEY)]
    assert path.read_text() == whole


@pytest.mark.parametrize("name", ["a.py", "walk.h"])
def test_an_edit_or_a_renamed_file_is_other_source(name, tmp_path):
    (tmp_path / name).write_text("x = 1")
    first = source_hash(tmp_path)
    (tmp_path / "notes.txt").write_text("not source")
    assert source_hash(tmp_path) == first
    (tmp_path / name).write_text("x = 2")
    second = source_hash(tmp_path)
    (tmp_path / name).rename(tmp_path / f"b_{name}")
    assert len({first, second, source_hash(tmp_path)}) == 3
    assert environment()["source"] == source_hash()
    assert len(source_hash()) == 12
