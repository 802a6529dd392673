"""N = 10 000 members on M = 100 000 rows: solved, within 1.5 times the float32 evidence.

Synthetic votes, 37 % out of bag, in a process of its own so that its peak memory can be read.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import numpy as np

ALLOWED_SHARE = 1.5
SHAPE = (100_000, 10_000)
QUICK_SHAPE = (20_000, 2_000)
ROWS_AT_ONCE = 2_000


def synthetic_evidence(n_rows: int, n_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Votes of members of unequal skill on rows of unequal difficulty; zero where in the bag."""
    rng = np.random.default_rng(0)
    votes = np.empty((n_rows, n_members), dtype=np.float32)
    mask = np.empty((n_rows, n_members), dtype=np.bool_)
    skill = rng.normal(1.0, 0.3, n_members).astype(np.float32)
    for start in range(0, n_rows, ROWS_AT_ONCE):
        rows = slice(start, min(start + ROWS_AT_ONCE, n_rows))
        n = rows.stop - rows.start
        difficulty = rng.normal(0.0, 1.5, (n, 1)).astype(np.float32)
        logit = rng.standard_normal((n, n_members), dtype=np.float32)
        logit *= 1.5
        logit += skill
        logit += difficulty
        np.negative(logit, out=logit)
        np.exp(logit, out=logit)
        logit += 1.0
        np.reciprocal(logit, out=logit)
        mask[rows] = rng.random((n, n_members), dtype=np.float32) < 0.37
        np.multiply(logit, mask[rows], out=votes[rows])
    return votes, mask


def solve(n_rows: int, n_members: int) -> dict[str, float | str]:
    """Generate, fit, and measure this process."""
    import sparsebag as sb

    votes, mask = synthetic_evidence(n_rows, n_members)
    y = np.arange(n_rows) % 2
    start = time.perf_counter()
    solution = sb.fit_weights(votes, mask, y, lam=0.01)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "seconds": seconds,
        "peak": peak,
        "evidence": votes.nbytes,
        "objective": solution.objective,
        "gap": solution.stationarity_gap,
        "kept": solution.n_active,
        "solver": solution.solver,
        "status": solution.status.name,
        "passes": solution.n_evaluations,
        "read": solution.nbytes_read,
    }


def run(*, quick: bool) -> None:
    n_rows, n_members = QUICK_SHAPE if quick else SHAPE
    print(f"\n## Large: N = {n_members}, M = {n_rows}, synthetic evidence, 37 % out of bag\n")
    command = [sys.executable, "-m", "benchmarks.large_evidence", str(n_rows), str(n_members)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f"failed: {done.stderr.strip().splitlines()[-1]}")
        return
    result = json.loads(done.stdout)
    share = result["peak"] / result["evidence"]
    print(
        f"{result['solver']}: {result['seconds']:.1f} s, {result['passes']} passes, read "
        f"{result['read'] / 1e9:.0f} GB, objective {result['objective']:.7f}, gap "
        f"{result['gap']:.1e}, {result['kept']} members, {result['status']}"
    )
    print(
        f"peak memory of the process {result['peak'] / 2**30:.2f} GiB = {share:.2f} x the float32 "
        f"evidence ({result['evidence'] / 2**30:.2f} GiB); allowed {ALLOWED_SHARE} x"
    )


if __name__ == "__main__":
    print(json.dumps(solve(int(sys.argv[1]), int(sys.argv[2]))))
