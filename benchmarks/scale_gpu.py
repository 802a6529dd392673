"""Weights and Gram of 10 000 members on 1 000 000 rows, on one CUDA device.

    python -m benchmarks.scale_gpu

Everything is measured against ceilings taken in the same run: a device-to-device copy (bytes read
plus bytes written) and a matrix product of random bfloat16 numbers. Evidence is made on the device.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sparsebag as sb
from benchmarks.environment import environment
from benchmarks.kept_output import kept_output
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.torch_loan import bytes_as_torch
from sparsebag.objective.full_vote_risk import FullVoteRisk
from sparsebag.objective.fused_one_read import FusedOneRead
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.passes import ArrayPasses
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective

RESULTS = Path(__file__).parent / "results" / "scale_gpu.txt"
SHAPE = (1_000_000, 10_000)
PASS_SHAPE = (200_000, 10_000)
TUNED_MEMBERS = (500, 1000, 2000, 4096, 6000, 10_000, 12_000)
BOTH_SHAPE = (50_000, 500)
BOTH_LARGE_SHAPE = (100_000, 10_000)
GRAM_SHAPE = (40_000, 512)
ROWS_AT_ONCE = 20_000
COPY_BYTES = 8 << 30
MATRIX = 8192
LAM = 0.01
REPEATS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of results")
    parser.add_argument("--shrink", type=int, default=1, help="divide every number of rows by this")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(reason)
    with kept_output(options.out):
        sections(options.shrink)


def run(*, quick: bool) -> bool:
    """Print all sections; False where there is no device to measure."""
    reason = why_not()
    if reason:
        print(f"{reason} benchmarks/results/scale_gpu.txt has what an H200 gave.")
        return False
    sections(20 if quick else 1)
    return True


def why_not() -> str | None:
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed, so there is nothing to measure."
    if not torch.cuda.is_available():
        return "There is no CUDA device, so there is nothing to measure."
    return None


def sections(shrink: int) -> None:
    import torch

    describe(torch)
    copy, rate = ceilings(torch)
    passes(torch, copy, shrink)
    tuning(torch, copy, shrink)
    same_answer(torch, shrink)
    same_large_answer(torch, shrink)
    gram_precision(torch, shrink)
    large(torch, copy, rate, shrink)


def describe(torch: Any) -> None:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    said = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    print(f"python -m benchmarks.scale_gpu on {said or torch.cuda.get_device_name()}")
    names = ["torch", "triton", "cupy", "numpy"]
    print(", ".join(f"{name} {_version(name)}" for name in names), f", CUDA {torch.version.cuda}")
    print(", ".join(f"{name} {value}" for name, value in environment().items() if value))


def ceilings(torch: Any) -> tuple[float, float]:
    """Copy bandwidth in bytes a second and bfloat16 matrix rate in operations a second."""
    copy = copy_bandwidth(torch)
    a, b = (torch.randn(MATRIX, MATRIX, device="cuda").to(torch.bfloat16) for _ in range(2))
    rate = 2 * MATRIX**3 / timed(torch, lambda: a @ b)
    print(f"\ncopy {copy / 1e12:.2f} TB/s (read + written), bf16 product {rate / 1e12:.0f} TFLOP/s")
    return copy, rate


def copy_bandwidth(torch: Any) -> float:
    source = torch.rand(COPY_BYTES // 4, device="cuda")
    target = torch.empty_like(source)
    return 2 * COPY_BYTES / timed(torch, lambda: target.copy_(source))


def passes(torch: Any, copy: float, shrink: int) -> None:
    n_rows, n_members = PASS_SHAPE[0] // shrink, PASS_SHAPE[1]
    print(f"\n## One value and gradient, N = {n_members}, M = {n_rows}\n")
    print("Votes and mask, counted once, over the time, as a share of the copy's bandwidth.\n")
    print(f"{'votes':>10}{'products':>24}{'reads':>7}{'ms':>9}{'share':>8}{'gradient off by':>18}")
    votes, mask = synthetic(torch, n_rows, n_members, torch.float32)
    w = some_weights(torch, n_members)
    exact = gradient_in_double(torch, votes, mask, w)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        stored = votes.to(dtype)
        reference = exact if dtype == torch.float32 else gradient_in_double(torch, stored, mask, w)
        nbytes = stored.nbytes + mask.nbytes
        for name, reads, objective in variants(torch, stored, mask):
            seconds = timed(torch, lambda f=objective: f.value_and_gradient(w))
            gradient = objective.gradient(w)
            off = float((gradient - reference).abs().max() / reference.abs().max())
            print(
                f"{str(dtype)[6:]:>10}{name:>24}{reads:>7}{1e3 * seconds:>9.2f}"
                f"{nbytes / seconds / copy:>8.0%}{off:>18.1e}",
                flush=True,
            )
        del stored
    torch.cuda.empty_cache()


def variants(torch: Any, votes: Any, mask: Any) -> list[tuple[str, str, SimplexObjective]]:
    """The objective as it is, with two reads, and with plain array products."""
    two = objective_of(votes, mask)
    two._one_read = None
    found = [("one kernel", "1", objective_of(votes, mask)), ("two kernels", "2", two)]
    if votes.dtype == torch.float32:
        plain = objective_of(votes, mask)
        plain._one_read = None
        for block in plain._blocks():
            general = ArrayPasses(block.votes, block.mask, plain.xp, torch.float32)
            object.__setattr__(block, "passes", general)
        found.append(("array namespace", "many", plain))
    return found


def tuning(torch: Any, copy: float, shrink: int) -> None:
    """Why rows are read once from so many members on, and with so many warps and stages."""
    entries = PASS_SHAPE[0] * PASS_SHAPE[1] // shrink
    print(f"\n## One kernel or two, by members ({entries:.0e} votes; share of the copy)\n")
    types = (torch.float32, torch.bfloat16)
    names = [f"{str(t)[6:]} {how}" for t in types for how in ("two", "one")]
    print(f"{'N':>7}" + "".join(f"{name:>14}" for name in names))
    for n_members in TUNED_MEMBERS:
        shares = []
        votes, mask = synthetic(torch, entries // n_members, n_members, torch.float32)
        w = some_weights(torch, n_members)
        for dtype in types:
            stored = votes.to(dtype)
            nbytes = stored.nbytes + mask.nbytes
            two = objective_of(stored, mask)
            two._one_read = None
            shares.append(nbytes / timed(torch, lambda f=two, w=w: f.value_and_gradient(w)) / copy)
            kernel = one_read_of(stored, mask)
            shares.append(nbytes / timed(torch, lambda k=kernel, w=w: _evaluate(k, w)) / copy)
            del stored
        print(f"{n_members:>7}" + "".join(f"{share:>14.0%}" for share in shares), flush=True)
    n_members = PASS_SHAPE[1]
    print(f"\n## One kernel, N = {n_members}: warps and rows on the way (share of the copy)\n")
    print(f"{'warps':>7}{'stages':>8}" + "".join(f"{str(t)[6:]:>12}" for t in types))
    votes, mask = synthetic(torch, entries // n_members, n_members, torch.float32)
    w = some_weights(torch, n_members)
    for warps in (4, 8, 16):
        for stages in (1, 2, 3, 4):
            line = f"{warps:>7}{stages:>8}"
            for dtype in types:
                stored = votes.to(dtype)
                kernel = replace(one_read_of(stored, mask), warps=warps, stages=stages)
                try:
                    seconds = timed(torch, lambda k=kernel: _evaluate(k, w))
                except Exception as error:  # more shared memory than there is
                    line += f"{type(error).__name__:>16.14}"
                    continue
                line += f"{(stored.nbytes + mask.nbytes) / seconds / copy:>12.0%}"
            print(line, flush=True)
    torch.cuda.empty_cache()


def one_read_of(votes: Any, mask: Any) -> FusedOneRead:
    """The kernel for these votes, whatever `make_fused_one_read` would say of their number."""
    f = objective_of(votes, mask)
    return FusedOneRead(
        like=votes,
        votes=votes,
        mask=bytes_as_torch(mask),
        uniform_vote=f.facts.uniform_vote[0],
        target=f._channels.targets[0].double(),
        row_weight=f.facts.row_weight,
        is_log_loss=True,
        least_vote=LogLoss().clip,
        kept_share=1.0 - 1e-3,
        floor=5e-4,
        multiplicity=1.0,
    )


def _evaluate(kernel: FusedOneRead, w: Any) -> object:
    return kernel.loss_and_gradient(w, prior_mass=0.02, least_denominator=1e-15)


def some_weights(torch: Any, n_members: int) -> Any:
    draw = torch.Generator().manual_seed(1)
    w = -torch.log(torch.rand(n_members, dtype=torch.float64, generator=draw))
    return (w / w.sum()).cuda()


def objective_of(votes: Any, mask: Any) -> SimplexObjective:
    import torch

    target = torch.zeros(votes.shape[0], dtype=torch.int64, device=votes.device)
    evidence = OOBEvidence(votes, mask, target, "classification", classes=np.arange(2))
    return SimplexObjective(evidence, LogLoss(), ConcaveQuadratic(LAM), floor=1e-3, prior_mass=0.02)


def gradient_in_double(torch: Any, votes: Any, mask: Any, w: Any) -> Any:
    """The same gradient with every product in float64, a few rows at a time."""
    total = -2.0 * LAM * w
    n_members = votes.shape[1]
    for start in range(0, votes.shape[0], ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        v, m = votes[rows].double(), mask[rows].double()
        u = v.sum(dim=1) / m.sum(dim=1)
        denominator = m @ w + 0.02 + 1e-15
        ratio = (v @ w + 0.02 * u) / denominator
        slope = -0.999 / (0.999 * ratio + 5e-4) / votes.shape[0] / denominator
        total += v.T @ slope - m.T @ (slope * ratio)
    assert total.shape == (n_members,)
    return total


def same_answer(torch: Any, shrink: int) -> None:
    n_rows, n_members = BOTH_SHAPE[0] // shrink, BOTH_SHAPE[1]
    print(f"\n## The same answer as on the CPU, N = {n_members}, M = {n_rows}\n")
    votes, mask = synthetic(torch, n_rows, n_members, torch.float32)
    y = np.arange(n_rows) % 2
    host = votes.cpu().numpy(), mask.cpu().numpy()
    cpu = sb.fit_weights(*host, y, lam=LAM)
    exact = sb.fit_weights(host[0].astype(np.float64), host[1], y, lam=LAM, solver="active_set")
    print(f"{'where':>34}{'objective':>15}{'off CPU by':>12}{'largest weight off':>20}{'kept':>6}")
    _answer("CPU, NumPy float32", cpu, cpu, None)
    _answer("CPU, NumPy float64, active_set", exact, cpu, None)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        found = sb.fit_weights(votes.to(dtype), mask, y, lam=LAM)
        assert found.weights.is_cuda
        _answer(f"PyTorch {str(dtype)[6:]}", found, cpu, host)
    try:
        import cupy
    except ImportError:
        print("CuPy is not installed")
        return
    for dtype in (cupy.float32, cupy.float16):
        borrowed = cupy.from_dlpack(votes).astype(dtype)
        borrowed_mask = cupy.from_dlpack(mask.view(torch.uint8)).view(cupy.bool_)
        found = sb.fit_weights(borrowed, borrowed_mask, y, lam=LAM)
        assert isinstance(found.weights, cupy.ndarray)
        _answer(f"CuPy {np.dtype(dtype).name}", found, cpu, host)


def same_large_answer(torch: Any, shrink: int) -> None:
    """As many members as in the large solve, on as many rows as a host holds; the start as well."""
    n_rows, n_members = BOTH_LARGE_SHAPE[0] // shrink, BOTH_LARGE_SHAPE[1]
    print(f"\n## The same answer as on the CPU, N = {n_members}, M = {n_rows}\n")
    votes, mask = synthetic(torch, n_rows, n_members, torch.float32)
    y = np.arange(n_rows) % 2
    host = votes.cpu().numpy(), mask.cpu().numpy()
    cpu = sb.fit_weights(*host, y, lam=LAM)
    print(f"{'where':>34}{'objective':>15}{'off CPU by':>12}{'largest weight off':>20}{'kept':>6}")
    _answer("CPU, NumPy float32", cpu, cpu, None)
    for dtype in (torch.float32, torch.bfloat16):
        found = sb.fit_weights(votes.to(dtype), mask, y, lam=LAM)
        _answer(f"PyTorch {str(dtype)[6:]}", found, cpu, host)
    objectives = _cpu_objective(*host), objective_of(votes, mask)
    (value, gradient), (there, slope) = (
        f.value_and_gradient(f.uniform_weights()) for f in objectives
    )
    off = np.abs(gradient - slope.cpu().numpy()).max() / np.abs(gradient).max()
    print(
        f"at uniform weights: {value:.9f}, the GPU's off by {there - value:.1e}; gradient off by "
        f"{off:.1e} of its largest entry"
    )


def _answer(name: str, found: Any, cpu: Any, host: Any) -> None:
    """Half-precision votes are another problem; their weights are judged on the float32 one."""
    weights = found.weights
    weights = weights.get() if hasattr(weights, "get") else weights
    weights = np.asarray(weights.cpu() if hasattr(weights, "cpu") else weights)
    value = found.objective
    if host is not None and "16" in name:
        value = _cpu_objective(*host).value(weights)
    off = np.abs(weights - np.asarray(cpu.weights)).max()
    kept = int(np.count_nonzero(weights))
    print(f"{name:>34}{value:>15.9f}{value - cpu.objective:>12.1e}{off:>20.1e}{kept:>6}")


def _cpu_objective(votes: np.ndarray, mask: np.ndarray) -> SimplexObjective:
    target = np.zeros(len(votes), dtype=np.int64)
    evidence = OOBEvidence(votes, mask, target, "classification", classes=np.arange(2))
    settings = {"floor": 1e-3, "prior_mass": 0.02}
    return SimplexObjective(evidence, LogLoss(), ConcaveQuadratic(LAM), **settings)


def gram_precision(torch: Any, shrink: int) -> None:
    n_rows, n_members = GRAM_SHAPE[0] // shrink, GRAM_SHAPE[1]
    print(f"\n## Gram with half-precision operands, N = {n_members}, M = {n_rows}\n")
    votes, mask = synthetic(torch, n_rows, n_members, torch.float32)
    double = risk_of(votes.double(), mask).moments()
    level = float(np.abs(double.matrix()).max())
    spread = float(np.std(double.deviations()))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        ours = risk_of(votes.to(dtype), mask).moments()
        off = np.abs(ours.matrix() - double.matrix()).max()
        print(
            f"{str(dtype)[6:]:>10} votes: largest error {off / level:.1e} of the largest entry, "
            f"{off / spread:.1e} of the spread of the members' differences"
        )


def risk_of(votes: Any, mask: Any) -> FullVoteRisk:
    import torch

    target = torch.zeros(votes.shape[0], dtype=torch.int64, device=votes.device)
    return FullVoteRisk(
        OOBEvidence(votes, mask, target, "classification", classes=np.arange(2)), floor=1e-3
    )


def large(torch: Any, copy: float, rate: float, shrink: int) -> None:
    n_rows, n_members = SHAPE[0] // shrink, SHAPE[1]
    print(f"\n## N = {n_members}, M = {n_rows}: from evidence on the device to weights\n")
    votes, mask = synthetic(torch, n_rows, n_members, torch.float32)
    y = torch.arange(n_rows, device="cuda") % 2
    reference = None
    for dtype in (torch.float32, torch.bfloat16):
        stored = votes if dtype == torch.float32 else votes.to(dtype)
        for run in ("first call", "second call"):
            torch.cuda.synchronize()
            start = time.perf_counter()
            found = sb.fit_weights(stored, mask, y, lam=LAM)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - start
            value = found.objective
            if dtype != torch.float32:
                value = objective_of(votes, mask).value(found.weights)
            reference = reference or value
            print(
                f"{str(dtype)[6:]:>10}, {run:>11}: {seconds:5.2f} s ({found.seconds:.2f} s in the "
                f"solver), {found.n_evaluations} passes, read {found.nbytes_read / 1e9:.0f} GB, "
                f"objective on float32 votes {value:.9f} ({value - reference:+.1e}), gap "
                f"{found.stationarity_gap:.1e}, {found.n_active} members, {found.status.name}"
            )
        if dtype != torch.float32:
            del votes
            gram(torch, stored, mask, rate)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"peak device memory {peak:.1f} GiB, the float32 evidence and its copies included")


def gram(torch: Any, votes: Any, mask: Any, rate: float) -> None:
    n_rows, n_members = votes.shape
    start = time.perf_counter()
    risk = risk_of(votes, mask)
    prepared = time.perf_counter() - start
    operations = 3 * 2 * n_rows * n_members**2  # residuals, counts, levels
    rows = np.arange(n_rows)
    for run in ("first call", "second call"):
        torch.cuda.synchronize()
        start = time.perf_counter()
        sums = risk.pair_sums(rows)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        del sums
        print(
            f"Gram, {run}: {seconds:.2f} s for {operations / 1e12:.0f} Tera-operations = "
            f"{operations / seconds / 1e12:.0f} TFLOP/s = {operations / seconds / rate:.0%} of the "
            "matrix rate"
        )
    start = time.perf_counter()
    risk.moments()
    whole = time.perf_counter() - start
    print(
        f"rows' own risks before it {prepared:.2f} s; the Gram with its N×N results brought to the "
        f"host {whole:.2f} s"
    )


def synthetic(torch: Any, n_rows: int, n_members: int, dtype: Any) -> tuple[Any, Any]:
    """Votes of members of unequal skill on rows of unequal difficulty; zero where in the bag."""
    draw = torch.Generator("cuda").manual_seed(0)
    votes = torch.empty((n_rows, n_members), dtype=dtype, device="cuda")
    mask = torch.empty((n_rows, n_members), dtype=torch.bool, device="cuda")
    skill = 1.0 + 0.3 * torch.randn(n_members, generator=draw, device="cuda")
    for start in range(0, n_rows, ROWS_AT_ONCE):
        rows = slice(start, min(start + ROWS_AT_ONCE, n_rows))
        shape = (rows.stop - rows.start, n_members)
        difficulty = 1.5 * torch.randn((shape[0], 1), generator=draw, device="cuda")
        logit = skill + difficulty + 1.5 * torch.randn(shape, generator=draw, device="cuda")
        mask[rows] = torch.rand(shape, generator=draw, device="cuda") < 0.37
        votes[rows] = (torch.sigmoid(logit) * mask[rows]).to(dtype)
    return votes, mask


def timed(torch: Any, work: Callable[[], object]) -> float:
    """Median seconds of a call, on the device's own clock, after two that are not counted."""
    for _ in range(2):
        work()
    seconds = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        seconds.append(start.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


def _version(name: str) -> str:
    try:
        return str(__import__(name).__version__)
    except ImportError:
        return "not installed"


if __name__ == "__main__":
    main()
