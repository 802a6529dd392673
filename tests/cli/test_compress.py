"""`sparsebag compress`, `fit` and `demo`: what they write, and what they say for machines."""

from __future__ import annotations

import json
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb


@pytest.mark.parametrize("table", ["train", "parquet"])
def test_compress_gives_what_the_library_gives(table, files, run):
    done = run(
        "compress", files.skops, getattr(files, table), "--target", "target",
        "--max-estimators", 9, "-o", "out.sbag", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.left == ["out.sbag"]
    told = json.loads(done.out)
    assert told["members"] == files.model.n_active_ <= 9
    assert told["of_members"] == 40
    assert told["nodes"] == files.model.n_nodes_ < told["of_nodes"]
    assert told["file_bytes"] == Path("out.sbag").stat().st_size
    assert told["interval"][0] <= told["ratio"] <= told["interval"][1]
    assert told["tolerance"] is None
    assert not told["kept_whole"]
    assert np.allclose(told["weights"], files.model.weights_)
    X = files.frame.drop(columns="target")
    assert (sb.load("out.sbag").predict_proba(X) == files.model.predict_proba(X)).all()


def test_a_report_on_test_rows(files, run):
    done = run(
        "compress", files.skops, files.train, "-t", "target", "--test", files.test,
        "--max-estimators", 9, "--report", "report.html", "--json", "-o", "out.sbag",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.left == ["out.sbag", "report.html"]
    told = json.loads(done.out)["test"]
    assert told["rows"] == len(files.frame)
    X, y = files.frame.drop(columns="target"), files.frame["target"]
    small = told["models"][f"sparsebag ({files.model.n_active_})"]
    assert small["accuracy"] == pytest.approx(files.model.score(X, y))
    assert set(told["changes"]) == {"log-loss", "ECE", "Brier", "accuracy"}


def test_a_report_without_test_rows_says_so(files, run):
    size = ("--max-estimators", 9)
    done = run("compress", files.skops, files.train, "-t", "target", *size, "--report", "r.html")
    assert done.code == 0, done.err
    assert done.left == ["r.html", "small.sbag"]
    with open("r.html", encoding="utf-8") as page:
        assert "No test rows were given" in page.read()


def test_a_pickle_is_loaded_only_when_it_is_trusted(files, run):
    command = ["compress", files.joblib, files.train, "-t", "target", "--max-estimators", 9]
    refused = run(*command)
    assert refused.code == 3
    assert "--trust-pickle" in refused.err
    assert "could run any code" in refused.err
    assert refused.left == []
    assert run(*command, "--trust-pickle").code == 0


def test_what_a_person_reads_goes_to_standard_output_and_progress_does_not(files, run):
    done = run("compress", files.skops, files.train, "-t", "target", "--tolerance", 0.5)
    assert done.code == 0, done.err
    assert done.out.startswith("trees    40 → ")
    assert "written  small.sbag\n" in done.out
    for step in ("compressing ...", "teaching the small model"):
        assert step in done.err
        assert step not in done.out
    quiet = run("compress", files.skops, files.train, "-t", "target", "--tolerance", 0.5, "-q")
    assert quiet.err == ""


def test_results_are_few_lines_of_eighty_columns(files, run):
    done = run(
        "compress", files.skops, files.train, "-t", "target", "--test", files.test,
        "--report", "report.html", "-q",
    )  # fmt: skip
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    labels = [line[:9].strip() for line in lines]
    assert labels[0] == "trees"
    of_selection = labels.index("next") + 1
    assert len(lines) - of_selection <= 6
    assert labels[of_selection:] == ["test", "", "speed", "written", ""]
    assert max(map(len, lines)) <= 80


SIZES = [
    (("--max-nodes", "50%"), {"max_nodes": 0.5}),
    (("--max-nodes", "150"), {"max_nodes": 150}),
    (("--max-estimators", "20%"), {"max_estimators": 0.2}),
    (("--max-bytes", "1.2kB"), {"max_bytes": 1200}),
    (("--max-bytes", "90%"), {"max_bytes": 0.9}),
    (("--tolerance", "0.3", "--confidence", "0.9"), {"tolerance": 0.3, "confidence": 0.9}),
    (("--max-estimators", "5", "--no-refine"), {"max_estimators": 5, "refine": None}),
    (("--max-nodes", "0.3", "--no-rehearsal"), {"max_nodes": 0.3, "rehearsal": False}),
]


@pytest.mark.parametrize(("given", "passed"), SIZES, ids=[" ".join(g) for g, _ in SIZES])
def test_options_are_the_librarys(given, passed, files, run):
    done = run("compress", files.skops, files.train, "-t", "target", *given, "--json")
    assert done.code == 0, done.err
    table = pd.read_csv(files.train)
    X, y = table.drop(columns="target"), table["target"].to_numpy()
    small = sb.compress(joblib.load(files.joblib), X, y, **passed)
    assert json.loads(done.out)["nodes"] == small.n_nodes_
    assert (sb.load("small.sbag").predict_proba(X) == small.predict_proba(X)).all()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--max-nodes", "many", "is not a whole number (20000) or a share (5%)"),
        ("--max-nodes", "5kB", "is not a whole number (20000) or a share (5%)"),
        ("--max-nodes", "200%", "is not a share between 0 and 100%"),
        ("--max-estimators", "0", "is not a share between 0 and 100%"),
        ("--max-bytes", "5 apples", "is not bytes (100kB) or a share (5%)"),
        ("--confidence", "0.3", "should be greater than or equal to 0.5"),
    ],
)
def test_sizes_that_make_no_sense(option, value, words, files, run):
    done = run("compress", files.skops, files.train, "-t", "target", option, value)
    assert done.code == 2
    told = " ".join(done.err.replace("│", " ").split())
    assert words in told
    assert done.left == []


