"""What a pass over a stream costs beside reading it: blocks, digests, prior votes not held.

``python -m benchmarks.digests`` prints the tables of ``benchmarks/results/digests.txt``, and keeps
them there. Passes over ``.npy`` files in the page cache, by one thread, in CPU time, as multiples
of what the memory's bandwidth allows, and of a plain read of the same files in the same slices
(mapping a file's pages is work of the system's that memory does not ask for), by `memory_limit`,
which a block has a thirty-second of; the digests that know blocks again are measured alone (blocks
read before the clock starts), in turns with the passes, and the least of each is compared, since
other work only adds. The last column is a pass for which no row's prior vote is held, as for rows
beyond what an eighth of the limit has room for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import sparsebag as sb
from benchmarks.environment import environment
from benchmarks.memory_speed import bandwidth
from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.row_stream import RowStream
from sparsebag.evidence.same_rows import BlockDigests
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.pass_threads import at_most_pass_threads
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.stream_objective import StreamObjective
from sparsebag.streaming import BLOCK_SHARE

SHAPES = [(2_000_000, 20), (200_000, 200), (40_000, 1000)]
MEMORY_LIMITS = (1 << 30, 1 << 27, 1 << 25, 1 << 23)
TURNS = 4
RESULTS = Path(__file__).parent / "results" / "digests.txt"


def cpu_seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def digest_seconds(rows: RowStream) -> float:
    """A later pass's digests alone; the first one's take more, beside much else."""
    taken, seconds = BlockDigests(), 0.0
    for number, block in enumerate(rows.blocks()):
        taken.meet(number, block)
    for number, block in enumerate(rows.blocks()):
        block.votes.max(), block.oob_mask.max()
        seconds += cpu_seconds(lambda n=number, b=block: taken.meet(n, b))
    return seconds


def plain_read_seconds(folder: Path, block_rows: int) -> float:
    """Votes and mask once, in the slices of a pass, by the fastest plain sums."""
    votes, mask = (NpyWindow(folder / name) for name in ("votes.npy", "mask.npy"))

    def read() -> None:
        for first in range(0, votes.shape[0], block_rows):
            rows = slice(first, first + block_rows)
            flat = votes[rows].reshape(-1)
            flat.dot(flat)
            mask[rows].view(np.uint8).max()

    return cpu_seconds(read)


@dataclass(frozen=True)
class Cost:
    """Of a pass, in CPU seconds, and the least that memory and a plain read of the files allow."""

    n_blocks: int
    a_pass: float
    digests: float
    not_held: float
    plain_read: float
    bound: float


def measure(stream: ArrayRows, folder: Path, memory_limit: int) -> Cost:
    rows = stream.with_block_bytes(memory_limit // BLOCK_SHARE)

    def objective(memory_limit: int) -> Callable[[], object]:
        f = StreamObjective(
            rows, LogLoss(), ConcaveQuadratic(0.0), prior_mass=0.02, memory_limit=memory_limit
        )
        weights = f.uniform_weights()
        f.value_and_gradient(weights)  # blocks are checked and their prior votes found once
        return lambda: f.value_and_gradient(weights)

    held, not_held = objective(memory_limit), objective(0)
    speed = bandwidth()
    turns = [
        (
            *(cpu_seconds(held), digest_seconds(rows), cpu_seconds(not_held)),
            plain_read_seconds(folder, rows.block_rows),
        )
        for _ in range(TURNS)
    ]
    speed = 0.5 * (speed + bandwidth())
    assert rows.n_blocks is not None
    assert rows.n_rows is not None
    nbytes = rows.n_rows * rows.n_members * 5
    return Cost(rows.n_blocks, *map(float, np.min(turns, axis=0)), nbytes / speed)


def on_disk(n_rows: int, n_members: int, folder: Path) -> ArrayRows:
    rng = np.random.default_rng(0)
    votes = rng.random((n_rows, n_members), dtype=np.float32)
    mask = rng.random((n_rows, n_members), dtype=np.float32) < 0.37
    np.save(folder / "votes.npy", votes * mask)
    np.save(folder / "mask.npy", mask)
    paths = folder / "votes.npy", folder / "mask.npy"
    rows = sb.stream_rows(*paths, rng.integers(0, 2, n_rows), labels=[0, 1])
    assert isinstance(rows, ArrayRows)
    return rows


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    say("python -m benchmarks.digests")
    say(", ".join(f"{name} {value}" for name, value in environment().items() if value))
    say("\nA pass over .npy files, CPU time; memory ×: of what its bandwidth allows, files ×: of a")
    say("plain read of the same slices\n")
    say(
        f"{'M':>9} {'N':>6} {'memory_limit':>13} {'blocks':>7} {'pass ms':>8} {'memory ×':>8} "
        f"{'files ×':>8} {'digests':>8} {'priors not held':>16}"
    )
    for n_rows, n_members in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            rows = on_disk(n_rows, n_members, Path(folder))
            for memory_limit in MEMORY_LIMITS:
                with at_most_pass_threads(1):  # as digests take
                    cost = measure(rows, Path(folder), memory_limit)
                limit = f"{memory_limit >> 20} MiB"
                say(
                    f"{n_rows:9,} {n_members:6,} {limit:>13} {cost.n_blocks:7} "
                    f"{1e3 * cost.a_pass:8.1f} {cost.a_pass / cost.bound:8.1f} "
                    f"{cost.a_pass / cost.plain_read:8.1f} {cost.digests / cost.a_pass:8.1%} "
                    f"{cost.not_held / cost.a_pass:14.2f} ×"
                )
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
