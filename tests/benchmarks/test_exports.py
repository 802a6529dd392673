"""The export benchmark fails on a mismatch, and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.datasets import Dataset
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from benchmarks import exports
from sparsebag.deploy.verification import NotExportable

X, Y = load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def small():
    return sb.compress(RandomForestClassifier(30, random_state=0).fit(X, Y), X, Y)


def test_a_right_export_is_counted(small):
    line = exports.Line()
    line.add(lambda model, folder: model.predict_proba, small, X, {})
    assert (line.equal, line.failures) == (1, [])
    assert "1 of 1" in str(line)


def test_a_wrong_export_is_a_failure_and_names_its_setting(small):
    line = exports.Line()
    wrong = lambda model, folder: lambda rows: np.roll(model.predict_proba(rows), 1, axis=1)  # noqa: E731
    line.add(wrong, small, X, {"calibration": "isotonic"})
    assert line.equal == 0
    assert "isotonic" in line.failures[0]


def test_only_a_refusal_counts_as_one(small):
    def refuses(model, folder):
        raise NotExportable("it cannot be")

    def breaks(model, folder):
        raise ValueError("a fault of ours")

    line = exports.Line()
    line.add(refuses, small, X, {})
    assert line.reasons == {"it cannot be": 1}
    with pytest.raises(ValueError, match="a fault of ours"):
        line.add(breaks, small, X, {})


def test_data_that_cannot_be_had_is_no_success(monkeypatch, capsys, tmp_path):
    def absent():
        raise OSError("no network")

    data = {"absent": Dataset("absent", "classification", absent)}
    monkeypatch.setattr(exports, "PAPER", data)
    assert exports.run(str(tmp_path), None) == 1
    assert "1 data sets were left out" in capsys.readouterr().out
