"""The command line in a process of its own: signals, pipes, full disks, a terminal, memory."""

import gzip
import os
import resource
import select
import signal
import subprocess
import sys
import time
from functools import partial

import pandas as pd
import pytest

from processes import ran, without


def command(*arguments):
    return [sys.executable, "-m", "sparsebag.cli", *map(str, arguments)]


def test_a_full_disk_leaves_what_was_there(files, tmp_path):
    out = tmp_path / "out.sbag"
    out.write_bytes(b"the old model")
    # From joblib: importing skops takes longer than all the rest.
    given = ("compress", files.joblib, files.train, "--trust-pickle", "-t", "target", "-o", out)
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (500, 500))
    done = ran("-m", "sparsebag.cli", *given, "--max-estimators", 9, preexec_fn=limit)
    assert done.returncode == 4, done.stderr
    told = "could not be written (file too large); what was there before is unchanged"
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["out.sbag"]
    assert out.read_bytes() == b"the old model"


def test_ctrl_c_leaves_nothing(files, tmp_path):
    process = subprocess.Popen(
        command("fit", files.train, "-t", "target", "--trees", 10**6, "-o", tmp_path / "out.sbag"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell in the background hands SIGINT down ignored, and Python then leaves it so.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    for line in process.stderr:
        if line.startswith("growing"):
            process.send_signal(signal.SIGINT)
            break
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()  # a million trees are not for the next test to wait for
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[-1] == "sparsebag: interrupted; no partial file was left."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow)],
)
def test_whatever_stops_it_leaves_nothing(number, code, files, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    header, rows = files.test.read_text().split("\n", 1)
    (tmp_path / "rows").mkdir()
    pipe = tmp_path / "rows" / "endless.csv"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        command("predict", files.small, pipe, "-o", out / "p.csv"),
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=partial(signal.signal, number, signal.SIG_DFL),
    )
    try:
        with open(pipe, "w") as feed:
            feed.write(header + "\n")
            while not list(out.iterdir()) and process.poll() is None:
                feed.write(rows * 1000)
                feed.flush()
            assert [p.suffix for p in out.iterdir()] == [".part"]
            process.send_signal(number)
            err = process.stderr.read()
        process.wait(timeout=60)
    finally:
        process.kill()
        process.stderr.close()
    assert process.returncode == code, err
    assert "no partial file was left" in err
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("unbuffered", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_a_reader_that_goes_away_is_no_error(unbuffered, files, tmp_path):
    pd.concat([files.frame] * 3000).to_csv(tmp_path / "many.csv", index=False)
    process = subprocess.Popen(
        command("predict", files.small, tmp_path / "many.csv"),
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.readline().startswith(b"prediction,p_setosa")
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert process.returncode == 141
    assert err == b""


@pytest.mark.parametrize(
    ("packed", "unbuffered"),
    [(False, ""), (True, ""), pytest.param(False, "1", marks=pytest.mark.slow)],
)
def test_rows_from_a_pipe(packed, unbuffered, files):
    text = pd.concat([files.frame] * 1500).to_csv(index=False).encode()
    done = subprocess.run(
        command("predict", files.small, "-", "--no-proba"),
        input=gzip.compress(text, 1) if packed else text,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        check=True,
    )
    labels = done.stdout.decode().split()[1:]
    assert labels == list(files.model.predict(files.frame.drop(columns="target"))) * 1500


def test_without_the_extra_it_says_what_to_install():
    done = ran("-c", without("typer") + "from sparsebag.cli.__main__ import main\nmain()")
    assert done.returncode == 1
    assert done.stderr.strip() == (
        "sparsebag: the command line needs typer, which is not installed; "
        "run: pip install 'sparsebag[cli]'"
    )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_table_larger_than_the_memory_it_takes(files, tmp_path):
    """Peak memory does not grow with the table."""
    code = """
import sys
from sparsebag.cli.app import app
try:
    app(sys.argv[1:], standalone_mode=False)
finally:
    status = open("/proc/self/status").read()  # ru_maxrss would count the parent's, before exec
    print(status.partition("VmHWM:")[2].split()[0])"""
    peaks = []
    for name, times in (("short.csv", 10_000), ("long.csv", 130_000)):
        head, body = files.test.read_text().split("\n", 1)
        (tmp_path / name).write_text(head + "\n" + body * times)
        given = ("predict", files.small, tmp_path / name, "-q", "-o", tmp_path / f"{name}.out.csv")
        done = ran("-c", code, *given)
        assert done.returncode == 0, done.stderr
        peaks.append(int(done.stdout.split()[-1]) * 1024)
    assert (tmp_path / "long.csv").stat().st_size > 120_000_000
    assert peaks[1] - peaks[0] < 60_000_000


def in_a_terminal(arguments, folder):
    pty = pytest.importorskip("pty", reason="needs a Unix terminal")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ.update(COLUMNS="100", TERM="xterm-256color")
        os.execv(sys.executable, command(*arguments))
    out, end = b"", time.monotonic() + 120
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
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), out.decode(errors="replace")


@pytest.mark.slow
def test_a_terminal_has_a_bar_a_step_and_then_the_results(files, tmp_path):
    size = ("--max-estimators", 9, "--trees", 60)
    code, out = in_a_terminal(["fit", files.train, "-t", "target", *size], tmp_path)
    assert code == 0
    told = ("reading", "growing tree", "rehearsal", "pruning and refitting", "writing small")
    assert all(step in out for step in told)
    assert [out.find(step) for step in told] == sorted(out.find(step) for step in told)
    assert "━" in out
    assert "written  small.sbag" in out
    after = out[out.index("trees    60") :]
    assert "━" not in after, "the bar is gone"
