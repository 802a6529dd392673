"""The benchmark of local weights: jobs that resume, experts as they are said to be."""

import numpy as np
import pytest
from benchmarks.results_store import FAILED, OK, ResultsStore

from benchmarks import local_experts, local_jobs, local_summary

KEY, COLUMNS = ("name", "seed"), ("name", "seed", "status", "reason", "value")


def test_jobs_resume_and_one_failure_ends_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(local_jobs, "RESULTS", tmp_path)
    jobs = [{"name": name, "seed": seed} for seed in range(2) for name in "ab"]
    ran = []

    def rows_of(job):
        ran.append((job["name"], job["seed"]))
        if job == jobs[1] and ran.count(("b", 0)) == 1:
            raise ValueError("no luck")
        return [{**job, "status": OK, "value": 0.123456789}]

    local_jobs.run_jobs("made_up", COLUMNS, KEY, jobs, rows_of, (1, 1))
    assert len(ran) == 4
    assert "no luck" in capsys.readouterr().out
    stored = ResultsStore(tmp_path / "made_up.csv", COLUMNS, KEY).rows
    assert stored["b", "0"]["status"] == FAILED
    local_jobs.run_jobs("made_up", COLUMNS, KEY, jobs, rows_of, (1, 1))
    assert ran[4:] == [("b", 0)]  # what is finished is not run again
    stored = ResultsStore(tmp_path / "made_up.csv", COLUMNS, KEY).rows
    assert {row["status"] for row in stored.values()} == {OK}


def test_shards_share_the_jobs(tmp_path, monkeypatch):
    monkeypatch.setattr(local_jobs, "RESULTS", tmp_path)
    jobs = [{"name": "a", "seed": seed} for seed in range(5)]
    for part in (1, 2):
        local_jobs.run_jobs(
            "made_up", COLUMNS, KEY, jobs, lambda job: [{**job, "status": OK}], (part, 2)
        )
    found = [ResultsStore(path, COLUMNS, KEY).rows for path in local_jobs.files("made_up")]
    assert sorted(len(rows) for rows in found) == [2, 3]


def test_the_oracle_asks_those_who_know():
    normal = np.array([1.0, 0.0])
    oracle = local_experts.OracleGate(np.array([0.5, 0.3, 0.2]), np.array([1, 0, 1]) > 0, normal)
    weights = oracle.weights(np.array([[2.0, 0.0], [-2.0, 0.0]]))
    np.testing.assert_allclose(weights, [[5 / 7, 0.0, 2 / 7], [0.0, 1.0, 0.0]])


def test_an_expert_knows_one_side():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = X[:, 1]
    normal = np.array([1.0, 0.0])
    base = local_experts.BASES["regression", "tree"]
    expert = local_experts.ExpertRegressor(base, normal, random_state=0).fit(X, y)
    known = (X[:, 0] > 0) == expert.side_
    error = (expert.predict(X) - y) ** 2
    assert error[known].mean() < 0.2 * error[~known].mean()


@pytest.mark.parametrize("part", ["experts", "suite", "des"])
def test_summaries_of_the_results_in_the_repository(part, capsys):
    getattr(local_summary, part)()
    assert "mean" in capsys.readouterr().out


def test_no_source_is_named_but_those_of_the_rows(tmp_path, monkeypatch):
    """Today's code did not make rows that were kept of another day's."""
    monkeypatch.setattr(local_summary, "RESULTS", tmp_path)
    monkeypatch.setattr(local_summary, "environment", lambda: {"machine": "m", "source": "today"})
    for part in ("suite", "des"):
        monkeypatch.setattr(local_summary, part, lambda: None)
    rows = local_summary.rows_of(local_experts)
    monkeypatch.setattr(local_summary, "experts", lambda: local_summary.print_sources(rows))
    local_summary.run()
    told = (tmp_path / "local.txt").read_text(encoding="utf-8")
    assert "today" not in told
    assert all(row["source"] in told for row in rows)
