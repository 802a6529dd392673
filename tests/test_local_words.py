"""What is printed of a model with a gate is of the model with the gate."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

import sparsebag as sb
from made_up_gates import linear_gate, region_gate
from sparsebag import gate_within_budget
from sparsebag.refine.localisation import LocalGain, Localisation


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
        found = localise(*args)
        by_row = np.zeros(1 + len(found.gate.down))
        return replace(found, gate=replace(found.gate, log_temperature=by_row))

    localise = gate_within_budget.localise
    monkeypatch.setattr(gate_within_budget, "localise", with_temperature)
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


def logistic_models(n_features=2):
    """Logistic models of a logistic problem: as sure as they should be, wherever a row lies."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, n_features))
    y = (rng.random(700) < 1 / (1 + np.exp(-2 * X[:, 0]))).astype(int)
    models = [LogisticRegression().fit(X[j:300:3], y[j:300:3]) for j in range(3)]
    return models, X[300:], y[300:]


def test_one_calibrated_member_is_told_what_was_tried():
    models, X, y = logistic_models()
    how = {"evidence": "holdout", "max_estimators": 1, "tolerance": None}
    how["calibration"] = "temperature"
    said = (
        r"needs two members or more to weigh, and one has all the weight; a temperature that "
        r"depends on the row was tried and is not sure to gain"
    )
    with pytest.raises(ValueError, match=said) as raised:
        sb.compress(models, X, y, local="linear", **how)
    assert "or a calibrated classifier" not in str(raised.value)
    auto = sb.compress(models, X, y, local="auto", **how).local_
    assert auto.reason.startswith("one member has all the weight")
    assert ("was tried and is not sure to gain (" in auto.reason) == bool(auto.considered)


def test_a_gate_by_name_that_only_tempers_says_so():
    rng = np.random.default_rng(900)
    X = rng.normal(size=(1500, 3))
    y = np.where(X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0).astype(int)
    parts = [np.flatnonzero(X[:500, 0] > 0), np.flatnonzero(X[:500, 0] <= 0)]
    models = [LogisticRegression().fit(X[rows], y[rows]) for rows in parts]
    how = {"evidence": "holdout", "max_estimators": 1, "tolerance": None}
    said = (
        r"local='regions' was asked for\. One member has all the weight\. The "
        r"temperature depends on the region of a row"
    )
    with pytest.warns(UserWarning, match=said):
        named = sb.compress(models, X[500:], y[500:], local="regions", **how).local_
    assert named.weights is None
    assert named.gate.has_temperature
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb.compress(models, X[500:], y[500:], local="auto", **how)


def test_row_weights_that_let_few_rows_decide_are_told():
    models, X, y = logistic_models()
    how = {"evidence": "holdout", "max_estimators": 2, "tolerance": None, "calibration": None}
    heavy = np.where(np.arange(len(X)) < 20, 1e6, 1.0)
    with pytest.warns(UserWarning, match="count for no more than 20 of equal weight"):
        said = str(sb.compress(models, X, y, local="auto", sample_weight=heavy, **how).local_)
    assert said == (
        "The weights do not depend on the row, because the row weights let fewer than 100 rows of "
        "equal weight decide."
    )


@pytest.mark.parametrize("gate", [linear_gate(30, 50, 0), region_gate(30, 50, 0)])
def test_its_repr_is_a_line(gate):
    gain = LocalGain(gate.kind, 0.5, 0.4, 0.1, 0.01)
    told = repr(Localisation(gate=gate, weights=gain, score="log-loss"))
    assert told.startswith(f"Localisation({gate.kind} gate of 30 members, ")
    assert told.endswith("bytes; log-loss on held-out rows 0.5 before, 0.4 after)")
    assert repr(Localisation(reason="there are few rows")) == (
        "Localisation(no gate: there are few rows)"
    )


def test_models_fitted_on_frames_are_read_without_a_warning():
    pd = pytest.importorskip("pandas")
    models, X, y = logistic_models(3)
    X = pd.DataFrame(X, columns=list("abc"))
    named = [clone(model).fit(X[j::9], y[j::9]) for j, model in enumerate(models)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = sb.compress(named, X, y, evidence="holdout", max_estimators=2, tolerance=None)
        small.predict_proba(X)
        small.report(X, y)
    assert all(hasattr(model, "feature_names_in_") for model in named)
    assert set(small.compile().paths) == {"linear"}


@pytest.mark.parametrize("local", ["linear", "regions"])
def test_of_held_out_rows_one_gain_is_told(local):
    """No member has seen any of them: there are no others whose gain could be less."""
    rng = np.random.default_rng(900)
    X = rng.normal(size=(1100, 3))
    left = X[:, 0] > 0
    margin = np.where(left, 2 * X[:, 1], -2 * X[:, 2])
    y = (rng.random(1100) < 1 / (1 + np.exp(-margin))).astype(int)
    parts = [np.flatnonzero(left[:500]), np.flatnonzero(~left[:500]), np.arange(0, 500, 3)]
    models = [LogisticRegression().fit(X[rows], y[rows]) for rows in parts]
    how = {"evidence": "holdout", "max_estimators": 3, "tolerance": None}
    told = sb.compress(models, X[500:], y[500:], local=local, **how).local_
    assert told.weights.gain > 0.0
    assert (told.weights.deployed_gain, told.weights.deployed_error) == (
        told.weights.gain,
        told.weights.gain_error,
    )
    assert str(told).endswith("saved).")
    assert "seen" not in str(told)
