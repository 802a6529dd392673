"""In a real terminal: bars with the time left, and a clean screen after Ctrl-C."""

from __future__ import annotations

import os
import select
import sys
import time

import pytest

from sparsebag.cli.terminal import COUNTED, STEP_NAMES

pty = pytest.importorskip("pty", reason="needs a Unix terminal")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[evidence] member 30 of 300", ""),
        ("[selection] pairs of members, fold 3 of 10", "pairs of members"),
        ("[selection] paths judged on fold 3 of 10", "paths judged"),
    ],
)
def test_the_librarys_progress_lines_are_understood(line, what):
    found = COUNTED.match(line)
    assert found["what"].strip() == what
    assert what in STEP_NAMES
    assert (int(found["i"]), int(found["n"])) in {(30, 300), (3, 10)}


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
def test_bars_show_the_time_left(files, tmp_path):
    size = ("--max-estimators", 9, "--trees", 60)
    code, out = in_a_terminal(["fit", files.train, "-t", "target", *size], tmp_path)
    assert code == 0
    assert "growing 60 trees" in out
    assert "0:00:0" in out
    assert " left " in out
    assert "Model written to small.sbag" in out


@pytest.mark.slow
def test_ctrl_c_leaves_a_clean_terminal(files, tmp_path):
    command = ["fit", files.train, "-t", "target", "--trees", 10**6]
    code, out = in_a_terminal(command, tmp_path, interrupt_at=b"growing")
    assert code == 130
    assert out.rstrip().endswith("sparsebag: interrupted; nothing was left half-written.")
    assert out.rfind("\x1b[?25h") > out.rfind("\x1b[?25l"), "the cursor is shown again"
    assert list(tmp_path.iterdir()) == []
