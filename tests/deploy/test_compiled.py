"""The compiled vote equals the members' own, by whatever path each of them goes."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import sparsebag as sb
from deploy.ensembles import CASES, TWO, assert_same, fitted, made, one_of, outputs, pool_of
from sparsebag.deploy import compiled as compiled_module
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.export_onnx import export_onnx
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.export_treelite import export_treelite
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.verification import NotExportable
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble
from synthetic_gates import linear_gate
from toy import DIABETES, DIGITS, IRIS

SCIKIT_LEARNS = [case for case in CASES if not isinstance(CASES[case][1], list)]


def digits(n_trees):
    X, y = DIGITS
    pool = read_ensemble(RandomForestClassifier(n_trees, random_state=0).fit(X, y))
    weights = np.random.default_rng(0).dirichlet(np.ones(n_trees))
    return compile_members(pool, weights, 1e-3), WeightedVote(pool, weights, 1e-3), X


@pytest.mark.parametrize("case", CASES)
def test_equals_the_members_own_vote(case):
    compiled, vote, X = made(case)
    paths = CASES[case][0].split()
    assert compiled.paths == (tuple(paths) if len(paths) > 1 else (paths[0],) * len(compiled.paths))
    assert all(path in repr(compiled) for path in paths)
    expected = outputs(vote, X)
    assert_same(outputs(compiled, X), expected)
    assert_same(outputs(compiled, X.copy(order="F")), expected)
    rows = np.resize(X, (9000 if "other" not in paths else 600, X.shape[1]))
    assert np.array_equal(outputs(compiled, rows, n_jobs=3), outputs(compiled, rows))
    assert_same(outputs(pickle.loads(pickle.dumps(compiled)), X), expected)
    if "other" not in paths:
        assert outputs(compiled, X[:0]).shape == expected[:0].shape
    for row in X[:7]:
        assert_same(np.asarray(one_of(compiled)(row)), np.asarray(outputs(compiled, row[None])[0]))
        if compiled.classes is not None:
            assert compiled.predict_one(list(row)) == compiled.predict(row[None])[0]


@pytest.mark.parametrize("case", SCIKIT_LEARNS)
def test_equal_weights_give_scikit_learns_vote(case):
    ensemble, pool, X = fitted(case), pool_of(case), CASES[case][2][0]
    equal = np.full(len(pool.members), 1 / len(pool.members))
    predict = ensemble.predict if pool.classes is None else ensemble.predict_proba
    for model in (compile_members(pool, equal), WeightedVote(pool, equal)):
        assert_same(outputs(model, X), predict(X))


@pytest.mark.parametrize("gate", [None, 2])
@pytest.mark.parametrize("case", ["three classes", "multinomial", "networks", "mixed"])
def test_sparse_rows_equal_dense_ones(case, gate):
    compiled, _, X = made(case, gate=gate)
    X = np.where(X > 1.0, X, 0.0)
    for kind in (sp.csr_matrix, sp.csc_array, sp.coo_matrix):
        assert_same(compiled.predict_proba(kind(X)), compiled.predict_proba(X))


def test_numbers_of_any_type_and_strides():
    compiled, vote, X = digits(5)
    for dtype in (np.int64, np.uint8, np.float16, ">f8", ">f4", object, bool):
        assert_same(compiled.predict_proba(X.astype(dtype)), vote.predict_proba(X.astype(dtype)))
    wide = np.zeros((len(X), 200))
    wide[:, ::3][:, :64] = X
    assert_same(compiled.predict_proba(wide[:, ::3][:, :64]), compiled.predict_proba(X))
    assert_same(compiled.predict_proba(X[::-2]), compiled.predict_proba(X)[::-2])
    assert_same(compiled.predict_proba_one(wide[3, ::3][:64]), compiled.predict_proba_one(X[3]))


def test_a_class_without_votes_gets_exactly_zero():
    X, y = TWO
    forest = RandomForestClassifier(7, random_state=0).fit(X, y)
    weights = np.random.default_rng(0).dirichlet(np.ones(7))
    proba = compile_members(read_ensemble(forest), weights).predict_proba(X)
    sure = forest.predict_proba(X).max(axis=1) == 1.0
    assert sure.any()
    assert np.all(proba[sure].min(axis=1) == 0.0)
    assert np.all(proba >= 0.0)
    model, _, X = made("two classes", gate=2, floor=0.0)
    assert model.predict_proba(X).min() == 0.0


@pytest.mark.parametrize("n_rows", [2, 150])
def test_infinity_beside_nan_is_refused(n_rows):
    """The kernel looks for the largest magnitude, and that of NaN is above infinity's."""
    compiled, _, _ = made("missing values")
    rows = IRIS[0][:n_rows].copy()
    rows[0, 0] = np.nan
    assert compiled.predict_proba(rows).shape == (n_rows, 3)
    for row, value in ((0, np.inf), (1, -np.inf)):
        bad = rows.copy()
        bad[row, 1] = value
        with pytest.raises(ValueError, match="infinity or a value too large"):
            compiled.predict_proba(bad)
    with pytest.raises(ValueError, match="infinity or a value too large"):
        compiled.predict_proba_one(np.array([np.nan, np.inf, 1.0, 1.0]))


