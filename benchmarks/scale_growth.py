"""How time and memory grow with rows and members, for every solver, beside the bandwidth bound.

    python -m benchmarks.scale --only growth [--quick]

Each shape is made once; every solver then runs in a forked process of its own, whose peak memory
beyond the evidence can be read. Times are the process's own (CPU seconds of one thread), so that
other work on the machine does not count. The bound is the evidence a solver's passes read, divided
by the bandwidth one thread reads with, measured in the same process. A gradient pass is the best
of several.
"""

from __future__ import annotations

import json
import os
import resource
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.scale_data import SyntheticRows
from benchmarks.scale_sgd import LABELS, objective_of
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.auto import SOLVERS

LAM = 0.0
LARGEST_BYTES = 6 << 30
"""Evidence of more than this is left out: the machine is shared."""
ROWS, QUICK_ROWS = (10_000, 100_000, 1_000_000, 10_000_000), (10_000, 30_000)
MEMBERS, QUICK_MEMBERS = (100, 1000, 10_000), (100, 300)
SLSQP_LIMITS = (100_000, 300)
"""Rows and members up to which SLSQP is asked: it is cubic in the members."""
ACTIVE_SET_LIMIT = 2_000_000_000
"""Entries up to which the active set is asked."""
PASS_REPEATS = 5


@dataclass(frozen=True)
class Growth:
    solver: str
    n_rows: int
    n_members: int
    seconds: float
    bound: float
    extra_memory: float
    passes: int
    objective: float
    gap: float
    kept: int


def bandwidth() -> float:
    """Bytes a second one thread reads from memory, by its own clock; best of five."""
    block = np.ones(32_000_000, dtype=np.float32)
    return block.nbytes / best_of(lambda: block.dot(block), 5)


def best_of(work: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


def in_a_fork(work: Callable[[], dict[str, object]]) -> dict[str, object] | None:
    """What the work returns, done in a copy of this process; None if it dies."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writer, json.dumps(work()).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else None


def gradient_pass(objective: SimplexObjective) -> dict[str, object]:
    weights = objective.uniform_weights()
    speed = bandwidth()
    seconds = best_of(lambda: objective.value_and_gradient(weights), PASS_REPEATS)
    return {"seconds": seconds, "bound": objective.nbytes_per_pass / speed, "speed": speed}


def solve(name: str, objective: SimplexObjective) -> dict[str, object]:
    warnings.simplefilter("ignore")
    begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    found = SOLVERS[name]().solve(objective)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    speed = bandwidth()  # after the peak is read: it takes memory too
    row = Growth(
        solver=name,
        n_rows=objective.n_rows,
        n_members=objective.n_members,
        seconds=seconds,
        bound=found.nbytes_read / speed,
        extra_memory=(peak - begin) * 1024 / objective.nbytes_per_pass,
        passes=found.n_evaluations,
        objective=found.objective,
        gap=found.stationarity_gap,
        kept=found.n_active,
    )
    return asdict(row)


def why_not(name: str, n_rows: int, n_members: int) -> str | None:
    rows, members = SLSQP_LIMITS
    if name == "slsqp" and (n_rows > rows or n_members > members):
        return f"slsqp only to M = {rows:,}, N = {members} (cubic in N)"
    if name == "active_set" and n_rows * n_members > ACTIVE_SET_LIMIT:
        return "active_set only to 2·10⁹ entries"
    return None


def exponents(rows: list[Growth]) -> tuple[float, float]:
    """Least squares of log seconds on log M and log N."""
    design = np.array([[1.0, np.log(r.n_rows), np.log(r.n_members)] for r in rows])
    found = np.linalg.lstsq(design, np.log([max(r.seconds, 1e-4) for r in rows]), rcond=None)[0]
    return float(found[1]), float(found[2])


def run(*, quick: bool) -> None:
    print("\n## Growth: synthetic rows, log-loss, λ = 0, one thread\n")
    left_out: list[str] = []
    answers: dict[str, list[Growth]] = defaultdict(list)
    passes: list[str] = []
    print(
        f"{'M':>10}{'N':>7}  {'solver':<20}{'CPU s':>8}{'× bound':>9}{'passes':>8}"
        f"{'memory':>8}{'objective':>12}{'gap':>9}{'kept':>6}"
    )
    for n_members in QUICK_MEMBERS if quick else MEMBERS:
        for n_rows in QUICK_ROWS if quick else ROWS:
            if n_rows * n_members * 5 > LARGEST_BYTES:
                size = n_rows * n_members * 5 / 1e9
                left_out.append(f"M = {n_rows:,}, N = {n_members:,} ({size:.0f} GB of evidence)")
                continue
            votes, mask, y = SyntheticRows(n_rows, n_members).arrays()
            evidence = OOBEvidence(votes, mask, y, "classification", classes=LABELS)
            objective = objective_of(evidence, LAM)
            one = in_a_fork(lambda f=objective: gradient_pass(f))
            if one is not None:
                passes.append(
                    f"{n_rows:>10,}{n_members:>7,}{1e3 * one['seconds']:>12.2f}"
                    f"{1e3 * one['bound']:>12.2f}{one['seconds'] / one['bound']:>9.2f}"
                    f"{one['speed'] / 1e9:>9.1f}"
                )
            for name in SOLVERS:
                reason = why_not(name, n_rows, n_members)
                if reason is not None:
                    if reason not in left_out:
                        left_out.append(reason)
                    continue
                found = in_a_fork(lambda n=name, f=objective: solve(n, f))
                if found is None:
                    left_out.append(f"{name} at M = {n_rows:,}, N = {n_members:,}: it died")
                    continue
                row = Growth(**found)
                answers[name].append(row)
                print(
                    f"{n_rows:>10,}{n_members:>7,}  {name:<20}{row.seconds:>8.2f}"
                    f"{row.seconds / row.bound:>9.1f}{row.passes:>8}{row.extra_memory:>7.2f}x"
                    f"{row.objective:>12.7f}{row.gap:>9.1e}{row.kept:>6}",
                    flush=True,
                )
            del objective, evidence, votes, mask
    print(
        "\nmemory: peak beyond the evidence, as a multiple of it (votes and mask, 5 bytes an entry)"
    )
    print("\n### Fitted exponents: CPU seconds ~ M^a N^b\n")
    for name, rows in answers.items():
        if len({r.n_rows for r in rows}) > 1 and len({r.n_members for r in rows}) > 1:
            a, b = exponents(rows)
            print(f"{name:<20} a = {a:.2f}, b = {b:.2f}  ({len(rows)} shapes)")
    print("\n### One value-and-gradient pass (wanted: at most 2 × the bound)\n")
    print(f"{'M':>10}{'N':>7}{'CPU ms':>12}{'bound ms':>12}{'×':>9}{'GB/s':>9}")
    print("\n".join(passes))
    print("\nleft out: " + ("; ".join(left_out) or "nothing"))
