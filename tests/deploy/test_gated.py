"""A gated vote is the members' own, weighed row by row: compiled, saved, refused by exports."""

import copy
import pickle

import numpy as np
import pytest

import sparsebag as sb
from deploy.ensembles import CASES, made, one_of, outputs, pool_of
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


@pytest.mark.parametrize("case", CASES)
def test_the_compiled_gated_vote_is_the_members_own(case, monkeypatch):
    model, vote, X = made(case, gate=2)
    expected = outputs(vote, X)
    np.testing.assert_allclose(outputs(model, X), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(one_of(model)(X[7]), expected[7], rtol=1e-10, atol=1e-12)
    assert model.n_models == len(vote.pool.members)  # regressors do not collapse under a gate
    assert "gate of rank 2" in repr(model)
    monkeypatch.setattr(compiled, "BLOCK_WEIGHTS", 100)  # some rows at a time
    np.testing.assert_allclose(outputs(model, X), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("calibrator", [None, Temperature(0.4), Temperature(0.4, 0.1)])
@pytest.mark.parametrize("case", ["three classes", "mixed"])
def test_a_gate_of_one_weight_is_the_global_vote(case, calibrator):
    pool, X = pool_of(case), CASES[case][2][0]
    gate = linear_gate(6, 4, spread=0.0)
    weights = gate.weights(X[:1])[0]
    gated = compile_members(pool, weights, 1e-3, calibrator, gate).predict_proba(X)
    plain = compile_members(pool, weights, 1e-3, calibrator).predict_proba(X)
    np.testing.assert_allclose(gated, plain, atol=1e-12)


@pytest.mark.parametrize("rank", [1, 3])
@pytest.mark.parametrize("case", ["three classes", "two classes", "regression"])
def test_a_row_gets_the_same_bits_alone_and_among_others(case, rank):
    model, vote, X = made(case, gate=rank)
    rng = np.random.default_rng(0)
    rows = X[rng.integers(len(X), size=1217)] + 0.1 * rng.normal(size=(1217, X.shape[1]))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    together = outputs(model, rows)
    np.testing.assert_allclose(together, outputs(vote, rows), rtol=1e-9, atol=1e-11)
    np.testing.assert_array_equal([one_of(model)(row) for row in rows[:150]], together[:150])
    for n in (1, 2, 7, 63, 65, 129):
        np.testing.assert_array_equal(outputs(model, rows[:n]), together[:n])
    np.testing.assert_array_equal(outputs(model, np.asfortranarray(rows)), together)
    np.testing.assert_array_equal(outputs(model, rows, n_jobs=3), together)


@pytest.mark.parametrize(
    "case", ["three classes", "two classes", "regression", "ridge", "networks"]
)
def test_copies_and_files_predict_the_same_bits(case, tmp_path):
    model, _, X = made(case, gate=2)
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    loaded = sb.load(path)
    for again in (loaded, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(outputs(again, X), outputs(model, X))
    assert dumps(loaded) == path.read_bytes()
    assert repr(loaded) == repr(model)
    assert b"gate" not in parts(dumps(made(case)[0]))[0]


def test_what_does_not_fit_a_gate_is_refused():
    for gate, message in (
        (linear_gate(7, 4), "weighs other members"),
        (linear_gate(6, 5), "another number of features"),
    ):
        with pytest.raises(ValueError, match=message):
            compile_members(pool_of("three classes"), np.ones(6), 0.0, None, gate)
    for export in (export_onnx, export_treelite, export_sklearn):
        with pytest.raises(NotExportable, match="depend on the row"):
            export(made("three classes", gate=2)[0])