def test_members_that_cannot_read_nan_say_so():
    X, y = DIABETES
    forest = RandomForestRegressor(5, monotonic_cst=[1] + [0] * 9, random_state=0).fit(X, y)
    monotone = compile_members(read_ensemble(forest), np.full(5, 0.2))
    for compiled in (monotone, *(made(case)[0] for case in ("multinomial", "networks", "ridge"))):
        width = 10 if compiled.classes is None else 4
        with pytest.raises(ValueError, match="contains NaN"):
            outputs(compiled, np.full((3, width), np.nan))
        with pytest.raises(ValueError, match="contains NaN"):
            compiled.predict_one(np.full(width, np.nan))


@pytest.mark.parametrize("case", ["regression", "three classes"])
def test_a_regressor_has_no_probabilities(case, tmp_path):
    compiled, _, X = made(case)
    sb.save(compiled, tmp_path / "model.sbag")
    for model in (compiled, sb.load(tmp_path / "model.sbag")):
        assert hasattr(model, "predict_proba") is (case != "regression")
        if case == "regression":
            for name in ("predict_proba", "predict_proba_one"):
                with pytest.raises(AttributeError, match="a regression ensemble has no predict_pr"):
                    getattr(model, name)(X)
    assert "Class probabilities" in CompiledEnsemble.predict_proba.__doc__


def test_writing_to_the_arrays_cannot_harm_the_kernel():
    compiled, _, X = made("three classes")
    before = compiled.predict_proba(X)
    (trees,) = compiled.groups
    trees.children[:] = 10**6
    assert np.array_equal(compiled.predict_proba(X), before)


@pytest.mark.parametrize(
    ("name", "at", "value", "message"),
    [
        ("children", (0, 0), 0, "a child does not come after its parent"),
        ("children", (0, 1), 10**6, "a child does not come after its parent"),
        ("children", (0, 1), -(10**6), "a leaf has no row in the table of values"),
        ("children", (1, 1), 2, "a node has two parents"),
        ("roots", (1,), 0, "a node has two parents"),
        ("feature", (0,), 4, "reads a feature that does not exist"),
        ("feature", (0,), -1, "reads a feature that does not exist"),
        ("threshold", (0,), np.nan, "a threshold is not a number"),
        ("values", (0, 0), np.inf, "a leaf value is not finite"),
    ],
)
def test_the_kernel_checks_every_index(name, at, value, message):
    (trees,) = made("three classes")[0].groups
    array = getattr(trees, name).copy()
    array[at] = value
    with pytest.raises(ValueError, match=message):
        replace(trees, **{name: array})


@pytest.mark.parametrize("case", CASES)
def test_the_compiled_gated_vote_is_the_members_own(case, monkeypatch):
    model, vote, X = made(case, gate=2)
    expected = outputs(vote, X)
    np.testing.assert_allclose(outputs(model, X), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(one_of(model)(X[7]), expected[7], rtol=1e-10, atol=1e-12)
    assert model.n_models == len(vote.pool.members)  # regressors do not collapse under a gate
    assert "gate of rank 2" in repr(model)
    monkeypatch.setattr(compiled_module, "BLOCK_ELEMENTS", 100)  # some rows at a time
    np.testing.assert_allclose(outputs(model, X), expected, rtol=1e-10, atol=1e-12)


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


def test_what_does_not_fit_a_gate_is_refused():
    for gate, message in (
        (linear_gate(7, 4), "different number of members"),
        (linear_gate(6, 5), "different number of features"),
    ):
        with pytest.raises(ValueError, match=message):
            compile_members(pool_of("three classes"), np.ones(6), 0.0, None, gate)
    pytest.importorskip("treelite")
    for export in (export_onnx, export_treelite, export_sklearn):
        with pytest.raises(NotExportable, match="depend on the row"):
            export(made("three classes", gate=2)[0])
