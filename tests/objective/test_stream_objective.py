"""The objective over a stream is the objective of all its rows at once."""

from dataclasses import replace

import numpy as np
import pytest

from problems import LOSSES, evidence, interior_point
from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.generated_rows import GeneratedRows
from sparsebag.objective.pass_journal import JournalError, PassJournal, PassSums
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.objective.stream_objective import StreamObjective

SETTINGS = {"floor": 1e-3, "prior_mass": 0.02}


def pair(loss="log_loss", *, block_rows=50, memory_limit=1 << 30, n_classes=2, **made):
    e = evidence(loss, n_rows=230, n_members=9, n_classes=n_classes, **made)
    penalty = ConcaveQuadratic(0.05)
    floor = 1e-3 if e.task == "classification" else 0.0
    rows = ArrayRows(
        e.votes,
        e.oob_mask,
        e.target,
        task=e.task,
        sample_weight=e.sample_weight,
        block_rows=block_rows,
    )
    whole = SimplexObjective(e, LOSSES[loss], penalty, floor=floor, prior_mass=0.02)
    stream = StreamObjective(
        rows, LOSSES[loss], penalty, floor=floor, prior_mass=0.02, memory_limit=memory_limit
    )
    return whole, stream


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holdout", [False, True])
@pytest.mark.parametrize("memory_limit", [1 << 30, 1])
def test_later_passes_give_the_first_ones_bits(loss, weighted, holdout, memory_limit):
    # In single precision the kernel reads blocks that are known without asking anything else.
    made = {"weighted": weighted, "holdout": holdout, "memory_limit": memory_limit}
    whole, stream = pair(loss, **made, dtype=np.float32)
    is_general = holdout and loss == "squared_error"
    reads = {stream._kernel_reads(*given) for given in stream._numbered_blocks(0)}
    assert reads == {not is_general}
    w, other = interior_point(9), np.full(9, 1 / 9)
    first = stream.value_and_gradient(w)
    stream.value_and_gradient(other)
    again = stream.value_and_gradient(w)
    assert again[0] == first[0]
    assert np.array_equal(again[1], first[1])
    assert again[0] == pytest.approx(whole.value(w), rel=1e-6)
    assert stream.n_rows == 230
    assert stream.scale == pytest.approx(whole.scale)
    assert stream.nbytes_per_pass == whole.nbytes_per_pass


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holdout", [False, True])
@pytest.mark.parametrize("memory_limit", [1 << 30, 1])
def test_every_quantity_is_the_same(loss, weighted, holdout, memory_limit):
    whole, stream = pair(loss, weighted=weighted, holdout=holdout, memory_limit=memory_limit)
    w = interior_point(9)
    value, gradient = whole.value_and_gradient(w)
    for _ in range(2):  # what is known of rows is found in the first pass and kept
        ours = stream.value_and_gradient(w)
        assert ours[0] == pytest.approx(value, rel=1e-12)
        assert ours[1] == pytest.approx(gradient, abs=1e-12)
    assert stream.hessian(w) == pytest.approx(whole.hessian(w), abs=1e-9)
    assert np.array_equal(stream.rows_won(), whole.rows_won())
    assert stream.scale == pytest.approx(whole.scale)
    assert stream.rounding == pytest.approx(whole.rounding)
    assert (stream.n_rows, stream.n_members) == (230, 9)
    assert stream.provides == whole.provides
    assert stream.is_convex == whole.is_convex
    assert stream.nbytes_per_pass == whole.nbytes_per_pass


@pytest.mark.parametrize("memory_limit", [1 << 30, 1])
def test_faces_keep_the_whole_ensembles_prior(memory_limit):
    whole, stream = pair(weighted=True, memory_limit=memory_limit)
    members = np.array([7, 2, 3])
    w = interior_point(3)
    theirs, ours = whole.restrict(members), stream.restrict(members)
    assert isinstance(ours, SimplexObjective if memory_limit > 1 else StreamObjective)
    assert stream.can_hold(3) == (memory_limit > 1)
    value, gradient = theirs.value_and_gradient(w)
    found = ours.value_and_gradient(w)
    assert found[0] == pytest.approx(value, rel=1e-12)
    assert found[1] == pytest.approx(gradient, abs=1e-12)


