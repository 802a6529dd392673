"""``sparsebag compress`` on adult: time, memory, result; then on whatever can be wrong.

Run: python -m benchmarks.command_line (adult.csv under SPARSEBAG_DATA)
Writes benchmarks/results/command_line.txt.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from benchmarks.environment import environment

RESULT = Path(__file__).parent / "results" / "command_line.txt"
TREES = 300
FULL_DISK = 20_000
"""Bytes a file may have in the trial of a full disk."""


def find(name: str) -> Path:
    folder = os.environ.get("SPARSEBAG_DATA")
    found = sorted(Path(folder).glob(f"**/{name}.csv*")) if folder else []
    if not found:
        sys.exit(f"{name}.csv is not under SPARSEBAG_DATA; set it to a folder that has it.")
    return found[0]


def prepare(folder: Path) -> None:
    """Train and test tables, and forests as a user would have saved them."""
    import joblib
    import skops.io

    table = pd.read_csv(find("adult"))
    train, test = train_test_split(table, test_size=0.3, random_state=0)
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    X, y = train.drop(columns="target"), train["target"].to_numpy()
    started = time.perf_counter()
    forest = RandomForestClassifier(TREES, min_samples_leaf=2, random_state=0, n_jobs=-1).fit(X, y)
    print(f"forest fitted in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    skops.io.dump(forest, folder / "forest.skops")
    joblib.dump(forest, folder / "forest.joblib")
    lines = (folder / "train.csv").read_text().splitlines()
    (folder / "broken.csv").write_text("\n".join([*lines[:100], lines[100][:12], *lines[101:200]]))
    train.drop(columns="target").to_csv(folder / "no_target.csv", index=False)
    train.rename(columns={"age": "years"}).to_csv(folder / "renamed.csv", index=False)
    (folder / "junk.skops").write_bytes(np.random.default_rng(0).bytes(5000))


def told(folder: Path, *arguments: str, limit: int | None = None) -> list[str]:
    """Run one command; what was typed, what it said, what it took, what it left."""

    def restrict() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    before = {path.name for path in folder.iterdir()}
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "sparsebag.cli", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=restrict,
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    seconds, processor = time.perf_counter() - started, usage.ru_utime + usage.ru_stime
    new = sorted({path.name for path in folder.iterdir()} - before)
    return [
        f"$ sparsebag {' '.join(arguments)}",
        *(line for line in output.splitlines() if line.strip()),
        f"[exit code {os.waitstatus_to_exitcode(status)}, {seconds:.1f} s "
        f"({processor:.1f} s of processor), {usage.ru_maxrss / 1024:.0f} MiB at most, "
        f"new files: {', '.join(new) or 'none'}]",
        "",
    ]


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    # In a process of its own: a child's peak memory counts its parent's before it starts.
    work = multiprocessing.get_context("spawn").Process(target=prepare, args=(folder,))
    work.start()
    work.join()
    size = (folder / "forest.skops").stat().st_size / 1e6
    lines = [
        f"adult, 34 189 training rows, a forest of {TREES} trees ({size:.0f} MB as skops)",
        ", ".join(f"{k} {v}" for k, v in environment().items()),
        "",
    ]
    rest = ["--target", "target", "-o", "small.sbag", "--report", "report.html"]
    trials: list[tuple[list[str], int | None]] = [
        (["compress", "forest.skops", "train.csv", "--test", "test.csv", *rest], None),
        (["inspect", "small.sbag"], None),
        (["predict", "small.sbag", "test.csv", "-o", "predictions.csv"], None),
        (["bench", "small.sbag", "test.csv", "--against", "forest.skops", "-q"], None),
        (["compress", "forest.skops", "broken.csv", *rest], None),
        (["compress", "forest.skops", "no_target.csv", *rest], None),
        (["compress", "forest.skops", "renamed.csv", *rest], None),
        (["compress", "forest.skops", "test.csv", *rest], None),
        (["compress", "forest.joblib", "train.csv", *rest], None),
        (["compress", "junk.skops", "train.csv", *rest, "--trust-pickle"], None),
        (["compress", "forest.skops", "nowhere.csv", *rest], None),
        (["compress", "forest.skops", "train.csv", "--target", "target", "-o", "full.sbag",
          "--max-estimators", "10"], FULL_DISK),
        (["predict", "small.sbag", "test.csv", "-o", "full.csv"], FULL_DISK),
    ]  # fmt: skip
    for arguments, limit in trials:
        if limit is not None:
            lines.append(f"# the disk is full: no file may grow beyond {limit:,} bytes")
        lines += told(folder, *arguments, limit=limit)
        print(lines[-2], file=sys.stderr, flush=True)
    RESULT.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
