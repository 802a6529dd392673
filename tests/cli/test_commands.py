"""Every command on sound input: what it writes, what it says to people and to machines."""

import json
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from sparsebag.cli import tables
from sparsebag.cli.app import app

QUICK = ("--trees", 30, "--max-estimators", 6)


def told(done):
    assert done.code == 0, done.err
    return json.loads(done.out)


@pytest.fixture
def compress(files, run):
    """Compress the forest of the files to nine trees."""

    def invoke(*more, model=files.skops, table=files.train, most=9):
        size = () if most is None else ("--max-estimators", most)
        return run("compress", model, table, "-t", "target", *size, *more)

    return invoke


@pytest.mark.parametrize(("model", "table"), [("skops", "train"), ("joblib", "parquet")])
def test_compress_gives_what_the_library_gives(model, table, files, compress):
    given = {"model": getattr(files, model), "table": getattr(files, table)}
    trust = ("--trust-pickle",) if model == "joblib" else ()
    done = compress("-o", "out.sbag", "--json", *trust, **given)
    facts = told(done)
    assert done.left == ["out.sbag"]
    assert facts["members"] == files.model.n_active_ <= 9
    assert facts["of_members"] == 40
    assert facts["nodes"] == files.model.n_nodes_ < facts["of_nodes"]
    assert facts["file_bytes"] == Path("out.sbag").stat().st_size
    assert facts["interval"][0] <= facts["ratio"] <= facts["interval"][1]
    assert facts["tolerance"] is None
    assert not facts["kept_whole"]
    X = files.frame.drop(columns="target")
    assert (sb.load("out.sbag").predict_proba(X) == files.model.predict_proba(X)).all()


SIZES = [
    (("--max-nodes", "50%"), {"max_nodes": 0.5}),
    (("--max-nodes", "150"), {"max_nodes": 150}),
    (("--max-estimators", "20%"), {"max_estimators": 0.2}),
    (("--max-bytes", "1.2kB"), {"max_bytes": 1200}),
    (("--tolerance", "30%", "--confidence", "0.9"), {"tolerance": 0.3, "confidence": 0.9}),
    (("--max-estimators", "5", "--no-refine"), {"max_estimators": 5, "refine": None}),
    (("--max-nodes", "0.3", "--no-rehearsal"), {"max_nodes": 0.3, "rehearsal": False}),
]


@pytest.mark.parametrize(("given", "passed"), SIZES, ids=[" ".join(g) for g, _ in SIZES])
def test_options_are_the_librarys(given, passed, files, compress):
    table = pd.read_csv(files.train)
    X, y = table.drop(columns="target"), table["target"].to_numpy()
    small = sb.compress(joblib.load(files.joblib), X, y, **passed)
    done = compress(*given, "--json", most=None)
    assert told(done)["nodes"] == small.n_nodes_
    assert "NaN" not in done.out, "JSON has none"
    assert (sb.load("small.sbag").predict_proba(X) == small.predict_proba(X)).all()


def test_reports_on_test_rows_and_without_sound_ones(files, compress):
    done = compress("--test", files.test, "--report", "report.html", "--json", "-o", "out.sbag")
    test = told(done)["test"]
    assert done.left == ["out.sbag", "report.html"]
    assert test["rows"] == len(files.frame)
    X, y = files.frame.drop(columns="target"), files.frame["target"]
    assert all(us > 0 for us in test["us_per_row"])
    assert test["changes"]["accuracy"]["after"] == pytest.approx(files.model.score(X, y))
    assert set(test["changes"]) == {"log-loss", "accuracy", "AUC", "F1", "Brier", "ECE"}
    done = compress("--report", "r.html")
    assert done.code == 0, done.err
    assert done.left == ["out.sbag", "r.html", "report.html", "small.sbag"]
    assert "No test rows were given" in Path("r.html").read_text(encoding="utf-8")
    assert compress().err.endswith("sparsebag: 'small.sbag' exists; name a file with -o.\n")
    done = compress("--test", files.train, "--no-rehearsal", "-o", "out.sbag")
    assert "not estimated: see the train rows" in done.out
    assert "--test holds the rows of DATA" in done.err


def test_results_are_few_lines_of_eighty_columns_and_progress_is_elsewhere(files, compress):
    options = ("--test", files.test, "--report", "report.html", "--tolerance", 0.5)
    done = compress(*options, most=None)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    labels = [line[:9].strip() for line in lines if line[0] != " "]
    assert labels == ["trees", "file", "speed", "quality", "test", "written"]
    assert max(map(len, lines)) <= 80
    for step in ("reading the ensemble", "rehearsal step 1 of 12", "pruning and refitting"):
        assert step in done.err
        assert step not in done.out
    quiet = compress(*options, "-q", "-o", "small.sbag", most=None)
    assert quiet.out + quiet.err == ""


