"""`--local`: the gate is fitted, told, stored, shown, and predicts."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import sparsebag as sb


@pytest.mark.parametrize("local", ["linear", "regions"])
def test_a_gate_goes_all_the_way(local, files, run):
    done = run(
        "compress", files.skops, files.train, "-t", "target", "--max-estimators", 9,
        "--local", local, "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    told = json.loads(done.out)["local"]
    assert told["gate"] == local
    assert "held-out rows" in told["told"]
    shown = run("inspect", "small.sbag")
    assert f"local weights   {local} (" in shown.out
    assert json.loads(run("inspect", "small.sbag", "--json").out)["gate"].startswith(local)
    assert run("predict", "small.sbag", files.test, "-o", "out.csv").code == 0
    X = files.frame.drop(columns="target")
    gated = sb.load("small.sbag")
    assert gated.gate is not None
    out = pd.read_csv("out.csv")[[f"p_{label}" for label in gated.classes]].to_numpy()
    assert np.allclose(out, gated.predict_proba(X), rtol=1e-14)


def test_a_gate_is_told_once(files, run):
    size = ("-t", "target", "--max-estimators", 9)
    done = run("compress", files.skops, files.train, *size, "--local", "linear")
    assert done.code == 0, done.err
    assert done.out.count("Weights depend on the features, smoothly") == 1


def test_auto_says_why_there_is_no_gate(files, run):
    size = ("--trees", 20, "--max-estimators", 5)
    done = run("fit", files.train, "-t", "target", *size, "--local", "auto")
    assert done.code == 0, done.err
    assert "The weights do not depend on the row, because" in done.out
    assert "local weights" not in run("inspect", "small.sbag").out
    without = run("fit", files.train, "-t", "target", *size, "--json")
    assert "local" not in json.loads(without.out)


def test_another_word_is_refused(files, run):
    done = run("compress", files.skops, files.train, "-t", "target", "--local", "smooth")
    assert done.code == 2
    for word in ("auto", "linear", "regions"):
        assert word in done.err
    assert done.left == []