ORDERS = {
    "rows": np.ascontiguousarray,
    "members": np.asfortranarray,
    "slice": lambda a: np.concatenate([a, a], axis=1)[:, : a.shape[1]],
}


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
@pytest.mark.parametrize("order", list(ORDERS))
def test_faces_keep_the_prior_however_votes_lie_in_memory(loss, order):
    # The kernel reads a face's columns of blocks it could not read whole, whose prior is not its.
    e = evidence(loss, n_rows=230, n_members=9, n_classes=2, dtype=np.float32)
    votes, mask = ORDERS[order](e.votes), ORDERS[order](e.oob_mask)
    rows = ArrayRows(votes, mask, e.target, task=e.task, block_rows=50)
    args = LOSSES[loss], ConcaveQuadratic(0.0)
    whole, stream = (
        SimplexObjective(e, *args, prior_mass=0.5),
        StreamObjective(rows, *args, prior_mass=0.5, memory_limit=4 * e.nbytes // 9),
    )
    stream._blocks.allowed_bytes = 1 << 20
    stream.value(stream.uniform_weights())
    for members in (np.array([7, 2, 3]), np.arange(9)[::-1].copy()):
        ours, theirs = stream.restrict(members), whole.restrict(members)
        w = interior_point(len(members))
        assert isinstance(ours, StreamObjective)
        value, gradient = theirs.value_and_gradient(w)
        found = ours.value_and_gradient(w)
        assert found[0] == pytest.approx(value, rel=1e-6)
        assert found[1] == pytest.approx(gradient, abs=1e-5)


def test_samples_are_rows_of_the_stream():
    whole, stream = pair(weighted=True)
    sample = stream.row_sample(40, 3)
    theirs = whole.row_sample(40, 3)
    w = interior_point(9)
    assert sample.n_rows == 40
    assert sample.value(w) == pytest.approx(theirs.value(w))
    assert stream.row_sample(10**6, 0).value(w) == pytest.approx(whole.value(w))


def test_rows_that_come_in_order_are_sampled_on_the_way():
    e = evidence(n_rows=230, n_members=9, n_classes=2)

    def blocks():
        for start in range(0, 230, 50):
            part = e.take(slice(start, start + 50))
            yield part.votes, part.oob_mask, part.target

    rows = GeneratedRows(blocks, 9, task="classification", labels=[0, 1])
    stream = StreamObjective(rows, LOSSES["log_loss"], ConcaveQuadratic(0.0), **SETTINGS)
    stream.value_and_gradient(stream.uniform_weights())
    assert stream.n_passes == 1
    assert stream.row_sample(60, 0).n_rows == 60
    assert stream.n_passes == 1  # kept from the first pass
    assert stream.row_sample(60, 0).n_rows == 60
    assert stream.n_passes == 2  # drawn anew


def test_blocks_without_weight_are_passed_over():
    e = evidence(n_rows=120, n_members=6, n_classes=2)
    mask = e.oob_mask.copy()
    mask[30:60] = False
    e = replace(e, oob_mask=mask, votes=e.votes * mask)
    rows = ArrayRows(e.votes, e.oob_mask, e.target, task=e.task, block_rows=30)
    args = LOSSES["log_loss"], ConcaveQuadratic(0.0)
    stream = StreamObjective(rows, *args, **SETTINGS)
    whole = SimplexObjective(e, *args, **SETTINGS)
    w = interior_point(6)
    for _ in range(2):
        assert stream.value(w) == pytest.approx(whole.value(w), rel=1e-12)
    empty = ArrayRows(0 * e.votes, 0 * e.oob_mask, e.target, task=e.task, block_rows=30)
    with pytest.raises(ValueError, match="nothing to judge the members by"):
        StreamObjective(empty, *args, **SETTINGS).value(w)


class Stop(Exception):
    pass


class Failing(ArrayRows):
    """Rows whose reading breaks off."""

    reads = 0
    fail_at = -1

    def block(self, number, members=None):
        type(self).reads += 1
        if type(self).reads == type(self).fail_at:
            raise Stop
        return super().block(number, members)


def test_a_pass_goes_on_where_it_was_cut_short(tmp_path, monkeypatch):
    monkeypatch.setattr("sparsebag.objective.pass_journal.SAVE_EVERY_SECONDS", 0.0)
    e = evidence(n_rows=230, n_members=9, n_classes=2)
    rows = Failing(e.votes, e.oob_mask, e.target, task=e.task, block_rows=30)
    args = LOSSES["log_loss"], ConcaveQuadratic(0.0)
    first, second = interior_point(9, 0), interior_point(9, 1)

    def objective():
        journal = PassJournal(tmp_path / "ckpt", "mine")
        return StreamObjective(rows, *args, **SETTINGS, journal=journal)

    plain = StreamObjective(rows, *args, **SETTINGS)
    expected = [plain.value_and_gradient(w) for w in (first, second)]
    Failing.reads, Failing.fail_at = 0, 8 + 5  # five blocks into the second pass
    broken = objective()
    broken.value_and_gradient(first)
    with pytest.raises(Stop):
        broken.value_and_gradient(second)
    Failing.reads, Failing.fail_at = 0, -1
    resumed = objective()
    found = [resumed.value_and_gradient(w) for w in (first, second)]
    assert Failing.reads == 8 - 4  # nothing of the first pass, four blocks of the second known
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0] == theirs[0]
        assert np.array_equal(ours[1], theirs[1])


