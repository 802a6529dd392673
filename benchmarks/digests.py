"""What knowing a stream's blocks again costs: CPU time of the digests beside that of a pass.

``python -m benchmarks.digests`` prints the table of ``benchmarks/results/digests.txt``. A pass, and
the digests of its blocks alone (read from the file before the clock starts, as the pass has to),
are measured in turns in one process; the least of each is compared, since other work only adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import sparsebag as sb
from sparsebag.evidence.row_stream import RowStream
from sparsebag.evidence.same_rows import BlockDigests
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.stream_objective import StreamObjective

SHAPES = [(200_000, 100), (40_000, 1000)]
TURNS = 5


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


def measure(n_rows: int, n_members: int, memory_limit: int) -> tuple[float, float, int]:
    rng = np.random.default_rng(0)
    votes = rng.random((n_rows, n_members), dtype=np.float32)
    mask = rng.random((n_rows, n_members), dtype=np.float32) < 0.37
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "votes.npy", votes * mask)
        np.save(Path(folder) / "mask.npy", mask)
        del votes, mask
        paths = Path(folder) / "votes.npy", Path(folder) / "mask.npy"
        rows = sb.stream_rows(*paths, rng.integers(0, 2, n_rows), labels=[0, 1])
        rows = rows.with_block_bytes(memory_limit // 32)
        objective = StreamObjective(rows, LogLoss(), ConcaveQuadratic(0.0), prior_mass=0.02)
        weights = objective.uniform_weights()
        objective.value_and_gradient(weights)  # blocks are checked and their facts found once
        turns = [
            (cpu_seconds(lambda: objective.value_and_gradient(weights)), digest_seconds(rows))
            for _ in range(TURNS)
        ]
    a_pass, digests = np.min(turns, axis=0)
    assert rows.n_blocks is not None
    return float(a_pass), float(digests), rows.n_blocks


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("Digests of a stream's blocks (.npy files), CPU time as a part of a pass's\n")
    print(f"{'M':>9} {'N':>6} {'memory_limit':>13} {'blocks':>7} {'pass ms':>8} {'of it':>7}")
    for n_rows, n_members in SHAPES:
        for memory_limit in (1 << 30, 1 << 25):
            a_pass, digests, n_blocks = measure(n_rows, n_members, memory_limit)
            limit = f"{memory_limit >> 20} MiB"
            print(
                f"{n_rows:9,} {n_members:6,} {limit:>13} {n_blocks:7} {1e3 * a_pass:8.1f} "
                f"{digests / a_pass:7.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
