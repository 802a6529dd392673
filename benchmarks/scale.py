"""Scale: growth with rows and members, Simplex SGD, evidence on disk, Dask, import time.

    python -m benchmarks.scale [--quick] [--only growth sgd ...]

Synthetic votes, log-loss, 37 % out of bag. Nothing is kept with ``--quick`` or ``--only``, of which
gpu needs a CUDA device with 64 GB, PyTorch and CuPy: ``scale_gpu.txt`` is what it printed.
"""

import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import sparsebag as sb
from benchmarks.kept_output import options, results_of
from benchmarks.peak_memory import forget_peak, held_bytes, peak_bytes, reserved_bytes
from sparsebag.solvers.mirror import Mirror

GROWTH = [(10_000, 100), (100_000, 100), (1_000_000, 100), (10_000, 1000), (100_000, 1000)]
GROWTH += [(10_000, 10_000)]
SGD_SHAPE, DISK_SHAPE, DASK_SHAPE = (200_000, 1000), (100_000, 500), (204_800, 400)
LARGE_SHAPE, GPU_SHAPE = (100_000, 10_000), (1_000_000, 10_000)
SHARE = 4
"""Evidence on disk is so many times the memory a solve may take."""
PASSES = 5
ROWS_AT_ONCE = 4096
NAMES = ("votes", "mask", "y")
HEAVY = ["torch", "cupy", "dask", "pandas", "onnxruntime", "pyarrow", "sklearn", "scipy"]


def block_of(number: int, n_rows: int, n_members: int) -> tuple[np.ndarray, ...]:
    """Votes (zero in the bag), mask and targets of some rows; the same for the same number."""
    rng = np.random.default_rng(number)
    skill = np.random.default_rng(2).normal(1.0, 0.3, n_members).astype(np.float32)
    logit = 1.5 * rng.standard_normal((n_rows, n_members), dtype=np.float32) + skill
    logit += 1.5 * rng.standard_normal((n_rows, 1), dtype=np.float32)
    mask = rng.random((n_rows, n_members), dtype=np.float32) < 0.37
    votes = np.where(mask, 1.0 / (1.0 + np.exp(-logit)), 0.0).astype(np.float32)
    return votes, mask, np.arange(n_rows) % 2


