"""`compress(local=...)`: gates where members differ by place, global weights where they do not."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from expert_bags import expert_models
from made_up_gates import linear_gate
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.refine.localisation import LocalGain, Localisation
from sparsebag.refine.vector_scaling import VectorScaling

GATES = ["linear", "regions", "auto"]
BY_LOSS = {"lam": 0.0, "max_estimators": None, "tolerance": 0.01}
"""Weights from the rows' losses alone: nothing looks at rows that have no weight."""


def experts(n_classes=None, n_rows=500, seed=0, missing=False):
    """Models each right on one side, and rows none of them has seen."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4))
    models, truth = expert_models(8, n_classes)
    if n_classes is None:
        y = truth(X) + 0.1 * rng.normal(size=n_rows)
    else:
        wrong = rng.random(n_rows) < 0.15
        y = np.where(wrong, rng.integers(n_classes, size=n_rows), truth(X))
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return models, X, y


def compressed(models, X, y, local, **options):
    options = {"max_estimators": 8, "tolerance": None, **options}
    return sb.compress(models, X, y, evidence="holdout", local=local, **options)


def loss(model, X, y):
    if hasattr(model, "predict_proba"):
        return float(-np.log(model.predict_proba(X)[np.arange(len(y)), y]).mean())
    return float(np.mean((model.predict(X) - y) ** 2))


@pytest.mark.parametrize("local", GATES)
@pytest.mark.parametrize("n_classes", [None, 3])
def test_experts_are_trusted_where_they_know(local, n_classes):
    models, X, y = experts(n_classes)
    # The vote alone: a temperature makes up for some of what weights could do.
    options = {} if n_classes is None else {"calibration": None}
    small = compressed(models, X, y, local, **options)
    flat = compressed(models, X, y, None, **options)
    assert small.local_.used
    assert small.local_.weights.gain > 0
    assert "on held-out rows" in str(small.local_)
    assert str(small.local_) in str(small.selection_)
    _, X_test, y_test = experts(n_classes, seed=1)
    assert loss(small, X_test, y_test) < (0.6 if n_classes is None else 0.8) * loss(
        flat, X_test, y_test
    )
    np.testing.assert_array_equal(small.weights_, flat.weights_)


@pytest.mark.parametrize("load", [load_breast_cancer, load_diabetes])
def test_auto_is_the_global_model_where_nothing_is_gained(load):
    X, y = load(return_X_y=True)
    kind = RandomForestClassifier if load is load_breast_cancer else RandomForestRegressor
    forest = kind(40, min_samples_leaf=3, random_state=0).fit(X, y)
    flat = sb.compress(forest, X, y, max_estimators=10, tolerance=None)
    small = sb.compress(forest, X, y, max_estimators=10, tolerance=None, local="auto")
    assert not small.local_.used
    assert "because" in str(small.local_)
    np.testing.assert_array_equal(small.predict(X), flat.predict(X))
    assert not flat.local_.used
    assert flat.local_.reason == "local is None"


@pytest.mark.parametrize(
    ("local", "refine"),
    [
        ("linear", "leaves"),
        ("regions", None),
        pytest.param("linear", None, marks=pytest.mark.slow),
        pytest.param("regions", "leaves", marks=pytest.mark.slow),
    ],
)
def test_a_named_gate_is_used(local, refine):
    """On trees, refitted or not: whatever it gains, and in the compiled model as in the vote."""
    X, y = load_breast_cancer(return_X_y=True)
    X = X.astype(np.float32)
    forest = RandomForestClassifier(40, random_state=0).fit(X, y)
    options = {"max_estimators": 10, "tolerance": None, "refine": refine}
    small = sb.compress(forest, X, y, local=local, **options)
    assert small.local_.gate.kind == local
    assert small.local_.gate.n_members == small.n_active_
    np.testing.assert_allclose(small.predict_proba(X), small._vote.predict_proba(X), atol=1e-9)
    flat = sb.compress(forest, X, y, **options)
    assert np.abs(small.predict_proba(X) - flat.predict_proba(X)).max() > 1e-6


def test_rows_without_weight_have_no_say():
    models, X, y = experts()
    both, n = np.vstack([X, X]), len(y)
    swapped = np.where(X[:, 0] > 0, 3.0, -3.0)  # no expert says so: those who are least wrong win
    targets = np.concatenate([y, swapped])
    found = {}
    for name, of_liars in (("unheard", 0.0), ("heard", 1.0)):
        weight = np.concatenate([np.ones(n), np.full(n, of_liars)])
        small = compressed(models, both, targets, "linear", sample_weight=weight, **BY_LOSS)
        found[name] = small.predict(X)
    alone = compressed(models, X, y, "linear", **BY_LOSS).predict(X)
    spread = np.abs(found["heard"] - alone).mean()
    assert np.abs(found["unheard"] - alone).mean() < 0.05 * spread


@pytest.mark.parametrize("local", ["linear", "regions"])
def test_unknown_values_are_taken_where_trees_take_them(local):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = (X[:, 1] > 0).astype(int)
    X[rng.random(X.shape) < 0.2] = np.nan
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=8, tolerance=None, local=local)
    assert np.isfinite(small.predict_proba(X)).all()
    sums = small.local_.gate.weights(X).sum(axis=1)
    np.testing.assert_allclose(sums, 1.0)


def test_a_gate_survives_the_file_and_a_copy(tmp_path):
    X, y = load_diabetes(return_X_y=True)
    forest = RandomForestRegressor(30, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=8, tolerance=None, local="linear")
    small.save(tmp_path / "m.sbag")
    again = sb.load(tmp_path / "m.sbag")
    np.testing.assert_allclose(again.predict(X.astype(np.float32)), small.predict(X), rtol=1e-6)
    assert clone(small).local == "linear"


def test_sparse_rows_can_be_gated():
    rng = np.random.default_rng(0)
    X = sp.random(400, 30, 0.2, format="csr", random_state=0)
    y = (X[:, 0].toarray().ravel() + 0.2 * rng.normal(size=400) > 0.1).astype(int)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=8, tolerance=None, local="linear")
    np.testing.assert_allclose(
        small.predict_proba(X), small.predict_proba(X.toarray()), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize(
    "local", [pytest.param("linear", marks=pytest.mark.slow), "regions", "auto"]
)
def test_a_richer_calibrator_of_another_vote_is_not_kept(local, monkeypatch):
    """A scale and a shift a class were fitted to the global vote; the gated one is another."""
    monkeypatch.setattr("sparsebag.refine.calibrate.ROWS_FOR_RICHER", 1)
    monkeypatch.setattr("sparsebag.refine.calibrate.ERRORS_FOR_RICHER", -1e9)
    models, X, y = experts(3, n_rows=800)
    flat = compressed(models, X, y, None)
    assert isinstance(flat.calibrator_, VectorScaling)
    small = compressed(models, X, y, local)
    _, X_test, y_test = experts(3, n_rows=800, seed=1)
    # The gated vote has one of its own, fitted to it.
    assert loss(small, X_test, y_test) < 1.005 * loss(flat, X_test, y_test)
    assert isinstance(small.calibrator_, VectorScaling)
    if small.local_.used:
        assert not np.allclose(small.calibrator_.scale, flat.calibrator_.scale)
        assert "with the weights of each row" in str(small.calibration_)
    else:
        assert local == "auto"
    np.testing.assert_allclose(
        small.predict_proba(X_test), small._vote.predict_proba(X_test), atol=1e-9
    )


def test_a_named_calibrator_is_kept_and_judged():
    models, X, y = experts(2, n_rows=800)
    small = compressed(models, X, y, "auto", calibration="isotonic")
    assert small.calibrator_.kind == "isotonic"
    flat = compressed(models, X, y, None, calibration="isotonic")
    told = next(iter(small.local_.considered.values())).loss_before
    assert told == pytest.approx(loss(flat, X, y), rel=0.1)


@pytest.mark.parametrize(
    ("local", "calibration"), [("linear", "isotonic"), ("regions", "beta"), ("auto", "own")]
)
def test_a_gated_vote_gets_a_named_calibrator_of_its_own(local, calibration):
    models, X, y = experts(2, n_rows=800)
    for model in models:  # loud and unanimous where they know nothing: no calibrator mends that
        model.loudness, model.seed = 6.0, int(model.sign > 0)
    asked = LogisticRegression() if calibration == "own" else calibration
    flat, small = (compressed(models, X, y, gate, calibration=asked) for gate in (None, local))
    assert small.local_.used
    assert small.local_.weights.gain > 3.0 * small.local_.weights.gain_error
    assert small.calibrator_.kind == flat.calibrator_.kind
    _, X_test, y_test = experts(2, n_rows=2000, seed=1)
    gated, plain = loss(small, X_test, y_test), loss(flat, X_test, y_test)
    assert gated < 0.95 * plain
    # The gated vote, corrected by what was fitted to the global one.
    bare = WeightedVote(
        small._vote.pool, small._vote.weights, small._vote.floor, None, small.local_.gate
    )
    votes = bare.predict_proba(X_test)
    borrowed = flat.calibrator_.transform(votes)[np.arange(len(y_test)), y_test]
    assert gated < float(-np.log(np.maximum(borrowed, 1e-6)).mean())
    assert small.local_.weights.loss_after == pytest.approx(gated, rel=0.15)
    compiled = small.compile()
    np.testing.assert_allclose(compiled.predict_proba(X), small.predict_proba(X), atol=1e-12)


def test_a_gate_that_moves_nothing_keeps_the_calibrator(monkeypatch):
    monkeypatch.setattr("sparsebag.localising.UNMOVED", 2.0)
    models, X, y = experts(2, n_rows=400)
    flat, small = (
        compressed(models, X, y, gate, calibration="isotonic") for gate in (None, "linear")
    )
    votes = np.array([[0.3, 0.7], [0.9, 0.1]])
    np.testing.assert_array_equal(
        small.calibrator_.transform(votes), flat.calibrator_.transform(votes)
    )


def test_the_temperature_that_is_told_is_the_one_that_is_used():
    models, X, y = experts(3)
    small = compressed(models, X, y, "regions")
    local = small._vote.gate.temperatures(X)
    if local is None:  # this gate's votes need none
        assert small._vote.calibrator is None
        assert small.temperature_ is None
        assert "not calibrated" in str(small.calibration_)
    else:
        assert small.temperature_ is None or local.min() <= small.temperature_ <= local.max()


def test_a_named_gate_that_loses_says_so():
    gain = LocalGain("linear", 0.3062, 0.3162, -0.01, 0.003)
    told = str(Localisation(gate=linear_gate(3, 2), weights=gain, score="log-loss"))
    assert "0.01 ± 0.003 lost; local='auto' would not use it" in told
    none = LocalGain("linear", 0.3, 0.3, -4e-11, 2e-11)
    assert "nothing saved" in str(Localisation(gate=linear_gate(3, 2), weights=none))


def test_one_row_of_great_weight_opens_no_gate():
    models, X, y = experts()
    weight = np.ones(len(y))
    weight[0] = 1e12
    with pytest.warns(UserWarning, match="count for no more than 1"):
        small = compressed(models, X, y, "auto", sample_weight=weight, **BY_LOSS)
    assert not small.local_.used


# -- refusals --------------------------------------------------------------------------------------


def test_unknown_gates_are_refused():
    X, y = load_diabetes(return_X_y=True)
    forest = RandomForestRegressor(5, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="local='trees' is not known; use 'auto', 'linear'"):
        sb.compress(forest, X, y, local="trees")


def test_too_few_rows_are_told():
    models, X, y = experts(n_rows=60)
    with pytest.raises(ValueError, match=r"local='linear' cannot fit .* fewer than 100 rows"):
        compressed(models, X, y, "linear")
    assert "fewer than 100 rows" in str(compressed(models, X, y, "auto").local_)


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_members_of_folds_are_never_heard_together(task):
    """Cross-validation's models: every row has one judge, so no two can be weighed by it."""
    X, y = load_diabetes(return_X_y=True)
    y = y if task == "regression" else (y > 150).astype(int)
    model = DecisionTreeRegressor if task == "regression" else DecisionTreeClassifier
    samples = [rows for rows, _ in KFold(5, shuffle=True, random_state=0).split(X)]
    models = [model(max_depth=3, random_state=0).fit(X[rows], y[rows]) for rows in samples]
    how = {"estimators_samples": samples, "refine": None, "max_estimators": 5, "tolerance": None}
    small = sb.compress(models, X, y, local="auto", **how)
    assert not small.local_.used
    assert "rows have out-of-bag votes of two survivors" in small.local_.reason
    with pytest.raises(ValueError, match="rows that two of the survivors have not seen"):
        sb.compress(models, X, y, local="linear", **how)


