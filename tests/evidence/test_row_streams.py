"""Row streams: the same rows whatever they come from."""

import itertools
import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression

import sparsebag as sb
from problems import evidence
from sparsebag.evidence import member_rows
from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.evidence.generated_rows import GeneratedRows
from sparsebag.evidence.member_rows import LeafRows, PredictedRows
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.reservoir import Reservoir, draw_by_weight
from sparsebag.evidence.row_stream import RowStream, block_rows_for, concatenate, shape_of
from sparsebag.evidence.stored_rows import open_evidence, store_evidence
from sparsebag.evidence.zarr_window import ZarrWindow

LABELS = [0, 1, 2]


def rows_of(e, **settings):
    settings.setdefault("block_rows", 30)
    labels = LABELS if e.classes is not None else None
    return ArrayRows(
        e.votes,
        e.oob_mask,
        e.target,
        task=e.task,
        sample_weight=e.sample_weight,
        labels=labels,
        **settings,
    )


def whole(stream, members=None):
    return concatenate(list(stream.blocks(members)))


def same(left, right):
    pairs = [(getattr(left, n), getattr(right, n)) for n in ("votes", "oob_mask", "target")]
    pairs.append((left.sample_weight, right.sample_weight))
    return left.is_zeroed and all(
        (a is None and b is None) or np.array_equal(a, b) for a, b in pairs
    )


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holdout", [False, True])
def test_blocks_hold_the_rows(loss, weighted, holdout):
    e = evidence(loss, weighted=weighted, holdout=holdout)
    stream = rows_of(e)
    assert isinstance(stream, RowStream)
    assert stream.n_blocks == 4
    for _ in range(2):  # a block is checked the first time, and trusted the second
        assert same(whole(stream), e)
    assert same(stream.take(np.array([3, 50, 119])), e.take(np.array([3, 50, 119])))
    some = np.array([4, 1])
    assert same(whole(stream, some), e.take_members(some))
    with pytest.raises(IndexError, match="no block 4"):
        stream.block(4)


def test_what_is_in_the_bag_is_zeroed():
    e = evidence()
    dirty = np.where(e.oob_mask, e.votes, np.nan)
    stream = ArrayRows(dirty, e.oob_mask, e.target, task="classification", block_rows=50)
    first = whole(stream)
    assert np.array_equal(first.votes, e.votes)
    again = whole(stream)  # blocks are not trusted to be zero where the file is not
    assert np.array_equal(again.votes, e.votes)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4", ">f8", "i2", "i8", "u1", "longdouble"])
def test_a_block_has_the_same_precision_at_every_read(dtype):
    e = evidence("squared_error")
    votes = np.abs(50 * e.votes).astype(dtype)
    stream = ArrayRows(votes, e.oob_mask, e.target, task="regression", block_rows=50)
    first, again = whole(stream), whole(stream)
    assert first.votes.dtype == again.votes.dtype
    assert np.array_equal(first.votes, again.votes)
    memory = from_predictions(votes, e.oob_mask, e.target, task="regression")
    assert again.votes.dtype == memory.votes.dtype
    assert stream.with_block_bytes(1000).block(0).nbytes <= 1000


def test_whole_numbers_that_single_precision_cannot_count():
    rng = np.random.default_rng(900)
    cents = rng.integers(200_000_000, 200_000_500, 3000)
    votes = cents[:, None] + np.rint(rng.normal(size=(3000, 20)) * np.linspace(5, 60, 20)).astype(
        np.int64
    )
    mask = rng.random((3000, 20)) < 0.37
    memory = sb.fit_weights(votes, mask, cents, loss="squared_error")
    rows = sb.stream_rows(votes, mask, cents, task="regression", block_rows=500)
    found = sb.fit_weights(rows, loss="squared_error", memory_limit=1 << 20)
    assert found.status.success
    assert found.weights == pytest.approx(memory.weights, abs=1e-6)


