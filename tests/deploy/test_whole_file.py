"""Saving to bad places: one sentence on the user's path, the old file untouched, nothing left."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys

import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from sparsebag.deploy.artifact import PREAMBLE
from sparsebag.deploy.whole_file import write_whole

X, Y = load_iris(return_X_y=True)
posix = pytest.mark.skipif(os.name != "posix", reason="permissions, links and pipes of POSIX")


@pytest.fixture(scope="module")
def small():
    return sb.compress(RandomForestClassifier(30, random_state=0).fit(X, Y), X, Y)


def test_a_folder_that_does_not_exist_is_named(small, tmp_path):
    path = tmp_path / "nowhere" / "m.sbag"
    with pytest.raises(
        FileNotFoundError, match=r"m\.sbag' cannot be written: the folder '"
    ) as told:
        small.save(path)
    assert str(told.value).endswith(f"{str(tmp_path / 'nowhere')!r} does not exist.")
    assert told.value.errno == errno.ENOENT
    with pytest.raises(FileNotFoundError, match="does not exist"):
        write_whole("nowhere/m.onnx", b"")


def test_a_missing_file_is_named(tmp_path):
    path = tmp_path / "gone.sbag"
    with pytest.raises(FileNotFoundError) as told:
        sb.load(path)
    assert str(told.value) == f"{str(path)!r} cannot be loaded: there is no such file."
    assert told.value.errno == errno.ENOENT


def test_a_path_through_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match=r"m\.sbag' cannot be loaded \(not a dir"):
        sb.load(tmp_path / "file" / "m.sbag")


def test_a_file_is_no_folder(small, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file' is a file, not a folder"):
        small.save(tmp_path / "file" / "m.sbag")


def test_a_folder_is_no_file(small, tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; a model is written as a file"):
        small.save(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a folder; a model is loaded as a file"):
        sb.load(tmp_path)
    assert os.listdir(tmp_path) == []


@posix
def test_a_pipe_is_neither_replaced_nor_waited_for(small, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="is a device or a pipe; a model is written as a file"):
        small.save(pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    with pytest.raises(OSError, match="is a device or a pipe; a model is loaded as a file"):
        sb.load(pipe)


def test_a_number_is_no_path(small):
    with pytest.raises(TypeError, match="not int"):
        sb.load(0)  # would read standard input
    with pytest.raises(TypeError, match="not int"):
        small.save(3)


def test_a_name_as_long_as_the_system_allows(small, tmp_path):
    path = tmp_path / ("a" * 250)
    small.save(path)
    assert sb.load(os.fsencode(path)).n_features == 4


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


@posix
def test_a_full_disk_leaves_the_old_file(tmp_path):
    """The largest file allowed is smaller than the new one, as on a full disk."""
    (tmp_path / "m.sbag").write_bytes(b"the old file")
    code = """
import resource, signal
from sparsebag.deploy.whole_file import write_whole
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    write_whole("m.sbag", bytes(100_000))
except OSError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.stdout.startswith("'m.sbag' could not be written (file too large); what was there")
    assert (tmp_path / "m.sbag").read_bytes() == b"the old file"
    assert os.listdir(tmp_path) == ["m.sbag"]


def test_a_foreign_file_is_not_read_to_its_end(tmp_path, monkeypatch):
    path = tmp_path / "large"
    with open(path, "wb") as file:
        file.truncate(2**40)  # a hole: a terabyte that takes no room
    with pytest.raises(sb.ArtifactError, match=r"does not begin as a \.sbag file"):
        sb.load(path)


def test_a_model_with_a_terabyte_behind_it_is_not_read_to_its_end(small, tmp_path):
    path = tmp_path / "m.sbag"
    small.save(path)
    os.truncate(path, 2**40)
    with pytest.raises(sb.ArtifactError, match=r"has 1099511627776 bytes of \d+"):
        sb.load(path)


def test_a_model_larger_than_memory_says_so(small, tmp_path):
    path = tmp_path / "m.sbag"
    small.save(path)
    os.truncate(path, 2**43)
    with open(path, "r+b") as file:  # a liar: its first bytes promise all of that
        first = list(PREAMBLE.unpack(file.read(PREAMBLE.size)))
        file.seek(0)
        file.write(PREAMBLE.pack(*first[:3], 2**43, first[4]))
    with pytest.raises(OSError, match=r"m\.sbag' cannot be loaded: it does not fit into memory\.$"):
        sb.load(path)
