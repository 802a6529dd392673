"""Jobs of `benchmarks.local`: resumable, in shards, with progress; one failure ends none other."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.datasets import Unavailable
from benchmarks.progress import Progress
from benchmarks.results_store import FAILED, ResultsStore, key_of, rounded

RESULTS = Path(__file__).parent / "results"
Row = dict[str, Any]


def shard(text: str) -> tuple[int, int]:
    """``"1/2"`` as (1, 2)."""
    part, _, of = text.partition("/")
    if not (part.isdigit() and of.isdigit() and 1 <= int(part) <= int(of)):
        raise argparse.ArgumentTypeError(f"{text!r} is no shard; the first of two is 1/2.")
    return int(part), int(of)


def files(name: str) -> list[Path]:
    """The results file of that name and those of shards, as far as they are there."""
    return sorted(RESULTS.glob(f"{name}*.csv"))


def run_jobs(
    name: str,
    columns: Sequence[str],
    key: Sequence[str],
    jobs: Sequence[Row],
    rows_of: Callable[[Row], Sequence[Row]],
    part_of: tuple[int, int],
) -> None:
    """Run what is not finished; a job's key is written with its last row.

    Parameters
    ----------
    name : str
        Of the results file, without ``.csv``.
    columns, key : sequence of str
    jobs : sequence of dict
        Each with the columns of ``key``, as its last row will have them.
    rows_of : callable
        A job to its rows.
    part_of : (int, int)
        The shard, and of how many.
    """
    part, of = part_of
    finished = {
        k
        for path in files(name)
        for k, row in ResultsStore(path, columns, key).rows.items()
        if row["status"] != FAILED
    }
    path = RESULTS / (f"{name}.csv" if of == 1 else f"{name}_{part}_of_{of}.csv")
    store = ResultsStore(path, columns, key)
    mine = [job for i, job in enumerate(jobs) if i % of == part - 1]
    todo = [job for job in mine if key_of(job, key) not in finished]
    progress = Progress(max(len(todo), 1))
    for job in todo:
        try:
            for row in rows_of(job):
                store.add({column: rounded(value) for column, value in row.items()})
        except Unavailable as reason:
            print(f"{job} skipped: {reason}", flush=True)
        except Exception as error:  # one failure must not end a long run
            reason = f"{type(error).__name__}: {error}"
            store.add({**job, "status": FAILED, "reason": reason})
            print(f"{job} failed: {reason}", flush=True)
        progress.step(" ".join(str(value) for value in job.values()))