def test_columns_are_taken_by_name_and_the_others_left_out(files, run, tmp_path):
    table = pd.read_csv(files.train)
    shuffled = table[table.columns[::-1]].assign(name="text")
    shuffled.to_csv(tmp_path / "shuffled.csv", index=False)
    done = run("compress", files.skops, "shuffled.csv", "-t", "target", "--max-estimators", 9)
    assert done.code == 0, done.err


def test_held_out_rows_judge_an_ensemble_without_bags(run, tmp_path):
    table = load_iris(as_frame=True).frame
    models = [(f"t{d}", DecisionTreeClassifier(max_depth=d, random_state=0)) for d in (1, 2, 3)]
    voter = VotingClassifier(models, voting="soft")
    voter.fit(table[::2].drop(columns="target"), table[::2]["target"])
    joblib.dump(voter, tmp_path / "voter.joblib")
    table[1::2].to_csv(tmp_path / "unseen.csv", index=False)
    command = ["compress", "voter.joblib", "unseen.csv", "-t", "target", "--trust-pickle", "--json"]
    done = run(*command, "--evidence", "holdout")
    assert done.code == 0, done.err
    assert json.loads(done.out)["of_members"] == 3
    refused = run(*command)
    assert refused.code == 3
    assert "--evidence holdout" in json.loads(refused.out)["error"]