def test_a_journal_knows_what_it_belongs_to(tmp_path):
    path = tmp_path / "ckpt"
    w = np.array([0.5, 0.5])
    journal = PassJournal(path, "mine")
    journal.save(replace(PassSums.start(w), value=2.0, is_done=True))
    with pytest.raises(JournalError, match="belongs to other evidence or other settings"):
        PassJournal(path, "yours")
    again = PassJournal(path, "mine")
    assert again.n_recorded == 1
    other = np.array([0.25, 0.75])
    assert not again.recall(other).is_done  # asked elsewhere: the record does not apply
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(JournalError, match="is damaged"):
        PassJournal(path, "mine")
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_whose_prior_votes_are_not_kept_give_the_same_bits(loss, weighted):
    whole, stream = pair(loss, weighted=weighted, dtype=np.float32)
    _, forgetful = pair(loss, weighted=weighted, dtype=np.float32)
    forgetful._blocks.allowed_bytes = 0
    w = interior_point(9)
    for _ in range(2):
        value, gradient = stream.value_and_gradient(w)
        found = forgetful.value_and_gradient(w)
        assert not forgetful._blocks.is_known(0)
        assert stream._blocks.is_known(0)
        assert (found[0], found[1].tolist()) == (value, gradient.tolist())
    theirs = whole.value_and_gradient(w)
    assert value == pytest.approx(theirs[0], rel=1e-6)
    assert gradient == pytest.approx(theirs[1], rel=1e-4, abs=1e-6)


def test_four_bytes_a_row_are_kept():
    _, stream = pair("log_loss", weighted=True, dtype=np.float32)
    stream.value_and_gradient(interior_point(9))
    assert stream._blocks._held == 4 * stream.n_rows


def weighted_blocks(weight, block_rows=100):
    e = replace(evidence(n_rows=len(weight), n_members=9, n_classes=2), sample_weight=weight)
    rows = ArrayRows(
        e.votes,
        e.oob_mask,
        e.target,
        task=e.task,
        sample_weight=weight,
        block_rows=block_rows,
    )
    args = LOSSES["log_loss"], ConcaveQuadratic(0.0)
    stream = StreamObjective(rows, *args, **SETTINGS, memory_limit=4 * 150 * e.nbytes // e.n_rows)
    return SimplexObjective(e, *args, **SETTINGS), stream


@pytest.mark.parametrize("scale", [1.0, 1e-310])
def test_a_block_gives_as_many_rows_as_it_weighs(scale):
    weight = np.where(np.arange(1000) < 100, 100.0, 1.0)  # the first block has 92 % of it
    whole, stream = weighted_blocks(weight * scale)
    sample = stream.face_sample(np.arange(9), 0)
    assert sample.n_rows == 150
    first = stream.stream.block(0).votes
    is_heavy = (sample.evidence.votes[:, None] == first).all(axis=2).any(axis=1)
    assert is_heavy.sum() > 90  # a tenth of the rows
    heavy = whole.facts.row_weight[:100].sum()
    assert sample.facts.row_weight[is_heavy].sum() == pytest.approx(heavy, abs=0.02)


def test_rows_of_a_face_are_drawn_without_bias():
    rng = np.random.default_rng(0)
    weight = np.sort(rng.exponential(size=1000) ** 3)
    weight[:50] = 0.0
    whole, stream = weighted_blocks(weight)
    w = interior_point(9)
    samples = [stream.face_sample(np.arange(9), seed) for seed in range(200)]
    assert {sample.n_rows for sample in samples} == {150}
    # The estimate of the weighted sum is unbiased, not its ratio to the estimated weight.
    sums = np.array([s.facts.total * s.value(w) for s in samples])
    totals = np.array([s.facts.total for s in samples])
    for found, truth in ((sums, whole.facts.total * whole.value(w)), (totals, whole.facts.total)):
        assert abs(found.mean() - truth) < 4 * found.std() / np.sqrt(len(found))
        assert found.std() < 0.05 * truth


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_no_member_has_out_of_bag_are_counted_as_in_memory(weighted):
    e = evidence(n_rows=120, n_members=6, n_classes=2)
    mask = e.oob_mask.copy()
    mask[20:70] = False  # a whole block of 30, and parts of two
    weight = np.where(np.arange(120) % 3 == 0, 0.0, 2.0) if weighted else None
    n_covered = int(mask.any(axis=1).sum())

    def blocks():
        for s in range(0, 120, 30):
            rows = slice(s, s + 30)
            last = () if weight is None else (weight[rows],)
            yield e.votes[rows] * mask[rows], mask[rows], e.target[rows], *last

    for stream in (
        GeneratedRows(blocks, 6, task="classification", labels=[0, 1]),
        ArrayRows(e.votes * mask, mask, e.target, task=e.task, sample_weight=weight, block_rows=30),
    ):
        f = StreamObjective(stream, LOSSES["log_loss"], ConcaveQuadratic(0.0), **SETTINGS)
        assert (f.n_rows, f.n_uncovered) == (120, 120 - n_covered)
        assert f.nbytes_per_pass == sum(block.nbytes for block in stream.blocks())
