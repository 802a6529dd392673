"""A file holds the model exactly, safely, and without scikit-learn."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy import artifact
from sparsebag.deploy.artifact import assembled, dumps, loads, stored_array, taken_apart
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.trees import FlatTrees
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


@pytest.mark.parametrize("name", ENSEMBLES)
def test_a_loaded_model_predicts_the_same_bits(name, tmp_path):
    model = compiled(name, None if rows_of(name) is DIABETES[0] else Temperature(0.7))
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    assert same(model, sb.load(path), rows_of(name))
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
    calibrators = {
        "forest": Temperature(0.7, 0.01),
        "logistic": Temperature(2.0),
        "networks": None,
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


@pytest.mark.parametrize(
    ("version", "todo"), [(1, "save the model again"), (9, "update sparsebag")]
)
def test_another_version_says_so(version, todo):
    content = bytearray(dumps(compiled("forest")))
    content[8:12] = struct.pack("<I", version)
    message = f"version {version} of the format and this sparsebag reads 2; {todo}"
    with pytest.raises(sb.ArtifactError, match=message):
        loads(bytes(content))


HEADERS = {
    "nested": b"[" * 100_000,
    "no table": b"[1, 2]",
    "no json": b"{",
    "bad text": b"\xff\xfe",
    "huge number": b'{"arrays": ' + b"9" * 10_000 + b"}",
    "constant": b'{"floor": NaN}',
    "huge array": b'{"arrays": [["<f8", [4611686018427387904, 8]]]}',
    "empty but huge": b'{"arrays": [["<f8", [0, 4611686018427]]]}',
    "negative": b'{"arrays": [["<f8", [-1]]]}',
    "objects": b'{"arrays": [["|O", [1]]]}',
    "true is no number": b'{"arrays": [["<f8", [true]]]}',
    "outside": b'{"arrays": [["<f8", [1]]]}',
    "packed outside": b'{"arrays": [["<f8", [1], 8, false]]}',
    "packed into nothing": b'{"arrays": [["<f8", [1], 0, false]]}',
    "half a packed array": b'{"arrays": [["<f8", [1], 8]]}',
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


def test_arrays_fill_the_file():
    for n_bytes, message in ((48, "outside the file"), (72, "do not fill the file")):
        with pytest.raises(sb.ArtifactError, match=message):
            loads(sealed(b'{"arrays": [["|u1", [64]]]}', bytes(n_bytes)))


def deflated(content):
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    return coder.compress(content) + coder.flush()


COMPRESSED = {
    "a bomb": (2**20, deflated(bytes(2**20)), "larger than its compressed bytes"),
    "longer": (2**10, deflated(bytes(2**20)), "not as long as it should be"),
    "shorter": (2**10, deflated(bytes(range(256)) * 3), "not as long as it should be"),
    "cut": (2**8, deflated(bytes(range(256)))[:-9], "not as long as it should be"),
    "not deflate": (2**10, b"\xff" * 64, "cannot be decompressed"),
}


@pytest.mark.parametrize("name", COMPRESSED)
def test_what_is_compressed_has_the_size_it_declares(name):
    size, content, message = COMPRESSED[name]
    content = content.ljust(-(-len(content) // 8) * 8, b"\0")
    header = json.dumps({"arrays": [["|u1", [size], len(content), False]]}).encode()
    with pytest.raises(sb.ArtifactError, match=message):
        loads(sealed(header, content))


@pytest.mark.parametrize("dtype", ["<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "|b1"])
def test_compressed_arrays_come_back(dtype):
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 2 if dtype == "|b1" else 100, size=(3, 5000))
    arrays = [numbers.astype(dtype), np.sort(numbers.ravel()).astype(dtype), np.zeros(10**5, dtype)]
    content = assembled({}, [stored_array(array) for array in arrays])
    header, found = taken_apart(content)
    assert [len(entry) for entry in header["arrays"]] == [4, 4, 4]
    for array, again in zip(arrays, found, strict=True):
        assert again.dtype == array.dtype
        assert np.array_equal(array, again)


STRUCTURES = st.recursive(st.none(), lambda below: st.tuples(below, below), max_leaves=30)


@settings(deadline=None)
@given(st.lists(STRUCTURES, min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_any_trees_come_back(structures, seed):
    """Of any shape, in any order of nodes that the kernel takes."""
    rng = np.random.default_rng(seed)
    children, roots, pending = [], [], []
    n_rows = 7

    def numbered(structure):
        if structure is None:
            return ~int(rng.integers(n_rows))
        children.append(None)
        pending.append((len(children) - 1, structure))
        return len(children) - 1

    for structure in structures:
        roots.append(numbered(structure))
    while pending:
        at, (left, right) = pending.pop(int(rng.integers(len(pending))))
        children[at] = (numbered(left), numbered(right))
    n = len(children)
    trees = FlatTrees(
        threshold=rng.choice(np.float32([-1e30, -1.5, -0.0, 0.0, 1e-40, 2.5, np.inf]), n),
        feature=rng.integers(0, 3, n).astype(np.int32),
        missing_left=rng.integers(0, 2, n).astype(np.uint8),
        children=np.array(children, dtype=np.int32).reshape(-1, 2),
        roots=np.array(roots, dtype=np.int32),
        values=rng.choice([-0.0, 0.0, 0.1, -2.5, 1e-300], (n_rows, 2)),
        n_features=3,
        complement=False,
        total=1.0,
    )
    again = FlatTrees.rebuild(trees.arrays(), trees.settings())
    assert np.array_equal(walked(trees), walked(again))


NOT_TREES = {
    "another shape": ("values", lambda a: a.ravel(), "'values' is of another shape"),
    "a leaf below zero": ("leaf", lambda a: -a.astype(np.int32), "'leaf' is below zero"),
    "no such leaf": ("leaf", lambda a: a + 1, "no row in the table"),
    "flags cut": ("inner", lambda a: a[:-1], "not one a node"),
    "other nodes": ("inner", lambda a: ~a, "do not make trees"),
    "a tree that does not end": ("inner", lambda a: np.roll(a, 1), "do not make trees"),
    "ranks cut": ("rank", lambda a: a[:-1], "'rank' is not one a node"),
    "a rank too high": ("rank", lambda a: a + 1, "ranks are not those of the thresholds"),
    "another feature": ("feature", lambda a: a + 9, "feature that does not exist"),
    "not a number": ("cuts", lambda a: a * np.float32("nan"), "threshold is not a number"),
}


@pytest.mark.parametrize("case", NOT_TREES)
def test_arrays_that_are_no_trees(case):
    name, change, message = NOT_TREES[case]
    (trees,) = compiled("forest").groups
    arrays = trees.arrays()
    with pytest.raises(ValueError, match=message):
        FlatTrees.rebuild(arrays | {name: change(arrays[name])}, trees.settings())


def walked(trees):
    """Every number of the trees in the order of a walk, as integers: 0.0 is not -0.0."""
    seen, pending = [], trees.roots[::-1].tolist()
    while pending:
        at = pending.pop()
        if at < 0:
            seen += trees.values[~at].view(np.int64).tolist()
        else:
            cut = trees.threshold[at : at + 1].view(np.int32)[0]
            seen += [trees.feature[at], cut, trees.missing_left[at]]
            pending += trees.children[at][::-1].tolist()
    return seen


@pytest.mark.parametrize("n", [3, 10, 49])
@pytest.mark.parametrize("name", ["forest", "two classes", "regression"])
def test_leaves_on_a_grid_are_stored_as_small_integers(name, n):
    forest = ENSEMBLES[name]().set_params(n_estimators=n)
    forest.fit(*(DIABETES if name == "regression" else IRIS))
    scale = 4.0 if name == "regression" else 512.0
    for tree in forest.estimators_:
        tree.tree_.value[:] = np.round(tree.tree_.value * scale) / scale
    model = compile_members(read_ensemble(forest), np.full(n, 1 / n))
    (trees,) = model.groups
    assert trees.arrays()["values"].dtype.itemsize <= 2
    again = loads(dumps(model))
    assert again.groups[0].values.tobytes() == trees.values.tobytes()
    assert same(model, again, rows_of(name))
    uneven = np.linspace(0.1, 0.9, n)
    model = compile_members(read_ensemble(forest), uneven / uneven.sum())
    (trees,) = model.groups
    assert trees.arrays()["values"].dtype == np.float64
    assert same(model, loads(dumps(model)), rows_of(name))


def test_the_size_of_the_file(tmp_path):
    X, y = IRIS
    small = sb.compress(RandomForestClassifier(30, random_state=0).fit(X, y), X, y)
    small.save(tmp_path / "model.sbag")
    size = (tmp_path / "model.sbag").stat().st_size
    assert small.nbytes_ == small.compile().file_bytes == size
    pool = read_ensemble(BaggingClassifier(SVC(), 3, random_state=0).fit(X, y))
    model = compile_members(pool, np.full(3, 1 / 3))
    assert model.file_bytes == len(dumps(model, allow_pickle=True))
    (others,) = model.groups
    unpicklable = replace(others, members=(*others.members[:2], lambda X: X))
    model = replace(model, groups=(unpicklable,))
    assert model.file_bytes == model.nbytes


def rewritten(name, change, encode=json.dumps):
    """A file whose header was changed, sealed again."""
    header, body = parts(dumps(compiled(name)))
    table = json.loads(header)
    change(table)
    text = encode(table)
    return sealed(text if isinstance(text, bytes) else text.encode(), body)


def setting(**values):
    return lambda table: table["groups"][0]["settings"].update(values)


def top(**values):
    return lambda table: table.update(values)


NOT_AS_PROMISED = {
    "a flag as a string": ("forest", top(allow_nan="no"), "true or false"),
    "a flag as a number": ("forest", top(allow_nan=1), "true or false"),
    "a setting as a string": ("two classes", setting(complement="false"), "true or false"),
    "columns as a string": ("forest", setting(n_features="4"), "whole number"),
    "columns as a fraction": ("forest", setting(n_features=4.9), "whole number"),
    "a share as a string": ("forest", top(floor="0.5"), "finite number"),
    "a share as a flag": ("forest", top(floor=False), "finite number"),
    "a path that is none": ("forest", top(paths=[["evil\n", 5]]), "paths are not those"),
    "more paths than members": ("forest", top(paths=[["trees", 2**60]]), "paths are not those"),
    "paths in a string": ("forest", top(paths="trees"), "a list"),
    "another kind's path": ("forest", top(paths=[["linear", 5]]), "paths are not those"),
    "names in a string": ("forest", top(feature_names="abcd"), "a list"),
    "a class twice": ("forest", top(classes={"strings": ["a", "a", "b"]}), "a class twice"),
    "an unknown task": ("regression", top(task="banana"), "task and its classes"),
    "an unknown key": ("forest", top(colour=1), "no table of"),
    "an unknown setting": ("forest", setting(colour=1), "no table of"),
    "no members": ("ridge", lambda t: (setting(n_members=0)(t), t.update(paths=[])), "number of"),
    "fewer members": (
        "logistic",
        lambda t: (setting(n_members=1)(t), t.update(paths=[["linear", 1]])),
        "number of",
    ),
    "other columns": ("regression", top(n_features=64), "another number of features"),
    "no total": ("two classes", setting(total=0.0), "make no probabilities"),
    "a total below zero": ("forest", setting(total=-1.0), "make no probabilities"),
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


def test_a_damaged_pickle_is_one_clear_error(monkeypatch):
    bag = BaggingClassifier(SVC(), 3, random_state=0).fit(*IRIS)
    model = compile_members(read_ensemble(bag), np.full(3, 1 / 3))
    monkeypatch.setattr(artifact, "WORTH_PACKING", 2**62)
    header, body = parts(dumps(model, allow_pickle=True))
    renamed = body.replace(b"sparsebag.deploy.votes", b"sparsebag.deploy.votxx")
    start = body.index(b"\x80\x05")  # of protocol 5
    foreign = body[:start] + b"\xff" + body[start + 1 :]
    for broken in (foreign, body[: start + 200] + bytes(len(body) - start - 200), renamed):
        with pytest.raises(sb.ArtifactError, match="its pickle cannot be read"):
            loads(sealed(header, broken), allow_pickle=True)
