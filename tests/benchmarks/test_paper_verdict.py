"""The verdict page says what the results say, and changes when they do."""

import json
import re

import numpy as np
import pytest

pytest.importorskip("pandas")

from benchmarks.paper_verdict import CLAIMS, main, write_page
from benchmarks.verdict.judgement import Verdict, by_share
from benchmarks.verdict.rows import against_code
from benchmarks.verdict.seeds import interval

from made_up_results import EXPERIMENTS, results, tables, write

SCSB_TREES = "| spambase | DecisionTree | SCSB |"


@pytest.fixture
def files(tmp_path):
    """Paths of the page's four inputs."""
    ours = results()
    experiments = tmp_path / "experiments.json"
    experiments.write_text(json.dumps(EXPERIMENTS))
    return {
        "results": write(ours, tmp_path / "paper.csv"),
        "seeds_results": write(results(range(42, 52)), tmp_path / "paper_seeds.csv"),
        "tables": write(tables(ours), tmp_path / "tables.csv"),
        "experiments": experiments,
    }


def verdict_of(page, title):
    return re.search(rf"^### \d+\. {re.escape(title)}: (.*)$", page, re.MULTILINE).group(1)


def cells(page, start):
    line = next(line for line in page.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_deleted_page_is_rebuilt_identically(files, tmp_path):
    page = tmp_path / "docs" / "paper.md"
    arguments = [f"--{name.replace('_', '-')}={path}" for name, path in files.items()]
    main([*arguments, f"--out={page}"])
    before = page.read_text()
    page.unlink()
    main([*arguments, f"--out={page}"])
    assert page.read_text() == before
    assert "python -m benchmarks.paper_verdict" in before


def test_every_claim_has_a_verdict_and_a_quote(files):
    page = write_page(**files)
    for claim in CLAIMS:
        assert verdict_of(page, claim.title) in {v.value for v in Verdict} - {"not measured"}
        assert claim.quote in page


def test_all_49_rows_of_the_tables_are_there(files):
    page = write_page(**files)
    parts = page.split("### Classification: log-loss")[1].split("### Classification: accuracy")[0]
    models = ("Standard Bagging", "Lasso-Pruned Bagging", "SCSB", "XGBoost")
    assert sum(any(f"| {m} |" in line for m in models) for line in parts.splitlines()) == 49


def test_a_changed_result_changes_its_number_and_the_verdict(files):
    title = "Better calibrated than the full ensemble"
    before = write_page(**files)
    assert cells(before, SCSB_TREES)[5:7] == ["0.2500", "="]
    assert verdict_of(before, title) == "fails"
    ours = results()
    scsb = (ours["method"] == "scsb_paper") & (ours["task"] == "classification")
    ours.loc[scsb, ["log_loss", "ece"]] = [0.1234, 0.01]
    write(ours, files["results"])
    after = write_page(**files)
    assert cells(after, SCSB_TREES)[5:7] == ["0.1234", "−0.1266"]
    assert verdict_of(after, title) == "holds"


@pytest.mark.parametrize(
    ("title", "column", "value", "word"),
    [
        ("Compression of 68 to 96 %", "survivors", 40, "fails"),
        ("Vertex convergence", "survivors", 1, "holds"),
        ("Linear inference speed-up", "speedup", 1.1, "fails"),
        ("Under one second", "fit_seconds", 3.0, "fails"),
        ("Model-agnostic", "survivors", 100, "fails"),
        ("Uniform voting is overconfident", "method", "other", "fails"),
    ],
)
def test_verdicts_follow_the_numbers(files, title, column, value, word):
    assert verdict_of(write_page(**files), title) != word
    ours = results()
    ours.loc[ours["method"] == "scsb_paper", column] = value
    write(ours, files["results"])
    assert verdict_of(write_page(**files), title) == word


def test_a_changed_experiment_changes_its_verdict(files):
    assert verdict_of(write_page(**files), "The uniform start is robust") == "fails"
    better = json.loads(files["experiments"].read_text())
    better["landscape"]["starts"]["paper"] |= {"uniform": 0.1, "n_lower_than_uniform": 0}
    files["experiments"].write_text(json.dumps(better))
    page = write_page(**files)
    assert verdict_of(page, "The uniform start is robust") == "holds"
    assert "0.1000 from the uniform start" in page


def test_failed_rows_are_shown_with_their_reason(files):
    ours = results().astype({"reason": object})
    row = (ours["base"] == "SVM") & (ours["dataset"] == "spambase")
    row &= ours["method"] == "scsb_paper"
    ours.loc[row, ["status", "reason", "log_loss"]] = ["failed", "no probabilities | here", np.nan]
    write(ours, files["results"])
    page = write_page(**files)
    assert "| scsb_paper | failed | no probabilities / here | spambase SVM |" in page
    assert "failed" in cells(page, "| spambase | SVM | log-loss |")


def test_without_tables_the_page_says_so_and_leaves_the_columns_empty(files):
    page = write_page(**files | {"tables": None})
    assert "tables were not given" in page
    assert cells(page, SCSB_TREES)[3:7] == ["–", "–", "0.2500", "–"]


def test_without_experiments_their_claims_are_not_measured(files):
    page = write_page(**files | {"experiments": None})
    assert verdict_of(page, "The L1-simplex paradox") == "not measured"


def test_many_splits_have_means_intervals_and_paired_differences(files):
    page = write_page(**files)
    section = page.split("## Many splits")[1]
    # SCSB is 0.05 above uniform in every split: a certain difference of no width.
    assert "**+24.7 ± 0.0**" in section
    assert "SCSB − uniform: lower in 0, higher in 28, undecided in 0 of 28." in section
    assert "Fewer than two splits" in write_page(**files | {"seeds_results": None})


def test_an_unfinished_split_is_left_out(files):
    write(results((42, 43, 44))[:-100], files["seeds_results"])
    assert "| over 2 splits |" in write_page(**files)


def test_rows_that_one_split_alone_has_are_left_out(files):
    splits = results((42, 43, 44))
    write(splits[(splits["seed"] == 42) | (splits["base"] != "SVM")], files["seeds_results"])
    page = write_page(**files)
    assert "| over 3 splits |" in page
    assert "SVM" not in page.split("## Many splits")[1].split("## Skipped")[0]


def test_missing_results_are_one_clear_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([f"--results={tmp_path / 'none.csv'}"])
    assert "is not there; `python -m benchmarks.paper` writes it" in capsys.readouterr().err


def test_interval_is_students():
    mean, half = interval(np.array([1.0, 2.0, 3.0]))
    assert mean == 2.0
    assert half == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)


def test_equality_is_to_the_printed_digits():
    assert against_code(0.18386, "0.183866", 4) == "="
    assert against_code(0.18386, "0.1941", 4) == "−0.0102"
    assert against_code(0.18396, "0.183949", 4) == "last digit"


def test_shares_of_rows_become_words():
    words = [by_share(n, 8) for n in (8, 6, 5, 4, 0)]
    assert [w.value for w in words] == ["holds", "holds", "holds in part", "fails", "fails"]
