"""A file holds the model exactly, safely, and without scikit-learn."""

from __future__ import annotations

import json
import mmap
import os
import pickle
import struct
import subprocess
import sys
from dataclasses import replace

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
from sklearn.svm import SVC

import sparsebag as sb
from deploy_mutations import parts, sealed
from sparsebag.deploy.artifact import dumps, loads
from sparsebag.deploy.calibrators import Isotonic, Temperature, TemperedFloor, VectorScaling
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

IRIS = load_iris(return_X_y=True)
DIABETES = load_diabetes(return_X_y=True)
ENSEMBLES = {
    "forest": lambda: RandomForestClassifier(5, random_state=0).fit(*IRIS),
    "two classes": lambda: RandomForestClassifier(5, random_state=0).fit(
        IRIS[0], np.where(IRIS[1] == 1, "yes", "no")
    ),
    "float labels": lambda: RandomForestClassifier(5, random_state=0).fit(IRIS[0], IRIS[1] * 2.0),
    "bool labels": lambda: RandomForestClassifier(5, random_state=0).fit(IRIS[0], IRIS[1] == 1),
    "regression": lambda: RandomForestRegressor(5, random_state=0).fit(*DIABETES),
    "logistic": lambda: BaggingClassifier(LogisticRegression(), 5, random_state=0).fit(*IRIS),
    "ridge": lambda: BaggingRegressor(Ridge(), 5, random_state=0).fit(*DIABETES),
    "networks": lambda: BaggingClassifier(
        MLPClassifier((6, 4), max_iter=5, random_state=0), 3, random_state=0
    ).fit(*IRIS),
}


def compiled(name, calibrator=None):
    pool = read_ensemble(ENSEMBLES[name]())
    n = len(pool.members)
    return compile_members(pool, np.full(n, 1 / n), 1e-3, calibrator)


def rows_of(name):
    return DIABETES[0] if name in ("regression", "ridge") else IRIS[0]


def same(first, second, X):
    assert first.paths == second.paths
    if first.classes is None:
        return np.array_equal(first.predict(X), second.predict(X))
    assert first.classes.tolist() == second.classes.tolist()
    return np.array_equal(first.predict_proba(X), second.predict_proba(X))


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", ENSEMBLES)
def test_a_loaded_model_predicts_the_same_bits(name, mmap, tmp_path):
    model = compiled(name, None if rows_of(name) is DIABETES[0] else Temperature(0.7))
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    assert same(model, sb.load(path, mmap=mmap), rows_of(name))
    assert dumps(sb.load(path)) == path.read_bytes()


def test_the_estimator_saves_what_it_predicts(tmp_path):
    X, y = IRIS
    small = sb.compress(RandomForestClassifier(60, random_state=0).fit(X, y), X, y)
    small.save(tmp_path / "model.sbag")
    loaded = sb.load(tmp_path / "model.sbag")
    assert np.array_equal(loaded.predict_proba(X), small.predict_proba(X))
    assert (tmp_path / "model.sbag").stat().st_size < len(pickle.dumps(small.estimators_)) / 2
    with pytest.raises(ValueError, match="X has 3 features, but 4 were fitted"):
        loaded.predict(X[:, :3])


