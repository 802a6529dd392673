"""A gated vote is the members' own, weighed row by row, by whatever path each of them goes."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from gated_ensembles import CASES, DIABETES, GATES, IRIS, TWO, compiled_and_vote
from made_up_gates import linear_gate, region_gate
from sparsebag.deploy._forest import instruction_sets, use_instructions
from sparsebag.deploy.calibrators import Isotonic, Temperature, TemperedFloor
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.gate import CompiledGate
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def predictions(model, X):
    is_vote = (model.classes if hasattr(model, "classes") else model.pool.classes) is not None
    return model.predict_proba(X) if is_vote else model.predict(X)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("case", CASES)
def test_the_compiled_gated_vote_is_the_members_own(case, gate):
    model, vote, X = compiled_and_vote(case, gate)
    expected = predictions(vote, X)
    np.testing.assert_allclose(predictions(model, X), expected, rtol=1e-10, atol=1e-12)
    one = model.predict_one if model.classes is None else model.predict_proba_one
    np.testing.assert_allclose(one(X[7]), expected[7], rtol=1e-10, atol=1e-12)
    assert model.n_models == len(vote.pool.members)  # regressors do not collapse under a gate
    assert "gate " in repr(model)


@pytest.mark.parametrize("gate", GATES)
def test_a_uniform_gate_is_the_global_vote(gate):
    """Whose weights are the same everywhere: the check that gated and global votes are one."""
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(*IRIS))
    own = GATES[gate](6, 4, temperature=False)
    weights = own.weights(IRIS[0][:1])[0]
    if hasattr(own, "region_weights"):
        own = own.take(np.arange(6))
        own.region_weights[:] = weights
    else:
        own.up[:] = 0.0
        weights = own.weights(IRIS[0][:1])[0]
    gated = compile_members(pool, weights, 1e-3, Temperature(0.7), own)
    plain = compile_members(pool, weights, 1e-3, Temperature(0.7))
    np.testing.assert_allclose(
        gated.predict_proba(IRIS[0]), plain.predict_proba(IRIS[0]), atol=1e-13
    )


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("case", ["forest", "two classes", "regression"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_gets_the_same_bits_alone_and_among_others(case, gate, dtype):
    model, _, X = compiled_and_vote(case, gate)
    rng = np.random.default_rng(0)
    rows = X[rng.integers(len(X), size=1217)] + 0.1 * rng.normal(size=(1217, X.shape[1]))
    rows = rows.astype(dtype)
    rows[rng.random(rows.shape) < 0.05] = np.nan
    together = predictions(model, rows)
    one = model.predict_one if model.classes is None else model.predict_proba_one
    np.testing.assert_array_equal(np.array([one(row) for row in rows]), together)
    for n in (1, 2, 7, 63, 65, 129):
        np.testing.assert_array_equal(predictions(model, rows[:n]), together[:n])
    np.testing.assert_array_equal(predictions(model, np.asfortranarray(rows)), together)
    np.testing.assert_array_equal(predictions(model, np.repeat(rows, 2, 1)[:, ::2]), together)
    threaded = (model.predict if model.classes is None else model.predict_proba)(rows, n_jobs=3)
    np.testing.assert_array_equal(threaded, together)


@pytest.mark.parametrize("gate", GATES)
def test_every_machines_instructions_give_the_same_bits(gate):
    model, _, X = compiled_and_vote("forest", gate)
    rows = np.tile(X, (4, 1))
    best, found = instruction_sets()[-1], []
    try:
        for name in instruction_sets():
            use_instructions(name)
            found.append((model.predict_proba(rows), *model.gate.weigh(rows)))
    finally:
        use_instructions(best)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("gate", GATES)
def test_the_kernel_of_a_gate_says_what_the_gate_says(gate):
    rng = np.random.default_rng(0)
    for k, d in ((1, 1), (3, 2), (40, 9), (150, 30)):
        own = GATES[gate](k, d)
        X = rng.normal(size=(101, d)) * 10.0 ** rng.integers(-3, 4, size=(101, 1))
        X[rng.random(X.shape) < 0.1] = np.nan
        X[rng.random(X.shape) < 0.05] = np.inf
        X[rng.random(X.shape) < 0.05] = -1e300
        weights, inverse = CompiledGate(own).weigh(X)
        np.testing.assert_allclose(weights, own.weights(X), rtol=1e-11, atol=1e-15)
        np.testing.assert_allclose(inverse, 1.0 / own.temperatures(X), rtol=1e-11)
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)


def test_rows_at_a_gates_thresholds_take_the_same_side():
    own = region_gate(6, 4, 1)
    inner = np.flatnonzero((own.left >= 0) & np.isfinite(own.threshold))
    at = own.threshold[inner].astype(np.float32)
    X = np.concatenate(
        [np.repeat(np.nextafter(at, np.float32(s))[:, None], 4, 1) for s in (-np.inf, np.inf)]
        + [np.repeat(at[:, None], 4, 1)]
    )
    np.testing.assert_array_equal(CompiledGate(own).weigh(X)[0], own.weights(X))
    wide = X.astype(np.float64) * (1 + 1e-9)  # rounds to the threshold, as trees read it
    np.testing.assert_array_equal(CompiledGate(own).weigh(wide)[0], own.weights(wide))


@pytest.mark.parametrize("case", ["forest", "logistic", "neighbours", "mixed"])
def test_sparse_rows(case):
    model, vote, X = compiled_and_vote(case, "softmax")
    X = sp.csr_matrix(np.where(np.abs(X) > 1.0, X, 0.0))
    np.testing.assert_allclose(model.predict_proba(X), vote.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize("case", ["forest", "mixed"])
@pytest.mark.parametrize("calibrator", [Temperature(0.4), TemperedFloor(0.4, 0.1)])
def test_a_local_temperature_takes_the_place_of_the_calibrators(case, calibrator):
    model, vote, X = compiled_and_vote(case, "softmax", calibrator)
    plain, _, _ = compiled_and_vote(case, "softmax")
    share = getattr(calibrator, "share", 0.0)
    expected = (1 - share) * plain.predict_proba(X) + share / 3
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-12)
    np.testing.assert_allclose(vote.predict_proba(X), expected, atol=1e-12)


@pytest.mark.parametrize("case", ["forest", "mixed"])
@pytest.mark.parametrize("calibrator", [Temperature(0.4), TemperedFloor(0.4, 0.1)])
def test_without_one_the_calibrator_acts(case, calibrator):
    make, (X, _) = CASES[case]
    pool = read_ensemble(make())
    gate = linear_gate(6, 4, temperature=False)
    raw = compile_members(pool, np.ones(6), 1e-3, None, gate).predict_proba(X)
    model = compile_members(pool, np.ones(6), 1e-3, calibrator, gate)
    np.testing.assert_allclose(model.predict_proba(X), calibrator.transform(raw), atol=1e-12)


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_copies_predict_the_same(copied):
    model, _, X = compiled_and_vote("forest", "softmax")
    np.testing.assert_array_equal(copied(model).predict_proba(X), model.predict_proba(X))


def test_the_kernel_keeps_its_own_copy():
    model, _, X = compiled_and_vote("forest", "regions")
    before = model.predict_proba(X)
    model.gate.source.left[0] = 10**6  # a later write cannot send a walk out of bounds
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_gate_of_other_members_or_features_is_refused():
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(*IRIS))
    for gate, message in (
        (linear_gate(7, 4), "weighs other members"),
        (linear_gate(6, 5), "another number of features"),
    ):
        with pytest.raises(ValueError, match=message):
            compile_members(pool, np.ones(6), 0.0, None, gate)
    maps = Isotonic(np.tile([0.0, 1.0], 3), np.tile([0.0, 1.0], 3), np.full(3, 2.0))
    with pytest.raises(ValueError, match="goes with no other calibrator"):
        compile_members(pool, np.ones(6), 0.0, maps, linear_gate(6, 4))
    numbers = read_ensemble(RandomForestRegressor(6, random_state=0).fit(*DIABETES))
    with pytest.raises(ValueError, match="not with regression"):
        compile_members(numbers, np.ones(6), 0.0, None, linear_gate(6, 10))


def test_missing_values_go_through_gate_and_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    forest = RandomForestClassifier(6, random_state=0).fit(X, rng.integers(3, size=200))
    pool = read_ensemble(forest)
    for gate in (linear_gate(6, 4), region_gate(6, 4)):
        model = compile_members(pool, np.ones(6), 1e-3, None, gate)
        vote = WeightedVote(pool, np.ones(6), 1e-3, None, gate)
        np.testing.assert_allclose(model.predict_proba(X), vote.predict_proba(X), atol=1e-12)


def test_a_class_without_votes_gets_exactly_none():
    X, y = TWO
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(X, y))
    model = compile_members(pool, np.ones(6), 0.0, None, linear_gate(6, 4, temperature=False))
    proba = model.predict_proba(X)
    assert np.all(proba >= 0.0)
    assert np.any(proba == 0.0)
