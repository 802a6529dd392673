"""The quality benchmark: its bookkeeping, its baselines, its summary."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import pytest
from benchmarks.environment import environment
from benchmarks.results_store import ResultsStore

from benchmarks import quality, quality_summary


@pytest.fixture(scope="module")
def run():
    return quality.fit("breast_cancer", "forest", 0, None)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        *((quality.shard, text, "is no shard; the first of two is 1/2") for text in ("2", "0/2")),
        *((quality.shard, text, "is no shard; the first of two is 1/2") for text in ("3/2", "a/b")),
        (quality.methods, "default,k7", "'k7' is not one of whole"),
    ],
)
def test_options_that_make_no_sense(read, text, message):
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        read(text)
    assert quality.shard("1/2") == (1, 2)
    assert quality.methods("default,k10") == ["default", "k10"]


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


def test_the_whole_beside_itself(run):
    scores = quality.METHODS["whole"](run)
    assert scores["ratio"] == 1.0
    assert scores["ratio_error"] == pytest.approx(0.0)
    assert scores["n_nodes"] == run.whole_nodes


def test_a_temperature_undoes_one():
    rng = np.random.default_rng(0)
    true = rng.dirichlet(np.ones(3), 4000)
    y = (rng.random((4000, 1)) > np.cumsum(true, axis=1)[:, :2]).sum(axis=1)
    sharp = true**2 / np.sum(true**2, axis=1, keepdims=True)
    corrected = quality.tempered(sharp, sharp, y)
    assert quality.losses(corrected, y).mean() < quality.losses(sharp, y).mean()
    assert quality.losses(corrected, y).mean() == pytest.approx(
        quality.losses(true, y).mean(), rel=0.01
    )


def test_out_of_bag_votes_are_the_forests(run):
    p = run.problem
    votes, rows = quality.oob_votes(p.ensemble, p)
    forest = p.ensemble.set_params(oob_score=True).fit(p.X, p.y)
    np.testing.assert_allclose(votes, forest.oob_decision_function_[rows])


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