def test_blocks_too_large_to_copy_are_the_same_rows_again(monkeypatch):
    monkeypatch.setattr("sparsebag.evidence.from_predictions.LARGEST_COPY_BYTES", 1000)
    e = evidence(n_classes=2, n_members=40, dtype=np.float32)
    dirty = np.where(e.oob_mask, e.votes, np.float32(0.5))
    rows = sb.stream_rows(dirty, e.oob_mask, e.target)
    assert not rows.block(0).is_zeroed
    found = sb.fit_weights(rows)
    assert found.weights == pytest.approx(
        sb.fit_weights(e.votes, e.oob_mask, e.target).weights, abs=1e-6
    )


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("holdout", [False, True])
def test_stored_rows_come_back(kind, loss, holdout, tmp_path):
    if kind != "npy":
        pytest.importorskip("zarr" if kind == "zarr" else "pyarrow")
    e = evidence(loss, weighted=True, holdout=holdout, dtype=np.float32)
    stored = store_evidence(rows_of(e), tmp_path / "rows", format=kind)
    opened = open_evidence(tmp_path / "rows")
    for stream in (stored, opened):
        assert stream.n_rows == 120
        assert same(whole(stream), e)
    if kind != "parquet":
        assert open_evidence(tmp_path / "rows", block_rows=50).n_blocks == 3
        assert same(opened.take(np.array([7, 100])), e.take(np.array([7, 100])))
    with pytest.raises(ValueError, match="holds evidence already"):
        store_evidence(rows_of(e), tmp_path / "rows")


def test_labels_that_are_words_are_stored(tmp_path):
    e = evidence(n_classes=2)
    words = np.array(["no", "yes"])[e.target]
    stream = sb.stream_rows(e.votes, e.oob_mask, words)
    stored = store_evidence(stream, tmp_path / "rows")
    assert stored.classes.tolist() == ["no", "yes"]
    assert np.array_equal(whole(stored).target, e.target)


