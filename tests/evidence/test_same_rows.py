"""A stream must give the same rows on every pass, and after a kill; others are never mixed in."""

from dataclasses import replace

import numpy as np
import pytest

import sparsebag as sb
from problems import evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.same_rows import TURNS, BlockDigests, ChangedRowsError
from sparsebag.objective import pass_journal

MEMORY = 1 << 20
N_ROWS, N_MEMBERS, BLOCK = 8000, 30, 1000


@pytest.fixture(scope="module")
def e():
    return evidence(n_rows=N_ROWS, n_members=N_MEMBERS, n_classes=2, dtype=np.float32)


def blocks_of(e, size=BLOCK, n_blocks=None):
    for first in range(0, e.n_rows, size)[:n_blocks]:
        part = e.take(slice(first, first + size))
        yield part.votes, part.oob_mask, part.target


def stream(function, **settings):
    return sb.stream_rows(function, n_members=N_MEMBERS, labels=[0, 1], **settings)


class Changing:
    """A function that starts another generator every time."""

    def __init__(self, generator):
        self.generator, self.n_starts = generator, 0

    def __call__(self):
        self.n_starts += 1
        return self.generator(self.n_starts)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda e, k: blocks_of(e, n_blocks=None if k == 1 else 3), "ended after .* blocks"),
        (lambda e, k: blocks_of(e, n_blocks=3 if k == 1 else None), "has more now"),
        (lambda e, k: blocks_of(e, n_blocks=None if k == 1 else 0), "ended after 0 blocks"),
        (lambda e, k: blocks_of(e, 700 + 10 * k), "rows now and had"),
        (lambda e, k: blocks_of(evidence(n_rows=8000, n_members=30, n_classes=2, seed=k)), "other"),
    ],
    ids=["shorter", "longer", "empty", "cut elsewhere", "drawn anew"],
)
def test_a_stream_that_changes_is_refused(e, change, words):
    with pytest.raises(ChangedRowsError, match=words) as caught:
        sb.fit_weights(stream(Changing(lambda k: change(e, k))), memory_limit=MEMORY)
    assert "must give the same rows, in the same blocks" in str(caught.value)


@pytest.mark.parametrize("n_rows", [50, 10**9])
def test_a_wrong_number_of_rows_is_told_after_one_pass(e, n_rows):
    counted = Changing(lambda k: blocks_of(e))
    with pytest.raises(ValueError, match=f"n_rows={n_rows} was given but the stream has 8000"):
        sb.fit_weights(stream(counted, n_rows=n_rows), memory_limit=MEMORY)
    assert counted.n_starts == 1


def hard(e):
    """The same rows and targets, other votes."""
    return evidence(n_rows=N_ROWS, n_members=N_MEMBERS, n_classes=2, dtype=np.float32, seed=5)


@pytest.mark.parametrize("solver", ["mirror", "slsqp"])
def test_a_checkpoint_of_other_rows_is_refused(e, solver, tmp_path):
    path = tmp_path / "ckpt"
    settings = {"memory_limit": MEMORY, "checkpoint": path, "solver": solver}
    first = sb.fit_weights(stream(lambda: blocks_of(e)), **settings)
    again = sb.fit_weights(stream(lambda: blocks_of(e)), **settings)
    assert np.array_equal(first.weights, again.weights)
    with pytest.raises(ChangedRowsError, match=r"checkpoint .*ckpt belongs to other rows"):
        sb.fit_weights(stream(lambda: blocks_of(hard(e))), **settings)
    with pytest.raises(ChangedRowsError, match=r"belongs to other rows.*rows now and had"):
        sb.fit_weights(stream(lambda: blocks_of(e, 500)), **settings)