def test_loading_and_predicting_needs_no_scikit_learn(tmp_path):
    X, _ = IRIS
    np.save(tmp_path / "X.npy", X)
    code = """
import sys, numpy as np
for name in ("sklearn", "scipy", "joblib", "pandas"):
    sys.modules[name] = None  # as if it were not installed
import sparsebag as sb
X = np.load("X.npy")
for name in sys.argv[1:]:
    model = sb.load(name)
    print(model.predict_proba(X).sum().round(6), model.predict_one(X[0]) < 3, end=" ")
"""
    maps = np.tile([0.0, 1.0], 3)
    calibrators = {
        "forest": TemperedFloor(0.7, 0.01),
        "logistic": VectorScaling(np.ones(3), np.zeros(3), 0.01),
        "networks": Isotonic(maps, maps, np.full(3, 2.0)),
    }
    names = list(calibrators)
    for name, calibrator in calibrators.items():
        (tmp_path / name).write_bytes(dumps(compiled(name, calibrator)))
    run = subprocess.run(
        [sys.executable, "-c", code, *names],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["150.0", "True"] * 3


def test_other_members_need_allow_pickle_on_both_sides(tmp_path):
    X, y = IRIS
    bag = BaggingClassifier(SVC(), 50, random_state=0).fit(X, y)
    small = sb.compress(bag, X, y)
    path = tmp_path / "model.sbag"
    with pytest.raises(ValueError, match=r"members \(SVC\) can only be stored as a pickle"):
        small.save(path)
    assert not path.exists()
    small.save(path, allow_pickle=True)
    with pytest.raises(sb.ArtifactError, match="if you made the file yourself, pass allow_pickle"):
        sb.load(path)
    loaded = sb.load(path, allow_pickle=True)
    assert np.array_equal(loaded.predict_proba(X), small.predict_proba(X))


def test_a_crash_leaves_the_old_file(tmp_path, monkeypatch):
    X, y = IRIS
    small = sb.compress(RandomForestClassifier(30, random_state=0).fit(X, y), X, y)
    path = tmp_path / "model.sbag"
    path.write_bytes(b"the old file")

    def crash(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", crash)
    with pytest.raises(OSError, match="the disk is full"):
        small.save(path)
    assert path.read_bytes() == b"the old file"
    assert os.listdir(tmp_path) == ["model.sbag"]


def test_labels_that_no_file_can_hold():
    model = compiled("forest")
    object.__setattr__(model, "classes", np.array([1, "a", None], dtype=object))
    with pytest.raises(ValueError, match="use strings, integers, floats or bools"):
        dumps(model)


@pytest.mark.parametrize("name", ENSEMBLES)
def test_every_truncation_raises_one_clear_error(name):
    content = dumps(compiled(name))
    for end in [*range(0, 200), *range(200, len(content), 997), len(content) - 1]:
        with pytest.raises(sb.ArtifactError, match="this is not a sound model file"):
            loads(content[:end])


def test_a_damaged_byte_is_noticed():
    content = bytearray(dumps(compiled("forest")))
    content[-3] ^= 1
    with pytest.raises(sb.ArtifactError, match="its checksum is wrong"):
        loads(bytes(content))


def test_a_later_version_says_so():
    content = bytearray(dumps(compiled("forest")))
    content[8:12] = struct.pack("<I", 9)
    with pytest.raises(sb.ArtifactError, match="version 9 of the format and this sparsebag reads"):
        loads(bytes(content))


HEADERS = {
    "nested": b"[" * 100_000,
    "no table": b"[1, 2]",
    "no json": b"{",
    "bad text": b"\xff\xfe",
    "huge number": b'{"arrays": ' + b"9" * 10_000 + b"}",
    "constant": b'{"floor": NaN}',
    "huge array": b'{"arrays": [{"dtype": "<f8", "shape": [4611686018427387904, 8], "offset": 0}]}',
    "empty but huge": b'{"arrays": [{"dtype": "<f8", "shape": [0, 4611686018427], "offset": 0}]}',
    "negative": b'{"arrays": [{"dtype": "<f8", "shape": [-1], "offset": 0}]}',
    "objects": b'{"arrays": [{"dtype": "|O", "shape": [1], "offset": 0}]}',
    "true is no number": b'{"arrays": [{"dtype": "<f8", "shape": [true], "offset": 0}]}',
    "outside": b'{"arrays": [{"dtype": "<f8", "shape": [1], "offset": 640000}]}',
    "labels": b'{"arrays": [], "n_features": 1, "task": "classification", "classes": {"strings": ['
    + b'"a",' * 9000
    + b'"'
    + b"b" * 9000
    + b'"]}}',
}


@pytest.mark.parametrize("name", HEADERS)
def test_hostile_headers(name):
    with pytest.raises(sb.ArtifactError, match="this is not a sound model file"):
        loads(sealed(HEADERS[name]))


def test_arrays_may_not_overlap():
    entry = b'{"dtype": "|u1", "shape": [64], "offset": 0}'
    header = b'{"arrays": [' + b", ".join([entry] * 50) + b"]}"
    with pytest.raises(sb.ArtifactError, match="its arrays overlap"):
        loads(sealed(header, bytes(64)))


def rewritten(name, change, encode=json.dumps):
    """A file whose header was changed, sealed again."""
    header, body = parts(dumps(compiled(name)))
    table = json.loads(header)
    change(table)
    text = encode(table)
    return sealed(text if isinstance(text, bytes) else text.encode(), body)


def overlapping(table):
    arrays, used = table["arrays"], table["groups"][0]["arrays"]
    arrays[used["values"]]["offset"] = arrays[used["children"]]["offset"]


def settings(**values):
    return lambda table: table["groups"][0]["settings"].update(values)


def top(**values):
    return lambda table: table.update(values)


NOT_AS_PROMISED = {
    "a flag as a string": ("forest", top(allow_nan="no"), "true or false"),
    "a flag as a number": ("forest", top(allow_nan=1), "true or false"),
    "a setting as a string": ("two classes", settings(complement="false"), "true or false"),
    "columns as a string": ("forest", settings(n_features="4"), "whole number"),
    "columns as a fraction": ("forest", settings(n_features=4.9), "whole number"),
    "a share as a string": ("forest", top(floor="0.5"), "finite number"),
    "a share as a flag": ("forest", top(floor=False), "finite number"),
    "a path that is none": ("forest", top(paths=["evil\n"] * 5), "paths are not those"),
    "paths in a string": ("forest", top(paths="trees"), "a list"),
    "another kind's path": ("forest", top(paths=["linear"] * 5), "paths are not those"),
    "names in a string": ("forest", top(feature_names="abcd"), "a list"),
    "a class twice": ("forest", top(classes={"strings": ["a", "a", "b"]}), "a class twice"),
    "an unknown task": ("regression", top(task="banana"), "task and its classes"),
    "an unknown key": ("forest", top(colour=1), "no table of"),
    "an unknown setting": ("forest", settings(colour=1), "no table of"),
    "no members": ("ridge", lambda t: (settings(n_members=0)(t), t.update(paths=[])), "number of"),
    "fewer members": (
        "logistic",
        lambda t: (settings(n_members=1)(t), t.update(paths=["linear"])),
        "number of",
    ),
    "overlap": ("forest", overlapping, "overlap"),
    "other columns": ("regression", top(n_features=64), "another number of features"),
    "no total": ("two classes", settings(total=0.0), "make no probabilities"),
    "a total below zero": ("forest", settings(total=-1.0), "make no probabilities"),
}


@pytest.mark.parametrize("case", NOT_AS_PROMISED)
def test_what_the_format_does_not_allow_is_refused(case):
    name, change, message = NOT_AS_PROMISED[case]
    with pytest.raises(sb.ArtifactError, match=f"this is not a sound model file: .*{message}"):
        loads(rewritten(name, change))


def test_a_header_says_a_thing_once_and_in_utf8():
    def twice(table):
        return json.dumps(table).replace('{"task"', '{"task": "regression", "task"')

    with pytest.raises(sb.ArtifactError, match="says a thing twice"):
        loads(rewritten("forest", lambda _: None, twice))
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        content = rewritten("forest", lambda _: None, lambda t, e=encoding: json.dumps(t).encode(e))
        with pytest.raises(sb.ArtifactError, match="this is not a sound model file"):
            loads(content)


def test_votes_that_make_no_probabilities():
    model = compiled("logistic")
    (group,) = model.groups
    for weights in (np.zeros_like(group.weights), -group.weights):
        broken = replace(model, groups=(replace(group, weights=weights),))
        with pytest.raises(sb.ArtifactError, match="make no probabilities"):
            loads(dumps(broken))
    model = compiled("forest")
    (trees,) = model.groups
    huge = replace(model, groups=(replace(trees, values=np.full_like(trees.values, 1e308)),))
    with pytest.raises(sb.ArtifactError, match="more than can be summed"):
        loads(dumps(huge))
    nothing = replace(trees, values=np.zeros_like(trees.values))
    empty = loads(dumps(replace(model, floor=0.0, groups=(nothing,))))
    assert np.allclose(empty.predict_proba(IRIS[0]), 1 / 3)  # as the format says


def test_a_damaged_pickle_is_one_clear_error():
    bag = BaggingClassifier(SVC(), 3, random_state=0).fit(*IRIS)
    model = compile_members(read_ensemble(bag), np.full(3, 1 / 3))
    header, body = parts(dumps(model, allow_pickle=True))
    renamed = body.replace(b"sparsebag.deploy.other", b"sparsebag.deploy.othxx")
    start = body.index(b"\x80\x05")  # of protocol 5
    foreign = body[:start] + b"\xff" + body[start + 1 :]
    for broken in (foreign, body[: start + 200] + bytes(len(body) - start - 200), renamed):
        with pytest.raises(sb.ArtifactError, match="its pickle cannot be read"):
            loads(sealed(header, broken), allow_pickle=True)


@pytest.mark.parametrize("name", ["forest", "logistic", "networks"])
def test_a_mapped_file_may_be_cut_while_its_model_predicts(name, tmp_path):
    """Reading past the end of a mapped file ends the process: small arrays are copies."""
    model, path = compiled(name), tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    loaded = sb.load(path, mmap=True)
    os.truncate(path, 0)
    assert same(model, loaded, IRIS[0])


def test_large_coefficients_are_shared_through_the_map(tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "model.sbag"
    X, y = rng.normal(size=(30, 70_000)), rng.integers(0, 2, 30)
    bag = BaggingClassifier(LogisticRegression(max_iter=3), 2, random_state=0).fit(X, y)
    model = compile_members(read_ensemble(bag), np.full(2, 0.5))
    path.write_bytes(dumps(model))
    loaded = sb.load(path, mmap=True)
    (group,) = loaded.groups
    assert isinstance(_owner(group.coef), mmap.mmap)
    assert not isinstance(_owner(group.class_columns), mmap.mmap)
    assert same(model, loaded, X)


def _owner(array):
    """What an array's memory belongs to."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def test_arrays_of_trees_are_checked_where_nobody_else_writes(tmp_path):
    """What is checked in a map could be changed before it is used."""
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(compiled("forest")))
    (trees,) = sb.load(path, mmap=True).groups
    for array in trees.arrays().values():
        assert isinstance(_owner(array), (bytes, np.ndarray))
