"""What selection costs beside the forest's own fit: 500 trees, 20 000 rows, two classes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

N_TREES, ROWS, DATA = 500, 20_000, "adult"
ALLOWED = 0.25


def run(data_dir: str | None) -> None:
    """Measure in a process of its own, so that its peak memory can be read."""
    command = [sys.executable, "-m", "benchmarks.selection_cost", data_dir or ""]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if "skipped" in found:
        print(f"\ncost: skipped: {found['skipped']}")
        return
    share = found["compress_seconds"] / found["fit_seconds"]
    print(f"\n## Cost: {N_TREES} trees, {found['rows']} rows of {DATA}, one thread\n")
    print(f"forest's fit           {found['fit_seconds']:7.1f} s")
    print(f"compress, all of it    {found['compress_seconds']:7.1f} s = {share:.0%} of the fit")
    print(f"  of it votes          {found['evidence_seconds']:7.1f} s")
    print(f"allowed {ALLOWED:.0%}")
    print(
        f"peak memory {found['peak_gib']:.2f} GiB, {found['added_gib']:.2f} more than with the "
        f"forest alone; votes and mask {found['evidence_gib']:.2f} GiB"
    )
    print(found["explanation"])


def measure(data_dir: str | None) -> dict:
    from sklearn.ensemble import RandomForestClassifier

    import sparsebag as sb
    from benchmarks.datasets import Unavailable
    from benchmarks.datasets.suite import load
    from sparsebag.evidence.collect import collect_evidence
    from sparsebag.evidence.from_ensemble import read_ensemble

    try:
        X, y, _ = load(DATA, ROWS, data_dir)
    except Unavailable as reason:
        return {"skipped": str(reason)}
    start = time.perf_counter()
    forest = RandomForestClassifier(N_TREES, random_state=0).fit(X, y)
    fit_seconds = time.perf_counter() - start
    before = _peak_gib()
    start = time.perf_counter()
    small = sb.compress(forest, X, y)
    compress_seconds = time.perf_counter() - start
    peak = _peak_gib()
    start = time.perf_counter()
    evidence = collect_evidence(read_ensemble(forest), X, y)
    return {
        "rows": len(y),
        "fit_seconds": fit_seconds,
        "compress_seconds": compress_seconds,
        "evidence_seconds": time.perf_counter() - start,
        "evidence_gib": evidence.nbytes / 2**30,
        "peak_gib": peak,
        "added_gib": peak - before,
        "explanation": str(small.selection_),
    }


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1] or None)))
