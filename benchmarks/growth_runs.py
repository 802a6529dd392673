"""A measurement of `scale_growth`: a problem, a pass over it or a solve, in its own process."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.memory_speed import bandwidth, best_of, long_read, reads_of_memory
from benchmarks.peak_memory import forget_peak, held_bytes, peak_bytes
from benchmarks.scale_data import SyntheticRows
from benchmarks.scale_sgd import LABELS, objective_of
from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.row_stream import block_rows_for
from sparsebag.objective import _passes
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.objective import Objective
from sparsebag.objective.pass_threads import pass_threads
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.stream_objective import StreamObjective
from sparsebag.settings import DEFAULT_FLOOR, DEFAULT_PRIOR_MASS
from sparsebag.solvers.auto import SOLVERS
from sparsebag.streaming import BLOCK_SHARE, COUNTED_SHARE

LAM = 0.0
STREAM_MEMORY = int(COUNTED_SHARE * (1 << 30))
"""What `fit_weights` shares out of a `memory_limit` of 1 GiB; blocks are cut as it cuts them."""
STREAM_BLOCK_BYTES = STREAM_MEMORY // BLOCK_SHARE
PASS_REPEATS = 10
STREAMED_REPEATS, MANY_BYTES, REPEATS_OF_MANY = 5, 100_000_000_000, 2
"""Of streams, which take seconds; of those that take half a minute."""
READS_BESIDE_STREAMED = 5
"""A pass over a stream takes seconds, a read of memory milliseconds: more of them, lest one that
was disturbed sets the bound."""


@dataclass(frozen=True)
class Growth:
    """One solve."""

    solver: str
    n_rows: int
    n_members: int
    is_streamed: bool
    seconds: float
    bound: float
    extra_bytes: int
    passes: float
    objective: float
    gap: float
    kept: int


@dataclass(frozen=True)
class Pass:
    """One value and gradient, and the bound by the best short read and by one as long as it."""

    n_rows: int
    n_members: int
    is_streamed: bool
    n_threads: int
    seconds: float
    bound: float
    speed: float
    long_read_bound: float


class RepeatedRows:
    """A stream that hands out the same rows in memory again and again, as if there were more."""

    is_replayable = True
    has_mask = True

    def __init__(self, rows: ArrayRows, n_rows: int) -> None:
        assert rows.n_rows is not None
        assert rows.n_blocks is not None
        assert n_rows % rows.n_rows == 0
        self._rows, self._n_own = rows, rows.n_blocks
        self.n_rows: int | None = n_rows
        self.n_blocks: int | None = rows.n_blocks * (n_rows // rows.n_rows)
        self.n_members, self.task, self.classes = rows.n_members, rows.task, rows.classes

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        return self._rows.block(number % self._n_own, members)

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        assert self.n_blocks is not None
        return (self.block(number, members) for number in range(self.n_blocks))

    def take(self, rows: np.ndarray) -> OOBEvidence:
        assert self._rows.n_rows is not None
        return self._rows.take(np.sort(rows % self._rows.n_rows))


@dataclass(frozen=True)
class Problem:
    """Votes, mask and targets in memory, and how many rows they stand for."""

    votes: np.ndarray
    mask: np.ndarray
    y: np.ndarray
    n_rows: int

    @classmethod
    def of(cls, rows: SyntheticRows) -> Problem:
        votes, mask, y = rows.arrays()
        assert mask is not None
        return cls(votes, mask, y, rows.n_rows)

    def repeated(self, n_rows: int) -> Problem:
        return Problem(self.votes, self.mask, self.y, n_rows)

    @property
    def is_streamed(self) -> bool:
        return self.n_rows > len(self.votes)

    @property
    def n_threads(self) -> int:
        """Those a pass takes: what one kernel reads at a time may be worth fewer than there are."""
        n_rows, n_members = self.votes.shape
        if self.is_streamed:
            n_rows = block_rows_for(n_members, block_bytes=STREAM_BLOCK_BYTES)
        return _passes.threads_taken(n_rows, n_members, pass_threads())

    def objective(self) -> Objective:
        if not self.is_streamed:
            evidence = OOBEvidence(self.votes, self.mask, self.y, "classification", classes=LABELS)
            return objective_of(evidence, LAM)
        own = ArrayRows(self.votes, self.mask, self.y, task="classification", labels=LABELS)
        return StreamObjective(
            RepeatedRows(own.with_block_bytes(STREAM_BLOCK_BYTES), self.n_rows),
            LogLoss(),
            ConcaveQuadratic(LAM),
            floor=DEFAULT_FLOOR,
            prior_mass=DEFAULT_PRIOR_MASS,
            memory_limit=STREAM_MEMORY,
        )


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


def gradient_pass(name: str, problem: Problem) -> dict[str, object]:
    objective = problem.objective()
    weights = objective.uniform_weights()
    objective.value_and_gradient(weights)  # a stream is checked the first time it is read
    n_threads = problem.n_threads
    repeats, reads = PASS_REPEATS, 1
    if problem.is_streamed:
        is_long = objective.nbytes_per_pass > MANY_BYTES
        repeats, reads = REPEATS_OF_MANY if is_long else STREAMED_REPEATS, READS_BESIDE_STREAMED
    seconds, reading, speeds = [], [], []
    with reads_of_memory(n_threads) as speed_now:
        for _ in range(repeats):  # by turns: whatever else uses the bus slows all of them
            speeds.append(max(speed_now() for _ in range(reads)))
            seconds.append(best_of(lambda: objective.value_and_gradient(weights), 1))
            reading.append(long_read(problem.votes, problem.n_rows, n_threads))
        speeds.append(max(speed_now() for _ in range(reads)))
    # As many chances of a quiet moment for reads as for passes; those over streams have none.
    speed = float(np.mean(speeds)) if problem.is_streamed else max(speeds)
    found = Pass(
        n_rows=problem.n_rows,
        n_members=objective.n_members,
        is_streamed=problem.is_streamed,
        n_threads=n_threads,
        seconds=min(seconds),
        bound=objective.nbytes_per_pass / speed,
        speed=speed,
        long_read_bound=min(reading)
        * objective.nbytes_per_pass
        / (problem.n_rows * problem.votes.shape[1] * problem.votes.itemsize),
    )
    return asdict(found)


def solve(name: str, problem: Problem) -> dict[str, object]:
    warnings.simplefilter("ignore")
    forget_peak()
    before = held_bytes()
    objective = problem.objective()
    start = time.perf_counter()
    found = SOLVERS[name]().solve(objective)
    seconds = time.perf_counter() - start
    peak = peak_bytes()
    speed = bandwidth(problem.n_threads)  # after the peak is read: it takes memory too
    passes = objective.n_passes if isinstance(objective, StreamObjective) else found.n_evaluations
    row = Growth(
        solver=name,
        n_rows=problem.n_rows,
        n_members=objective.n_members,
        is_streamed=problem.is_streamed,
        seconds=seconds,
        bound=found.nbytes_read / speed,
        extra_bytes=max(0, peak - before),
        passes=passes,
        objective=found.objective,
        gap=found.stationarity_gap,
        kept=found.n_active,
    )
    return asdict(row)
