"""A new user's first minutes: clone, install, demo, a table of their own, predictions, the report.

Run: python -m benchmarks.first_minutes [--keep FOLDER]
Writes benchmarks/results/first_minutes.txt. Needs git and an index of packages pip can reach.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "first_minutes.txt"
TABLE = """
from sklearn.datasets import load_wine
load_wine(as_frame=True).frame.to_csv("wine.csv", index=False)
"""
STEPS = [
    ("git clone {repository} sparsebag", "."),
    ("python3 -m venv .venv", "."),
    ('.venv/bin/pip install --quiet "./sparsebag[cli]"', "."),
    (".venv/bin/sparsebag demo", "."),
    (".venv/bin/sparsebag inspect sparsebag_demo.sbag", "."),
    (".venv/bin/python make_table.py", "."),
    (
        ".venv/bin/sparsebag fit wine.csv --target target --max-estimators 15 -o wine.sbag "
        "--report wine.html",
        ".",
    ),
    (".venv/bin/sparsebag predict wine.sbag wine.csv -o predictions.csv", "."),
    ("head -3 predictions.csv", "."),
]
OPEN = (
    "chromium --headless --no-sandbox --disable-gpu --window-size=1100,1800 "
    "--screenshot=report.png sparsebag_report.html"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    folder = parser.parse_args().keep or Path(tempfile.mkdtemp())
    folder.mkdir(exist_ok=True)
    (folder / "make_table.py").write_text(TABLE)
    steps = [*STEPS, (OPEN, ".")] if shutil.which("chromium") else STEPS
    lines, total = [], 0.0
    for command, where in steps:
        lines.append(f"$ {command.format(repository='<the repository>')}")
        started = time.perf_counter()
        done = subprocess.run(
            command.format(repository=ROOT),
            shell=True,
            cwd=folder / where,
            env={**os.environ, "COLUMNS": "100"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - started
        total += seconds
        lines += [text for text in done.stdout.splitlines() if not _is_noise(text)]
        lines.append(f"[{seconds:.1f} s, exit code {done.returncode}]\n")
        print(lines[-1], file=sys.stderr, flush=True)
        if done.returncode:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = used.ru_utime + used.ru_stime
    lines.append(
        f"{total:.0f} s from clone to an opened report, {processor:.0f} s of them of processor "
        f"({os.cpu_count()} cores, load average {os.getloadavg()[1]:.1f})."
    )
    text = "\n".join(lines)
    RESULT.write_text(re.sub(re.escape(str(folder)), "<folder>", text) + "\n", encoding="utf-8")
    print(text)


def _is_noise(text: str) -> bool:
    """What the package index and the browser say about themselves."""
    words = ("WARNING: Location", "dbus", "ERROR:", "[notice]", "Fontconfig", "unexpected operator")
    return any(word in text for word in words) or not text.strip()


if __name__ == "__main__":
    main()
