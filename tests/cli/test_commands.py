"""Every command on sound input: what it writes, what it says to people and to machines."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

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
from sparsebag.cli import data
from sparsebag.deploy import artifact

QUICK = ("--trees", 30, "--max-estimators", 6)


def told(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


# -- compress ---------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["train", "parquet"])
def test_compress_gives_what_the_library_gives(table, files, run):
    done = run(
        "compress", files.skops, getattr(files, table), "--target", "target",
        "--max-estimators", 9, "-o", "out.sbag", "--json",
    )  # fmt: skip
    facts = told(done)
    assert done.left == ["out.sbag"]
    assert facts["members"] == files.model.n_active_ <= 9
    assert facts["of_members"] == 40
    assert facts["nodes"] == files.model.n_nodes_ < facts["of_nodes"]
    assert facts["file_bytes"] == Path("out.sbag").stat().st_size
    assert facts["interval"][0] <= facts["ratio"] <= facts["interval"][1]
    assert facts["tolerance"] is None
    assert not facts["kept_whole"]
    assert np.allclose(facts["weights"], files.model.weights_)
    X = files.frame.drop(columns="target")
    assert (sb.load("out.sbag").predict_proba(X) == files.model.predict_proba(X)).all()


SIZES = [
    (("--max-nodes", "50%"), {"max_nodes": 0.5}),
    (("--max-nodes", "150"), {"max_nodes": 150}),
    (("--max-estimators", "20%"), {"max_estimators": 0.2}),
    (("--max-bytes", "1.2kB"), {"max_bytes": 1200}),
    (("--tolerance", "0.3", "--confidence", "0.9"), {"tolerance": 0.3, "confidence": 0.9}),
    (("--max-estimators", "5", "--no-refine"), {"max_estimators": 5, "refine": None}),
    (("--max-nodes", "0.3", "--no-rehearsal"), {"max_nodes": 0.3, "rehearsal": False}),
]


@pytest.mark.parametrize(("given", "passed"), SIZES, ids=[" ".join(g) for g, _ in SIZES])
def test_options_are_the_librarys(given, passed, files, run):
    done = run("compress", files.skops, files.train, "-t", "target", *given, "--json")
    table = pd.read_csv(files.train)
    X, y = table.drop(columns="target"), table["target"].to_numpy()
    small = sb.compress(joblib.load(files.joblib), X, y, **passed)
    assert told(done)["nodes"] == small.n_nodes_
    assert (sb.load("small.sbag").predict_proba(X) == small.predict_proba(X)).all()


def test_a_report_on_test_rows(files, run):
    done = run(
        "compress", files.skops, files.train, "-t", "target", "--test", files.test,
        "--max-estimators", 9, "--report", "report.html", "--json", "-o", "out.sbag",
    )  # fmt: skip
    test = told(done)["test"]
    assert done.left == ["out.sbag", "report.html"]
    assert test["rows"] == len(files.frame)
    X, y = files.frame.drop(columns="target"), files.frame["target"]
    small = test["models"][f"sparsebag ({files.model.n_active_})"]
    assert small["accuracy"] == pytest.approx(files.model.score(X, y))
    assert set(test["changes"]) == {"log-loss", "ECE", "Brier", "accuracy"}


def test_reports_without_sound_test_rows_say_so(files, run):
    size = ("-t", "target", "--max-estimators", 9)
    done = run("compress", files.skops, files.train, *size, "--report", "r.html")
    assert done.code == 0, done.err
    assert done.left == ["r.html", "small.sbag"]
    assert "No test rows were given" in Path("r.html").read_text(encoding="utf-8")
    done = run("compress", files.skops, files.train, *size, "--test", files.train, "--json")
    assert any("rows the ensemble was trained on" in text for text in told(done)["warnings"])


def test_a_pickle_is_loaded_when_it_is_trusted(files, run):
    command = ["compress", files.joblib, files.train, "-t", "target", "--max-estimators", 9]
    assert run(*command, "--trust-pickle").code == 0


def test_results_are_few_lines_of_eighty_columns_and_progress_is_elsewhere(files, run):
    command = (
        "compress", files.skops, files.train, "-t", "target", "--test", files.test,
        "--report", "report.html", "--tolerance", 0.5,
    )  # fmt: skip
    done = run(*command)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    labels = [line[:9].strip() for line in lines]
    assert labels[0] == "trees"
    assert labels[labels.index("next") + 1 :] == ["test", "", "speed", "written", ""]
    assert max(map(len, lines)) <= 80
    for step in ("reading the ensemble", "rehearsal 1 of 4", "teaching the small model"):
        assert step in done.err
        assert step not in done.out
    assert run(*command, "-q").err == ""


def test_columns_are_taken_by_name_and_the_others_left_out(files, run, tmp_path):
    table = pd.read_csv(files.train)
    table[table.columns[::-1]].assign(name="text").to_csv("shuffled.csv", index=False)
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
    assert told(run(*command, "--evidence", "holdout"))["of_members"] == 3
    refused = run(*command)
    assert refused.code == 3
    assert "--evidence holdout" in json.loads(refused.out)["error"]


# -- fit and demo -----------------------------------------------------------------------------


def test_fit_trains_scikit_learns_forest(files, run):
    """Grown in parts, it is the forest that is grown at once."""
    done = run("fit", files.train, "-t", "target", "--test", files.test, *QUICK, "--seed", 3,
               "--report", "report.md", "--json")  # fmt: skip
    facts = told(done)
    assert done.left == ["report.md", "small.sbag"]
    assert facts["of_members"] == 30
    assert facts["task"] == "classification"
    assert facts["test"]["rows"] == len(files.frame)
    table = pd.read_csv(files.train)
    X, y = table.drop(columns="target"), table["target"].to_numpy()
    forest = RandomForestClassifier(30, random_state=3).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=6)
    assert (sb.load("small.sbag").predict_proba(X) == small.predict_proba(X)).all()


def test_row_numbers_and_keys_are_not_learned_from(files, run, tmp_path):
    table = pd.read_csv(files.train).assign(key="k", size=1.0)
    table.to_csv(tmp_path / "indexed.csv")  # with pandas' index, which has no name
    drop = ("--drop", "key", "--drop", "size", "--holdout", 0)
    done = run("fit", "indexed.csv", "-t", "target", *drop, *QUICK)
    assert done.code == 0, done.err
    assert "counts the rows; it is left out" in done.err
    assert sb.load("small.sbag").feature_names == tuple(files.frame.columns[:-1])


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["007", "1e5"], ["007", "1e5"]),
        (["0", "1"], [0, 1]),
        (["1.0", "2.0"], [1.0, 2.0]),
        (["False", "True"], [False, True]),
        (["NA", "CA"], ["CA", "NA"]),
    ],
)
def test_labels_stay_as_they_were_written(labels, kept, run, tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    X.assign(kind=np.array(labels)[(y > 1).to_numpy().astype(int)]).to_csv("l.csv", index=False)
    task = ("--task", "classification", "--test", "l.csv", "--json")
    assert told(run("fit", "l.csv", "-t", "kind", *QUICK, *task))["task"] == "classification"
    assert sb.load("small.sbag").classes.tolist() == kept


def test_fit_on_numbers_with_gaps_is_a_regression(run, tmp_path):
    frame = load_diabetes(as_frame=True).frame
    frame.loc[::7, "bmi"] = np.nan
    frame.to_csv(tmp_path / "d.csv.gz", index=False)
    done = run("fit", "d.csv.gz", "-t", "target", *QUICK, "--json", "--holdout", 0.25)
    facts = told(done)
    assert facts["task"] == "regression"
    assert facts["test"]["rows"] == 111
    assert set(facts["test"]["changes"]) == {"MSE", "R²"}


@pytest.mark.slow
def test_demo_writes_models_and_a_report(run):
    done = run("demo", "--json")
    facts = told(done)
    assert done.left == ["sparsebag_demo.sbag", "sparsebag_noisy.sbag", "sparsebag_report.html"]
    assert facts["members"] < facts["of_members"] == 300
    assert facts["test"]["changes"]["log-loss"]["verdict"] == "better"
    assert facts["noisy"]["nodes"] < 0.02 * facts["noisy"]["of_nodes"]
    mse = facts["noisy"]["test"]["changes"]["MSE"]
    assert mse["after"] < 1.05 * mse["before"]
    done = run("demo", "-q")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 80
    assert "sparsebag fit your_table.csv" in done.out.splitlines()[-1]


# -- columns of text --------------------------------------------------------------------------


@pytest.fixture
def paints(tmp_path):
    """Whether a paint sells: by its colour, its price, and whether it is new."""
    rng = np.random.default_rng(0)
    n = 300
    colour = rng.choice(np.array(["blue", "green", "red"]), n)
    table = pd.DataFrame(
        {
            "colour": np.where(rng.random(n) < 0.1, "", colour),
            "price": rng.normal(size=n).round(3),
            "is_new": rng.random(n) < 0.5,
        }
    )
    table["sold"] = np.where((colour == "green") ^ (rng.random(n) < 0.05), "yes", "no")
    table.to_csv(tmp_path / "paints.csv", index=False)
    return table


@pytest.fixture
def model(paints, run):
    done = run("fit", "paints.csv", "--target", "sold", "-o", "m.sbag", *QUICK)
    assert done.code == 0, done.err
    assert "3 columns, 1 of them text" in done.err
    return sb.load("m.sbag")


def test_the_file_carries_the_texts(model, paints, run, tmp_path):
    assert model.categories == {"colour": ("blue", "green", "red")}
    facts = told(run("inspect", "m.sbag", "--json"))
    assert facts["categories"] == {"colour": ["blue", "green", "red"]}
    assert "colour (3)" in run("inspect", "m.sbag").out
    done = run("export", "m.sbag", "--to", "onnx")
    assert done.code == 0, done.err
    assert "Columns of text must be passed as numbers" in done.out
    done = run("fit", "paints.csv", "--target", "sold", *QUICK)  # the size told is the file's
    size = (tmp_path / "small.sbag").stat().st_size
    shown = f"{size / 1e3:.3g} kB" if size >= 1000 else f"{size} bytes"
    assert next(line for line in done.out.splitlines() if line.startswith("file")).endswith(shown)


def test_predictions_from_text_are_those_from_codes(model, paints, run):
    X = paints.drop(columns="sold")
    codes = X.assign(colour=[{"blue": 0, "green": 1, "red": 2}.get(c, np.nan) for c in X["colour"]])
    expected = model.predict_proba(codes.to_numpy(dtype=float))
    assert np.array_equal(model.predict_proba(X), expected)
    assert np.array_equal(model.predict_proba(X.to_numpy(dtype=object)), expected)
    assert np.array_equal(model.predict_proba_one(X.iloc[0]), expected[0])
    assert np.array_equal(model.predict_proba_one(list(X.iloc[0])), expected[0])
    X.to_parquet("paints.parquet")
    for table in ("paints.csv", "paints.parquet"):
        done = run("predict", "m.sbag", table, "-o", "out.csv")
        assert done.code == 0, done.err
        assert np.allclose(pd.read_csv("out.csv")[["p_no", "p_yes"]], expected)
    right = np.mean(model.predict(X) == paints["sold"])
    assert right > 0.85, "the text is what decides"


def test_a_text_nobody_saw_is_missing_and_said(model, paints, run):
    X = paints.drop(columns="sold")
    X.loc[:4, "colour"] = "mauve"
    X.to_csv("new.csv", index=False)
    words = "texts the model never saw, such as 'mauve' (5 rows); they are read as missing"
    assert words in run("predict", "m.sbag", "new.csv", "-o", "out.csv").err
    assert words in run("predict", "m.sbag", "new.csv").err
    done = run("predict", "m.sbag", "new.csv", "-o", "out.csv", "--json")
    assert words in told(done)["warnings"][0]
    gaps = X.assign(colour=X["colour"].replace("mauve", ""))
    assert np.array_equal(model.predict_proba(X), model.predict_proba(gaps))


@pytest.mark.parametrize(
    "entry", [{"size": ["a"]}, {"colour": ["a", "a"]}, {"colour": [1]}, ["colour"], {"colour": 3}]
)
def test_forged_texts_are_refused(entry, model, monkeypatch):
    honest = artifact.assembled
    monkeypatch.setattr(
        artifact,
        "assembled",
        lambda header, arrays: honest({**header, "categories": entry}, arrays),
    )
    with pytest.raises(sb.ArtifactError, match="not a sound model file"):
        artifact.loads(artifact.dumps(model))


# -- weights that depend on the row -----------------------------------------------------------


def test_a_gate_goes_all_the_way(run, tmp_path):
    """Other trees are right for x0 above zero than below."""
    X = np.random.default_rng(0).normal(size=(600, 4))
    y = np.where(X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0)
    table = pd.DataFrame(X, columns=list("abcd"))
    table.assign(target=y.astype(int)).to_csv(tmp_path / "two.csv", index=False)
    size = ("--trees", 40, "--max-estimators", 9, "--holdout", 0)
    facts = told(run("fit", "two.csv", "-t", "target", *size, "--local", "always", "--json"))
    assert facts["local"]["gate"]
    assert facts["local"]["told"].startswith("Weights depend on the row")
    assert "gate " in run("inspect", "small.sbag").out
    assert run("predict", "small.sbag", "two.csv", "-o", "out.csv", "-q").code == 0
    gated = sb.load("small.sbag")
    assert gated.gate is not None
    out = pd.read_csv("out.csv")[["p_0", "p_1"]].to_numpy()
    assert np.allclose(out, gated.predict_proba(table), rtol=1e-14)


def test_auto_says_why_there_is_no_gate(files, run):
    size = ("-t", "target", "--max-estimators", 9, "-q")
    done = run("compress", files.skops, files.train, *size, "--local", "auto")
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("local ")]
    assert "Every row has the same weights:" in line
    assert "gate " not in run("inspect", "small.sbag").out
    refused = run("compress", files.skops, files.train, *size, "--local", "always")
    assert refused.code == 3
    assert "cannot fit a gate" in refused.err
    assert "local" not in told(run("compress", files.skops, files.train, *size, "--json"))


# -- predict ----------------------------------------------------------------------------------


def test_predictions_are_the_models(files, run, monkeypatch):
    monkeypatch.setattr(data, "BATCH_ROWS", 9)  # several batches
    done = run("predict", files.small, files.test, "-o", "out.csv", "--keep", "target", "--json")
    assert told(done)["rows"] == len(files.frame)
    assert done.left == ["out.csv"]
    out = pd.read_csv("out.csv")
    X = files.frame.drop(columns="target")
    assert list(out["target"]) == list(files.frame["target"])
    assert list(out["prediction"]) == list(files.model.predict(X))
    p = out[[f"p_{label}" for label in files.model.classes_]].to_numpy()
    assert np.allclose(p, files.model.predict_proba(X), rtol=1e-14)
    done = run("predict", files.small, files.test, "-o", "out.parquet", "--keep", "target")
    assert pd.read_parquet("out.parquet").equals(out)


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


def test_missing_cells_go_where_the_trees_send_them(files, run, tmp_path):
    gaps = files.frame.copy()
    gaps.loc[::3, "petal width"] = np.nan
    gaps.to_csv(tmp_path / "gaps.csv", index=False)
    done = run("predict", files.small, "gaps.csv", "-o", "out.csv")
    assert done.code == 0, done.err
    expected = files.model.predict(gaps.drop(columns="target"))
    assert list(pd.read_csv("out.csv")["prediction"]) == list(expected)


# -- inspect, export, bench, help -------------------------------------------------------------


def test_inspect(files, run):
    facts = told(run("inspect", files.small, "--json"))
    assert facts["members"] == files.model.n_active_
    assert facts["classes"] == ["setosa", "versicolor", "virginica"]
    assert facts["column_names"] == list(files.frame.columns[:-1])
    assert facts["file_bytes"] == files.small.stat().st_size
    text = run("inspect", files.small).out
    for word in ("classification", "trees", "'petal length'", "sound"):
        assert word in text


@pytest.mark.parametrize("form", ["onnx", "treelite", "sklearn"])
def test_exports_predict_the_same(form, files, run, tmp_path):
    suffix = {"onnx": "onnx", "treelite": "treelite", "sklearn": "skops"}[form]
    out = tmp_path / f"m.{suffix}"
    done = run("export", files.small, "--to", form, "-o", out, "--json")
    assert told(done)["bytes"] == out.stat().st_size
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


NETWORK = MLPClassifier((6,), solver="lbfgs", max_iter=40, random_state=0)
BOTH = [("forest", DecisionTreeClassifier(max_depth=3)), ("line", LogisticRegression())]
ENSEMBLES = {
    "two classes": RandomForestClassifier(30, random_state=0),
    "plain": RandomForestClassifier(30, random_state=0),
    "regression": RandomForestRegressor(30, random_state=0),
    "ridge": BaggingRegressor(Ridge(), 12, random_state=0),
    "logistic": BaggingClassifier(LogisticRegression(max_iter=2000), 12, random_state=0),
    "networks": BaggingClassifier(NETWORK, 6, random_state=0),
    "both": VotingClassifier(BOTH, voting="soft"),
}


@pytest.mark.parametrize("kind", ENSEMBLES)
def test_a_file_becomes_a_scikit_learn_model_again(kind, run, tmp_path):
    load = {"two classes": load_breast_cancer, "plain": load_breast_cancer}
    load |= {"regression": load_diabetes, "ridge": load_diabetes}
    X, y = load.get(kind, load_iris)(return_X_y=True)
    how = {"refine": None, "calibration": None} if kind == "plain" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ensemble = ENSEMBLES[kind].fit(X[::2], y[::2])
        rows = {"evidence": "holdout", "max_estimators": 4}
        small = sb.compress(ensemble, X[1::2], y[1::2], **rows, **how)
    small.save(tmp_path / "m.sbag")
    done = run("export", "m.sbag", "--to", "sklearn", "-o", "m.joblib")
    assert done.code == 0, done.err
    again = joblib.load("m.joblib")
    if kind in ("plain", "regression"):
        assert type(again) is type(ensemble)
    says = "predict" if kind in ("regression", "ridge") else "predict_proba"
    assert np.allclose(getattr(again, says)(X), getattr(small, says)(X), rtol=1e-9, atol=1e-9)


def test_members_that_vote_for_one_class_say_why_they_cannot(run, tmp_path):
    X, y = load_iris(return_X_y=True)
    bag = BaggingClassifier(LinearSVC(), 30, random_state=0).fit(X, y)
    sb.compress(bag, X, y).save(tmp_path / "m.sbag")
    done = run("export", "m.sbag", "--to", "sklearn")
    assert done.code == 3
    assert "vote for one class" in done.err
    assert done.left == ["m.sbag"]


def test_bench_times_a_model_beside_the_ensemble(files, run, monkeypatch):
    from sparsebag.cli import inspect

    monkeypatch.setattr(inspect, "SECONDS_EACH", 0.01)
    done = run("bench", files.small, files.test, "--against", files.skops, "--json")
    facts = told(done)
    assert set(facts) == {"small.sbag", "forest.skops"}
    assert all(value > 0 for figures in facts.values() for value in figures.values())
    assert "1000 rows" in run("bench", files.small, files.test).out


COMMANDS = ["demo", "fit", "compress", "predict", "inspect", "export", "bench"]


def test_every_command_has_help_with_an_example(run):
    listed = run("--help").out
    for command in COMMANDS:
        assert command in listed
        done = run(command, "--help")
        assert done.code == 0
        assert f"Example: sparsebag {command}" in done.out
    assert "Exit codes" in listed
    assert run("--version").out == f"sparsebag {sb.__version__}\n"


def test_progress_is_told_to_a_callback(files):
    """``verbose=`` and the bars of the command line come from the same events."""
    X, y = files.frame.drop(columns="target"), files.frame["target"]
    forest, events = RandomForestClassifier(20, random_state=0).fit(X, y), []
    sb.compress(forest, X, y, max_nodes=0.5, verbose=events.append)
    assert [event.step for event in events[:2]] == [
        "reading the ensemble and its rows",
        "rehearsal",
    ]
    assert [(e.number, e.total) for e in events if e.step == "rehearsal"][-1] == (4, 4)
    assert sorted(event.seconds for event in events) == [event.seconds for event in events]
