"""Mistakes of a stream's caller get one clear sentence; a solve that goes on says what it reads."""

import re
import time

import numpy as np
import pytest

import sparsebag as sb
from sparsebag.evidence import pass_report
from sparsebag.solvers.mirror import Mirror, ProjectedSGD

N_MEMBERS = 5
RNG = np.random.default_rng(0)
Y = RNG.normal(size=90)
VOTES = Y[:, None] + RNG.normal(size=(90, N_MEMBERS)) * np.linspace(0.2, 2.0, N_MEMBERS)
MASK = RNG.random((90, N_MEMBERS)) < 0.7
MASK[:, 0] = True


def blocks():
    for rows in np.split(np.arange(90), 6):
        yield VOTES[rows], MASK[rows], Y[rows]


def stream():
    return sb.stream_rows(blocks, n_members=N_MEMBERS, task="regression")


def arrays(**how):
    return sb.stream_rows(VOTES, MASK, Y, task="regression", **how)


WRONG = {
    "rows a block of a function": (
        lambda: sb.stream_rows(blocks, n_members=5, labels=[0, 1], block_rows=1000),
        "block_rows is for arrays and paths; a generator's blocks have the rows it gives them",
    ),
    "a misspelt task": (
        lambda: sb.stream_rows(VOTES, MASK, Y, task="regresion"),
        "task='regresion' is not known; use 'classification' or 'regression'.",
    ),
    "members as text": (
        lambda: sb.stream_rows(blocks, n_members="20", task="regression"),
        "n_members='20' was given; pass N, the columns of a block.",
    ),
    "how many labels, of a function": (
        lambda: sb.stream_rows(blocks, n_members=5, labels=2),
        "labels must hold all classes, such as [0, 1], got 2.",
    ),
    "how many labels, of arrays": (
        lambda: sb.stream_rows(VOTES, MASK, Y, labels=2),
        "labels must hold all classes, such as [0, 1], got 2.",
    ),
    "how many labels, in memory": (
        lambda: sb.fit_weights(VOTES, MASK, Y, labels=2),
        "labels must hold all classes, such as [0, 1], got 2.",
    ),
    "one row": (
        lambda: sb.OnlineWeights(loss="squared_error").partial_fit(VOTES[0], MASK[0], 0),
        "y must have one value a row; of one row pass tables of it: row[None, :]",
    ),
    "a file that is not there": (
        lambda: sb.stream_rows("missing.npy", None, Y),
        "missing.npy does not exist; pass the path of a file that numpy.save wrote.",
    ),
    "a solver's class": (
        lambda: sb.fit_weights(arrays(), solver=Mirror),
        "solver is the class Mirror; pass an object of it, such as Mirror().",
    ),
    "passes as text": (
        lambda: Mirror(max_passes="3"),
        "max_passes must be a whole number, at least 1, got '3'.",
    ),
    "no passes": (
        lambda: ProjectedSGD(max_passes=0),
        "max_passes must be a whole number, at least 1, got 0.",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_one_sentence(what):
    call, said = WRONG[what]
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=re.escape(said)):
        call()


def test_evidence_is_stored_in_a_folder(tmp_path):
    (tmp_path / "rows").write_text("")
    with pytest.raises(ValueError, match="rows is a file; name a folder to store the evidence in"):
        sb.store_evidence(arrays(), tmp_path / "rows")


def test_passes_are_limited_as_the_guide_says():
    limited = sb.fit_weights(arrays(block_rows=10), solver=Mirror(max_passes=3))
    assert limited.n_passes <= 3


def test_a_checkpoint_in_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    first = sb.fit_weights(stream(), checkpoint="~/solve.ckpt")
    assert (tmp_path / "solve.ckpt").exists()
    again = sb.fit_weights(stream(), checkpoint="~/solve.ckpt")
    np.testing.assert_array_equal(again.weights, first.weights)


def test_a_solve_that_goes_on_says_that_it_reads_its_sample(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pass_report, "PRINT_EVERY_SECONDS", 0.0)
    path = tmp_path / "solve.ckpt"
    sb.fit_weights(stream(), checkpoint=path, verbose=1)
    assert "[sample]" not in capsys.readouterr().err  # kept from the first pass
    sb.fit_weights(stream(), checkpoint=path, verbose=1)
    told = capsys.readouterr().err
    assert "[sample] reading the rows once more, for the sample held between passes" in told
    assert "[sample] block 6" in told
    sb.fit_weights(stream(), checkpoint=path)
    assert capsys.readouterr().err == ""


def test_a_first_pass_that_was_cut_short_says_so_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pass_report, "PRINT_EVERY_SECONDS", 0.0)
    monkeypatch.setattr("sparsebag.objective.pass_journal.SAVE_EVERY_SECONDS", 0.0)
    path = tmp_path / "solve.ckpt"

    def cut_short():
        for number, block in enumerate(blocks()):
            if number == 4:
                raise KeyboardInterrupt
            time.sleep(0.001)
            yield block

    killed = sb.stream_rows(cut_short, n_members=N_MEMBERS, task="regression")
    with pytest.raises(KeyboardInterrupt):
        sb.fit_weights(killed, checkpoint=path)
    sb.fit_weights(stream(), checkpoint=path, verbose=1)
    told = capsys.readouterr().err
    assert "[stream] going on from block 4" in told
    assert "[sample] block 4\n" in told
    assert "[stream] block 6\n" in told
