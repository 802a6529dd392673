"""What selection costs beside the forest's own fit: 500 trees, 20 000 rows, two classes."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

N_TREES, ROWS, DATA = 500, 20_000, "adult"
ALLOWED = 0.25
RESULTS = Path(__file__).parent / "results" / "selection_cost.txt"


def run(data_dir: str | None) -> None:
    """Measure in a process of its own, so that its peak memory can be read."""
    command = [sys.executable, "-m", "benchmarks.selection_cost", data_dir or ""]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    if "skipped" in found:
        print(f"\ncost: skipped: {found['skipped']}")
        return
    fit = found["fit_seconds"]
    alone, votes = found["compress_seconds"], found["evidence_seconds"]
    text = (
        f"## Cost: {N_TREES} trees, {found['rows']} rows of {DATA}, one thread, processor time\n\n"
        f"forest's fit                         {fit:7.1f} s\n"
        f"compress, refine=calibration=None    {alone:7.1f} s = {alone / fit:.0%} of the fit\n"
        f"  of it members' votes               {votes:7.1f} s = {votes / fit:.0%}\n"
        f"  of it selection                    {alone - votes:7.1f} s = "
        f"{(alone - votes) / fit:.0%} (allowed {ALLOWED:.0%})\n"
        f"compress, the default                {found['default_seconds']:7.1f} s = "
        f"{found['default_seconds'] / fit:.0%}\n"
        f"peak memory of selection {found['peak_gib']:.2f} GiB, {found['added_gib']:.2f} more than "
        f"with the forest alone; votes and mask {found['evidence_gib']:.2f} GiB\n\n"
        f"{found['explanation']}"
    )
    print(f"\n{text}")
    RESULTS.write_text(text + "\n", encoding="utf-8")


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
    sb.compress(RandomForestClassifier(5, random_state=0).fit(X[:500], y[:500]), X[:500], y[:500])
    # Of one thread: on a shared machine it says what the wall clock would on a quiet one.
    start = time.process_time()
    forest = RandomForestClassifier(N_TREES, random_state=0).fit(X, y)
    fit_seconds = time.process_time() - start
    before = _peak_gib()
    start = time.process_time()
    small = sb.compress(forest, X, y, refine=None, calibration=None)
    compress_seconds = time.process_time() - start
    peak = _peak_gib()
    start = time.process_time()
    evidence = collect_evidence(read_ensemble(forest), X, y)
    evidence_seconds = time.process_time() - start
    start = time.process_time()
    sb.compress(forest, X, y)
    return {
        "rows": len(y),
        "fit_seconds": fit_seconds,
        "compress_seconds": compress_seconds,
        "evidence_seconds": evidence_seconds,
        "default_seconds": time.process_time() - start,
        "evidence_gib": evidence.nbytes / 2**30,
        "peak_gib": peak,
        "added_gib": peak - before,
        "explanation": str(small.selection_),
    }


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1] or None)))
