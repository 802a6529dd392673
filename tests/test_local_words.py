"""What is printed of a model with a gate is of the model with the gate."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb


@pytest.fixture(scope="module")
def models():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    how = {"max_estimators": 6, "tolerance": None, "refine": None, "calibration": "temperature"}
    return {local: sb.compress(forest, X, y, local=local, **how) for local in (None, "linear")}


def test_a_temperature_that_the_gate_replaced_is_not_told_as_the_models(models):
    gated = models["linear"]
    assert gated.local_.gate.has_temperature
    assert gated.temperature_ is None
    assert "in place of that of the global vote" in str(gated.selection_)
    assert models[None].temperature_ == models[None].calibrator_.temperature
    assert "in place of" not in str(models[None].selection_)


def test_the_figures_say_that_they_are_without_the_gate(models):
    assert "with global weights; a gate comes on top" in str(models["linear"].selection_)
    assert "gate" not in str(models[None].selection_)


def test_a_word_for_local_that_is_no_word():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    for wrong in (np.array([1, 2]), True, ["auto"]):
        with pytest.raises(ValueError, match="is not known; use 'auto', 'linear', 'regions' or No"):
            sb.compress(forest, X, y, local=wrong)
