"""What is printed of a model with a gate is of the model with the gate."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from sparsebag import refining


@pytest.fixture(scope="module")
def models():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    how = {"max_estimators": 6, "tolerance": None, "refine": None, "calibration": "temperature"}
    return {local: sb.compress(forest, X, y, local=local, **how) for local in (None, "linear")}


def test_the_calibrators_temperature_is_told_where_the_gate_has_none(models):
    for model in models.values():
        assert model.local_.gate is None or not model.local_.gate.has_temperature
        assert model.temperature_ == model.calibrator_.temperature
        assert "in place of" not in str(model.selection_)


def test_a_temperature_that_the_gate_replaced_is_not_told_as_the_models(models, monkeypatch):
    def with_temperature(*args):
        found = refining_localise(*args)
        by_row = np.zeros(1 + len(found.gate.down))
        return replace(found, gate=replace(found.gate, log_temperature=by_row))

    refining_localise = refining.localise
    monkeypatch.setattr(refining, "localise", with_temperature)
    X, y = load_breast_cancer(return_X_y=True)
    gated = clone(models["linear"]).fit(X, y)
    assert gated.local_.gate.has_temperature
    assert gated.temperature_ is None
    assert "in place of that of the global vote" in str(gated.selection_)


def test_the_figures_say_that_they_are_without_the_gate(models):
    assert "with global weights; a gate comes on top" in str(models["linear"].selection_)
    assert "gate" not in str(models[None].selection_)


def test_a_word_for_local_that_is_no_word():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    for wrong in (np.array([1, 2]), True, ["auto"]):
        with pytest.raises(ValueError, match="is not known; use 'auto', 'linear', 'regions' or No"):
            sb.compress(forest, X, y, local=wrong)
