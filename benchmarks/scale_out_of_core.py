"""Evidence on disk, four times what memory allows: solved under a hard limit, killed, resumed.

    python -m benchmarks.scale --only out_of_core [--quick]

In each format stored evidence is solved three times, each time in a process of its own whose memory
is limited by the system (RLIMIT_AS: every map and allocation counts, the interpreter and its
libraries included), a quarter of the evidence on top of what they take before it is opened; that
quarter is also the ``memory_limit`` given. The second process is
killed (SIGKILL) in mid-pass; the third is the same call and goes on from its checkpoint.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peak_memory import forget_peak, held_bytes, peak_bytes
from benchmarks.scale_data import SyntheticRows

SHAPE, QUICK_SHAPE = (400_000, 500), (60_000, 400)
SHARE = 4
"""The evidence is this many times the memory a solve may take."""
LAM = 0.0
TINY_ROWS = 200
FEW_ARENAS = {"MALLOC_ARENA_MAX": "1"}
"""glibc sets 64 MiB of addresses aside for every thread, and Zarr and Arrow start several: that is
no memory, but RLIMIT_AS counts it."""
FORMATS = {"npy": "memory-mapped .npy", "zarr": "Zarr", "parquet": "Parquet"}


def solve(folder: str, tiny: str, limit: int, checkpoint: str | None) -> dict[str, object]:
    """In this process: import, set the limit, solve, and measure."""
    import sparsebag as sb
    from sparsebag.evidence.stored_rows import open_evidence

    # Everything is imported and every library's threads have started before the limit is set: a
    # few rows in the same format are solved first. Of these rows nothing has been read then.
    sb.fit_weights(open_evidence(tiny), lam=LAM)
    imported = _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (imported + limit, imported + limit))
    forget_peak()
    before = held_bytes()
    start = time.perf_counter()
    stream = open_evidence(folder)
    found = sb.fit_weights(stream, lam=LAM, memory_limit=limit, checkpoint=checkpoint)
    return {
        "weights": np.asarray(found.weights).tolist(),
        "objective": found.objective,
        "gap": found.stationarity_gap,
        "kept": found.n_active,
        "passes": found.n_passes,
        "status": found.status.name,
        "seconds": time.perf_counter() - start,
        "grown": peak_bytes() - before,
    }


def _address_space() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run_apart(folder: Path, limit: int, checkpoint: Path | None) -> subprocess.Popen[str]:
    arguments = [str(folder), str(folder.with_name(f"{folder.name}_tiny")), str(limit)]
    arguments += [str(checkpoint)] if checkpoint else []
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.scale_out_of_core", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **FEW_ARENAS},
    )


def answer(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = process.communicate()
    if process.returncode:
        raise RuntimeError(err.strip().splitlines()[-1] if err.strip() else "no message")
    found: dict[str, object] = json.loads(out.strip().splitlines()[-1])
    return found


def kill_in_mid_pass(process: subprocess.Popen[str], checkpoint: Path, n_passes: int) -> str:
    """SIGKILL as soon as more than so many passes are on record, finished or not."""
    while process.poll() is None:
        time.sleep(0.02)
        try:
            with np.load(checkpoint) as record:
                done, blocks = record["is_done"], record["n_blocks"]
        except (OSError, ValueError, EOFError, KeyError):
            continue
        if int(done.sum()) >= n_passes and len(done) > n_passes:
            process.send_signal(signal.SIGKILL)
            process.wait()
            where = "after" if done[-1] else f"{int(blocks[-1])} blocks into"
            return f"killed (SIGKILL) {where} pass {len(done)}"
    return "ended before it could be killed"


def show(name: str, found: dict[str, object], limit: int) -> None:
    print(
        f"{name:<34}objective {found['objective']:.8f}, gap {found['gap']:.1e}, {found['kept']} "
        f"members, {found['passes']:.3g} passes, {found['status']}, {found['seconds']:.1f} s; "
        f"memory grew by {found['grown'] / 2**20:.0f} of {limit / 2**20:.0f} MiB",
        flush=True,
    )


def run(*, quick: bool) -> None:
    import sparsebag as sb
    from sparsebag.evidence.generated_rows import GeneratedRows

    n_rows, n_members = QUICK_SHAPE if quick else SHAPE
    nbytes = n_rows * n_members * 5
    limit = nbytes // SHARE
    print(
        f"\n## Out of core: M = {n_rows:,}, N = {n_members}, evidence {nbytes / 2**20:.0f} MiB, "
        f"limit {limit / 2**20:.0f} MiB beyond the imports\n"
    )
    rows = SyntheticRows(n_rows, n_members)
    stream = GeneratedRows(
        rows.blocks, n_members, task="classification", labels=np.arange(2), n_rows=n_rows
    )
    few = sb.stream_rows(*SyntheticRows(TINY_ROWS, n_members).arrays(), labels=np.arange(2))
    folder = Path(tempfile.mkdtemp())
    first: dict[str, object] | None = None
    try:
        for kind, name in FORMATS.items():
            stored = folder / kind
            try:
                sb.store_evidence(stream, stored, format=kind)
                sb.store_evidence(few, stored.with_name(f"{kind}_tiny"), format=kind)
            except ImportError as error:
                print(f"{name}: skipped, {error}")
                continue
            first = three_solves(name, stored, limit, folder / f"{kind}.ckpt", first) or first
            shutil.rmtree(stored)
    finally:
        shutil.rmtree(folder)


def three_solves(
    name: str, stored: Path, limit: int, checkpoint: Path, first: dict[str, object] | None
) -> dict[str, object]:
    """Undisturbed, killed, and again from its checkpoint; the first is returned."""
    size = sum(path.stat().st_size for path in stored.rglob("*") if path.is_file())
    whole = answer(run_apart(stored, limit, None))
    show(f"{name}, {size / 2**20:.0f} MiB", whole, limit)
    process = run_apart(stored, limit, checkpoint)
    print(f"{'  the same, with a checkpoint':<34}{kill_in_mid_pass(process, checkpoint, 1)}")
    resumed = answer(run_apart(stored, limit, checkpoint))
    show("  the same call again", resumed, limit)
    same = resumed["weights"] == whole["weights"]
    word = f"weights {'equal bit for bit' if same else 'DIFFER'}"
    if first is not None:
        off = np.abs(np.subtract(whole["weights"], first["weights"])).max()
        excess = whole["objective"] - first["objective"]
        word += f"; beside those of the .npy files: off by {off:.0e}, objective {excess:+.0e}"
    print(f"{'':<34}{word}", flush=True)
    return whole


if __name__ == "__main__":
    folder, tiny, limit, *checkpoint = sys.argv[1:]
    print(json.dumps(solve(folder, tiny, int(limit), checkpoint[0] if checkpoint else None)))
