"""A file holds the gate exactly, and refuses one that is not sound."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier

import sparsebag as sb
from deploy_mutations import parts, sealed
from gated_ensembles import GATES
from sparsebag.cli.inspect import describe
from sparsebag.deploy.artifact import dumps, loads
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
ENSEMBLES = {
    "forest": (lambda: RandomForestClassifier(5, random_state=0), IRIS),
    "two classes": (lambda: RandomForestClassifier(5, random_state=0), (IRIS[0], IRIS[1] == 1)),
    "regression": (lambda: RandomForestRegressor(5, random_state=0), DIABETES),
    "logistic": (lambda: BaggingClassifier(LogisticRegression(), 5, random_state=0), IRIS),
    "ridge": (lambda: BaggingRegressor(Ridge(), 5, random_state=0), DIABETES),
    "networks": (lambda: BaggingClassifier(MLPClassifier((6,), max_iter=5), 3), IRIS),
}


def gated(name="forest", kind="softmax"):
    make, (X, y) = ENSEMBLES[name]
    pool = read_ensemble(make().fit(X, y))
    k, d = len(pool.members), X.shape[1]
    how = {"temperature": pool.classes is not None}
    return compile_members(pool, np.ones(k), 1e-3, None, GATES[kind](k, d, **how))


def predictions(model, X):
    return model.predict(X) if model.classes is None else model.predict_proba(X)


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("name", ENSEMBLES)
def test_a_loaded_model_predicts_the_same_bits(name, kind, mmap, tmp_path):
    model, X = gated(name, kind), ENSEMBLES[name][1][0]
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    loaded = sb.load(path, mmap=mmap)
    np.testing.assert_array_equal(predictions(loaded, X), predictions(model, X))
    assert dumps(loaded) == path.read_bytes()
    assert repr(loaded) == repr(model)


def test_a_file_without_a_gate_says_nothing_of_it():
    """So that versions that know no gates still read it."""
    pool = read_ensemble(RandomForestClassifier(5, random_state=0).fit(*IRIS))
    header, _ = parts(dumps(compile_members(pool, np.full(5, 0.2))))
    assert b"gate" not in header


def test_a_gated_model_predicts_without_scikit_learn(tmp_path):
    np.save(tmp_path / "X.npy", IRIS[0])
    for kind in ("softmax", "regions"):
        (tmp_path / f"{kind}.sbag").write_bytes(dumps(gated("forest", kind)))
    code = """
import sys, numpy as np
for name in ("sklearn", "scipy", "joblib", "pandas"):
    sys.modules[name] = None  # as if it were not installed
import sparsebag as sb
X = np.load("X.npy")
for name in ("softmax.sbag", "regions.sbag"):
    print(sb.load(name).predict_proba(X).sum().round(6), end=" ")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=os.environ
    )
    assert done.stdout == "150.0 150.0 ", done.stderr


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("softmax", lambda h: h["gate"].update(kind="neural"), "kind, 'neural', that is not known"),
        ("softmax", lambda h: h["gate"].update(kind=[]), "where a string should"),
        ("softmax", lambda h: h["gate"].pop("settings"), "no table of kind, settings, arrays"),
        ("softmax", lambda h: h["gate"]["settings"].update(clip=-1), "clip is not a number above"),
        ("softmax", lambda h: h["gate"]["settings"].update(clip=True), "where a finite number"),
        ("softmax", lambda h: h["gate"]["settings"].update(activation="relu"), "not softmax or"),
        ("softmax", lambda h: h["gate"]["settings"].update(rank=2), "no table of activation, clip"),
        ("softmax", lambda h: h["gate"]["arrays"].pop("base"), "malformed"),
        ("softmax", lambda h: h["gate"]["arrays"].update(mean=10**6), "malformed"),
        ("softmax", lambda h: h["gate"]["arrays"].update(more=0), "share arrays"),
        ("softmax", lambda h: h.update(gate=[]), "malformed"),
        ("softmax", lambda h: h.update(gate=0), "malformed"),
        ("regions", lambda h: h["gate"]["settings"].update(n_features=1), "does not exist"),
        ("regions", lambda h: h["gate"]["settings"].update(n_features=9), "number of features"),
        ("regions", lambda h: h["groups"][0]["settings"].update(total=1.0), "besides those of"),
    ],
)
def test_gates_that_are_not_sound(kind, change, message):
    header, body = parts(dumps(gated("forest", kind)))
    tree = json.loads(header)
    change(tree)
    with pytest.raises(sb.ArtifactError, match=f"not a sound model file: .*{message}"):
        loads(sealed(json.dumps(tree).encode(), body))


@pytest.mark.parametrize("name", ["forest", "logistic"])
def test_arrays_of_other_types_or_of_the_members_are_refused(name):
    header, body = parts(dumps(gated(name)))
    tree = json.loads(header)
    gate = tree["gate"]["arrays"]
    shared = next(iter(tree["groups"][0]["arrays"].values()))
    for position, message in ((shared, "share arrays"), (len(tree["arrays"]), "malformed")):
        bad = {**tree, "gate": {**tree["gate"], "arrays": {**gate, "mean": position}}}
        with pytest.raises(sb.ArtifactError, match=message):
            loads(sealed(json.dumps(bad).encode(), body))
    tree["arrays"][gate["mean"]][0] = "<i8"
    with pytest.raises(sb.ArtifactError, match="its gate's 'mean' is of type <i8"):
        loads(sealed(json.dumps(tree).encode(), body))


def test_members_with_weights_of_their_own_are_refused():
    model = gated("logistic")
    model.groups[0].weights[0] = 0.5
    with pytest.raises(sb.ArtifactError, match="weights besides those of its gate"):
        loads(dumps(model))


def test_inspect_tells_of_the_gate():
    facts = describe(gated("forest", "regions"))
    assert facts["gate"] == "regions (8 regions, temperature)"
