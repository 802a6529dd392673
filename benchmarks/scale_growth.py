"""How time and memory grow with rows and members, for every solver, beside the bandwidth bound.

    python -m benchmarks.scale_growth [--quick] [--fresh]
    python -m benchmarks.scale_growth --passes    # single passes alone: a few minutes
    python -m benchmarks.scale_growth --passes --threads 1    # the same by one thread

About three quarters of an hour on a quiet core, with 24 GiB. What is measured is noted at once in
``benchmarks/results/scale_growth.local.jsonl``: a run that was stopped goes on from there, and the
notes go when the table is written. M = 10⁴…10⁷ by N = 10²…10⁴, two rules on what is left out:

- Evidence up to 6 GB (5 bytes an entry) is made in memory. Larger evidence is streamed, 1 GiB
  allowed: its rows are those of the largest evidence in memory of as many members, handed out again
  and again, so that every pass moves all the bytes there are and none wait for a generator.
- A solver is asked as long as its own times on smaller evidence, grown in proportion to the
  entries, foretell at most half an hour.

Each solve runs in a forked process of its own, whose peak memory beyond the evidence is read. Times
are the clock's, so nothing else should run. The bound is the evidence read, by the solver's own
count, divided by the bandwidth that as many threads as a pass takes read with (all there are,
unless ``--threads`` or ``OMP_NUM_THREADS`` says less), measured in the same process.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.environment import environment
from benchmarks.growth_runs import Growth, Pass, Problem, gradient_pass, in_a_fork, solve
from benchmarks.kept_output import kept_output
from benchmarks.scale_data import SyntheticRows
from sparsebag.objective.pass_threads import MOST_THREADS, at_most_pass_threads, pass_threads
from sparsebag.solvers.auto import SOLVERS

RESULTS = Path(__file__).parent / "results" / "scale_growth.txt"
PASSES = RESULTS.with_name("scale_passes.txt")
PASSES_BY_ONE = RESULTS.with_name("scale_passes_one_thread.txt")
NOTES = RESULTS.with_suffix(".local.jsonl")
ROWS, QUICK_ROWS = (10_000, 100_000, 1_000_000, 10_000_000), (1_000, 10_000, 30_000)
MEMBERS, QUICK_MEMBERS = (100, 1000, 10_000), (100, 300)
IN_MEMORY_BYTES, QUICK_IN_MEMORY_BYTES = 6 << 30, 20 << 20
ENTRY_BYTES = 5
LONGEST_SECONDS, QUICK_LONGEST_SECONDS = 1800.0, 3.0
FITTED_ENTRIES, QUICK_FITTED_ENTRIES = 10_000_000, 1_000_000
"""Entries from which on times are fitted: below, fixed costs rule."""
PASS = "one pass"
BEYOND_CACHES = 400_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is kept")
    parser.add_argument("--fresh", action="store_true", help="forget what a stopped run noted")
    parser.add_argument("--passes", action="store_true", help="single passes alone")
    parser.add_argument("--threads", type=int, help="of a pass; kept for --passes --threads 1")
    options = parser.parse_args()
    if options.fresh:
        NOTES.unlink(missing_ok=True)
    kept: Path | None = PASSES if options.passes else RESULTS
    if options.threads is not None:
        kept = PASSES_BY_ONE if options.passes and options.threads == 1 else None
    threads = at_most_pass_threads(options.threads or MOST_THREADS)
    with kept_output(None if options.quick else kept), threads:
        asked = "".join(f" --{n}" for n in ("quick", "passes") if getattr(options, n))
        asked += "" if options.threads is None else f" --threads {options.threads}"
        print("python -m benchmarks.scale_growth" + asked)
        print(", ".join(f"{name} {value}" for name, value in environment().items() if value))
        run(quick=options.quick, passes_alone=options.passes)


class Notes:
    """What this code has measured on this machine, so that a stopped run can go on."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.source = environment()["source"]
        self.known: dict[str, dict[str, object]] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                note = json.loads(line)
                if note["source"] == self.source:
                    self.known[note["key"]] = note["found"]

    def add(self, key: str, found: dict[str, object]) -> None:
        self.known[key] = found
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps({"source": self.source, "key": key, "found": found}) + "\n")

    def forget(self) -> None:
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def shapes(*, quick: bool) -> Iterator[tuple[int, list[int], list[int]]]:
    """Members, the numbers of rows made in memory, and those streamed."""
    limit = QUICK_IN_MEMORY_BYTES if quick else IN_MEMORY_BYTES
    for n_members in QUICK_MEMBERS if quick else MEMBERS:
        rows = QUICK_ROWS if quick else ROWS
        held = [m for m in rows if m * n_members * ENTRY_BYTES <= limit]
        yield n_members, held, [m for m in rows if m not in held]


