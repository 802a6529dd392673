"""Tables with columns of text: `fit` encodes them, the file carries the codes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import sparsebag as sb
from sparsebag.deploy import artifact

COLOURS = np.array(["blue", "green", "red"])
QUICK = ("--trees", 30, "--max-estimators", 6)


@pytest.fixture
def paints(tmp_path):
    """Whether a paint sells: by its colour, its price, and whether it is new."""
    rng = np.random.default_rng(0)
    n = 300
    colour = rng.choice(COLOURS, n)
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


def test_the_file_carries_the_texts(model, run):
    assert model.categories == {"colour": ("blue", "green", "red")}
    told = json.loads(run("inspect", "m.sbag", "--json").out)
    assert told["categories"] == {"colour": ["blue", "green", "red"]}
    assert "colour (3 texts)" in run("inspect", "m.sbag").out


def test_the_size_that_is_told_is_the_files(paints, run, tmp_path):
    done = run("fit", "paints.csv", "--target", "sold", *QUICK)
    size = (tmp_path / "small.sbag").stat().st_size
    told = f"{size / 1e3:.3g} kB" if size >= 1000 else f"{size} bytes"
    assert next(line for line in done.out.splitlines() if line.startswith("file")).endswith(told)


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
    done = run("predict", "m.sbag", "new.csv", "-o", "out.csv")
    assert (
        "texts the model never saw, such as 'mauve' (5 rows); they are read as missing" in done.err
    )
    done = run("predict", "m.sbag", "new.csv", "-o", "out.csv", "--json")
    assert "'mauve'" in json.loads(done.out)["warnings"][0]
    gaps = X.assign(colour=X["colour"].replace("mauve", ""))
    assert np.array_equal(model.predict_proba(X), model.predict_proba(gaps))


def test_exports_say_how_text_is_passed(model, run):
    done = run("export", "m.sbag", "--to", "onnx")
    assert done.code == 0, done.err
    assert "Columns of text must be passed as numbers" in done.out


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (
            [f"name {i}" for i in range(60)],
            "60 different texts in 60 rows, so it is a key or prose",
        ),
        (pd.date_range("2020", periods=60), "neither a number nor text"),
    ],
)
def test_columns_that_are_no_category(column, words, run):
    table = pd.DataFrame({"a": np.arange(60.0), "b": column, "y": np.arange(60) % 2})
    table.to_parquet("t.parquet")
    done = run("fit", "t.parquet", "--target", "y", *QUICK)
    assert done.code == 3
    assert words in done.err
    assert "--drop 'b'" in done.err
    assert run("fit", "t.parquet", "--target", "y", "--drop", "b", *QUICK).code == 0


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