def blocks(n_rows: int, n_members: int) -> Iterator[tuple[np.ndarray, ...]]:
    for first in range(0, n_rows, ROWS_AT_ONCE):
        yield block_of(first // ROWS_AT_ONCE, min(ROWS_AT_ONCE, n_rows - first), n_members)


def arrays(n_rows: int, n_members: int) -> tuple[np.ndarray, ...]:
    votes = np.empty((n_rows, n_members), dtype=np.float32)
    mask = np.empty((n_rows, n_members), dtype=bool)

    def fill(number: int) -> None:
        rows = slice(number * ROWS_AT_ONCE, min((number + 1) * ROWS_AT_ONCE, n_rows))
        votes[rows], mask[rows], _ = block_of(number, rows.stop - rows.start, n_members)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(fill, range(-(-n_rows // ROWS_AT_ONCE))))
    return votes, mask, np.arange(n_rows) % 2


def timed(*args: Any, **how: Any) -> tuple[sb.Solution, float]:
    start = time.perf_counter()
    found = sb.fit_weights(*args, **how)
    return found, time.perf_counter() - start


def run_import(quick: bool) -> None:
    for module in ("numpy", "sparsebag"):
        code = f"import sys, time; s = time.process_time(); import {module}; "
        code += f"print(time.process_time() - s, *sorted(set({HEAVY}) & set(sys.modules)))"
        runs = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(3)]
        seconds, *heavy = min(run.split() for run in runs)
        told = f"{1e3 * float(seconds):>6.0f} ms; heavy modules: {heavy or 'none'}"
        print(f"import {module:<10}{told}")


def run_growth(quick: bool) -> None:
    from benchmarks.solvers import read_bandwidth  # imports what a GPU machine may lack

    speed = read_bandwidth()
    print(f"One thread reads {speed / 1e9:.1f} GB/s; × is a multiple of the time that takes.\n")
    print(
        f"{'M':>10}{'N':>8}{'evidence':>10}  {'solver':<20}{'s':>7}{'×':>6}{'passes':>8}{'kept':>6}"
    )
    for n_rows, n_members in GROWTH[:2] if quick else GROWTH:
        given = arrays(n_rows, n_members)
        for solver in ("active_set", "projected_gradient", "mirror"):
            found, seconds = timed(*given, solver=solver)
            print(
                f"{n_rows:>10,}{n_members:>8,}{5 * n_rows * n_members / 1e6:>7.0f} MB  {solver:<20}"
                f"{seconds:>7.2f}{seconds * speed / found.nbytes_read:>6.1f}"
                f"{found.n_evaluations:>8}{found.n_active:>6}",
                flush=True,
            )


def solve_large(n_rows: int, n_members: int) -> str:
    given = arrays(n_rows, n_members)
    forget_peak()
    found, seconds = timed(*given, lam=0.01)
    peak, evidence = peak_bytes(), given[0].nbytes
    return (
        f"M = {n_rows:,}, N = {n_members:,}, {found.solver}: {seconds:.1f} s, "
        f"{found.n_evaluations} passes, read {found.nbytes_read / 1e9:.0f} GB, objective "
        f"{found.objective:.7f}, gap {found.stationarity_gap:.1e}, {found.n_active} members, "
        f"{found.status.name}\npeak memory of the process {peak / 2**30:.2f} GiB, "
        f"{peak / evidence:.2f} x the float32 evidence"
    )


def run_large(quick: bool) -> None:
    """Thousands of members, in a process of its own so that its peak memory can be read."""
    shape = LARGE_SHAPE if not quick else tuple(n // 5 for n in LARGE_SHAPE)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(solve_large, shape))


def run_sgd(quick: bool) -> None:
    n_rows, n_members = (40_000, 100) if quick else SGD_SHAPE
    given = arrays(n_rows, n_members)
    print(f"M = {n_rows:,}, N = {n_members}; at most {PASSES} passes over the rows\n")
    for lam in (0.0, 0.02):
        exact, seconds = timed(*given, lam=lam, solver="projected_gradient")
        print(f"λ = {lam:<5g}{'exact':<28}{exact.objective:.8f}{'':>19}{seconds:>7.1f} s")

        def rows() -> Iterator[tuple[np.ndarray, ...]]:
            for first in range(0, n_rows, ROWS_AT_ONCE):
                yield tuple(a[first : first + ROWS_AT_ONCE] for a in given)

        stream = sb.stream_rows(rows, labels=[0, 1])
        for name, rows_given in (("mirror, in memory", given), ("mirror, generator", (stream,))):
            found, seconds = timed(*rows_given, lam=lam, solver=Mirror(max_passes=PASSES))
            excess = (found.objective - exact.objective) / exact.objective
            print(
                f"{'':<9}{name:<28}{found.objective:.8f}{excess:>+10.1e}"
                f"{found.n_passes or found.n_evaluations:>4.0f} passes{seconds:>6.1f} s",
                flush=True,
            )


def stored(folder: Path, kind: str) -> Any:
    """Rows in files of a kind, as `fit_weights` takes them."""
    if kind == "parquet":
        return sb.stream_rows(folder / "rows.parquet", labels=[0, 1])
    paths = [folder / f"{name}.{kind}" for name in NAMES]
    if kind == "npy":
        return sb.stream_rows(*paths)
    import zarr

    zarr.config.set({"threading.max_workers": 1})  # each of its threads keeps chunks of its own
    return sb.stream_rows(*(zarr.open(str(path)) for path in paths))


def store(folder: Path, kind: str, n_rows: int, n_members: int) -> None:
    if kind == "parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        types = {"votes": pa.list_(pa.float32()), "oob_mask": pa.list_(pa.bool_()), "y": pa.int64()}
        schema = pa.schema(list(types.items()))
        with pq.ParquetWriter(folder / "rows.parquet", schema) as file:
            for votes, mask, y in blocks(n_rows, n_members):
                file.write_table(pa.table([list(votes), list(mask), y], schema=schema))
        return
    for name, values in zip(NAMES, arrays(n_rows, n_members), strict=True):
        if kind == "npy":
            np.save(folder / f"{name}.npy", values)
            continue
        import zarr

        chunks = (2048, *values.shape[1:])
        path = str(folder / f"{name}.zarr")
        zarr.create_array(path, shape=values.shape, chunks=chunks, dtype=values.dtype)[:] = values


def solve_stored(folder: Path, kind: str, limit: int, checkpoint: Path) -> tuple[Any, float, int]:
    """Under RLIMIT_DATA, which Arrow's pool evades by reserving a gigabyte when it is imported."""
    with tempfile.TemporaryDirectory() as few:  # what is imported is not counted
        store(Path(few), kind, 500, 20)
        sb.fit_weights(stored(Path(few), kind), memory_limit=1 << 20)
    stream = stored(folder, kind)
    forget_peak()
    before, data = held_bytes(), resource.RLIMIT_DATA
    resource.setrlimit(data, (reserved_bytes() + limit, resource.RLIM_INFINITY))
    found, seconds = timed(stream, memory_limit=limit, checkpoint=checkpoint)
    return found, seconds, peak_bytes() - before


def run_out_of_core(quick: bool) -> None:
    n_rows, n_members = (40_000, 200) if quick else DISK_SHAPE
    limit = 5 * n_rows * n_members // SHARE
    print(f"M = {n_rows:,}, N = {n_members}; memory_limit {limit / 2**20:.0f} MiB, a quarter\n")
    context = multiprocessing.get_context("spawn")
    for kind, how in product(("npy", "zarr", "parquet"), ("", "killed, again")):
        with tempfile.TemporaryDirectory() as name:
            args = Path(name), kind, limit, Path(name) / "solve.npz"
            store(args[0], kind, n_rows, n_members)
            if how:
                killed = context.Process(target=solve_stored, args=args)
                killed.start()
                while not args[3].exists() and killed.is_alive():
                    time.sleep(0.01)
                killed.kill()
                killed.join()
            with ProcessPoolExecutor(1, context) as process:
                found, seconds, grown = process.submit(solve_stored, *args).result()
            print(
                f"{kind:<9}{how:<15}objective {found.objective:.8f}, {found.n_passes:.2f} passes, "
                f"{found.status.name}, {seconds:.1f} s; memory grew by {grown / 2**20:.0f} MiB",
                flush=True,
            )


def run_dask(quick: bool) -> None:
    try:
        import dask.array as da
        from distributed import Client, LocalCluster, wait
    except ImportError:
        print("Dask is not installed (pip install 'sparsebag[dask]').")
        return
    n_rows, n_members = (40_960, 100) if quick else DASK_SHAPE
    given = arrays(n_rows, n_members)
    here, seconds = timed(*given, lam=0.01)
    print(f"M = {n_rows:,}, N = {n_members}\n\nin memory{seconds:>13.1f} s")
    for n_workers in (1, 2):
        how: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1}
        with LocalCluster(**how, dashboard_address=None) as cluster, Client(cluster):
            parts = [da.from_array(a, chunks=(n_rows // 8, *a.shape[1:])).persist() for a in given]
            wait(parts)
            there, _ = timed(*parts, lam=0.01)  # the workers import what they need
            there, seconds = timed(*parts, lam=0.01)
        off = np.abs(there.weights - here.weights).max()
        print(f"{n_workers} worker(s){seconds:>11.1f} s; weights off by {off:.0e}", flush=True)


def run_gpu(quick: bool) -> None:
    """PyTorch and CuPy on a GPU, in this order in one process, and NumPy on the same votes."""
    import cupy
    import torch

    n_rows, n_members = GPU_SHAPE if not quick else tuple(n // 10 for n in GPU_SHAPE)
    print(f"{torch.cuda.get_device_name()}, M = {n_rows:,}, N = {n_members:,}, float32\n")
    given = arrays(n_rows, n_members)
    on_gpu = [torch.from_numpy(values).cuda() for values in given]
    there = {"PyTorch": on_gpu, "CuPy": [cupy.from_dlpack(values) for values in on_gpu]}
    for library, of in (there | {"NumPy": given}).items():
        for call in ("first call", "second call") if library != "NumPy" else ("",):
            found, seconds = timed(*of, lam=0.01)
            print(
                f"{library:<9}{call:<12}{seconds:>7.2f} s, {found.n_evaluations} passes, objective "
                f"{found.objective:.9f}, {found.n_active} kept, {found.status.name}",
                flush=True,
            )
        torch.cuda.empty_cache()


RUNS = run_import, run_growth, run_large, run_sgd, run_out_of_core, run_dask, run_gpu
SECTIONS = {run.__name__.removeprefix("run_"): run for run in RUNS}


def main() -> None:
    parser = options(__doc__, quick="small sizes")
    parser.add_argument("--only", nargs="+", choices=SECTIONS)
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    warnings.filterwarnings("ignore")
    with results_of("scale", keep=not (args.quick or args.only)):
        for section in args.only or list(SECTIONS)[:-1]:
            print(f"\n## {section.replace('_', ' ').capitalize()}\n", flush=True)
            SECTIONS[section](args.quick)


if __name__ == "__main__":
    main()
