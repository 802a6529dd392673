"""The compiled value-and-gradient products against the same work done with NumPy's BLAS.

    python -m benchmarks.passes

This gap is why the compiled module exists.
"""

from functools import partial
from timeit import repeat

import numpy as np

from benchmarks.solvers import read_bandwidth
from sparsebag.evidence.arrays import row_blocks
from sparsebag.objective.passes import ArrayPasses, NativePasses

SHAPES = [(20_000, 250), (20_000, 1000), (20_000, 2000)]
REPEATS = 15


def one_pass(blocks: list, weights: np.ndarray) -> None:
    for block in blocks:
        n, d = block.forward(weights)
        block.transposed(n, d)


def main() -> None:
    bandwidth = read_bandwidth()
    print(f"read bandwidth {bandwidth / 1e9:.1f} GB/s; milliseconds a pass, best of {REPEATS}\n")
    print(f"{'M':>7}{'N':>6}{'BLAS':>9}{'compiled':>10}{'faster':>8}{'× bound':>9}")
    for n_rows, n_members in SHAPES:
        rng = np.random.default_rng(0)
        votes = rng.random((n_rows, n_members), dtype=np.float32)
        mask = rng.random((n_rows, n_members)) < 0.37
        weights = np.full(n_members, 1.0 / n_members)
        rows = list(row_blocks(votes))
        general = [ArrayPasses((votes[r],), mask[r], np, np.float32) for r in rows]
        native = [NativePasses(votes[r], mask[r]) for r in rows]
        blas, ours = (
            min(repeat(partial(one_pass, way, weights), number=1, repeat=REPEATS))
            for way in (general, native)
        )
        bound = (votes.nbytes + mask.nbytes) / bandwidth
        print(
            f"{n_rows:>7}{n_members:>6}{1e3 * blas:>9.2f}{1e3 * ours:>10.2f}"
            f"{blas / ours:>7.1f}x{ours / bound:>9.1f}"
        )


if __name__ == "__main__":
    main()
