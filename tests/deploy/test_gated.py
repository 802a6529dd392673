"""A gated vote is the members' own, weighed row by row: compiled, saved, refused by exports."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from deploy_mutations import parts
from made_up_gates import linear_gate
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy import compiled
from sparsebag.deploy.artifact import dumps
from sparsebag.deploy.export_onnx import export_onnx
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.export_treelite import export_treelite
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.verification import NotExportable
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import FittedMembers

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IRIS = load_iris(return_X_y=True)
TWO = (IRIS[0][:100] + np.random.default_rng(0).normal(size=(100, 4)), IRIS[1][:100])
DIABETES = load_diabetes(return_X_y=True)


def bag(model, data, **how):
    kind = BaggingRegressor if data is DIABETES else BaggingClassifier
    return kind(model, 6, random_state=0, **how).fit(*data)


def mixed(data):
    trees = [DecisionTreeClassifier(random_state=s).fit(*data) for s in range(2)]
    lines = [LogisticRegression(C=c).fit(*data) for c in (0.1, 1.0)]
    neighbours = [KNeighborsClassifier(n, algorithm="brute").fit(*data) for n in (3, 9)]
    ordered = [trees[0], lines[0], neighbours[0], trees[1], neighbours[1], lines[1]]
    return FittedMembers(ordered)


CASES = {
    "forest": (lambda: RandomForestClassifier(6, random_state=0).fit(*IRIS), IRIS),
    "two classes": (lambda: RandomForestClassifier(6, random_state=0).fit(*TWO), TWO),
    "regression": (lambda: RandomForestRegressor(6, random_state=0).fit(*DIABETES), DIABETES),
    "subset trees": (lambda: bag(DecisionTreeClassifier(), IRIS, max_features=2), IRIS),
    "missed class": (lambda: bag(DecisionTreeClassifier(), IRIS, max_samples=4), IRIS),
    "ridge": (lambda: bag(Ridge(), DIABETES), DIABETES),
    "logistic": (lambda: bag(LogisticRegression(), TWO), TWO),
    "multinomial, missed class": (lambda: bag(LogisticRegression(), IRIS, max_samples=5), IRIS),
    "networks": (lambda: bag(MLPClassifier((7, 5), max_iter=10), IRIS), IRIS),
    "networks, regression": (
        lambda: bag(MLPRegressor(hidden_layer_sizes=(7,), max_iter=10), DIABETES),
        DIABETES,
    ),
    "neighbours": (lambda: bag(KNeighborsClassifier(3, algorithm="brute"), IRIS), IRIS),
    "neighbours, regression": (lambda: bag(KNeighborsRegressor(3), DIABETES), DIABETES),
    "mixed": (lambda: mixed(IRIS), IRIS),
}


def compiled_and_vote(case, calibrator=None, **how):
    make, (X, _) = CASES[case]
    pool = read_ensemble(make())
    k = len(pool.members)
    weights = np.full(k, 1 / k)
    own = linear_gate(k, X.shape[1], 3, **how)
    model = compile_members(pool, weights, 1e-3, calibrator, own)
    return model, WeightedVote(pool, weights, 1e-3, calibrator, own), X


def predictions(model, X, **how):
    is_vote = (model.classes if hasattr(model, "classes") else model.pool.classes) is not None
    return model.predict_proba(X, **how) if is_vote else model.predict(X, **how)


@pytest.mark.parametrize("case", CASES)
def test_the_compiled_gated_vote_is_the_members_own(case, monkeypatch):
    model, vote, X = compiled_and_vote(case)
    expected = predictions(vote, X)
    np.testing.assert_allclose(predictions(model, X), expected, rtol=1e-10, atol=1e-12)
    one = model.predict_one if model.classes is None else model.predict_proba_one
    np.testing.assert_allclose(one(X[7]), expected[7], rtol=1e-10, atol=1e-12)
    assert model.n_models == len(vote.pool.members)  # regressors do not collapse under a gate
    assert "gate of rank 2" in repr(model)
    monkeypatch.setattr(compiled, "BLOCK_WEIGHTS", 100)  # some rows at a time
    np.testing.assert_allclose(predictions(model, X), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", ["forest", "logistic", "neighbours", "mixed"])
def test_sparse_rows(case):
    model, vote, X = compiled_and_vote(case)
    X = sp.csr_matrix(np.where(np.abs(X) > 1.0, X, 0.0))
    np.testing.assert_allclose(model.predict_proba(X), vote.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("calibrator", [None, Temperature(0.4), Temperature(0.4, 0.1)])
@pytest.mark.parametrize("case", ["forest", "mixed"])
def test_a_gate_of_one_weight_is_the_global_vote(case, calibrator):
    make, (X, _) = CASES[case]
    pool = read_ensemble(make())
    gate = linear_gate(6, 4, spread=0.0)
    weights = gate.weights(X[:1])[0]
    gated = compile_members(pool, weights, 1e-3, calibrator, gate).predict_proba(X)
    plain = compile_members(pool, weights, 1e-3, calibrator).predict_proba(X)
    np.testing.assert_allclose(gated, plain, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("case", ["forest", "two classes", "regression"])
def test_a_row_gets_the_same_bits_alone_and_among_others(case, rank):
    model, vote, X = compiled_and_vote(case, rank=rank)
    rng = np.random.default_rng(0)
    rows = X[rng.integers(len(X), size=1217)] + 0.1 * rng.normal(size=(1217, X.shape[1]))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    together = predictions(model, rows)
    np.testing.assert_allclose(together, predictions(vote, rows), rtol=1e-9, atol=1e-11)
    one = model.predict_one if model.classes is None else model.predict_proba_one
    np.testing.assert_array_equal([one(row) for row in rows[:150]], together[:150])
    for n in (1, 2, 7, 63, 65, 129):
        np.testing.assert_array_equal(predictions(model, rows[:n]), together[:n])
    np.testing.assert_array_equal(predictions(model, np.asfortranarray(rows)), together)
    np.testing.assert_array_equal(predictions(model, rows, n_jobs=3), together)


def test_copies_and_files_predict_the_same_bits(tmp_path):
    for case in ("forest", "two classes", "regression", "ridge", "networks"):
        model, _, X = compiled_and_vote(case)
        path = tmp_path / "model.sbag"
        path.write_bytes(dumps(model))
        loaded = sb.load(path)
        for again in (loaded, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
            np.testing.assert_array_equal(predictions(again, X), predictions(model, X))
        assert dumps(loaded) == path.read_bytes()
        assert repr(loaded) == repr(model)


def test_a_gate_of_other_members_or_features_is_refused():
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(*IRIS))
    for gate, message in (
        (linear_gate(7, 4), "weighs other members"),
        (linear_gate(6, 5), "another number of features"),
    ):
        with pytest.raises(ValueError, match=message):
            compile_members(pool, np.ones(6), 0.0, None, gate)


def test_a_class_without_votes_gets_exactly_none():
    X, y = TWO
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(X, y))
    proba = compile_members(pool, np.ones(6), 0.0, None, linear_gate(6, 4)).predict_proba(X)
    assert np.all(proba >= 0.0)
    assert np.any(proba == 0.0)


def test_a_file_without_a_gate_says_nothing_of_it():
    pool = read_ensemble(RandomForestClassifier(5, random_state=0).fit(*IRIS))
    assert b"gate" not in parts(dumps(compile_members(pool, np.full(5, 0.2))))[0]


def test_engines_of_fixed_weights_say_so():
    model, _, _ = compiled_and_vote("forest")
    for export in (export_onnx, export_treelite, export_sklearn):
        with pytest.raises(NotExportable, match="depend on the row"):
            export(model)
