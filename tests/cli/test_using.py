"""`sparsebag predict`, `inspect`, `export`, `bench` and the help texts."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from sparsebag.cli import tables


def test_predictions_are_the_models(files, run, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_BYTES", 400)  # several batches
    done = run("predict", files.small, files.test, "-o", "out.csv", "--keep", "target", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["rows"] == len(files.frame)
    assert done.left == ["out.csv"]
    out = pd.read_csv("out.csv")
    X = files.frame.drop(columns="target")
    assert list(out["target"]) == list(files.frame["target"])
    assert list(out["prediction"]) == list(files.model.predict(X))
    p = out[[f"p_{label}" for label in files.model.classes_]].to_numpy()
    assert np.allclose(p, files.model.predict_proba(X), rtol=1e-14)


@pytest.mark.parametrize("name", ["out.parquet", "-"])
def test_predictions_as_parquet_and_on_standard_output(name, files, run):
    done = run("predict", files.small, files.parquet, "-o", name, "--no-proba")
    assert done.code == 0, done.err
    if name == "-":
        labels = done.out.splitlines()[1:]
        assert done.err == ""
    else:
        labels = list(pd.read_parquet(name)["prediction"])
    X = pd.read_csv(files.train).drop(columns="target")
    assert labels == list(files.model.predict(X))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_rows_from_a_pipe(packed, files, tmp_path):
    """A pipe can be read only once, and longer than what is looked at first."""
    many = pd.concat([files.frame] * 1500)
    text = many.to_csv(index=False).encode()
    assert len(text) > 1 << 20
    done = subprocess.run(
        [sys.executable, "-m", "sparsebag.cli", "predict", files.small, "-", "--no-proba"],
        input=gzip.compress(text, 1) if packed else text,
        capture_output=True,
        check=True,
    )
    labels = done.stdout.decode().split()[1:]
    assert labels == list(files.model.predict(files.frame.drop(columns="target"))) * 1500


def test_rows_that_cannot_be_predicted(files, run, tmp_path):
    text = files.test.read_text().splitlines()
    spoilt = text[3].split(",")
    spoilt[1] = "tall"
    (tmp_path / "spoilt.csv").write_text("\n".join([*text[:3], ",".join(spoilt), *text[4:]]))
    done = run("predict", files.small, "spoilt.csv", "-o", "out.csv")
    assert done.code == 3
    assert "column 'sepal width', line 4," in done.err
    assert "holds 'tall', which is no number" in done.err
    assert done.left == ["spoilt.csv"]
    done = run("predict", files.small, files.test, "-o", "out.csv", "--keep", "name")
    assert done.code == 3
    assert "no column 'name' to keep" in done.err


def test_missing_cells_go_where_the_trees_send_them(files, run, tmp_path):
    gaps = files.frame.copy()
    gaps.loc[::3, "petal width"] = np.nan
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    done = run("predict", files.small, "gaps.csv", "-o", "out.csv")
    assert done.code == 0, done.err
    expected = files.model.predict(gaps.drop(columns="target"))
    assert list(pd.read_csv("out.csv")["prediction"]) == list(expected)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_table_larger_than_the_memory_it_takes(files, tmp_path):
    """Peak memory does not grow with the table."""
    code = """
import sys
from sparsebag.cli.app import app
try:
    app(sys.argv[1:], standalone_mode=False)