def test_columns_are_taken_by_name_and_the_others_left_out(files, compress):
    table = pd.read_csv(files.train)
    table[table.columns[::-1]].assign(name="text").to_csv("shuffled.csv", index=False)
    done = compress(table="shuffled.csv")
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
    refused = run(*command, "-o", "small.sbag")
    assert refused.code == 3
    assert "--evidence holdout" in json.loads(refused.out)["error"]


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
    assert "is a row index and is ignored" in done.err
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
    assert set(facts["test"]["changes"]) == {"MSE", "R²", "MAE"}


@pytest.mark.slow
def test_demo_writes_models_and_a_report(run):
    done = run("demo", "--json")
    facts = told(done)
    assert done.left == ["sparsebag_demo.sbag", "sparsebag_report.html"]
    assert facts["nodes"] < 0.03 * facts["of_nodes"]
    assert facts["file_bytes"] < 50_000
    loss = facts["test"]["changes"]["log-loss"]
    assert loss["after"] < 1.02 * loss["before"]
    done = run("demo")
    assert done.code == 0, done.err
    assert max(map(len, done.out.splitlines())) <= 80
    assert "sparsebag fit your_table.csv" in done.out.splitlines()[-1]


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
    assert "colour 3: 'blue', 'green', 'red'" in run("inspect", "m.sbag").out
    done = run("export", "m.sbag", "--to", "onnx")
    assert done.code == 0, done.err
    assert "Pass text columns as numbers" in done.out
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
    with pytest.raises(ValueError, match="column 'colour' holds 1, which is not text"):
        model.predict_proba_one({**X.iloc[0], "colour": 1})
    X.to_parquet("paints.parquet")
    for table in ("paints.csv", "paints.parquet"):
        done = run("predict", "m.sbag", table, "-o", "out.csv")
        assert done.code == 0, done.err
        assert np.allclose(pd.read_csv("out.csv")[["p_no", "p_yes"]], expected)
    right = np.mean(model.predict(X) == paints["sold"])
    assert right > 0.85, "the text is what decides"


def test_a_text_nobody_saw_is_missing_and_said(model, paints, run, capfd):
    X = paints.drop(columns="sold")
    X.loc[:4, "colour"] = "mauve"
    X.to_csv("new.csv", index=False)
    words = "values not seen in training, such as 'mauve' (5 rows); they are treated as missing"
    assert words in run("predict", "m.sbag", "new.csv", "-o", "out.csv").err
    app(["predict", "m.sbag", "new.csv"], standalone_mode=False)
    assert words in capfd.readouterr().err
    done = run("predict", "m.sbag", "new.csv", "-o", "out.csv", "--json")
    assert words in told(done)["warnings"][0]
    gaps = X.assign(colour=X["colour"].replace("mauve", ""))
    assert np.array_equal(model.predict_proba(X), model.predict_proba(gaps))


def test_a_gate_goes_all_the_way(run, tmp_path):
    """Other trees are right for x0 above zero than below."""
    X = np.random.default_rng(0).normal(size=(600, 4))
    y = np.where(X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0)
    table = pd.DataFrame(X, columns=list("abcd"))
    table.assign(target=y.astype(int)).to_csv(tmp_path / "two.csv", index=False)
    size = ("--trees", 40, "--max-estimators", 9, "--holdout", 0)
    facts = told(run("fit", "two.csv", "-t", "target", *size, "--local", "always", "--json"))
    assert facts["local"]["gate"]
    assert facts["local"]["told"].startswith("weights depend on the row")
    assert "gate " in run("inspect", "small.sbag").out
    assert run("predict", "small.sbag", "two.csv", "-o", "out.csv", "-q").code == 0
    gated = sb.load("small.sbag")
    assert gated.gate is not None
    out = pd.read_csv("out.csv")[["p_0", "p_1"]].to_numpy()
    assert np.allclose(out, gated.predict_proba(table), rtol=1e-14)


def test_auto_says_why_there_is_no_gate(run, compress):
    done = compress("--local", "auto")
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("local ")]
    assert "no gate:" in line
    assert "gate " not in run("inspect", "small.sbag").out
    refused = compress("-q", "--local", "always", "-o", "other.sbag")
    assert refused.code == 3
    assert "cannot fit a gate" in refused.err
    assert "local" not in told(compress("-q", "--json", "-o", "other.sbag"))


def test_predictions_are_the_models(files, run, monkeypatch):
    monkeypatch.setattr(tables, "BATCH_ROWS", 9)  # several batches
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
    pd.testing.assert_frame_equal(pd.read_parquet("out.parquet"), out, rtol=1e-14)


