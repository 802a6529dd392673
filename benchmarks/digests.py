"""What knowing a stream's blocks again costs: CPU time of the digests beside that of a pass.

``python -m benchmarks.digests`` prints the table of ``benchmarks/results/digests.txt``. Both are
measured in one process, a pass with digests and one without taking turns; the least of each is
compared, since other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import sparsebag as sb
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.same_rows import BlockDigests, SameRows
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.stream_objective import StreamObjective

SHAPES = [(200_000, 100), (40_000, 1000)]
TURNS = 15


def cpu_seconds(call: Callable[[], object]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


class Unchecked(BlockDigests):
    """The same stream without digests."""

    def meet(self, number: int, block: OOBEvidence, *, has_all_members: bool = True) -> None:
        if number == len(self._known):
            self._known.append((block.n_rows, 0, 0))
            self._met.append(True)


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
        with_digests, without = (
            StreamObjective(rows, LogLoss(), ConcaveQuadratic(0.0), prior_mass=0.02)
            for _ in range(2)
        )
        without.stream = SameRows(rows, Unchecked())
        weights = without.uniform_weights()
        turns = [
            [
                cpu_seconds(lambda f=f: f.value_and_gradient(weights))
                for f in (with_digests, without)
            ]
            for _ in range(TURNS + 1)
        ][1:]  # the first pass checks blocks and finds their facts
    checked, plain = np.min(turns, axis=0)
    assert rows.n_blocks is not None
    return float(plain), float(checked - plain), rows.n_blocks


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("Digests of a stream's blocks (.npy files), CPU time beside that of a pass without\n")
    print(f"{'M':>9} {'N':>6} {'memory_limit':>13} {'blocks':>7} {'pass ms':>8} {'more':>7}")
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