finally:
    status = open("/proc/self/status").read()  # ru_maxrss would count the parent's, before exec
    print(status.partition("VmHWM:")[2].split()[0])"""
    peaks = []
    for name, times in (("short.csv", 10_000), ("long.csv", 130_000)):
        body = files.test.read_text().split("\n", 1)
        (tmp_path / name).write_text(body[0] + "\n" + body[1] * times)
        done = subprocess.run(
            [sys.executable, "-c", code, "predict", files.small, tmp_path / name, "-q",
             "-o", tmp_path / f"{name}.out.csv"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        peaks.append(int(done.stdout.split()[-1]) * 1024)
    assert (tmp_path / "long.csv").stat().st_size > 120_000_000
    assert peaks[1] - peaks[0] < 60_000_000


def test_inspect(files, run):
    told = json.loads(run("inspect", files.small, "--json").out)
    assert told["members"] == files.model.n_active_
    assert told["classes"] == ["setosa", "versicolor", "virginica"]
    assert told["column_names"] == list(files.frame.columns[:-1])
    assert told["file_bytes"] == files.small.stat().st_size
    text = run("inspect", files.small).out
    for word in ("classification", "trees", "'petal length'", "sound"):
        assert word in text


@pytest.mark.parametrize("form", ["onnx", "treelite", "sklearn"])
def test_exports_predict_the_same(form, files, run, tmp_path):
    suffix = {"onnx": "onnx", "treelite": "treelite", "sklearn": "skops"}[form]
    out = tmp_path / f"m.{suffix}"
    done = run("export", files.small, "--to", form, "-o", out, "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["bytes"] == out.stat().st_size
    X = files.frame.drop(columns="target").to_numpy(dtype=np.float32)
    expected = sb.load(files.small).predict_proba(X)
    if form == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
        assert np.allclose(session.run(["probabilities"], {"X": X})[0], expected, atol=1e-6)
    elif form == "treelite":
        import treelite

        assert treelite.Model.deserialize(out).num_feature == 4
    else:
        trusted = skops.io.get_untrusted_types(file=out)
        again = skops.io.load(out, trusted=trusted)
        assert np.allclose(
            again.predict_proba(files.frame.drop(columns="target")), expected, atol=1e-9
        )


@pytest.mark.parametrize("kind", ["binary", "binary, plain", "regression"])
def test_a_file_becomes_a_scikit_learn_forest_again(kind, run, tmp_path):
    if kind == "regression":
        X, y = load_diabetes(return_X_y=True)
        forest = RandomForestRegressor(30, random_state=0).fit(X, y)
    else:
        X, y = load_breast_cancer(return_X_y=True)
        forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    plain = {"refine": None, "calibration": None} if "plain" in kind else {}
    small = sb.compress(forest, X, y, max_estimators=5, **plain)
    small.save(tmp_path / "m.sbag")
    done = run("export", "m.sbag", "--to", "sklearn", "-o", "m.joblib")
    assert done.code == 0, done.err
    again = joblib.load("m.joblib")
    if kind == "binary, plain":
        assert isinstance(again, RandomForestClassifier)
    if kind == "regression":
        assert isinstance(again, RandomForestRegressor)
        assert np.allclose(again.predict(X), small.predict(X))
    else:
        assert np.allclose(again.predict_proba(X), small.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("kind", ["ridge", "logistic", "two classes", "networks", "both"])
def test_members_that_are_no_trees_become_scikit_learn_models_again(kind, run, tmp_path):
    X, y = load_iris(return_X_y=True)
    if kind == "two classes":
        X, y = X[50:], y[50:]
    bags = {
        "logistic": lambda: BaggingClassifier(LogisticRegression(max_iter=2000), 12),
        "two classes": lambda: BaggingClassifier(LogisticRegression(max_iter=2000), 12),
        "networks": lambda: BaggingClassifier(
            MLPClassifier((6,), solver="lbfgs", max_iter=40, random_state=0), 6
        ),
        "both": lambda: VotingClassifier(
            [("forest", DecisionTreeClassifier(max_depth=3)), ("line", LogisticRegression())],
            voting="soft",
        ),
        "ridge": lambda: BaggingRegressor(Ridge(), 12),
    }
    bag = bags[kind]()
    if kind != "both":
        bag.set_params(random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bag.fit(X[::2], y[::2])
        small = sb.compress(bag, X[1::2], y[1::2], evidence="holdout", max_estimators=4)
    small.save(tmp_path / "m.sbag")
    done = run("export", "m.sbag", "--to", "sklearn", "-o", "m.joblib")
    assert done.code == 0, done.err
    again = joblib.load("m.joblib")
    if kind == "ridge":
        assert np.allclose(again.predict(X), small.predict(X))
    else:
        assert np.allclose(again.predict_proba(X), small.predict_proba(X), atol=1e-9)


def test_members_that_vote_for_one_class_say_why_they_cannot(run, tmp_path):
    X, y = load_iris(return_X_y=True)
    bag = BaggingClassifier(LinearSVC(), 30, random_state=0).fit(X, y)
    sb.compress(bag, X, y).save(tmp_path / "m.sbag")
    done = run("export", "m.sbag", "--to", "sklearn")
    assert done.code == 3
    assert "vote for one class" in done.err
    assert done.left == ["m.sbag"]


def test_bench_times_a_model_beside_the_ensemble(files, run, monkeypatch):
    from sparsebag.cli import bench

    monkeypatch.setattr(bench, "SECONDS_EACH", 0.01)
    features = files.folder / "features.csv"
    files.frame.drop(columns="target").to_csv(features, index=False)
    done = run("bench", "speed", files.small, features, "--against", files.skops, "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert set(told) == {"small.sbag", "forest.skops"}
    assert all(value > 0 for figures in told.values() for value in figures.values())
    text = run("bench", "speed", files.small, features)
    assert "1000 rows" in text.out


def test_bench_knows_the_projects_suites(run):
    assert "solvers" in run("bench", "list").out
    done = run("bench", "run", "nonsense")
    assert done.code == 2
    assert "there is no benchmark 'nonsense'" in done.err


COMMANDS = ["demo", "fit", "compress", "predict", "inspect", "export", "bench"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, run):
    done = run(command, "--help")
    assert done.code == 0
    assert "Usage" in done.out
    if command == "bench":
        assert "speed" in done.out
    else:
        assert f"Example: sparsebag {command}" in done.out


def test_the_list_of_commands_and_the_version(run):
    listed = run("--help").out
    for command in COMMANDS:
        assert command in listed
    assert "Exit codes" in listed
    assert run("--version").out == f"sparsebag {sb.__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_gets_every_row(unbuffered, files, tmp_path):
    many = pd.concat([files.frame] * 3000)
    many.to_csv(tmp_path / "many.csv", index=False)
    done = subprocess.run(
        [sys.executable, "-m", "sparsebag.cli", "predict", files.small, tmp_path / "many.csv"],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        check=True,
    )
    assert done.stdout.count(b"\n") == 1 + len(many)
