"""Threads of a pass: how many there are, and that their number moves no bit."""

import os
import subprocess
import sys
import threading
from functools import cache

import numpy as np
import pytest

from problems import LOSSES, evidence, general, interior_point
from sparsebag.objective import _passes, block_loss, passes
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic

WORTH_A_THREAD = 1 << 20
SHAPES = [(26_000, 70), (200_003, 9), (517, 4200), (60_000, 33)]

shared_evidence = cache(evidence)  # one for all kernels; for tests that do not change it


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("holdout", [False, True])
def test_evidence_in_memory_has_the_same_sums(kernel, shape, holdout, monkeypatch):
    e = shared_evidence(n_rows=shape[0], n_members=shape[1], holdout=holdout, dtype=np.float32)
    assert _passes.threads_taken(*shape, 64) > 1
    f = Objective(e, LOSSES["log_loss"], ConcaveQuadratic(0.02), prior_mass=0.02)
    weights = interior_point(shape[1])
    found = []
    for n_threads in (1, 2, 5, 64):
        monkeypatch.setattr(block_loss, "pass_threads", lambda n=n_threads: n)
        found.append(f.value_and_gradient(weights))
    for value, gradient in found[1:]:
        assert value == found[0][0]
        assert np.array_equal(gradient, found[0][1])
    value, slow = general(f).value_and_gradient(weights)
    assert found[0][0] == pytest.approx(value, rel=1e-5)
    assert found[0][1] == pytest.approx(slow, rel=1e-4, abs=1e-5 * np.abs(slow).max())


@pytest.mark.parametrize(
    ("shape", "most", "taken"),
    [
        ((1000, 100), 8, 1),  # half a megabyte
        ((4000, 100), 8, 1),
        ((10_000, 100), 8, 4),
        ((640, 10_000), 2, 2),
        ((640, 10_000), 64, 8),
        ((640, 40_000), 64, 8),  # parts have 64 rows at least
        ((100_000, 1000), 64, 64),
        ((0, 5), 8, 1),
    ],
)
def test_small_evidence_takes_few_threads(shape, most, taken):
    assert _passes.threads_taken(*shape, most) == taken


@pytest.fixture
def one_pass(monkeypatch):
    """A pass over evidence worth five threads, by four of them; its value and gradient."""
    e = evidence(n_rows=30_000, n_members=40, dtype=np.float32)
    f = Objective(e, LOSSES["log_loss"], ConcaveQuadratic(0.0), prior_mass=0.02)
    weights = interior_point(40)
    monkeypatch.setattr(block_loss, "pass_threads", lambda: 4)
    assert _passes.threads_taken(30_000, 40, 4) == 4
    return lambda: f.value_and_gradient(weights)


def _is_as(found, expected):
    return found[0] == expected[0] and np.array_equal(found[1], expected[1])


def test_threads_that_make_passes_at_a_time_do_not_disturb_each_other(one_pass):
    expected, found = one_pass(), []
    workers = [
        threading.Thread(target=lambda: found.extend(one_pass() for _ in range(20)))
        for _ in range(6)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(found) == 120
    assert all(_is_as(one, expected) for one in found)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_process_that_forked_ends(tmp_path):
    """Both ways out: after passes in parent and child, and with the parent's helpers unused."""
    script = tmp_path / "forks.py"
    script.write_text(FORKS)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0", "0"]


FORKS = """
import os, sys
import numpy as np
from sparsebag.objective import _passes

votes, ones = np.full((30_000, 40), 0.5, dtype=np.float32), np.ones(30_000)
mask = np.ones(votes.shape, dtype=np.uint8)

def one_pass():
    weights = np.full(40, 1 / 40, dtype=np.float32)
    return _passes.loss_and_gradient(
        votes, mask, weights, ones, ones, ones, True, 0.0, 1e-15, 1e-15, 1.0, 0.0, 1.0, True, 4,
        np.zeros(40),
    )

expected = one_pass()
for passes_there in (True, False):
    child = os.fork()
    if child == 0:
        sys.exit(0 if not passes_there or one_pass() == expected else 3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert one_pass() == expected
"""


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("3", 3), (" 2,1 ", 2), ("0", None), ("many", None), ("-1", None), ("", None)],
)
def test_the_environment_says_how_many(monkeypatch, asked, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr(passes, "_processors", lambda: 8)
    assert passes.pass_threads() == (expected or 8)
