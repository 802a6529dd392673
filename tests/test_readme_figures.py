"""Figures of README's table are those of the results files they cite."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = (ROOT / "README.md").read_text(encoding="utf-8")

# What README says, with {} for a figure, and where a file prints each figure, in order.
CLAIMS = {
    "safe": (
        "risk on {} % of 320 runs (100 trees, median {} kept; {} random ones do as well) and "
        "{} % of 320 (500 trees, median {}; {} random ones)",
        "selection.txt",
        r"whole ensemble's on ([\d.]+)% of 320 runs[^\n]*\nmembers kept: median (\d+) [^\n]*"
        r"on the test rows: median (\d+)",
    ),
    "random": (
        "on {}, {}, {}, {} % of runs (k = 5, 10, 20, 50 of 100 trees) and {}, {}, {}, {} % "
        "(of 500)",
        "selection.txt",
        r"\nk = \d+ +random [^(]*\(better (\d+)%\)",
    ),
    "both ways": (
        "once {}–{} % a run (500 trees {}–{} %",
        "selection_both_ways.txt",
        None,
    ),
    "quality": (
        "≤ 1.01 × the whole ensemble's on {} % of 64 (32 data sets, forests and bags, means over "
        "5 splits), 10 trees on {} %",
        "quality.txt",
        None,
    ),
    "members": (
        "{} MiB as leaves (3.9 GB as votes of every class), weights in {} s of CPU; {} kept, test "
        "log-loss {} against {} of all",
        "scale_members.txt",
        None,
    ),
    "gpu": (
        "{} s from evidence on the device; a gradient pass at {} % of the card's copy bandwidth, "
        "the Gram at {} % of its matrix rate",
        "scale_gpu.txt",
        None,
    ),
    "dask": (
        "Two workers are {} times as fast as one",
        "scale_dask.txt",
        r"two workers are ([\d.]+) times as fast",
    ),
}


def both_ways(text: str) -> list[str]:
    errors = re.findall(r"\n\d+ +([\d.]+)%", text)
    return [f(errors[i : i + 4]) for i in (0, 4) for f in (max, min)]


def quality(text: str) -> list[str]:
    shares = re.findall(r"\nboth \(default\) +\d+% \([^)]*\) +\d+% \([^)]*\) +(\d+)%", text)
    return [shares[1], shares[0]]


def members(text: str) -> list[str]:
    held = re.search(r"evidence: (\d+) MiB as leaves", text)[1]
    seconds, kept = re.search(r"mirror: (\d+) s of CPU.*?(\d+) of 10,000 kept", text).groups()
    losses = re.search(r"equally ([\d.]+), the \d+ kept ([\d.]+)", text).groups()
    whole, few = (f"{float(loss):.3f}" for loss in losses)
    return [held, seconds, kept, few, whole]


def gpu(text: str) -> list[str]:
    seconds = re.search(r"float32, +first call: +([\d.]+) s", text)[1]
    share = re.search(r"float32 +one kernel +1 +[\d.]+ +(\d+)%", text)[1]
    gram = re.search(r"Gram, first call: .* = (\d+)% of the matrix rate", text)[1]
    return [seconds, share, gram]


READERS = {"both ways": both_ways, "quality": quality, "members": members, "gpu": gpu}


@pytest.mark.parametrize("name", list(CLAIMS))
def test_readme_says_what_the_file_says(name):
    claim, file, pattern = CLAIMS[name]
    said = re.search(re.escape(claim).replace(r"\{\}", r"([\d.]+)"), README)
    assert said, f"README no longer says {claim!r}"
    text = (RESULTS / file).read_text(encoding="utf-8")
    if pattern is None:
        found = READERS[name](text)
    else:
        found = [
            figure
            for hit in re.findall(pattern, text)
            for figure in (hit if isinstance(hit, tuple) else (hit,))
        ]
    assert list(said.groups()) == found
