import csv

import pytest
from benchmarks.results_store import COLUMNS, ResultsStore, key_of

ROW = {"dataset": "d", "base": "b", "method": "m", "seed": 42, "status": "ok", "mse": 1 / 3}


def read(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_row_is_on_disk_as_soon_as_it_is_added(tmp_path):
    path = tmp_path / "results" / "r.csv"
    ResultsStore(path).add(ROW)
    (row,) = read(path)
    assert tuple(row) == COLUMNS
    assert float(row["mse"]) == pytest.approx(1 / 3, rel=1e-9)
    assert row["log_loss"] == ""


def test_a_finished_row_is_known_to_the_next_run(tmp_path):
    path = tmp_path / "r.csv"
    ResultsStore(path).add(ROW)
    assert ResultsStore(path).is_finished(key_of(ROW))
    assert not ResultsStore(path).is_finished(key_of({**ROW, "seed": 43}))


@pytest.mark.parametrize("status", ["failed", "skipped"])
def test_a_row_without_figures_is_tried_again_and_takes_its_old_place(tmp_path, status):
    path = tmp_path / "r.csv"
    store = ResultsStore(path)
    store.add({**ROW, "status": status, "reason": "why, and\nwhere"})
    store.add({**ROW, "seed": 43})
    assert [row["reason"] for row in read(path)] == ["why, and where", ""]
    again = ResultsStore(path)
    assert not again.is_finished(key_of(ROW))
    again.add(ROW)
    assert [(row["seed"], row["status"]) for row in read(path)] == [("42", "ok"), ("43", "ok")]


def test_a_line_cut_short_is_dropped_and_the_rest_kept(tmp_path):
    path = tmp_path / "r.csv"
    store = ResultsStore(path)
    store.add(ROW)
    whole = path.read_text()
    store.add({**ROW, "seed": 43})
    path.write_text(path.read_text()[:-5])
    assert list(ResultsStore(path).rows) == [key_of(ROW)]
    assert path.read_text() == whole


def test_a_file_of_other_columns_is_not_written_to(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="has other columns"):
        ResultsStore(path)
