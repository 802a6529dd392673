"""The quality benchmark: its bookkeeping, its baselines, its summary."""

import pandas as pd
import pytest
from benchmarks.environment import environment
from benchmarks.results_store import ResultsStore

from benchmarks import quality, quality_summary


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