def test_fit_trains_the_forest_itself(files, run):
    done = run(
        "fit", files.train, "-t", "target", "--test", files.test, "--trees", 40, "--json",
        "--max-estimators", 9,
        "--report", "report.md",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert done.left == ["report.md", "small.sbag"]
    told = json.loads(done.out)
    assert told["of_members"] == 40
    assert told["task"] == "classification"
    assert told["test"]["rows"] == len(files.frame)


def test_row_numbers_and_keys_are_not_learned_from(files, run, tmp_path):
    table = pd.read_csv(files.train).assign(key="k", size=1.0)
    table.to_csv(tmp_path / "indexed.csv")  # with pandas' index, which has no name
    small = ("--trees", 20, "--max-estimators", 3, "--holdout", 0)
    done = run("fit", "indexed.csv", "-t", "target", "--drop", "key", "--drop", "size", *small)
    assert done.code == 0, done.err
    assert "counts the rows; it is left out" in done.err
    assert sb.load("small.sbag").feature_names == tuple(files.frame.columns[:-1])
    refused = run("fit", "indexed.csv", "-t", "target", "--drop", "keys", *small)
    assert refused.code == 3
    assert "no column 'keys' to drop" in refused.err


def test_test_rows_without_a_column(files, run, tmp_path):
    pd.read_csv(files.test).drop(columns="petal width").to_csv(tmp_path / "t.csv", index=False)
    done = run("fit", files.train, "-t", "target", "--test", "t.csv", "--trees", 20)
    assert done.code == 3
    assert "'petal width' is not in 't.csv'" in done.err


def test_true_and_false_are_classes(run, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.assign(big=y > 1).to_csv(tmp_path / "b.csv", index=False)
    done = run("fit", "b.csv", "-t", "big", "--trees", 20, "--max-estimators", 3, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["task"] == "classification"
    assert sb.load("small.sbag").classes.tolist() == [False, True]


@pytest.mark.parametrize(
    ("labels", "kept"),
    [(["007", "1e5"], ["007", "1e5"]), (["0", "1"], [0, 1]), (["1.0", "2.0"], [1.0, 2.0])],
)
def test_labels_stay_as_they_were_written(labels, kept, run, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.assign(kind=np.array(labels)[(y > 1).to_numpy().astype(int)]).to_csv("l.csv", index=False)
    small = ("--trees", 20, "--max-estimators", 3, "--task", "classification")
    done = run("fit", "l.csv", "-t", "kind", "--test", "l.csv", *small)
    assert done.code == 0, done.err
    assert sb.load("small.sbag").classes.tolist() == kept


def test_test_rows_that_were_trained_on_are_told(files, run):
    small = ("--max-estimators", 3, "--json")
    done = run("compress", files.skops, files.train, "-t", "target", "--test", files.train, *small)
    told = json.loads(done.out)
    assert any("rows the ensemble was trained on" in text for text in told["warnings"])


def test_fit_on_numbers_with_gaps_is_a_regression(run, tmp_path):
    frame = load_diabetes(as_frame=True).frame
    frame.loc[::7, "bmi"] = np.nan
    frame.to_csv(tmp_path / "d.csv.gz", index=False)
    done = run("fit", "d.csv.gz", "-t", "target", "--trees", 40, "--json", "--holdout", 0.25)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["task"] == "regression"
    assert told["test"]["rows"] == 111
    assert set(told["test"]["changes"]) == {"MSE", "R²"}


def test_trees_grown_in_parts_are_those_grown_at_once(files):
    from sklearn.ensemble import RandomForestClassifier

    from sparsebag.cli.fit import Task, grow_forest
    from sparsebag.cli.terminal import Steps

    X, y = files.frame.drop(columns="target"), files.frame["target"].to_numpy()
    ours = grow_forest(Steps(quiet=True), X, y, Task.CLASSIFICATION, 25, 3, 1)
    whole = RandomForestClassifier(25, random_state=3).fit(X, y)
    assert (ours.predict_proba(X) == whole.predict_proba(X)).all()
    assert [t.random_state for t in ours] == [t.random_state for t in whole]


@pytest.mark.slow
def test_demo_writes_models_and_a_report(run):
    done = run("demo", "--json")
    assert done.code == 0, done.err
    assert done.left == ["sparsebag_demo.sbag", "sparsebag_noisy.sbag", "sparsebag_report.html"]
    told = json.loads(done.out)
    assert told["members"] < told["of_members"] == 300
    assert told["test"]["changes"]["log-loss"]["verdict"] == "better"
    assert told["noisy"]["nodes"] < 0.02 * told["noisy"]["of_nodes"]
    assert (
        told["noisy"]["test"]["changes"]["MSE"]["after"]
        < 1.05 * (told["noisy"]["test"]["changes"]["MSE"]["before"])
    )


@pytest.mark.slow
def test_demo_fits_a_terminal_and_says_what_to_do_next(run):
    done = run("demo", "-q")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 80
    assert "sparsebag fit your_table.csv" in done.out.splitlines()[-1]
