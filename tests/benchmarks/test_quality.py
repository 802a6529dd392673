"""The quality benchmark's bookkeeping: shards share the work, stale rows are run again."""

from __future__ import annotations

import argparse

import pytest
from benchmarks.datasets import PAPER
from benchmarks.datasets.suite import SUITE
from benchmarks.environment import environment
from benchmarks.results_store import ResultsStore

from benchmarks import quality

NAMES = list({**PAPER, **SUITE})
JOBS = [(name, kind, seed) for seed in range(3) for name in NAMES for kind in quality.KINDS]


@pytest.mark.parametrize("of", [1, 2, 3])
def test_every_job_falls_to_one_shard(of):
    for job in JOBS:
        mine = [part for part in range(1, of + 1) if quality.in_shard(job, NAMES, (part, of))]
        assert len(mine) == 1


def test_shards_get_as_many_forests_as_bags():
    first = [job for job in JOBS if quality.in_shard(job, NAMES, (1, 2))]
    assert len(first) == pytest.approx(len(JOBS) / 2, abs=2)
    counts = [sum(kind == k for _, kind, _ in first) for k in ("forest", "bag")]
    assert counts[0] == pytest.approx(counts[1], abs=2)


@pytest.mark.parametrize("text", ["2", "0/2", "3/2", "a/b", ""])
def test_what_is_no_shard(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is no shard; the first of two is 1/2"):
        quality.shard(text)
    assert quality.shard("1/2") == (1, 2)


def test_finished_jobs_of_all_files_and_of_todays_source_only(tmp_path, monkeypatch):
    monkeypatch.setattr(quality, "RESULTS", tmp_path / "quality.csv")
    row = {"ensemble": "forest", "seed": 0, "method": quality.LAST, "k": "own", "status": "ok"}
    today = environment()["source"]
    for file, name, source in (
        ("quality.csv", "digits", today),
        ("quality_1_of_2.csv", "adult", today),
        ("quality_2_of_2.csv", "churn", "older"),
    ):
        store = ResultsStore(tmp_path / file, quality.COLUMNS, quality.KEY)
        store.add({**row, "dataset": name, "source": source})
        store.add({**row, "dataset": "magic", "source": today, "method": "both"})
    fresh = {("digits", "forest", "0"), ("adult", "forest", "0")}
    assert quality.finished_jobs(keep_stale=False) == fresh
    assert quality.finished_jobs(keep_stale=True) == {*fresh, ("churn", "forest", "0")}
