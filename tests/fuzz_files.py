"""A million mutated model files: no crash, no hang, no error but the one.

    python tests/fuzz_files.py [--count N] [--processes P] [--seed S]

Runs in several processes, so that a crash is seen and told. A run of
FULL_COUNT files or more writes what it found to benchmarks/results/fuzz.txt.
"""

import argparse
import faulthandler
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from unittest.mock import patch

import numpy as np

from deploy_mutations import mutated, seeds, try_out
from sparsebag.deploy import artifact

HANG_SECONDS = 20
"""A file takes well under a millisecond; a process that takes this long for one is killed."""
REPORT_SECONDS = 30.0
FULL_COUNT = 100_000
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "fuzz.txt"
OUTCOMES = ("refused", "loaded", "predicted")
"""Loaded only: a model of more columns than are tried."""


def uncompressed_seeds() -> dict[str, bytes]:
    """The same files with every array as it is: damage to them is damage to a model."""
    with patch.object(artifact, "WORTH_PACKING", 2**62):
        return {f"{name}, uncompressed": content for name, content in seeds().items()}


def fuzz(count: int, seed: int) -> Counter[str]:
    """Try ``count`` mutations; every failure is written to a file and raised."""
    rng = np.random.default_rng(seed)
    files = [*seeds().values(), *uncompressed_seeds().values()]
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
        f"{results['predicted']:,} predicted), {rate:,.0f} a second, "
        f"{(count - done) / rate:,.0f} s left"
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
        print(*(results[outcome] for outcome in OUTCOMES))
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
    counts = np.zeros(len(OUTCOMES), dtype=int)
    for child in children:
        out, _ = child.communicate()
        if child.returncode != 0:
            sys.exit(f"a process ended with {child.returncode}: a crash, a hang or another error")
        counts += np.array(out.split(), dtype=int)
    told = (
        f"{counts.sum():,} mutated files, seeds {args.seed} to {args.seed + args.processes - 1}: "
        f"{counts[0]:,} refused, {counts[1] + counts[2]:,} loaded, {counts[2]:,} of them "
        f"predicted; crashes 0, hangs 0; {time.perf_counter() - start:.0f} s"
    )
    print(told)
    if args.count >= FULL_COUNT:
        sys.path.append(str(Path(__file__).parents[1]))
        from benchmarks.environment import source_hash

        command = f"python tests/fuzz_files.py --count {args.count} --processes {args.processes}"
        source = f"source: {source_hash()}"  # which code it was
        RESULTS.write_text(f"{command}\n{source}\n{told}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
