"""In a real terminal: every step a line, and a clean end after Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import time

import pytest

pty = pytest.importorskip("pty", reason="needs a Unix terminal")


def in_a_terminal(arguments, folder, interrupt_at=None):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(COLUMNS="100", TERM="xterm-256color")
        os.execv(sys.executable, [sys.executable, "-m", "sparsebag.cli", *map(str, arguments)])
    out, pressed, end = b"", False, time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([terminal], [], [], 0.5)[0]:
            continue
        try:
            read = os.read(terminal, 1 << 16)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        out += read
        if interrupt_at is not None and not pressed and interrupt_at in out:
            os.write(terminal, b"\x03")
            pressed = True
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.decode(errors="replace")


@pytest.mark.slow
def test_every_step_is_told_and_the_results_fit(files, tmp_path):
    size = ("--max-estimators", 9, "--trees", 60)
    code, out = in_a_terminal(["fit", files.train, "-t", "target", *size], tmp_path)
    assert code == 0
    told = ("reading", "growing 60 trees", "teaching the small model", "writing small.sbag")
    assert [out.find(step) for step in told] == sorted(out.find(step) for step in told)
    assert all(step in out for step in told)
    assert "written  small.sbag" in out


@pytest.mark.slow
def test_ctrl_c_leaves_a_clean_terminal(files, tmp_path):
    command = ["fit", files.train, "-t", "target", "--trees", 10**6]
    code, out = in_a_terminal(command, tmp_path, interrupt_at=b"growing")
    assert code == 130
    assert out.rstrip().endswith("sparsebag: interrupted; nothing was left half-written.")
    assert list(tmp_path.iterdir()) == []
