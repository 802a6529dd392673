"""Whether every figure in the repository is of the code that is in it.

    python -m benchmarks.check_figures [FILE ...]

A results file names the source of its figures, `benchmarks.environment.source_hash`, in a column
of a CSV and in words elsewhere. It must be today's: ``make results`` runs them all. Pages, tables
and pictures made from results are made again and must be the same. Of results files that are
named, nothing else is looked at, and they must exist.
"""

import csv
import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks import paper_page, picture, screenshot
from benchmarks.environment import source_hash

DOCS = picture.ROOT / "docs"
ELSEWHERE = re.compile(r".*_gpu\.\w+")
"""Figures of another machine."""


def sources(path: Path) -> set[str]:
    """Every source that a results file names; what runs no sparsebag names none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        return {row["source"] for row in csv.DictReader(io.StringIO(text))} - {""}
    return set(re.findall(r'\bsource"?:? "?([0-9a-f]{12})\b', text))


def stale_results(folder: Path, today: str) -> Iterator[str]:
    """A line for each results file that is not of this source."""
    for path in sorted(p for p in folder.iterdir() if p.suffix in (".csv", ".json", ".txt")):
        found = sources(path)
        if not found and path.suffix == ".txt":
            yield f"{path.name} names no source"
        elif found - {today} and not ELSEWHERE.fullmatch(path.name):
            yield f"{path.name} is of source {', '.join(sorted(found))}"


def stale_pages() -> Iterator[str]:
    """A line for each page or picture that is not what the results make of it, or has none."""
    for name in re.findall(r"`(\w+\.txt)`", picture.BENCHMARKS.read_text(encoding="utf-8")):
        if not (picture.RESULTS / name).exists():
            yield f"{name} is not there"
    table = picture.results()
    made = {picture.PICTURE: picture.picture(table) + "\n", **picture.pages(table)}
    made |= {DOCS / name: text for name, text in paper_page.files().items()}
    for path, text in made.items():
        if path.read_text(encoding="utf-8") != text:
            yield f"{path.relative_to(picture.ROOT)} is not what `make figures` writes"
    if screenshot.SOURCE.read_text(encoding="utf-8") != screenshot.source_of_pictures():
        yield "screenshots are of another source; `make screenshot` draws them"


def main(*names: str) -> int:
    """Print what is stale; the exit status says whether anything is."""
    today = source_hash()
    if names:
        files = [picture.RESULTS / name for name in names]
        # No text, a table or an experiment of no source: as it is.
        return not all(
            file.exists() and sources(file) <= {today} and (file.suffix != ".txt" or sources(file))
            for file in files
        )
    found = [*stale_results(picture.RESULTS, today), *stale_pages()]
    print("\n".join([f"source {today}", *found]))
    print(f"{len(found)} stale" if found else "Every figure is of this source.")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
