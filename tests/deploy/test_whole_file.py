"""Saving to bad places: one sentence on the user's path, the old file untouched, nothing left."""

import errno
import os
import stat

import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from sparsebag.deploy.artifact import PREAMBLE, dumps

X, Y = load_iris(return_X_y=True)
posix = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes of POSIX")


@pytest.fixture(scope="module")
def small():
    return sb.compress(RandomForestClassifier(30, random_state=0).fit(X, Y), X, Y)


# What is done, where, and how the sentence about it goes.
REFUSED = [
    ("save", "nowhere/m.sbag", FileNotFoundError, r"m\.sbag' cannot be written: the folder .*nowh"),
    ("load", "gone.sbag", FileNotFoundError, r"gone\.sbag' cannot be loaded: there is no such"),
    ("load", "file/m.sbag", NotADirectoryError, r"m\.sbag' cannot be loaded \(not a dir"),
    ("save", "file/m.sbag", NotADirectoryError, "file' is a file, not a folder"),
    ("save", "", IsADirectoryError, "is a folder; a model is written as a file"),
    ("load", "", IsADirectoryError, "is a folder; a model is loaded as a file"),
    pytest.param("save", "pipe", OSError, "is a device or a pipe; a model is wr", marks=posix),
    pytest.param("load", "pipe", OSError, "is a device or a pipe; a model is lo", marks=posix),
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
def test_a_private_file_stays_private_and_a_new_one_follows_the_umask(small, tmp_path):
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


@posix
def test_a_link_is_followed(small, tmp_path):
    (tmp_path / "behind").mkdir()
    link = tmp_path / "m.sbag"
    link.symlink_to(tmp_path / "behind" / "v1.sbag")
    small.save(link)
    assert link.is_symlink()
    assert os.listdir(tmp_path / "behind") == ["v1.sbag"]


@pytest.mark.parametrize(
    ("size", "promised", "error", "sentence"),
    [
        (2**40, "zeros", sb.ArtifactError, r"does not begin as a \.sbag file"),
        (2**40, "less", sb.ArtifactError, r"has 1099511627776 bytes of \d+"),
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