def test_a_regression_forest_is_not_told_of_temperatures():
    X, y = load_diabetes(return_X_y=True)
    forest = RandomForestRegressor(40, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, max_estimators=10, tolerance=None, local="auto")
    assert "temperature" not in str(small.local_)


def test_one_member_cannot_be_weighed():
    models, X, y = experts()
    with pytest.raises(ValueError, match="needs two members or more"):
        compressed(models, X, y, "regions", max_estimators=1)
    small = compressed(models, X, y, "auto", max_estimators=1)
    assert "one member has all the weight" in str(small.local_)


class ReadsWords:
    """A model of a column of words."""

    classes_ = np.array([0, 1])

    def __init__(self, sure):
        self.sure = sure

    def predict(self, X):
        return self.predict_proba(X).argmax(axis=1)

    def predict_proba(self, X):
        p = np.where(X["word"] == "yes", self.sure, 1.0 - self.sure)
        return np.stack([1.0 - p, p], axis=1)


def test_columns_that_are_no_numbers_are_told():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"word": ["yes", "no"] * 150, "number": np.arange(300.0)})
    y = (frame["word"] == "yes").to_numpy().astype(int)
    models = [ReadsWords(0.9), ReadsWords(0.7)]
    small = compressed(models, frame, y, "auto")
    said = (
        "X has columns that are no numbers ('word'), which are to be encoded before the ensemble "
        "(one-hot, for example)"
    )
    assert str(small.local_) == f"The weights do not depend on the row, because {said}."
    with pytest.raises(ValueError, match=re.escape(f"{said}; use local='auto' or None")):
        compressed(models, frame, y, "linear")


