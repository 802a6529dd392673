"""`max_passes` is a limit: of what is read, for whatever it is read."""

import numpy as np
import pytest

import sparsebag as sb
from problems import evidence
from sparsebag.solvers import mirror
from sparsebag.solvers.base import Status
from sparsebag.solvers.mirror import Mirror
from sparsebag.sources.readers import ArrayRows

N_ROWS, N_MEMBERS = 6000, 40
SCARCE, SOME, PLENTY = 1 << 20, 5 << 20, 1 << 28
"""Memory without room for members' columns, with room for those, and for all rows at once."""


@pytest.fixture(scope="module")
def rows():
    return evidence(n_rows=N_ROWS, n_members=N_MEMBERS, n_classes=2, dtype=np.float32)


@pytest.fixture(autouse=True)
def _much_to_drop(monkeypatch):
    """Weights that are dropped on any day, and a sample of few rows."""
    monkeypatch.setattr("sparsebag.settings.DROP_THRESHOLD", 0.02)
    monkeypatch.setattr(mirror, "FEWEST_ROWS", 256)


class Counted:
    """Blocks from a function that counts the rows it gave."""

    def __init__(self, e):
        self.e, self.n_given = e, 0

    def __call__(self):
        for first in range(0, N_ROWS, 500):
            some = slice(first, first + 500)
            self.n_given += 500
            yield self.e.votes[some], self.e.oob_mask[some], self.e.target[some].astype(int)


def stream_of(e, kind, monkeypatch):
    """A stream, and a function that says how many passes it was read; small samples are none."""
    if kind == "generator":
        given = Counted(e)
        stream = sb.stream_rows(given, labels=[0, 1])
        given.n_given = 0  # the first block is looked at when the stream is made
        return stream, lambda: given.n_given / N_ROWS
    n_read = [0]
    blocks, take = ArrayRows.blocks, ArrayRows.take

    def counted_blocks(self, block_bytes=None):
        for block in blocks(self, block_bytes):
            n_read[0] += block.n_rows
            yield block

    def counted_take(self, wanted):
        n_read[0] += N_ROWS if len(wanted) == N_ROWS else 0
        return take(self, wanted)

    monkeypatch.setattr(ArrayRows, "blocks", counted_blocks)
    monkeypatch.setattr(ArrayRows, "take", counted_take)
    stream = sb.stream_rows(e.votes, e.oob_mask, e.target, task=e.task)
    return stream, lambda: n_read[0] / N_ROWS


@pytest.mark.filterwarnings("ignore:solver '.*' stopped early")
@pytest.mark.parametrize("memory_limit", [SCARCE, SOME, PLENTY])
@pytest.mark.parametrize("max_passes", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["generator", "arrays"])
def test_no_more_passes_than_allowed(rows, monkeypatch, kind, max_passes, memory_limit):
    stream, n_passes = stream_of(rows, kind, monkeypatch)
    how = Mirror(max_passes=max_passes)
    found = sb.fit_weights(stream, solver=how, memory_limit=memory_limit)
    assert n_passes() <= max_passes
    assert found.n_passes < max_passes + (1 if kind == "arrays" else 1e-9)  # a sample on top
    if max_passes == 1:
        assert found.n_passes == 1.0
    assert found.weights.sum() == pytest.approx(1.0)
    if max_passes > 1:
        assert found.objective < sb.fit_weights(stream, solver=Mirror(max_passes=1)).objective


@pytest.mark.filterwarnings("ignore:solver 'mirror' stopped early")
@pytest.mark.parametrize("kind", ["generator", "arrays"])
def test_small_weights_stay_where_no_pass_is_left(rows, monkeypatch, kind):
    start = np.full(N_MEMBERS, 0.001)
    start[0] += 1.0 - start.sum()
    stream, n_passes = stream_of(rows, kind, monkeypatch)
    one = sb.fit_weights(stream, solver=Mirror(max_passes=1), start=start)
    assert n_passes() == 1
    assert one.weights == pytest.approx(start, abs=1e-15)
    assert one.status is Status.MAX_ITERATIONS
    assert not one.has_pass_left


def test_small_weights_are_dropped_where_one_is(rows, monkeypatch):
    """Of a solve whose goal is met at once: the second pass is the one that drops."""
    start = np.full(N_MEMBERS, 0.001)
    start[0] += 1.0 - start.sum()
    stream, n_passes = stream_of(rows, "generator", monkeypatch)
    found = sb.fit_weights(stream, solver=Mirror(max_passes=2, tol=1e3), start=start)
    assert n_passes() == 2
    assert found.active.tolist() == [0]
