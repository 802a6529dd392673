"""Threads of a pass: how many there are, that their number moves no bit, that they are guests."""

import os
import sys
import threading
from functools import cache

import numpy as np
import pytest

from problems import evidence, general, interior_point, objective_on
from processes import printed
from sparsebag.objective import _passes, block_loss, passes

SHAPES = [(26_000, 70), (200_003, 9), (517, 4200), (60_000, 33)]

shared_evidence = cache(evidence)  # one for all kernels; for tests that do not change it


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("holdout", [False, True])
def test_evidence_in_memory_has_the_same_sums(kernel, shape, holdout, monkeypatch):
    e = shared_evidence(n_rows=shape[0], n_members=shape[1], holdout=holdout, dtype=np.float32)
    assert _passes.threads_taken(*shape, 64) > 1
    f = objective_on(e, lam=0.02, floor=0.0)
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


@pytest.fixture
def one_pass(monkeypatch):
    """A pass over evidence worth five threads, by four of them; its value and gradient."""
    e = evidence(n_rows=30_000, n_members=40, dtype=np.float32)
    f = objective_on(e, lam=0.0, floor=0.0)
    weights = interior_point(40)
    monkeypatch.setattr(block_loss, "pass_threads", lambda: 4)
    assert _passes.threads_taken(30_000, 40, 4) == 4
    return lambda: f.value_and_gradient(weights)


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
    for value, gradient in found:
        assert value == expected[0]
        assert np.array_equal(gradient, expected[1])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("3", 3), (" 2,1 ", 2), ("0", None), ("many", None), ("-1", None), ("", None)],
)
def test_the_environment_says_how_many(monkeypatch, asked, expected):
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    monkeypatch.setattr(passes, "_processors", lambda: 8)
    assert passes.pass_threads() == (expected or 8)


PASSES = """
import os, signal, threading, time
import numpy as np
from sparsebag.objective import _passes

votes = np.random.default_rng(0).random((30_000, 40), dtype=np.float32)
mask, ones = np.ones(votes.shape, dtype=np.uint8), np.ones(30_000)

def one_pass(n_threads=4):
    weights, gradient = np.full(40, 1 / 40, dtype=np.float32), np.zeros(40)
    loss = _passes.loss_and_gradient(
        votes, mask, ones, ones, ones, True, 1e-15, 1e-15, 1.0, 0.0, 1.0, True, weights, 0.0,
        n_threads, gradient,
    )
    return loss, gradient.tobytes()

one_pass()
"""


def _output(script):
    """What a process of its own prints that made a pass by four threads, and then this."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # NumPy's own helpers take signals
    return printed("-c", PASSES + script, timeout=60, env=env)


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no masks of signals")
def test_signals_are_left_to_the_threads_of_the_program():
    """One that the program blocks, to wait for it, ended the process in a helper."""
    waits = """
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.2)
print(signal.sigwait({signal.SIGUSR1}).name)
"""
    assert _output(waits) == "SIGUSR1"


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python sees to it")
def test_a_program_ends_while_daemon_threads_make_passes():
    """They come back to an interpreter that is gone, which ended the process with an error."""
    ends = """
def without_end():
    while True:
        one_pass()

for _ in range(3):
    threading.Thread(target=without_end, daemon=True).start()
time.sleep(0.1)
print("end")
"""
    assert _output(ends) == "end"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_process_that_forked_ends():
    """Both ways out: after passes in parent and child, and with the parent's helpers unused."""
    forks = """
import sys, warnings
warnings.simplefilter("ignore")
expected = one_pass()
for passes_there in (True, False):
    child = os.fork()
    if child == 0:
        sys.exit(0 if not passes_there or one_pass() == expected else 3)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
print(one_pass() == expected)
"""
    assert _output(forks).split() == ["0", "0", "True"]