def test_a_gate_finds_a_site_that_was_encoded_before_the_ensemble():
    rng = np.random.default_rng(0)
    site = np.array(["p", "q"])[rng.integers(2, size=1200)]
    numbers = rng.normal(size=(1200, 2))
    X = np.column_stack([OneHotEncoder().fit_transform(site[:, None]).toarray(), numbers])
    y = (np.where(site == "p", *numbers.T) > 0.0).astype(int)
    rows = [np.flatnonzero(site[:600] == "pq"[j % 2]) for j in range(4)]
    models = [
        DecisionTreeClassifier(max_depth=2, random_state=j).fit(X[r], y[r])
        for j, r in enumerate(rows)
    ]
    small = compressed(models, X[600:], y[600:], "auto")
    assert small.local_.used, small.local_


def test_progress_is_told(capfd):
    models, X, y = experts(n_rows=200)
    compressed(models, X, y, "auto", verbose=1)
    assert "judging a gate: linear weights" in capfd.readouterr().err


def test_linear_and_tree_members_together():
    """A list of unlike models of unlike features: the gate is over all of them."""
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    fit, rest = slice(0, 250), slice(250, None)
    features = [np.arange(4), np.arange(8, 12), np.arange(30), np.arange(30)]
    kinds = [
        LogisticRegression(),
        LogisticRegression(),
        DecisionTreeClassifier(max_depth=2),
        DecisionTreeClassifier(max_depth=4, splitter="random", random_state=1),
    ]
    models = [kind.fit(X[fit][:, of], y[fit]) for kind, of in zip(kinds, features, strict=True)]
    small = sb.compress(
        models,
        X[rest],
        y[rest],
        estimators_features=features,
        evidence="holdout",
        lam=0.0,
        local="regions",
    )
    assert small.n_active_ >= 2
    np.testing.assert_allclose(
        small.predict_proba(X[fit]), small._vote.predict_proba(X[fit]), atol=1e-9
    )


# -- held-out rows: every survivor votes on every one ----------------------------------------------


def test_survivors_unlike_the_others_are_calibrated_on_their_own_votes():
    models, X, y = experts(2, n_rows=1500)
    plain, default = (
        compressed(models, X, y, "auto", calibration=c, max_estimators=2) for c in (None, "auto")
    )
    _, X_test, y_test = experts(2, n_rows=3000, seed=1)
    assert loss(default, X_test, y_test) < 1.01 * loss(plain, X_test, y_test)


def test_a_gain_may_be_sure_by_the_vote_of_all_members():
    noisy = LocalGain("linear", 0.5, 0.48, 0.02, 0.01, 0.01)
    assert not noisy.is_sure(3.0)
    assert replace(noisy, full_vote_error=0.002).is_sure(3.0)
    assert not replace(noisy, full_vote_error=0.004).is_sure(3.0)
    assert not replace(noisy, gain=0.005, full_vote_error=0.002).is_sure(3.0)
