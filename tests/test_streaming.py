"""fit_weights on streams, checkpoints that outlive a kill, and weights of rows that come once."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning

import sparsebag as sb
from problems import evidence
from sparsebag.evidence.same_rows import BlockDigests
from sparsebag.objective.pass_journal import JournalError
from sparsebag.objective.stream_objective import StreamObjective

MEMORY = 1 << 21
SOLVE = """
import sys
import numpy as np
import sparsebag as sb
import sparsebag.objective.pass_journal as journal
from sparsebag.evidence.array_rows import ArrayRows
journal.SAVE_EVERY_SECONDS = 0.0
slow = ArrayRows.block
def block(self, number, members=None):
    import time
    time.sleep(float(sys.argv[3]))
    return slow(self, number, members)
ArrayRows.block = block
found = sb.fit_weights(sb.open_evidence(sys.argv[1]), memory_limit=1 << 21, checkpoint=sys.argv[2])
np.save(sys.argv[4], found.weights)
"""


@pytest.fixture(scope="module")
def rows():
    return evidence(n_rows=6000, n_members=40, n_classes=2, dtype=np.float32)


def streamed(e, **settings):
    return sb.stream_rows(e.votes, e.oob_mask, e.target, task=e.task, **settings)


@pytest.mark.parametrize("solver", ["auto", "mirror", "projected_gradient", "active_set"])
def test_a_stream_gives_what_matrices_give(rows, solver):
    theirs = sb.fit_weights(rows.votes, rows.oob_mask, rows.target, solver="active_set")
    ours = sb.fit_weights(streamed(rows, block_rows=999), solver=solver)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)
    assert ours.weights == pytest.approx(theirs.weights, abs=2e-3)
    assert ours.status.success


def test_little_memory_gives_the_same(rows):
    plenty = sb.fit_weights(streamed(rows))
    little = sb.fit_weights(streamed(rows), memory_limit=MEMORY)
    assert little.objective == pytest.approx(plenty.objective, abs=1e-6)


@pytest.mark.parametrize("loss", ["log_loss", "brier"])
def test_a_forest_of_three_classes_by_its_leaves(loss):
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(60, random_state=0).fit(X, y)
    stream = sb.stream_members(forest, X, y, every_class=loss == "brier", block_rows=50)
    ours = sb.fit_weights(stream, loss=loss)
    from sparsebag.evidence.collect import collect_evidence
    from sparsebag.evidence.from_ensemble import read_ensemble
    from sparsebag.fit_weights import solve_weights
    from sparsebag.settings import resolve_settings

    collected = collect_evidence(read_ensemble(forest), X, y, class_votes=True)
    settings = resolve_settings(
        lam=None, loss=loss, solver="auto", floor="auto", prior_mass="auto", preset=None
    )
    theirs = solve_weights(collected, settings)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)


def test_bad_calls_are_one_sentence(rows, tmp_path):
    stream = streamed(rows)
    with pytest.raises(ValueError, match="a stream carries its mask"):
        sb.fit_weights(stream, rows.oob_mask, rows.target)
    with pytest.raises(ValueError, match="memory_limit and checkpoint are for streams"):
        sb.fit_weights(rows.votes, rows.oob_mask, rows.target, memory_limit=MEMORY)
    with pytest.raises(ValueError, match="y is missing"):
        sb.fit_weights(rows.votes, rows.oob_mask)
    with pytest.raises(ValueError, match="memory_limit must be a whole number of bytes"):
        sb.fit_weights(stream, memory_limit=3)
    once = sb.stream_rows(
        iter([(rows.votes, rows.oob_mask, rows.target)]), n_members=40, labels=[0, 1]
    )
    with pytest.raises(ValueError, match="reads the rows more than once"):
        sb.fit_weights(once, solver="active_set")
    with pytest.raises(ValueError, match="a checkpoint needs rows that can be read again"):
        sb.fit_weights(once, checkpoint=tmp_path / "c")
    checkpoint = tmp_path / "ckpt"
    sb.fit_weights(stream, memory_limit=MEMORY, checkpoint=checkpoint)
    with pytest.raises(JournalError, match="other evidence or other settings"):
        sb.fit_weights(stream, lam=0.01, memory_limit=MEMORY, checkpoint=checkpoint)


def test_a_checkpoint_of_generated_rows_names_the_limit_it_goes_on_with(rows, tmp_path):
    def draw():
        yield rows.votes, rows.oob_mask, rows.target

    def solve(limit, function=draw):
        stream = sb.stream_rows(function, n_members=rows.n_members, labels=rows.classes)
        return sb.fit_weights(stream, memory_limit=limit, checkpoint=tmp_path / "ckpt")

    first = solve(2 * MEMORY)
    said = rf"larger blocks .*; pass memory_limit of at least {2 * MEMORY}, with which it was wr"
    with pytest.raises(ValueError, match=said):
        solve(MEMORY)
    assert np.array_equal(solve(2 * MEMORY).weights, first.weights)
    with pytest.raises(ValueError, match="belongs to other rows") as raised:
        solve(2 * MEMORY, lambda: iter([(rows.votes[:9], rows.oob_mask[:9], rows.target[:9])]))
    assert "memory_limit of at least" not in str(raised.value)


def test_a_checkpoint_of_doubles_goes_on_to_the_same_bits(tmp_path):
    """Their precision, by which solvers judge, was known only to whoever read the first pass."""
    e = evidence("squared_error", n_rows=64, n_members=120)
    stream = sb.stream_rows(e.votes + 1e4, e.oob_mask, e.target + 1e4, task="regression")
    first, again = (
        sb.fit_weights(stream, loss="squared_error", checkpoint=tmp_path / "ckpt") for _ in range(2)
    )
    assert again.weights.tolist() == first.weights.tolist()
    assert again.n_iterations == first.n_iterations


def test_a_checkpoint_and_other_memory_limits(rows, tmp_path):
    checkpoint, stream = tmp_path / "ckpt", streamed(rows)
    first = sb.fit_weights(stream, memory_limit=2 * MEMORY, checkpoint=checkpoint)
    more = sb.fit_weights(stream, memory_limit=4 * MEMORY, checkpoint=checkpoint)
    assert more.objective == pytest.approx(first.objective, abs=1e-5)
    said = rf"memory_limit={2 * MEMORY}, and goes on with that or more .* not with {MEMORY};"
    with pytest.raises(JournalError, match=said):
        sb.fit_weights(stream, memory_limit=MEMORY, checkpoint=checkpoint)
    again = sb.fit_weights(stream, memory_limit=2 * MEMORY, checkpoint=checkpoint)
    assert np.array_equal(again.weights, first.weights)


@pytest.mark.parametrize("solver", ["mirror", "active_set", "projected_gradient"])
def test_a_finished_solve_reads_again_only_what_is_held(rows, tmp_path, solver, monkeypatch):
    """Samples, faces and Hessians; sums over all members are on record, and none is made again."""
    summed = []
    run_pass = StreamObjective._run_pass

    def counted(self, sums, journal):
        summed.append(journal is not None)
        return run_pass(self, sums, journal)

    monkeypatch.setattr(StreamObjective, "_run_pass", counted)
    found, n_summed = [], []
    for _ in range(2):
        found.append(
            sb.fit_weights(
                streamed(rows), memory_limit=2 * MEMORY, checkpoint=tmp_path / "ckpt", solver=solver
            )
        )
        n_summed.append(sum(summed))
    first, again = found
    assert np.array_equal(again.weights, first.weights)
    assert n_summed[0] == n_summed[1] > 1
    assert again.n_passes == pytest.approx(first.n_passes - n_summed[0])
    assert again.n_passes < first.n_passes / 2


def test_bad_streams_are_one_sentence(rows, tmp_path):
    block = rows.votes, rows.oob_mask, rows.target

    def stream(*blocks, n_members=40):
        return sb.stream_rows(lambda: iter(blocks), n_members=n_members, labels=[0, 1])

    with pytest.raises(
        ValueError, match=r"must be a tuple \(predictions, oob_mask, y\).*2 entries"
    ):
        sb.fit_weights(stream((rows.votes, rows.target)))
    with pytest.raises(ValueError, match="got ndarray"):
        sb.fit_weights(stream(rows.votes))
    with pytest.raises(ValueError, match="n_members=0 was given"):
        stream(block, n_members=0)
    with pytest.raises(ValueError, match="the stream gave no rows"):
        sb.fit_weights(stream())
    with pytest.raises(ValueError, match=r"predictions is a generator.*sparsebag.stream_rows"):
        sb.fit_weights(iter([block]))
    with pytest.raises(JournalError, match="in a folder that does not exist"):
        sb.fit_weights(stream(block), checkpoint=tmp_path / "no" / "ckpt")
    with pytest.raises(JournalError, match="is a folder; pass the name of a file") as caught:
        sb.fit_weights(stream(block), checkpoint=tmp_path)
    assert "delete" not in str(caught.value)
    (tmp_path / "ckpt").write_bytes(b"\x80\x04N.")
    with pytest.raises(JournalError, match="is damaged, or was not written") as caught:
        sb.fit_weights(stream(block), checkpoint=tmp_path / "ckpt")
    assert "pickle" not in str(caught.value)


def test_empty_blocks_and_lists_of_blocks(rows):
    block = rows.votes, rows.oob_mask, rows.target
    empty = tuple(values[:0] for values in block)
    theirs = sb.fit_weights(*block)
    listed = sb.stream_rows([empty, block, empty], n_members=40, labels=[0, 1])
    assert listed.is_replayable
    assert sb.fit_weights(listed).objective == pytest.approx(theirs.objective, abs=1e-6)


def test_large_blocks_are_cut_to_the_memory_allowed(rows, monkeypatch):
    from sparsebag.evidence import generated_rows

    seen = []
    check = generated_rows.evidence_block

    def watched(predictions, *rest, **settings):
        seen.append(predictions.nbytes)
        return check(predictions, *rest, **settings)

    monkeypatch.setattr(generated_rows, "evidence_block", watched)
    block = rows.votes, rows.oob_mask, rows.target
    stream = sb.stream_rows(lambda: iter([block]), n_members=40, labels=[0, 1])
    sb.fit_weights(stream, memory_limit=MEMORY)
    assert max(seen) <= MEMORY // 32
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    assert sb.stream_members(forest, X, y).with_block_bytes(50 * 10 * 5).block_rows == 48


def test_uncovered_rows_are_counted(rows):
    mask = rows.oob_mask.copy()
    mask[:7] = False
    stream = sb.stream_rows(rows.votes * mask, mask, rows.target)
    with pytest.warns(sb.UncoveredRowsWarning, match="7 of 6000 rows"):
        sb.fit_weights(stream)


def start(folder, checkpoint, pause, out):
    arguments = [str(folder), str(checkpoint), str(pause), str(out)]
    return subprocess.Popen([sys.executable, "-c", SOLVE, *arguments], env={**os.environ})


def test_killed_and_called_again_the_weights_are_the_same(rows, tmp_path):
    folder, checkpoint = tmp_path / "rows", tmp_path / "ckpt"
    sb.store_evidence(streamed(rows), folder)
    whole = sb.fit_weights(sb.open_evidence(folder), memory_limit=MEMORY)
    killed = start(folder, checkpoint, 0.02, tmp_path / "killed.npy")
    done = 0
    while killed.poll() is None and done < 1:
        time.sleep(0.01)
        if checkpoint.exists():
            with np.load(checkpoint) as record:
                done = int(record["is_done"].sum())
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    again = start(folder, checkpoint, 0.0, tmp_path / "again.npy")
    assert again.wait() == 0
    assert not (tmp_path / "killed.npy").exists()
    assert np.array_equal(np.load(tmp_path / "again.npy"), whole.weights)


class Killed(BaseException):
    """What a test can catch of a kill."""


@pytest.mark.parametrize(
    ("share", "kind"),
    [
        (0.1, "parquet"),
        (0.3, "generator"),
        (0.9, "parquet"),
        pytest.param(0.1, "generator", marks=pytest.mark.slow),
        pytest.param(0.3, "parquet", marks=pytest.mark.slow),
        pytest.param(0.9, "generator", marks=pytest.mark.slow),
    ],
)
def test_a_kill_in_the_first_pass_costs_no_more_than_that_pass(
    rows, tmp_path, monkeypatch, kind, share
):
    """Rows that come in order are sampled as they come, before a kill and after it: 1.7 passes."""
    monkeypatch.setattr("sparsebag.objective.pass_journal.SAVE_EVERY_SECONDS", 0.0)

    def blocks():
        for s in range(0, 6000, 200):
            some = slice(s, s + 200)
            yield rows.votes[some], rows.oob_mask[some], rows.target[some].astype(int)

    stream = sb.stream_rows(blocks, n_members=40, labels=[0, 1])
    if kind == "parquet":
        pytest.importorskip("pyarrow")
        stream = sb.store_evidence(stream, tmp_path / "rows", format="parquet")

    def solve(checkpoint):
        return sb.fit_weights(stream, memory_limit=MEMORY, checkpoint=tmp_path / checkpoint)

    whole = solve("whole")
    meet = BlockDigests.meet
    n_blocks = []

    def killed(self, number, block, **how):
        n_blocks.append(block.n_rows)
        if sum(n_blocks) > share * 6000:
            raise Killed
        meet(self, number, block, **how)

    monkeypatch.setattr(BlockDigests, "meet", killed)
    with pytest.raises(Killed):
        solve("killed")
    monkeypatch.setattr(BlockDigests, "meet", meet)
    again = solve("killed")
    assert again.n_passes <= whole.n_passes
    assert np.array_equal(again.weights, whole.weights)


def test_online_weights(rows):
    online = sb.OnlineWeights(labels=[0, 1], memory_limit=MEMORY)
    assert online.n_rows_ == 0
    with pytest.raises(ValueError, match="no rows yet"):
        online.weights_
    for first in range(0, 6000, 500):
        part = rows.take(slice(first, first + 500))
        online.partial_fit(part.votes, part.oob_mask, part.target)
    assert online.n_rows_ == 6000
    assert online.weights_.sum() == pytest.approx(1.0)
    theirs = sb.fit_weights(rows.votes, rows.oob_mask, rows.target)
    assert online.solution_.objective == pytest.approx(theirs.objective, abs=5e-3)
    with pytest.raises(ValueError, match="this block has 39 members, those before had 40"):
        online.partial_fit(rows.votes[:, 1:], rows.oob_mask[:, 1:], rows.target)
    with pytest.raises(ValueError, match="labels= is needed"):
        sb.OnlineWeights().partial_fit(rows.votes, rows.oob_mask, rows.target)


def test_online_weights_say_what_they_are(rows):
    assert repr(sb.OnlineWeights()) == "OnlineWeights(): no rows yet"
    online = sb.OnlineWeights(labels=np.array([0, 1]), lam=0.01, memory_limit=1 << 21)
    said = "OnlineWeights(labels=[0, 1], lam=0.01, memory_limit=2097152)"
    assert repr(online) == f"{said}: no rows yet"
    online.partial_fit(rows.votes, rows.oob_mask, rows.target)
    assert repr(online) == f"{said}: 6,000 rows of 40 members"


def test_rows_that_come_once(rows):
    def blocks():
        for first in range(0, 6000, 500):
            part = rows.take(slice(first, first + 500))
            yield part.votes, part.oob_mask, part.target

    found = sb.fit_weights(sb.stream_rows(blocks(), n_members=40, labels=[0, 1]))
    theirs = sb.fit_weights(rows.votes, rows.oob_mask, rows.target)
    assert found.objective == pytest.approx(theirs.objective, abs=1e-6)  # all rows were held


def test_whole_floats_are_numbers_of_bytes():
    votes, y = np.full((40, 3), 0.6), np.arange(40) % 2
    rows = sb.stream_rows(votes, None, y, labels=[0, 1])
    assert sb.fit_weights(rows, memory_limit=2e9).weights.sum() == pytest.approx(1.0)
    for wrong in (2e9 + 0.5, np.inf, np.nan, True, "2e9"):
        with pytest.raises(ValueError, match="memory_limit must be a whole number of bytes"):
            sb.fit_weights(rows, memory_limit=wrong)


@pytest.mark.parametrize("once", [True, False])
def test_targets_far_from_zero_are_told_of_in_one_pass_too(once):
    rng = np.random.default_rng(0)
    target = rng.normal(size=1200) + 1e5
    votes = (target[:, None] + np.linspace(0.5, 2.0, 8) * rng.normal(size=(1200, 8))).astype("f4")
    blocks = [(votes[i : i + 300], None, target[i : i + 300]) for i in range(0, 1200, 300)]
    rows = iter(blocks) if once else lambda: iter(blocks)
    stream = sb.stream_rows(rows, n_members=8, task="regression", has_mask=False)
    with pytest.warns(ConvergenceWarning, match="subtract the targets' mean"):
        found = sb.fit_weights(stream, loss="squared_error", lam=0.0)
    assert not found.status.success


def test_what_is_refused_of_a_regression_stream_names_its_cure():
    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    predictions = y[:, None] + rng.normal(size=(200, 5))
    cure = r"sparsebag\.stream_rows\(\.\.\., task='regression'\)"
    undeclared = sb.stream_rows(predictions, None, y)
    with pytest.raises(ValueError, match=f"y is not made of classes.*{cure}"):
        sb.fit_weights(undeclared)
    with pytest.raises(ValueError, match=f"does not fit classification; use one of .*{cure}"):
        sb.fit_weights(undeclared, loss="squared_error")
    with pytest.raises(ValueError, match=f"probabilities between 0 and 1.*{cure}"):
        sb.fit_weights(sb.stream_rows(predictions, None, np.round(y)))
    with pytest.raises(ValueError, match="'no_loss' is not known; use 'auto' or one of") as raised:
        sb.fit_weights(undeclared, loss="no_loss")
    assert "stream_rows" not in str(raised.value)
    blocks = [(predictions, None, y)]
    generated = sb.stream_rows(blocks, n_members=5, labels=[0, 1], has_mask=False)
    with pytest.raises(ValueError, match=f"y is not made of classes.*{cure}"):
        sb.fit_weights(generated)
    with pytest.raises(ValueError, match=r"for regression pass loss='squared_error'\.$"):
        sb.fit_weights(predictions, None, y)  # of arrays the loss says so
    declared = sb.stream_rows(predictions, None, y, task="regression")
    by_default, named = (
        sb.fit_weights(declared, **loss) for loss in ({}, {"loss": "squared_error"})
    )
    np.testing.assert_array_equal(by_default.weights, named.weights)
