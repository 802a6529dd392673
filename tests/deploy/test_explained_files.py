"""`explain_weights` of a model in a file, and oblique rules in words."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    BaggingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import sparsebag as sb
from gated_ensembles import CASES, GATES
from sparsebag.deploy.artifact import dumps, loads
from sparsebag.deploy.explained_weights import region_rules
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.refine.directions import Directions
from sparsebag.refine.region_gate import RegionGate


@pytest.mark.parametrize("local", ["linear", "regions"])
def test_a_file_explains_what_the_estimator_explains(local, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=["age", "size", "rent"])
    y = np.where(X["age"] > 0, X["size"], X["rent"]) + 0.1 * rng.normal(size=400)
    forest = RandomForestRegressor(30, max_features=1, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, local=local, refine=None, max_estimators=8, tolerance=None)
    small.save(tmp_path / "small.sbag")
    loaded = sb.load(tmp_path / "small.sbag")
    expected, found = small.explain_weights(X), loaded.explain_weights(X)
    np.testing.assert_array_equal(found.members, small.active_)
    for name in ("weights", "global_weights", "feature_effects"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), atol=1e-15)
    assert found.rules == expected.rules
    assert str(found) == str(expected)
    assert not found.rules or any(name in " ".join(found.rules) for name in X.columns)


@pytest.mark.filterwarnings("ignore:lbfgs failed")
@pytest.mark.parametrize("case", ["mixed", "ridge"])
def test_members_are_told_in_the_order_of_the_ensemble(case):
    fit, (X, _) = CASES[case]
    pool = read_ensemble(fit())
    k = len(pool.members)
    gate = GATES["softmax"](k, X.shape[1], temperature=False)
    weights = np.random.default_rng(0).dirichlet(np.ones(k))
    positions = 3 * np.arange(k) + 5
    model = compile_members(pool, weights, gate=gate, positions=positions)
    found = loads(dumps(model, allow_pickle=True), allow_pickle=True).explain_weights(X)
    np.testing.assert_array_equal(found.members, positions)
    np.testing.assert_array_equal(found.global_weights, weights / weights.sum())
    np.testing.assert_array_equal(found.weights, gate.weights(X))


def test_early_files_say_so():
    fit, (X, _) = CASES["forest"]
    pool = read_ensemble(fit())
    k = len(pool.members)
    model = compile_members(
        pool, np.full(k, 1 / k), gate=GATES["regions"](k, X.shape[1], temperature=False)
    )
    early = replace(model, gate=replace(model.gate, global_weights=None, members=None))
    again = loads(dumps(early))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="save the model again"):
        again.explain_weights(X)


@pytest.mark.parametrize("case", ["forest", "ridge", "mixed"])
@pytest.mark.filterwarnings("ignore:lbfgs failed")
def test_a_file_without_a_gate_says_what_the_estimator_says(case, tmp_path):
    fit, (X, y) = CASES[case]
    models = [member.estimator for member in read_ensemble(fit()).members]
    small = sb.compress(models, X, y, evidence="holdout")
    assert not small.local_.used
    small.save(tmp_path / "small.sbag", allow_pickle=True)
    loaded = sb.load(tmp_path / "small.sbag", allow_pickle=True)
    expected, found = small.explain_weights(X), loaded.explain_weights(X)
    assert str(found) == str(expected) == f"{len(X)} rows: every one has the global weights."
    assert str(loaded.explain_weights(X[:1])) == "1 row: it has the global weights."
    np.testing.assert_array_equal(found.moved, expected.moved)
    np.testing.assert_array_equal(found.feature_effects, expected.feature_effects)
    # The leaves have the weights in them: which they were is not known, and not made up.
    assert found.weights.shape == expected.weights.shape
    assert np.isnan(found.weights).all()


def test_one_row_is_told_as_one():
    fit, (X, _) = CASES["forest"]
    pool = read_ensemble(fit())
    k = len(pool.members)
    gate = GATES["softmax"](k, X.shape[1], temperature=True)
    told = str(compile_members(pool, np.full(k, 1 / k), gate=gate).explain_weights(X[:1]))
    assert re.match(r"1 row: \d+ % of the weight is moved between members, against the", told)
    assert re.search(r"\d \(0\.\d{3} here, globally 0\.167\)", told)
    assert "rows" not in told
    assert re.search(r"Temperature \d\.\d\d\.", told)


@pytest.mark.parametrize(
    ("weights", "members"),
    [
        (np.array([0.5, 0.5]), np.arange(6, dtype=np.int32)),
        (np.full(6, 1 / 6), np.zeros(6, dtype=np.int32)),
        (np.full(6, 1.0), np.arange(6, dtype=np.int32)),
        (np.full(6, np.nan), np.arange(6, dtype=np.int32)),
        (np.full(6, 1 / 6), None),
    ],
)
def test_global_weights_that_cannot_be_are_refused(weights, members):
    fit, (X, _) = CASES["forest"]
    model = compile_members(
        read_ensemble(fit()), np.ones(6), gate=GATES["softmax"](6, X.shape[1], temperature=False)
    )
    with pytest.raises(ValueError, match="global weights"):
        replace(model.gate, global_weights=weights, members=members)


@pytest.mark.parametrize("mean", [0.0, 2000.0, 1e5])
def test_an_oblique_rule_followed_to_the_letter_sends_rows_where_the_gate_does(mean):
    rng = np.random.default_rng(1)
    names = ("age", "size", "rent", "rooms")
    scale = np.array([1.0, 25.0, 0.5, 3.0])
    X = mean + scale * rng.normal(size=(4000, 4))
    down = np.array([[0.7, -0.68, 0.2, 0.004]])
    along = Directions(np.full(4, mean), scale, down / np.linalg.norm(down))
    nodes = DecisionTreeRegressor(max_leaf_nodes=2).fit(along.of(X), along.of(X)[:, 0] > 0.3).tree_
    gate = RegionGate(
        [4, 0, 0], nodes.threshold, [1, -1, -1], [2, -1, -1], [0, 0, 0], [-1, 0, 1],
        np.eye(2), 4, directions=along,
    )  # fmt: skip
    rule = region_rules(gate, names)[0]
    assert "rooms" not in rule
    assert "(1 smaller term)" in rule
    sums, cut = rule.replace(" + (1 smaller term)", "").split(" <= ")
    coded = re.sub(r"(\d) ([a-z])", r"\1 * \2", sums)
    value = eval(coded, {name: X[:, f] for f, name in enumerate(names)})
    assert np.mean((value <= float(cut)) == (gate.regions(X) == 0)) > 0.985


@pytest.mark.parametrize("local", ["linear", "regions", None])
@pytest.mark.parametrize("kind", ["trees", "lines", "others"])
def test_infinity_is_explained_where_it_is_predicted(local, kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.where(X[:, 0] > 0, X[:, 1], X[:, 2]) + 0.1 * rng.normal(size=400)
    members = {"lines": Ridge(), "others": HistGradientBoostingRegressor(max_iter=3)}
    ensemble = RandomForestRegressor(30, max_features=1, random_state=0)
    if kind in members:
        ensemble = BaggingRegressor(members[kind], 30, random_state=0, oob_score=True)
    how = {"local": local, "refine": None, "max_estimators": 6, "tolerance": None}
    small = sb.compress(ensemble.fit(X, y), X, y, **how)
    rows = X[:3].copy()
    rows[1, 0] = np.inf
    for model in (small, small.compile()):
        if kind == "others":
            assert np.isfinite(model.predict(rows)).all()
            assert len(model.explain_weights(rows).weights) == 3
            continue
        with pytest.raises(ValueError, match="infinity"):
            model.predict(rows)
        with pytest.raises(ValueError, match=r"X contains infinity \(first in row 1\); rows with"):
            model.explain_weights(rows)
        assert len(model.explain_weights(X[:3]).weights) == 3