def foretold(n_rows: int, n_members: int, rows: list[Growth]) -> float:
    """Seconds by its own time on the largest smaller evidence; zero where there is none."""
    smaller = [r for r in rows if r.n_rows <= n_rows and r.n_members <= n_members]
    if not smaller:
        return 0.0
    nearest = max(smaller, key=lambda r: (r.n_members, r.n_rows))
    return nearest.seconds * (n_rows / nearest.n_rows) * (n_members / nearest.n_members)


def exponents(rows: Sequence[Growth | Pass], values: list[float]) -> str:
    """Least squares of the logarithm on those of M and N."""
    if len({r.n_rows for r in rows}) < 2 or len({r.n_members for r in rows}) < 2 or len(rows) < 3:
        return "too few shapes to fit"
    design = np.array([[1.0, np.log(r.n_rows), np.log(r.n_members)] for r in rows])
    _, a, b = np.linalg.lstsq(design, np.log(np.maximum(values, 1e-3)), rcond=None)[0]
    return f"M^{a:.2f} N^{b:.2f} ({len(rows)} shapes)"


def run(*, quick: bool, passes_alone: bool = False) -> None:
    notes = Notes(None if quick or passes_alone else NOTES)
    longest = QUICK_LONGEST_SECONDS if quick else LONGEST_SECONDS
    asked = (PASS,) if passes_alone else (PASS, *SOLVERS)
    n_threads = pass_threads()
    by = "one thread" if n_threads == 1 else f"{n_threads} threads"
    print(f"\n## Growth: synthetic rows, log-loss, λ = 0, passes by {by}\n")
    if not passes_alone:
        print(
            f"{'M':>10}{'N':>7}{'evidence':>16}  {'solver':<20}{'seconds':>8}{'bound s':>9}{'×':>7}"
            f"{'passes':>7}{'beyond it':>11}{'objective':>12}{'gap':>9}{'kept':>6}"
        )
    solved: dict[str, list[Growth]] = defaultdict(list)
    passes: list[Pass] = []
    for n_members, held, streamed in shapes(quick=quick):
        pool: SyntheticRows | None = None
        made: Problem | None = None
        for n_rows in held + streamed:
            if n_rows in held:
                pool, made = SyntheticRows(n_rows, n_members), None
            assert pool is not None
            for name in asked:
                key = f"{name} {n_rows} {n_members} {n_threads}"
                seconds = foretold(n_rows, n_members, solved.get(name, []))
                if seconds > longest and key not in notes.known:
                    print(
                        f"{n_rows:>10,}{n_members:>7,}{_size(n_rows, n_members):>16}  {name:<20}"
                        f"over the limit: {seconds:.0f} s foretold",
                        flush=True,
                    )
                    continue
                if key not in notes.known:
                    made = made or Problem.of(pool)
                    problem = made.repeated(n_rows)
                    work = gradient_pass if name == PASS else solve
                    found = in_a_fork(lambda w=work, n=name, p=problem: w(n, p))
                    if found is None:
                        print(f"{n_rows:>10,}{n_members:>7,}  {name:<20}died")
                        continue
                    notes.add(key, found)
                if name == PASS:
                    passes.append(Pass(**notes.known[key]))
                    continue
                row = Growth(**notes.known[key])
                solved[name].append(row)
                _show(row)
    if passes_alone:
        _show_passes(passes)
        return
    _show_exponents(solved, passes, QUICK_FITTED_ENTRIES if quick else FITTED_ENTRIES)
    _show_passes(passes)
    _show_rules(longest, QUICK_IN_MEMORY_BYTES if quick else IN_MEMORY_BYTES)
    notes.forget()


def _size(n_rows: int, n_members: int) -> str:
    nbytes = n_rows * n_members * ENTRY_BYTES
    return f"{nbytes / 1e9:.0f} GB" if nbytes >= 1e10 else f"{nbytes / 1e6:.0f} MB"


