"""A file holds the model exactly, safely, and without scikit-learn."""

import copy
import errno
import json
import os
import pickle
import stat
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.svm import SVC

import sparsebag as sb
from deploy.ensembles import CASES, OF_ARRAYS, made, outputs
from fuzz_files import mutated, parts, sealed, seeds, try_out, uncompressed_seeds
from processes import printed
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy import artifact
from sparsebag.deploy.artifact import PREAMBLE, dumps, loads
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.trees import FlatTrees
from sparsebag.evidence.from_ensemble import read_ensemble
from toy import IRIS

LABELS = {"floats": [0.5, 2.0], "bools": [False, True], "integers": [-1, 2**40]}
LABELS["half a character"] = ["a", "\ud800"]


GATED = ["three classes", "two classes", "regression", "ridge", "networks"]


@pytest.mark.parametrize(
    ("name", "gate"),
    [*((name, None) for name in [*OF_ARRAYS, *LABELS]), *((name, 2) for name in GATED)],
)
def test_files_and_copies_predict_the_same_bits(name, gate, tmp_path):
    calibrator = None if gate else Temperature(0.7)
    model, _, X = made("two classes" if name in LABELS else name, calibrator, gate=gate)
    if name in LABELS:
        model = replace(model, classes=np.array(LABELS[name]))
    path = tmp_path / "model.sbag"
    path.write_bytes(dumps(model))
    again = sb.load(path)
    assert again.paths == model.paths
    assert repr(again) == repr(model)
    for same in (again, pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert np.array_equal(outputs(same, X), outputs(model, X))
    assert (b"gate" in parts(path.read_bytes())[0]) == (gate is not None)
    if model.classes is not None:
        assert again.classes.tolist() == model.classes.tolist()
        assert again.classes.dtype.kind == model.classes.dtype.kind
    assert dumps(again) == path.read_bytes()


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
    print(model.predict_proba(X).sum().round(6), model.predict_one(X[0]) in model.classes, end=" ")
"""
    calibrators = {
        "three classes": Temperature(0.7, 0.01),
        "two classes": Temperature(0.7, 0.01, 16.0),
        "multinomial": Temperature(2.0),
        "networks": None,
    }
    for name, calibrator in calibrators.items():
        (tmp_path / name).write_bytes(dumps(made(name, calibrator)[0]))
    assert printed("-c", code, *calibrators, cwd=tmp_path).split() == ["150.0", "True"] * 4


def test_other_members_need_allow_pickle_on_both_sides(tmp_path):
    X, y = IRIS
    small = sb.compress(BaggingClassifier(SVC(), 50, random_state=0).fit(X, y), X, y)
    path = tmp_path / "model.sbag"
    with pytest.raises(ValueError, match=r"members such as SVC can only be stored as a pickle"):
        small.save(path)
    assert not path.exists()
    small.save(path, allow_pickle=True)
    with pytest.raises(sb.ArtifactError, match="this file holds members stored as a pickle"):
        sb.load(path)
    loaded = sb.load(path, allow_pickle=True)
    assert np.array_equal(loaded.predict_proba(X), small.predict_proba(X))
    model = small.compile()
    assert model.file_bytes == path.stat().st_size
    (others,) = model.groups
    unpicklable = replace(others, members=(*others.members[1:], lambda X: X))
    model = replace(model, groups=(unpicklable,))
    assert model.file_bytes == model.nbytes


def forest_file():
    return dumps(made("three classes")[0])


def rewritten(name, change, encode=json.dumps):
    """A file whose header was changed, sealed again."""
    header, body = parts(dumps(made(name)[0]))
    table = json.loads(header)
    change(table)
    text = encode(table)
    return sealed(text if isinstance(text, bytes) else text.encode(), body)


def top(**values):
    return lambda table: table.update(values)


def setting(**values):
    return lambda table: table["groups"][0]["settings"].update(values)


def members(n, paths):
    return lambda table: (setting(n_members=n)(table), table.update(paths=paths))


def of_version(number):
    content = forest_file()
    return content[:8] + struct.pack("<I", number) + content[12:]


def deflated(content):
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    return coder.compress(content) + coder.flush()


def packed(size, content):
    """A file of one compressed array that says it has ``size`` bytes."""
    content = content.ljust(-(-len(content) // 8) * 8, b"\0")
    header = json.dumps({"arrays": [["|u1", [size], len(content), False]]}).encode()
    return sealed(header, content)


def with_group(name, **change):
    model, *_ = made(name)
    return dumps(replace(model, groups=(replace(model.groups[0], **change),)))


def damaged(content):
    return content[:-3] + bytes([content[-3] ^ 1]) + content[-2:]


def encoded(encode):
    return rewritten("three classes", lambda _: None, lambda table: encode(json.dumps(table)))


def weights_of(name):
    return made(name)[0].groups[0].weights


ANY = "this is not a valid model file"
TWO = b'{"arrays": [], "n_features": 1, "task": "classification", "classes": {"strings": [%s]}}'
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
    "labels of megabytes": TWO % (b'"a",' * 9000 + b'"' + b"b" * 9000 + b'"'),
}
REWRITTEN = {
    "a flag as a string": ("three classes", top(allow_nan="no"), "true or false"),
    "a flag as a number": ("three classes", top(allow_nan=1), "true or false"),
    "a setting as a string": ("two classes", setting(complement="false"), "true or false"),
    "columns as a string": ("three classes", setting(n_features="4"), "whole number"),
    "columns as a fraction": ("three classes", setting(n_features=4.9), "whole number"),
    "a share as a string": ("three classes", top(floor="0.5"), "finite number"),
    "a share as a flag": ("three classes", top(floor=False), "finite number"),
    "a path that is none": ("three classes", top(paths=[["evil\n", 6]]), "paths do not match"),
    "too many paths": ("three classes", top(paths=[["trees", 2**60]]), "paths do not match"),
    "paths in a string": ("three classes", top(paths="trees"), "a list"),
    "another kind's path": ("three classes", top(paths=[["linear", 6]]), "paths do not match"),
    "names in a string": ("three classes", top(feature_names="abcd"), "a list"),
    "a name for all": ("three classes", top(feature_names=["a"]), "not one string per feature"),
    "numbers for names": ("three classes", top(feature_names=[1, 2, 3, 4]), "not one string"),
    "a class twice": ("three classes", top(classes={"strings": ["a", "a", "b"]}), "a class twice"),
    **{
        f"texts {texts}": ("three classes", top(feature_names=[*"abcd"], categories=texts), "")
        for texts in ({"e": ["a"]}, {"a": ["a", "a"]}, {"a": [1]}, ["a"], {"a": 3})
    },
    "an unknown task": ("regression", top(task="banana"), "task and its classes"),
    "an unknown key": ("three classes", top(colour=1), "lacks an object"),
    "an unknown setting": ("three classes", setting(colour=1), "lacks an object"),
    "no members": ("ridge", members(0, []), "number of"),
    "fewer members": ("logistic", members(1, [["linear", 1]]), "number of"),
    "other columns": ("regression", top(n_features=64), "different numbers of features"),
    "no total": ("two classes", setting(total=0.0), "do not give probabilities"),
    "a total below zero": ("three classes", setting(total=-1.0), "do not give probabilities"),
}
VERSIONS = "version {} of the format and this sparsebag reads 2; {}"
LENGTH, BYTES = "has the wrong length", bytes(range(256))
UNFIT = "do not give probabilities"
ONE_ARRAY = b'{"arrays": [["|u1", [64]]]}'
TWICE = ('{"task"', '{"task": "regression", "task"')
NO_FILE = [
    *[(ANY, lambda h=header: sealed(h)) for header in HEADERS.values()],
    *[
        (f"{ANY}: .*{message}", lambda n=of, c=change: rewritten(n, c))
        for of, change, message in REWRITTEN.values()
    ],
    ("its checksum is wrong", lambda: damaged(forest_file())),
    (VERSIONS.format(1, "save the model again"), lambda: of_version(1)),
    (VERSIONS.format(9, "update sparsebag"), lambda: of_version(9)),
    ("outside the file", lambda: sealed(ONE_ARRAY, bytes(48))),
    ("do not fill the file", lambda: sealed(ONE_ARRAY, bytes(72))),
    ("larger than its compressed size", lambda: packed(2**20, deflated(bytes(2**20)))),
    (LENGTH, lambda: packed(2**10, deflated(bytes(2**20)))),
    (LENGTH, lambda: packed(2**10, deflated(3 * BYTES))),
    (LENGTH, lambda: packed(2**8, deflated(BYTES)[:-9])),
    ("cannot be decompressed", lambda: packed(2**10, b"\xff" * 64)),
    ("has a duplicate key", lambda: encoded(lambda text: text.replace(*TWICE).encode())),
    *[(ANY, lambda e=e: encoded(lambda t: t.encode(e))) for e in ("utf-16", "utf-32", "utf-8-sig")],
    (UNFIT, lambda: with_group("logistic", weights=0.0 * weights_of("logistic"))),
    (UNFIT, lambda: with_group("logistic", weights=-weights_of("logistic"))),
    (
        "too large to sum",
        lambda: with_group("two classes", values=np.full((10**4, 1), 1e308)),
    ),
]


@pytest.mark.parametrize(("message", "content"), NO_FILE)
def test_what_the_format_does_not_allow_is_refused(message, content):
    with pytest.raises(sb.ArtifactError, match=message):
        loads(content())


@pytest.mark.parametrize("name", ["three classes", "regression", "ridge", "networks"])
def test_every_truncation_raises_one_clear_error(name):
    content = dumps(made(name)[0])
    for end in [*range(0, 200), *range(200, len(content), 997), len(content) - 1]:
        with pytest.raises(sb.ArtifactError, match="this is not a valid model file"):
            loads(content[:end])


NOT_TREES = {
    "another shape": ("values", lambda a: a.ravel(), "'values' has the wrong shape"),
    "a leaf below zero": ("leaf", lambda a: -a.astype(np.int32), "'leaf' is negative"),
    "no such leaf": ("leaf", lambda a: a + 1, "no row in the table"),
    "flags cut": ("inner", lambda a: a[:-1], "not one per node"),
    "other nodes": ("inner", lambda a: ~a, "do not form trees"),
    "a tree that does not end": ("inner", lambda a: np.roll(a, 1), "do not form trees"),
    "ranks cut": ("rank", lambda a: a[:-1], "'rank' is not one per node"),
    "a rank too high": ("rank", lambda a: a + 1, "ranks do not match the thresholds"),
    "another feature": ("feature", lambda a: a + 9, "feature that does not exist"),
    "not a number": ("cuts", lambda a: a * np.float32("nan"), "threshold is not a number"),
}


@pytest.mark.parametrize("case", NOT_TREES)
def test_arrays_that_are_no_trees(case):
    name, change, message = NOT_TREES[case]
    (trees,) = made("three classes")[0].groups
    arrays = trees.arrays()
    with pytest.raises(ValueError, match=message):
        FlatTrees.rebuild(arrays | {name: change(arrays[name])}, trees.settings())


@pytest.mark.parametrize("n", [3, 10, 49])
@pytest.mark.parametrize("name", ["three classes", "two classes", "regression"])
def test_leaves_on_a_grid_are_stored_as_small_integers(name, n):
    _, forest, (X, y) = CASES[name]
    forest = clone(forest).set_params(n_estimators=n).fit(X, y)
    scale = 4.0 if name == "regression" else 512.0
    for tree in forest.estimators_:
        tree.tree_.value[:] = np.round(tree.tree_.value * scale) / scale
    uneven = np.linspace(0.1, 0.9, n)
    for weights, is_small in ((np.full(n, 1 / n), True), (uneven / uneven.sum(), False)):
        model = compile_members(read_ensemble(forest), weights)
        (trees,) = model.groups
        stored = trees.arrays()["values"].dtype
        assert stored.itemsize <= 2 if is_small else stored == np.float64
        again = loads(dumps(model))
        assert again.groups[0].values.tobytes() == trees.values.tobytes()
        assert np.array_equal(outputs(again, X), outputs(model, X))


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


def test_mutated_files_are_refused_or_predict():
    """The long run is `make fuzz`."""
    rng = np.random.default_rng(0)
    results = {name: [] for name in ("refused", "loaded", "predicted")}
    files = seeds() | uncompressed_seeds()
    for name, content in files.items():
        assert try_out(content) == "predicted"
        for _ in range(200):
            results[try_out(mutated(content, rng))].append(name)
    assert len(results["refused"]) > 1000  # most damage is noticed
    assert len(results["predicted"]) > 50  # and some, in numbers, is a model of its own
    assert set(results["predicted"]) == set(files)


posix = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes of POSIX")


@pytest.fixture(scope="module")
def small():
    return sb.compress(RandomForestClassifier(30, random_state=0).fit(*IRIS), *IRIS)


# What is done, where, and how the sentence about it goes.
REFUSED = [
    ("save", "nowhere/m.sbag", FileNotFoundError, r"m\.sbag' cannot be written: the folder .*nowh"),
    ("load", "gone.sbag", FileNotFoundError, r"gone\.sbag' cannot be loaded: no such"),
    ("load", "file/m.sbag", NotADirectoryError, r"m\.sbag' cannot be loaded \(not a dir"),
    ("save", "file/m.sbag", NotADirectoryError, "file' is a file, not a folder"),
    ("save", "", IsADirectoryError, "is a folder; name a file"),
    ("load", "", IsADirectoryError, "is a folder; name a file"),
    pytest.param("save", "pipe", OSError, "is a device or a pipe; name a file", marks=posix),
    pytest.param("load", "pipe", OSError, "is a device or a pipe; name a file", marks=posix),
    ("save", 3, TypeError, "not int"),
    ("load", 0, TypeError, "not int"),  # would read standard input
    ("load", b"a file", TypeError, "load reads a file by its path, and these are the bytes"),
]


@pytest.mark.parametrize(("do", "where", "error", "sentence"), REFUSED)
def test_places_that_hold_no_model(do, where, error, sentence, small, tmp_path):
    (tmp_path / "file").write_text("")
    if where == "pipe":
        os.mkfifo(tmp_path / "pipe")
    there = sorted(os.listdir(tmp_path))
    path = tmp_path / where if isinstance(where, str) else where
    path = dumps(small.compile()) if where == b"a file" else path
    with pytest.raises(error, match=sentence) as told:
        small.save(path) if do == "save" else sb.load(path)
    if error is FileNotFoundError:
        assert told.value.errno == errno.ENOENT
    assert sorted(os.listdir(tmp_path)) == there
    if where == "pipe":  # neither replaced nor waited for
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_crash_leaves_the_old_file(step, small, tmp_path, monkeypatch):
    path = tmp_path / "m.sbag"
    path.write_bytes(b"the old file")

    def crash(*_):
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, step, crash)
    with pytest.raises(OSError, match="the disk is gone"):
        small.save(path)
    assert path.read_bytes() == b"the old file"
    assert os.listdir(tmp_path) == ["m.sbag"]


@posix
def test_files_stay_private_new_ones_follow_the_umask_and_links_are_followed(small, tmp_path):
    path = tmp_path / "m.sbag"
    before = os.umask(0o027)
    try:
        small.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        small.save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)

    (tmp_path / "behind").mkdir()
    link = tmp_path / "link.sbag"
    link.symlink_to(tmp_path / "behind" / "v1.sbag")
    small.save(link)
    assert link.is_symlink()
    small.save(tmp_path / ("a" * 250))  # a name as long as the system allows
    assert sb.load(os.fsencode(tmp_path / ("a" * 250))).n_features == 4
    assert os.listdir(tmp_path / "behind") == ["v1.sbag"]


@pytest.mark.parametrize(
    ("size", "promised", "error", "sentence"),
    [
        (2**40, "zeros", sb.ArtifactError, r"does not start like a \.sbag file"),
        (2**40, "less", sb.ArtifactError, r"has 1099511627776 bytes instead of \d+"),
        (2**43, "all", OSError, r"m\.sbag' cannot be loaded: it does not fit into memory\.$"),
    ],
)
def test_a_terabyte_is_not_read_to_its_end(size, promised, error, sentence, small, tmp_path):
    path = tmp_path / "m.sbag"
    small.save(path)
    if promised == "zeros":
        path.write_bytes(b"")
    os.truncate(path, size)  # a hole: it takes no room
    if promised == "all":
        with open(path, "r+b") as file:  # a liar: its first bytes promise all of that
            first = list(PREAMBLE.unpack(file.read(PREAMBLE.size)))
            file.seek(0)
            file.write(PREAMBLE.pack(*first[:3], size, first[4]))
    with pytest.raises(error, match=sentence):
        sb.load(path)
