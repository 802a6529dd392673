"""A million mutated model files: no crash, no hang, no error but the one.

    python tests/fuzz_files.py [--count N] [--processes P] [--seed S]

Runs in several processes, so that a crash is seen and told.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import subprocess
import sys
import time
import warnings
from collections import Counter

import numpy as np

from deploy_mutations import mutated, seeds, try_out

HANG_SECONDS = 20
"""A file takes well under a millisecond; a process that takes this long for one is killed."""
REPORT_SECONDS = 30.0


def fuzz(count: int, seed: int) -> Counter[str]:
    """Try ``count`` mutations; every failure is written to a file and raised."""
    rng = np.random.default_rng(seed)
    files = list(seeds().values())
    results: Counter[str] = Counter()
    start = told = time.perf_counter()
    for i in range(count):
        content = mutated(files[i % len(files)], rng)
        if i % 100 == 0:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        try:
            results[try_out(content)] += 1
        except BaseException:
            with open(f"fuzz_failure_{seed}_{i}.sbag", "wb") as file:
                file.write(content)
            raise
        if i % 100 == 0 and time.perf_counter() - told > REPORT_SECONDS:
            told = time.perf_counter()
            print(_progress(seed, i + 1, count, told - start, results), file=sys.stderr, flush=True)
    faulthandler.cancel_dump_traceback_later()
    return results


def _progress(seed: int, done: int, count: int, seconds: float, results: Counter[str]) -> str:
    rate = done / seconds
    return (
        f"seed {seed}: {done:,} of {count:,} files ({results['refused']:,} refused, "
        f"{results['loaded']:,} loaded), {rate:,.0f} a second, {(count - done) / rate:,.0f} s left"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", action="store_true")
    args = parser.parse_args()
    if args.child:
        faulthandler.enable()
        warnings.simplefilter("ignore")
        results = fuzz(args.count, args.seed)
        print(results["refused"], results["loaded"])
        return
    start = time.perf_counter()
    each = -(-args.count // args.processes)
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--child", f"--count={each}", f"--seed={args.seed + p}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for p in range(args.processes)
    ]
    counts = np.zeros(2, dtype=int)
    for child in children:
        out, _ = child.communicate()
        if child.returncode != 0:
            sys.exit(f"a process ended with {child.returncode}: a crash, a hang or another error")
        counts += np.array(out.split(), dtype=int)
    print(
        f"{counts.sum():,} mutated files: {counts[0]:,} refused, {counts[1]:,} loaded and "
        f"predicted; no crash, no hang; {time.perf_counter() - start:.0f} s"
    )


if __name__ == "__main__":
    main()