def _show(row: Growth) -> None:
    where = "streamed " if row.is_streamed else ""
    print(
        f"{row.n_rows:>10,}{row.n_members:>7,}{where + _size(row.n_rows, row.n_members):>16}  "
        f"{row.solver:<20}{row.seconds:>8.2f}{row.bound:>9.2f}{row.seconds / row.bound:>7.1f}"
        f"{row.passes:>7.3g}{row.extra_bytes / 2**20:>7.0f} MiB{row.objective:>12.7f}"
        f"{row.gap:>9.1e}{row.kept:>6}",
        flush=True,
    )


def _show_exponents(solved: dict[str, list[Growth]], passes: list[Pass], entries: int) -> None:
    print(f"\n### Fitted exponents, evidence of {entries:,} entries and more\n")
    print(f"{'':<20}{'seconds':>34}{'peak memory, evidence included':>38}")
    for name, rows in solved.items():
        fitted = [r for r in rows if r.n_rows * r.n_members >= entries]
        if name == "slsqp":
            fitted = rows  # its own algebra, not the evidence, is its cost
        held = [r for r in fitted if not r.is_streamed]
        times = exponents(fitted, [r.seconds for r in fitted])
        peaks = [r.n_rows * r.n_members * ENTRY_BYTES + r.extra_bytes for r in held]
        print(f"{name:<20}{times:>34}{exponents(held, peaks):>38}")
    large = [p for p in passes if p.n_rows * p.n_members >= entries]
    print(f"{'one gradient pass':<20}{exponents(large, [p.seconds for p in large]):>34}")
    most = max(
        (r.extra_bytes for rows in solved.values() for r in rows if r.is_streamed), default=0
    )
    print(f"\nStreamed evidence: at most {most / 2**20:.0f} MiB held, whatever M and N.")


def _show_passes(passes: list[Pass]) -> None:
    print("\n### One value-and-gradient pass (wanted: at most 2 × the bound)\n")
    print(
        f"{'M':>10}{'N':>7}{'':>10}{'threads':>8}{'ms':>12}{'bound ms':>12}{'×':>7}{'GB/s':>7}"
        f"{'long read ms':>14}{'×':>7}"
    )
    for p in passes:
        beside = f"{'–':>14}{'–':>7}"
        if _is_beyond_caches(p):
            beside = f"{1e3 * p.long_read_bound:>14.2f}{p.seconds / p.long_read_bound:>7.2f}"
        print(
            f"{p.n_rows:>10,}{p.n_members:>7,}{'streamed' if p.is_streamed else '':>10}"
            f"{p.n_threads:>8}{1e3 * p.seconds:>12.2f}{1e3 * p.bound:>12.2f}"
            f"{p.seconds / p.bound:>7.2f}{p.speed / 1e9:>7.1f}{beside}"
        )
    for what, some in (
        ("in memory", [p for p in passes if not p.is_streamed]),
        ("streamed", [p for p in passes if p.is_streamed]),
    ):
        if some:
            worst = max(p.seconds / p.bound for p in some)
            told = f"{what}: at most {worst:.2f} × the bound"
            long = [p.seconds / p.long_read_bound for p in some if _is_beyond_caches(p)]
            print(told + (f", {max(long):.2f} × a read as long" if long else ""))
    print(
        "bound: bytes by the best of eleven reads of memory by turns with ten passes, of which the "
        "best counts too (streamed: the mean of the best of five reads, by turns with five passes, "
        "two over more than 100 GB), of 128 MB or more (no cache holds them), by as many threads "
        "as the pass takes\n"
        "passes of less than 4 ms are made again for as long, and their mean is taken\n"
        "long read: the same bytes by a plain read of the votes that takes as many rows as the "
        "pass, by turns with it, the best of either; not told where caches may hold the votes\n"
        "evidence of less than 100 MB is read from caches by passes made one after another, as a "
        "solver makes them"
    )


def _is_beyond_caches(row: Pass) -> bool:
    return row.n_rows * row.n_members * ENTRY_BYTES >= BEYOND_CACHES


def _show_rules(longest: float, limit: int) -> None:
    print(
        "\nbeyond it: peak memory of a solve beyond the evidence in memory (of streamed evidence, "
        "all that is held)\n"
        "passes: in memory, evaluations, few members or all; streamed, rows read divided by M\n"
        "over the limit: the solver's own time on the largest smaller evidence, grown with M N, "
        f"foretells more than {longest:.0f} s\n"
        f"streamed: evidence beyond {limit / 1e9:.1f} GB is the rows of the largest evidence in "
        "memory with as many members, handed out again and again"
    )


if __name__ == "__main__":
    main()
