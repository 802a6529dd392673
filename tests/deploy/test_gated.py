"""A gated vote is the members' own, weighed row by row: compiled, saved, exported, explained."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from deploy_mutations import parts
from gated_ensembles import CASES, IRIS, TWO, compiled_and_vote
from made_up_gates import linear_gate
from sparsebag.deploy._forest import instruction_sets, use_instructions
from sparsebag.deploy.artifact import dumps
from sparsebag.deploy.calibrators import Temperature
from sparsebag.deploy.export_onnx import export_onnx
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.export_treelite import export_treelite
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.gate import CompiledGate
from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def predictions(model, X, **how):
    is_vote = (model.classes if hasattr(model, "classes") else model.pool.classes) is not None
    return model.predict_proba(X, **how) if is_vote else model.predict(X, **how)


@pytest.mark.parametrize("case", CASES)
def test_the_compiled_gated_vote_is_the_members_own(case):
    model, vote, X = compiled_and_vote(case)
    expected = predictions(vote, X)
    np.testing.assert_allclose(predictions(model, X), expected, rtol=1e-10, atol=1e-12)
    one = model.predict_one if model.classes is None else model.predict_proba_one
    np.testing.assert_allclose(one(X[7]), expected[7], rtol=1e-10, atol=1e-12)
    assert model.n_models == len(vote.pool.members)  # regressors do not collapse under a gate
    assert "gate of rank 2" in repr(model)


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


@pytest.mark.parametrize("spread", [1.0, 400.0])
@pytest.mark.parametrize("rank", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("case", ["forest", "two classes", "regression"])
def test_a_row_gets_the_same_bits_alone_and_among_others(case, rank, spread):
    """At a spread of 400 logits are too far apart for known ends: a row's largest is found."""
    model, vote, X = compiled_and_vote(case, rank=rank, spread=spread)
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


def test_every_machines_instructions_give_the_same_bits():
    model, _, X = compiled_and_vote("forest")
    best, found = instruction_sets()[-1], []
    try:
        for name in instruction_sets():
            use_instructions(name)
            found.append((model.predict_proba(X), model.gate.weights(X)))
    finally:
        use_instructions(best)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("k", "d"), [(1, 1), (3, 2), (40, 9), (150, 30)])
def test_the_kernel_of_a_gate_says_what_the_gate_says(k, d):
    rng = np.random.default_rng(0)
    own = linear_gate(k, d, rank=min(d, 3))
    X = rng.normal(size=(101, d)) * 10.0 ** rng.integers(-3, 4, size=(101, 1))
    for value in (np.nan, np.inf, -1e300):
        X[rng.random(X.shape) < 0.05] = value
    compiled = CompiledGate(own, np.full(k, 1 / k), np.arange(k, dtype=np.int32))
    np.testing.assert_allclose(compiled.weights(X), own.weights(X), rtol=1e-11, atol=1e-15)


@pytest.mark.parametrize("case", ["forest", "logistic", "neighbours", "mixed"])
def test_sparse_rows(case):
    model, vote, X = compiled_and_vote(case)
    X = sp.csr_matrix(np.where(np.abs(X) > 1.0, X, 0.0))
    np.testing.assert_allclose(model.predict_proba(X), vote.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_copies_predict_the_same(copied):
    model, _, X = compiled_and_vote("forest")
    np.testing.assert_array_equal(copied(model).predict_proba(X), model.predict_proba(X))


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


# -- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("case", ["forest", "two classes", "regression", "ridge", "networks"])
def test_a_loaded_model_predicts_the_same_bits(case, mmap, tmp_path):
    model, _, X = compiled_and_vote(case)
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    loaded = sb.load(path, mmap=mmap)
    np.testing.assert_array_equal(predictions(loaded, X), predictions(model, X))
    assert dumps(loaded) == path.read_bytes()
    assert repr(loaded) == repr(model)


def test_a_file_without_a_gate_says_nothing_of_it():
    pool = read_ensemble(RandomForestClassifier(5, random_state=0).fit(*IRIS))
    assert b"gate" not in parts(dumps(compile_members(pool, np.full(5, 0.2))))[0]


def test_a_loaded_model_explains_whose_weights_it_moves(tmp_path):
    pool = read_ensemble(CASES["mixed"][0]())
    gate, weights, at = (
        linear_gate(6, 4),
        np.arange(1.0, 7.0) / 21.0,
        np.array([3, 5, 8, 9, 11, 20]),
    )
    model = compile_members(pool, weights, 1e-3, None, gate, at)
    (tmp_path / "model.sbag").write_bytes(dumps(model, allow_pickle=True))
    loaded = sb.load(tmp_path / "model.sbag", allow_pickle=True)
    found = loaded.explain_weights(IRIS[0])
    np.testing.assert_array_equal(found.members, at)
    np.testing.assert_allclose(found.global_weights, weights)
    np.testing.assert_allclose(found.weights, gate.weights(IRIS[0]), atol=1e-12)
    told = str(found).splitlines()
    assert told[0].startswith("150 rows: ")
    assert told[1].startswith("Features that move it: x")
    assert told[2].startswith("Members trusted most locally: ")
    with pytest.raises(ValueError, match="contains infinity"):
        loaded.explain_weights(np.full((1, 4), np.inf))


# -- exports ---------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [c for c in CASES if "neighbours" not in c and c != "mixed"])
def test_onnx_carries_the_gate(case):
    calibrator = Temperature(0.9, 0.05) if case == "forest" else None
    model, _, X = compiled_and_vote(case, calibrator)
    assert export_onnx(model).verify(X).largest_difference < 1e-11


def test_missing_values_go_through_gate_and_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    forest = RandomForestClassifier(6, random_state=0).fit(X, rng.integers(3, size=200))
    pool, gate = read_ensemble(forest), linear_gate(6, 4)
    model = compile_members(pool, np.ones(6), 1e-3, None, gate)
    vote = WeightedVote(pool, np.ones(6), 1e-3, None, gate)
    np.testing.assert_allclose(model.predict_proba(X), vote.predict_proba(X), atol=1e-12)
    assert export_onnx(model).verify(X).largest_difference < 1e-11


def test_engines_of_fixed_weights_say_so():
    model, vote, _ = compiled_and_vote("forest")
    with pytest.raises(NotExportable, match="depend on the row"):
        export_treelite(model)
    with pytest.raises(NotExportable, match="depend on the row"):
        export_sklearn(model, vote.pool, vote.weights)
