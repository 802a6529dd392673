"""`--local`: the option is passed on; what the fit found is told and shown."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import sparsebag as sb
from sparsebag.cli.compressing import library_options
from sparsebag.cli.options import LocalWeights


def test_the_words_are_the_librarys():
    assert library_options(local=LocalWeights.AUTO) == {"local": "auto"}
    assert library_options(local=LocalWeights.ALWAYS) == {"local": True}
    assert library_options(local=None) == {}


@pytest.fixture
def two_regimes(tmp_path):
    """Rows on which other trees are right for x0 above zero than below."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = np.where(X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0)
    table = pd.DataFrame(X, columns=list("abcd")).assign(target=y.astype(int))
    table.to_csv(tmp_path / "two.csv", index=False)
    return table


def test_a_gate_goes_all_the_way(two_regimes, run):
    size = ("--trees", 40, "--max-estimators", 9, "--holdout", 0, "-q")
    done = run("fit", "two.csv", "-t", "target", *size, "--local", "always", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)["local"]
    assert told["gate"]
    assert told["told"].startswith("Weights depend on the row")
    assert "local weights" in run("inspect", "small.sbag").out
    assert run("predict", "small.sbag", "two.csv", "-o", "out.csv", "-q").code == 0
    gated = sb.load("small.sbag")
    assert gated.gate is not None
    out = pd.read_csv("out.csv")[["p_0", "p_1"]].to_numpy()
    assert np.allclose(out, gated.predict_proba(two_regimes.drop(columns="target")), rtol=1e-14)


def test_auto_says_why_there_is_no_gate(files, run):
    size = ("-t", "target", "--max-estimators", 9, "-q")
    done = run("compress", files.skops, files.train, *size, "--local", "auto")
    assert done.code == 0, done.err
    (line,) = [line for line in done.out.splitlines() if line.startswith("local ")]
    assert "Every row has the same weights:" in line
    assert "local weights" not in run("inspect", "small.sbag").out
    refused = run("compress", files.skops, files.train, *size, "--local", "always")
    assert refused.code == 3
    assert "cannot fit a gate" in refused.err


def test_without_the_option_nothing_is_said(files, run):
    size = ("--trees", 20, "--max-estimators", 5)
    without = run("fit", files.train, "-t", "target", *size, "--json")
    assert "local" not in json.loads(without.out)


def test_another_word_is_refused(files, run):
    done = run("compress", files.skops, files.train, "-t", "target", "--local", "smooth")
    assert done.code == 2
    for word in ("auto", "always"):
        assert word in done.err
    assert done.left == []
