"""Threads of passes: guests in a process that ends, in threads that end, as it likes."""

import os
import subprocess
import sys

import pytest

PASSES = """
import os, signal, threading, time
import numpy as np
from sparsebag.objective import _passes

votes = np.random.default_rng(0).random((30_000, 40), dtype=np.float32)
mask, ones = np.ones(votes.shape, dtype=np.uint8), np.ones(30_000)

def one_pass(n_threads=4):
    weights, gradient = np.full(40, 1 / 40, dtype=np.float32), np.zeros(40)
    loss = _passes.loss_and_gradient(
        votes, mask, weights, ones, ones, ones, True, 0.0, 1e-15, 1e-15, 1.0, 0.0, 1.0, True,
        n_threads, gradient,
    )
    return loss, gradient.tobytes()

one_pass()
"""


def _output(script):
    """What a process of its own prints that made a pass by four threads, and then this."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # NumPy's own helpers take signals
    done = subprocess.run(
        [sys.executable, "-c", PASSES + script], timeout=60, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_threads_that_made_passes_end():
    """On Windows, where a thread ends under a lock, one that waited for its helpers did not."""
    ends = """
for _ in range(5):
    worker = threading.Thread(target=one_pass)
    worker.start()
    worker.join(20)
    print(worker.is_alive())
"""
    assert _output(ends).split() == ["False"] * 5


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


@pytest.mark.skipif(sys.platform != "linux", reason="calls the C library by its name there")
def test_helpers_round_as_the_thread_that_asks_does():
    """Which part a helper takes is chance: by other rules no bit would be the same twice."""
    rounds = """
import ctypes, platform
upwards = {"x86_64": 0x800, "aarch64": 0x400000}[platform.machine()]
usual = one_pass()
assert ctypes.CDLL("libm.so.6").fesetround(upwards) == 0
alone = one_pass(1)
found = [one_pass() for _ in range(50)]
ctypes.CDLL("libm.so.6").fesetround(0)
print(alone != usual, found.count(alone), one_pass() == usual)
"""
    assert _output(rounds) == "True 50 True"


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