def test_an_unfinished_store_is_not_opened(tmp_path):
    (tmp_path / "rows").mkdir()
    np.save(tmp_path / "rows" / "votes.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match="no evidence that was stored to the end"):
        open_evidence(tmp_path / "rows")
    with pytest.raises(ValueError, match=r"format='csv' is not known"):
        store_evidence(rows_of(evidence()), tmp_path / "other", format="csv")


def test_a_window_maps_what_it_is_asked_for(tmp_path):
    path = tmp_path / "votes.npy"
    values = np.arange(24.0).reshape(8, 3)
    np.save(path, values)
    window = NpyWindow(path)
    assert window.shape == (8, 3)
    assert np.array_equal(window[2:5], values[2:5])
    assert np.array_equal(window[6:99], values[6:])
    assert window[5:5].shape == (0, 3)
    np.save(path, np.asfortranarray(values))
    with pytest.raises(ValueError, match="Fortran order"):
        NpyWindow(path)


def test_paths_are_opened_as_windows(tmp_path):
    e = evidence(dtype=np.float32)
    for name, values in (("v", e.votes), ("m", e.oob_mask), ("y", e.target)):
        np.save(tmp_path / f"{name}.npy", values)
    stream = sb.stream_rows(tmp_path / "v.npy", tmp_path / "m.npy", tmp_path / "y.npy")
    assert same(whole(stream), e)


@pytest.mark.parametrize("which", ["predictions", "oob_mask", "y"])
def test_a_folder_is_no_npy_file(which, tmp_path):
    e = evidence()
    given = {"predictions": e.votes, "oob_mask": e.oob_mask, "y": e.target, which: tmp_path}
    with pytest.raises(ValueError, match=r"is a folder, .*zarr\.open\(path\).*open_evidence"):
        sb.stream_rows(**given)


def test_a_generator_is_read_once_and_a_function_again():
    e = evidence()

    def parts():
        for rows in (slice(0, 70), slice(70, None)):
            yield e.votes[rows], e.oob_mask[rows], e.target[rows]

    again = GeneratedRows(parts, 12, task="classification", labels=LABELS)
    assert again.is_replayable
    assert same(whole(again), e)
    assert same(whole(again), e)
    once = GeneratedRows(parts(), 12, task="classification", labels=LABELS)
    assert not once.is_replayable
    assert same(whole(once), e)
    with pytest.raises(ValueError, match="cannot start again"):
        whole(once)
    with pytest.raises(IndexError, match="in order only"):
        once.block(0)


def test_bad_blocks_are_one_sentence():
    e = evidence()
    good = (e.votes, e.oob_mask, e.target)

    def stream(*blocks, **settings):
        return GeneratedRows(list(blocks), 12, task="classification", labels=LABELS, **settings)

    with pytest.raises(ValueError, match="a block has 11 members but the stream has 12"):
        whole(stream((e.votes[:, :11], e.oob_mask[:, :11], e.target)))
    with pytest.raises(ValueError, match="every block carries an oob_mask or none"):
        whole(stream(good, (e.votes, None, e.target)))
    with pytest.raises(ValueError, match=r"probabilities between 0 and 1"):
        whole(stream((e.votes + 1, e.oob_mask, e.target)))
    with pytest.raises(ValueError, match="120 finite numbers"):
        whole(stream((*good, -np.ones(120))))
    with pytest.raises(ValueError, match="labels= is needed"):
        GeneratedRows([good], 12, task="classification")
    with pytest.raises(ValueError, match="n_members= is needed"):
        sb.stream_rows(iter([good]), labels=LABELS)
    with pytest.raises(ValueError, match="a list of blocks; pass N"):
        sb.stream_rows([good], labels=LABELS)
    with pytest.raises(TypeError, match="the function gave a function, not blocks of rows"):
        whole(sb.stream_rows(lambda: lambda: iter([good]), n_members=12, labels=LABELS))
    with pytest.raises(ValueError, match="y is missing"):
        sb.stream_rows(e.votes, e.oob_mask)
    with pytest.raises(ValueError, match=r"oob_mask has shape \(120, 11\)"):
        sb.stream_rows(e.votes, e.oob_mask[:, :11], e.target)


def test_a_streams_shape_says_how_it_is_cut():
    e = evidence()
    assert shape_of(rows_of(e)) == shape_of(rows_of(e))
    assert shape_of(rows_of(e)) == shape_of(rows_of(e, block_rows=20))
    assert shape_of(rows_of(e)) != shape_of(rows_of(evidence(holdout=True)))


def test_block_sizes():
    assert block_rows_for(1000) * 5000 <= 32 << 20
    assert block_rows_for(10**9) == 1
    stream = rows_of(evidence(), block_rows=None).with_block_bytes(12 * 9 * 8)
    assert stream.block_rows == 8


def test_a_reservoir_is_a_uniform_sample():
    counts = np.zeros(60)
    for seed in range(400):
        reservoir = Reservoir(15, seed)
        for rows in np.array_split(np.arange(60), 7):
            e = evidence("squared_error", n_rows=len(rows), n_members=2)
            e = sb.OOBEvidence(e.votes, e.oob_mask, rows.astype(float), "regression")
            reservoir.add(e)
        kept = reservoir.evidence().target
        assert len(kept) == len(set(kept.tolist())) == 15
        counts[kept.astype(int)] += 1
    # Binomial(400, 1/4): mean 100, deviation 8.7
    assert counts.min() > 60
    assert counts.max() < 140
    assert not reservoir.is_complete


X, y = load_iris(return_X_y=True)


@pytest.mark.parametrize("store", ["leaves", "nothing"])
@pytest.mark.parametrize("every_class", [False, True])
def test_members_predict_what_is_collected(store, every_class):
    forest = RandomForestClassifier(12, random_state=0).fit(X, y)
    stream = sb.stream_members(
        forest, X, y, store=store, every_class=every_class, block_rows=40, sample_weight=y + 1.0
    )
    assert isinstance(stream, LeafRows if store == "leaves" else PredictedRows)
    collected = collect_evidence(read_ensemble(forest), X, y, class_votes=every_class)
    found = whole(stream)
    assert np.array_equal(found.votes, collected.votes)
    assert np.array_equal(found.oob_mask, collected.oob_mask)
    assert np.array_equal(found.sample_weight, y + 1.0)
    some = np.array([5, 2])
    assert np.array_equal(whole(stream, some).votes, collected.votes[:, some])
    if every_class:
        for ours, theirs in itertools.zip_longest(found.class_votes, collected.class_votes):
            assert np.array_equal(ours, theirs.toarray())


def test_members_of_other_kinds_and_regression():
    bag = BaggingClassifier(LogisticRegression(max_iter=500), 6, random_state=0).fit(X, y)
    with pytest.warns(sb.UnverifiedRowsWarning):
        stream = sb.stream_members(bag, X, y, block_rows=64)
    assert type(stream) is PredictedRows
    collected = collect_evidence(read_ensemble(bag), X, y)
    assert whole(stream).votes == pytest.approx(collected.votes, abs=1e-6)
    with pytest.raises(ValueError, match="store='leaves' is for trees"):
        sb.stream_members(bag, X, y, store="leaves")
    forest = RandomForestRegressor(8, random_state=0).fit(X[:, :3], X[:, 3])
    stream = sb.stream_members(forest, X[:, :3], X[:, 3], block_rows=64)
    collected = collect_evidence(read_ensemble(forest), X[:, :3], X[:, 3])
    assert np.array_equal(whole(stream).votes, collected.votes)


def test_leaves_take_two_bytes_whatever_the_classes():
    forest = RandomForestClassifier(12, random_state=0).fit(X, y)
    entries = 12 * len(X)
    stream = sb.stream_members(forest, X, y)
    tables = sum(tree.tree_.node_count * 3 * 4 for tree in forest.estimators_)
    assert stream.nbytes <= 2 * entries + entries // 8 + 12 + tables


def test_a_zarr_chunk_is_decompressed_once_however_short_the_blocks():
    class Counted(np.ndarray):
        chunks = (10, 4)
        n_reads = 0

        def __getitem__(self, key):
            Counted.n_reads += 1
            return np.asarray(self)[key]

    array = np.arange(100.0).reshape(25, 4).view(Counted)
    window = ZarrWindow(array)
    blocks = [window[start : start + 3] for start in range(0, 25, 3)]
    assert np.array_equal(np.concatenate(blocks), np.asarray(array))
    assert Counted.n_reads == 3
    assert window[5:5].shape == (0, 4)


def test_what_is_wrong_in_a_stream_is_named():
    votes, y = np.full((40, 3), 0.5), np.arange(40) % 2
    votes[33, 2] = np.nan

    def blocks(y=y):
        for s in range(0, 40, 10):
            yield votes[s : s + 10], None, y[s : s + 10]

    how = {"n_members": 3, "labels": [0, 1], "has_mask": False}
    with pytest.raises(ValueError, match=r"^block 3: .* first in row 3 of member 2;"):
        sb.fit_weights(sb.stream_rows(blocks, **how))
    with pytest.raises(ValueError, match=r"^rows 30 to 39: .* first in row 33 of member 2;"):
        sb.fit_weights(sb.stream_rows(votes, None, y, block_rows=10))
    with pytest.raises(ValueError, match=r"^predictions hold NaN .* first in row 33 of member 2;"):
        sb.fit_weights(sb.stream_rows(votes, None, y))  # one block: there are no other rows
    with pytest.raises(ValueError, match=r"^block 1: y holds a class that labels= does not name"):
        sb.fit_weights(sb.stream_rows(lambda: blocks(np.where(np.arange(40) == 12, 5, y)), **how))


@pytest.mark.parametrize("store", ["leaves", "nothing"])
def test_members_of_targets_far_from_zero(store):
    rng = np.random.default_rng(900)
    X = rng.normal(size=(400, 5))
    y = X[:, 0] + 0.5 * rng.normal(size=400) + 1e6
    forest = RandomForestRegressor(40, max_features=0.4, random_state=0).fit(X, y)
    stream = sb.stream_members(forest, X, y, store=store)
    e = collect_evidence(read_ensemble(forest), X, y)
    assert stream.block(0).votes.dtype == e.votes.dtype == np.float64
    assert same(whole(stream.with_block_bytes(1 << 14)), e)
    assert stream.with_block_bytes(1 << 14).block(0).nbytes <= 1 << 14
    found = sb.fit_weights(stream)
    memory = sb.fit_weights(e.votes, e.oob_mask, e.target, loss="squared_error")
    assert found.status.success
    assert found.weights == pytest.approx(memory.weights, abs=1e-6)
    near = sb.stream_members(forest, X, y - 1e6, evidence="holdout", store=store)
    assert near.block(0).votes.dtype == np.float32


@pytest.mark.parametrize("kind", ["npy", "zarr"])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_targets_of_a_store_are_read_with_their_rows(tmp_path, kind, loss):
    e = evidence(loss, n_rows=3000, weighted=True, dtype=np.float32)
    stored = store_evidence(rows_of(e, block_rows=100), tmp_path / "e", format=kind)
    few = stored.with_block_bytes(1000)  # no room for all targets
    for vector in (few._target, few._sample_weight, stored._target):
        assert not isinstance(vector, np.ndarray)
    assert few._positions is None
    for _ in range(2):
        assert same(whole(few), e)
    some = np.array([0, 7, 1500, 2999])
    assert same(few.take(some), e.take(some))
    many = stored.with_block_bytes(1 << 20)  # so that a pass need not ask the file
    assert isinstance(many._target, np.ndarray)
    for _ in range(2):
        assert same(whole(many), e)


def test_memory_does_not_grow_with_the_targets(tmp_path):
    n_rows = 400_000  # 3 MB of targets, as much of weights
    rng = np.random.default_rng(900)
    votes = rng.beta(4, 2, (n_rows, 4)).astype(np.float32)
    mask = rng.random((n_rows, 4)) < 0.5
    mask[:, 0] = True
    rows = ArrayRows(
        votes * mask,
        mask,
        rng.integers(0, 2, n_rows),
        task="classification",
        sample_weight=rng.exponential(size=n_rows),
    )
    stored = store_evidence(rows, tmp_path / "e")
    del rows, votes, mask
    solution = sb.fit_weights(stored, memory_limit=1 << 20)  # what is imported is not counted
    tracemalloc.start()
    try:
        found = sb.fit_weights(open_evidence(tmp_path / "e"), memory_limit=1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(found.weights, solution.weights)
    assert peak < 6 << 20  # it was 16 MB


def test_targets_in_a_column(tmp_path):
    e = evidence(n_rows=300, n_members=30, n_classes=2, weighted=True)
    np.save(tmp_path / "y.npy", e.target[:, None])
    flat = sb.stream_rows(e.votes, e.oob_mask, e.target, sample_weight=e.sample_weight)
    for y in (e.target[:, None], tmp_path / "y.npy"):
        column = sb.stream_rows(e.votes, e.oob_mask, y, sample_weight=e.sample_weight[:, None])
        assert same(whole(column), whole(flat))
    with pytest.raises(ValueError, match="one target a row"):
        sb.stream_rows(e.votes, e.oob_mask, np.stack([e.target, e.target], axis=1))


def test_rows_drawn_by_weight_do_not_depend_on_the_parts_looked_at(monkeypatch):
    weight = np.random.default_rng(900).pareto(1.2, 5000)
    weight[::7] = 0.0
    whole_at_once = draw_by_weight(weight, 200, np.random.default_rng(1))
    monkeypatch.setattr("sparsebag.evidence.reservoir.PART_ROWS", 64)
    for drawn, expected in zip(
        draw_by_weight(weight, 200, np.random.default_rng(1)), whole_at_once, strict=True
    ):
        assert np.array_equal(drawn, expected)
    assert len(draw_by_weight(weight, 5000, np.random.default_rng(1))[0]) == (weight > 0).sum()


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("kind", ["oob", "holdout"])
@pytest.mark.parametrize("looked_up", [1, 40, 1 << 17])
def test_leaves_looked_up_together_vote_as_trees_do(task, kind, looked_up, monkeypatch):
    """Whatever rows and members are asked for, in whatever order and stretches."""
    X, y = load_iris(return_X_y=True)
    if task == "regression":
        X, y = X[:, :3], X[:, 3] - 1.0  # votes below zero, too
    grown = RandomForestClassifier if task == "classification" else RandomForestRegressor
    forest = grown(11, max_depth=4, random_state=0).fit(X, y)
    monkeypatch.setattr(member_rows, "LOOKED_UP", looked_up)
    leaves = sb.stream_members(forest, X, y, evidence=kind, store="leaves", block_rows=13)
    predicted = sb.stream_members(forest, X, y, evidence=kind, store="nothing", block_rows=13)
    asked = [
        (np.arange(5, 30), None),
        (np.array([140, 3, 3, 77]), None),
        (np.arange(149, 150), np.array([2])),
        (np.arange(3, 20), np.array([10, 0, 4])),
        (np.array([8, 1]), np.arange(4, 9)),
        (np.arange(0), None),
    ]
    for rows, members in asked:
        found, expected = leaves.take(rows, members), predicted.take(rows, members)
        assert found.votes == pytest.approx(expected.votes, abs=1e-6)
        assert found.votes.flags.c_contiguous
        if kind == "holdout":
            assert found.oob_mask is None
            continue
        assert np.array_equal(found.oob_mask, expected.oob_mask)
        assert not np.any(found.votes[~found.oob_mask])
    for found, expected in zip(leaves.blocks(), predicted.blocks(), strict=True):
        assert found.votes == pytest.approx(expected.votes, abs=1e-6)


def test_what_takes_long_says_how_far_it_is(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sparsebag.evidence.pass_report.PRINT_EVERY_SECONDS", 0.0)
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(4, random_state=0).fit(X, y)
    stream = sb.stream_members(forest, X, y, block_rows=50, verbose=1)
    assert capsys.readouterr().err.splitlines()[-1] == "[evidence] member 4 of 4"
    sb.store_evidence(stream, tmp_path / "told", verbose=1)
    assert capsys.readouterr().err.splitlines()[-1] == "[store] block 3 of 3"
    sb.stream_members(forest, X, y)
    sb.store_evidence(stream, tmp_path / "silent")
    assert capsys.readouterr().err == ""


def test_a_stream_says_what_it_is(tmp_path):
    X, y = load_iris(return_X_y=True)
    forest = RandomForestClassifier(4, random_state=0).fit(X, y)
    about = "150 rows of 4 members; classification of 3 classes, out-of-bag mask)"
    stream = sb.stream_members(forest, X, y)
    assert repr(stream) == f"LeafRows({about}"
    assert repr(sb.store_evidence(stream, tmp_path / "npy")) == f"ArrayRows({about}"
    stored = sb.store_evidence(stream, tmp_path / "parquet", format="parquet")
    assert repr(stored) == f"ParquetRows({about}"
    once = sb.stream_rows(iter([]), n_members=4, task="regression", has_mask=False)
    assert repr(once) == "GeneratedRows(unknown rows of 4 members; regression, no mask)"