def test_inspect(files, run):
    facts = told(run("inspect", files.small, "--json"))
    assert facts["members"] == {"trees": files.model.n_active_}
    assert facts["nodes"] == files.model.n_nodes_
    assert facts["classes"] == ["setosa", "versicolor", "virginica"]
    assert facts["column_names"] == list(files.frame.columns[:-1])
    assert facts["file_bytes"] == files.small.stat().st_size
    text = run("inspect", files.small).out
    for word in ("classification", "trees", "'petal length'", "checksum ok"):
        assert word in text


@pytest.mark.parametrize("suffix", ["onnx", "treelite", "skops", "joblib"])
def test_exports_predict_the_same(suffix, files, run, tmp_path):
    form = suffix if suffix in ("onnx", "treelite") else "sklearn"
    out = tmp_path / f"m.{suffix}"
    done = run("export", files.small, "--to", form, "-o", out, "--json")
    assert told(done)["bytes"] == out.stat().st_size
    X = files.frame.drop(columns="target").astype(np.float32)
    expected = sb.load(files.small).predict_proba(X)
    if form == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"])
        found = session.run(["probabilities"], {"X": X.to_numpy()})[0]
    elif form == "treelite":
        import treelite

        assert treelite.Model.deserialize(out).num_feature == 4
        return
    elif suffix == "skops":
        trusted = skops.io.get_untrusted_types(file=out)
        found = skops.io.load(out, trusted=trusted).predict_proba(X)
    else:
        found = joblib.load(out).predict_proba(X)
    assert np.allclose(found, expected, atol=1e-9)


def test_bench_times_a_model_beside_the_ensemble_and_what_export_writes(files, run, monkeypatch):
    from sparsebag.cli import inspect

    monkeypatch.setattr(inspect, "SAMPLES", 1)
    done = run("bench", files.small, files.test, "--against", files.skops, "--json")
    facts = told(done)
    assert set(facts) == {"small.sbag", "forest.skops"}
    assert all(value > 0 for figures in facts.values() for value in figures.values())
    files.frame.to_csv("semicolons.csv", sep=";")
    assert "1000 rows" in run("bench", files.small, "semicolons.csv", "--sep", ";").out
    done = run("export", files.small, "--to", "sklearn", "-o", "plain.skops")
    assert "skops.io.load('plain.skops', trusted=[" in done.out
    assert run("bench", files.small, files.test, "--against", "plain.skops").code == 0


def test_a_pipeline_is_inspected_timed_and_predicts(run, tmp_path, monkeypatch):
    from sparsebag.cli import inspect

    monkeypatch.setattr(inspect, "SAMPLES", 1)
    table = load_iris(as_frame=True).frame
    X, y = table.drop(columns="target"), table["target"]
    pipe = make_pipeline(StandardScaler(), RandomForestClassifier(30, random_state=0)).fit(X, y)
    small = sb.compress(pipe, X, y, max_estimators=5)
    sb.save(small, tmp_path / "p.sbag")
    joblib.dump(pipe, tmp_path / "p.joblib")
    table.to_csv(tmp_path / "t.csv", index=False)
    facts = told(run("inspect", "p.sbag", "--json"))
    assert facts["around"] == "Pipeline (ensemble 1 of 1)"
    assert facts["around"] in run("inspect", "p.sbag").out
    assert facts["nodes"] == small[-1].n_nodes_
    against = ("--against", "p.joblib", "--trust-pickle", "--json")
    assert set(told(run("bench", "p.sbag", "t.csv", *against))) == {"p.sbag", "p.joblib"}
    done = run("predict", "p.sbag", "t.csv", "-o", "out.csv")
    assert "has columns the model does not use: 'target'" in done.err
    assert np.array_equal(pd.read_csv("out.csv")["prediction"], small.predict(X))
    assert "add --data" in run("export", "p.sbag", "--to", "onnx").err
    assert run("export", "p.sbag", "--to", "onnx", "--data", "t.csv", "-q").code == 0
    assert run("export", "p.sbag", "--to", "sklearn", "-q").code == 0


COMMANDS = ["demo", "fit", "compress", "predict", "inspect", "export", "bench"]


def test_every_command_has_help_with_an_example(run):
    listed = run("--help").out
    for command in COMMANDS:
        assert command in listed
        done = run(command, "--help")
        assert done.code == 0
        assert f"Example: sparsebag {command}" in done.out
        assert max(map(len, done.out.splitlines())) <= 80, command
    assert "Exit codes" in listed
    assert run("--version").out == f"sparsebag {sb.__version__}\n"