def test_every_block_of_an_array_counts(e, tmp_path):
    votes = e.votes.copy()
    settings = {"memory_limit": MEMORY, "checkpoint": tmp_path / "ckpt"}
    rows = sb.stream_rows(votes, e.oob_mask, e.target)
    found = sb.fit_weights(rows, **settings)
    assert found.status.success
    n_blocks = rows.with_block_bytes(MEMORY // 32).n_blocks
    one = slice(N_ROWS // n_blocks, 2 * N_ROWS // n_blocks)  # neither first, middle nor last
    votes[one] = np.where(e.oob_mask[one], 1 - votes[one], 0)
    with pytest.raises(ChangedRowsError, match="belongs to other rows"):
        sb.fit_weights(sb.stream_rows(votes, e.oob_mask, e.target), **settings)


def test_all_classes_planes_count():
    e = evidence("brier", n_rows=300)
    planes = np.stack(e.class_votes, axis=2)
    swapped = planes[:, :, [0, 2, 1]]
    swapped[np.arange(300), :, e.target] = planes[np.arange(300), :, e.target]

    one, other = BlockDigests(), BlockDigests()
    for table, cube in ((one, planes), (other, swapped)):
        cube = tuple(np.ascontiguousarray(cube[:, :, c]) for c in range(3))
        made = OOBEvidence(e.votes, e.oob_mask, e.target, e.task, None, e.classes, cube)
        table.meet(0, made)
    assert not np.array_equal(one.table, other.table)


class Killed(Exception):
    pass


def test_half_a_pass_goes_on_with_its_own_rows_only(e, tmp_path, monkeypatch):
    monkeypatch.setattr(pass_journal, "SAVE_EVERY_SECONDS", 0.0)
    path = tmp_path / "ckpt"
    settings = {"memory_limit": MEMORY, "checkpoint": path}

    def cut_short():
        yield from blocks_of(e, n_blocks=5)
        raise Killed

    with pytest.raises(Killed):
        sb.fit_weights(stream(cut_short), **settings)
    for other in (lambda: blocks_of(hard(e)), lambda: blocks_of(e, 500)):
        with pytest.raises(ChangedRowsError, match="belongs to other rows"):
            sb.fit_weights(stream(other), **settings)
    found = sb.fit_weights(stream(lambda: blocks_of(e)), **settings)
    whole = sb.fit_weights(stream(lambda: blocks_of(e)), memory_limit=MEMORY)
    assert np.array_equal(found.weights, whole.weights)


class Power:
    """A loss of the user's own, whose repr says nothing."""

    name, channel, is_convex = "power", "true_class", True

    def __init__(self, exponent):
        self.exponent = exponent

    def value(self, prediction, target):
        return (1 - prediction) ** self.exponent

    def gradient(self, prediction, target):
        return -self.exponent * (1 - prediction) ** (self.exponent - 1)

    def __repr__(self):
        return "Power"


class Nameless(Power):
    __repr__ = object.__repr__


def test_a_users_loss_is_known_by_its_values(e, tmp_path):
    def solve(loss, name):
        rows = stream(lambda: blocks_of(e))
        return sb.fit_weights(rows, loss=loss, memory_limit=MEMORY, checkpoint=tmp_path / name)

    solve(Power(2), "a")
    with pytest.raises(pass_journal.JournalError, match="other evidence or other settings"):
        solve(Power(4), "a")
    first = solve(Nameless(2), "b")
    assert np.array_equal(solve(Nameless(2), "b").weights, first.weights)
    unknown = Power(2)
    unknown.scale = lambda x: x
    with pytest.raises(ValueError, match="this one cannot be pickled"):
        solve(unknown, "c")


def test_other_votes_are_seen_at_the_next_read_and_a_single_one_in_time(e):
    block = e.take(slice(0, 40))  # every row is looked at
    digests = BlockDigests()
    digests.meet(0, block)
    digests.meet(0, block)
    other = replace(block, votes=np.where(block.oob_mask, 1 - block.votes, 0).astype(np.float32))
    with pytest.raises(ChangedRowsError, match="holds other rows"):
        digests.meet(0, other)

    def reads_until_seen(row, member):
        votes, digests = block.votes.copy(), BlockDigests()
        votes[row, member] = 1 - votes[row, member]
        digests.meet(0, block)
        for turn in range(TURNS):
            try:
                digests.meet(0, replace(block, votes=votes))
            except ChangedRowsError:
                return turn + 1
        return None

    seen = [reads_until_seen(*place) for place in np.argwhere(block.oob_mask)]
    turns = [turn for turn in seen if turn]
    assert set(turns) == set(range(1, TURNS + 1))
    assert len(turns) > 0.15 * len(seen)  # 8 turns of 32 entries, of 1200


def with_other_member(part, what, member):
    """The same rows, one member's votes or bag another on all of them."""
    votes, mask = part.votes.copy(), part.oob_mask.copy()
    if what == "votes":
        votes[:, member] = 0.02
    else:
        mask[:, member] = ~mask[:, member]
    return replace(part, votes=np.where(mask, votes, 0), oob_mask=mask)


# A vote counts where it is out of bag, so one block of all rows has 43 looks at 30 members a read.
@pytest.mark.parametrize(
    ("what", "size", "most_reads"),
    [("votes", 500, 1), ("mask", 500, 1), ("mask", N_ROWS, 1), ("votes", N_ROWS, 3)],
)
def test_a_member_that_changes_on_all_rows_is_soon_seen(e, what, size, most_reads):
    parts = [e.take(slice(first, first + size)) for first in range(0, N_ROWS, size)]

    def reads_until_seen(member):
        digests = BlockDigests()
        for number, part in enumerate(parts):
            digests.meet(number, part)
        changed = [with_other_member(part, what, member) for part in parts]
        for read in range(TURNS):
            try:
                for number, part in enumerate(changed):
                    digests.meet(number, part)
            except ChangedRowsError:
                return read + 1
        return np.inf

    reads = [reads_until_seen(member) for member in range(N_MEMBERS)]
    assert max(reads) <= most_reads
    assert np.median(reads) == 1


@pytest.mark.parametrize("what", ["signs", "places"])
def test_two_members_of_many_that_change_are_seen_at_the_next_read(what):
    """The sampled entries meet neither, and bits of both cancel in a sum."""
    rng = np.random.default_rng(900)
    votes = rng.normal(size=(40, 10_000)).astype(np.float32)
    block = OOBEvidence(votes, None, np.zeros(40), "regression")
    digests = BlockDigests()
    digests.meet(0, block)
    other = votes.copy()
    if what == "signs":
        other[:, [17, 4321]] *= -1.0
    else:
        other[:, [17, 4321]] = other[:, [4321, 17]]
    with pytest.raises(ChangedRowsError, match="holds other rows"):
        digests.meet(0, replace(block, votes=other))


@pytest.mark.parametrize("what", ["votes", "mask"])
def test_a_solve_does_not_end_on_a_member_that_changed(e, what):
    best = int(np.argmax(sb.fit_weights(e.votes, e.oob_mask, e.target).weights))
    other = with_other_member(e, what, best)
    changing = Changing(lambda k: blocks_of(e if k == 1 else other))
    with pytest.raises(ChangedRowsError, match="holds other rows"):
        sb.fit_weights(stream(changing))


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_in_memory_is_no_change(e, order):
    digests = BlockDigests()
    digests.meet(0, e)
    votes, mask = np.array(e.votes, order=order), np.array(e.oob_mask, order=order)
    for _ in range(TURNS):
        digests.meet(0, replace(e, votes=votes, oob_mask=mask))
    votes = np.array(np.where(e.oob_mask, 1 - e.votes, 0), order=order)
    with pytest.raises(ChangedRowsError, match="holds other rows"):
        digests.meet(0, replace(e, votes=votes, oob_mask=mask))


def test_some_columns_are_known_by_their_rows(e):
    digests = BlockDigests()
    digests.meet(0, e)
    some = e.take_members(np.array([3, 4]))
    digests.meet(0, some, has_all_members=False)
    with pytest.raises(ChangedRowsError, match="holds other rows"):
        digests.meet(0, some.take(np.arange(N_ROWS)[::-1]), has_all_members=False)
