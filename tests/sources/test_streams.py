"""Streams: the same rows and objective whatever they come from, read block by block."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import sparsebag as sb
from problems import evidence, interior_point, objective, parts_of
from problems import streamed as streamed_objective
from processes import peak_memory
from sparsebag.evidence.evidence import concatenate
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.objective.objective import Objective
from sparsebag.sources.dask import DaskRows
from sparsebag.sources.readers import ZarrChunks
from sparsebag.sources.sampling import Reservoir, draw_by_weight

MEMORY = 1 << 21


def stored(e, store):
    """A stream of what ``store`` makes of every array."""
    names = ("votes", "oob_mask", "target", "sample_weight")
    values = [getattr(e, name) for name in names]
    kept = [None if v is None else store(n, v) for n, v in zip(names, values, strict=True)]
    return sb.stream_rows(*kept[:3], task=e.task, labels=e.classes, sample_weight=kept[3])


def from_arrays(e, folder):
    return stored(e, lambda name, values: values)


def from_npy(e, folder):
    def store(name, values):
        np.save(folder / name, values)
        return folder / f"{name}.npy"

    return stored(e, store)


def from_zarr(e, folder):
    zarr = pytest.importorskip("zarr")

    def store(name, values):
        chunks = (16, *values.shape[1:])
        return zarr.create_array(str(folder / f"{name}.zarr"), data=values, chunks=chunks)

    return stored(e, store)


def from_parquet(e, folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"votes": list(e.votes), "y": e.target}
    if e.oob_mask is not None:
        columns["oob_mask"] = list(e.oob_mask)
    if e.sample_weight is not None:
        columns["sample_weight"] = e.sample_weight
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=33)
    return sb.stream_rows(folder / "rows.parquet", task=e.task, labels=e.classes)


def from_function(e, folder):
    return sb.stream_rows(lambda: parts_of(e), task=e.task, labels=e.classes)


def from_list(e, folder):
    empty = next(parts_of(e.take(slice(0, 1))))
    empty = tuple(None if a is None else a[:0] for a in empty)
    return sb.stream_rows([empty, *parts_of(e), empty], task=e.task, labels=e.classes)


KINDS = [from_arrays, from_npy, from_zarr, from_parquet, from_function, from_list]


def whole(stream, block_bytes=None):
    return concatenate(list(stream.blocks(block_bytes)))


def same(left, right):
    names = ("votes", "oob_mask", "target", "sample_weight")
    pairs = [(getattr(left, n), getattr(right, n)) for n in names]
    return left.is_zeroed and all(a is b or np.array_equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
@pytest.mark.parametrize("how", [{}, {"weighted": True}, {"holdout": True}], ids=str)
def test_blocks_hold_the_rows(kind, loss, how, tmp_path):
    e = evidence(loss, dtype=np.float32, **how)
    stream = kind(e, tmp_path)
    assert isinstance(stream, sb.RowStream)
    assert (stream.n_members, stream.task, stream.has_mask) == (12, e.task, e.oob_mask is not None)
    for block_bytes in (None, 1000, 1000):  # a block is checked the first time, then trusted
        assert same(whole(stream, block_bytes), e)
    assert max(block.n_rows for block in stream.blocks(1000)) <= 1000 // (5 * 12)
    assert "12 members" in repr(stream)


def test_what_is_in_the_bag_is_zeroed():
    e = evidence()
    dirty = np.where(e.oob_mask, e.votes, np.nan)
    stream = sb.stream_rows(dirty, e.oob_mask, e.target, block_rows=50)
    for _ in range(2):  # blocks are not trusted to be zero where the file is not
        assert np.array_equal(whole(stream).votes, e.votes)
    e = evidence(n_rows=300, n_members=30, n_classes=2, weighted=True)
    columns = (e.target[:, None], e.sample_weight[:, None])
    for y, weight in ((e.target, e.sample_weight), columns):  # one value a row, or a column
        assert same(whole(sb.stream_rows(e.votes, e.oob_mask, y, sample_weight=weight)), e)
    for dtype in ("f2", "f4", "f8", ">f4", ">f8", "i2", "i8", "u1"):  # one precision at every read
        e = evidence("squared_error")
        rows = (np.abs(50 * e.votes).astype(dtype), e.oob_mask, e.target)
        stream = sb.stream_rows(*rows, task="regression", block_rows=50)
        memory = from_predictions(*rows, task="regression").votes
        for read in (whole(stream).votes, whole(stream).votes):
            assert read.dtype == memory.dtype
            assert np.array_equal(read, memory)


def test_a_zarr_chunk_is_decompressed_once_however_short_the_blocks():
    class Counted(np.ndarray):
        chunks, n_reads = (10, 4), 0

        def __getitem__(self, key):
            Counted.n_reads += 1
            return np.asarray(self)[key]

    array = np.arange(100.0).reshape(25, 4).view(Counted)
    chunks = ZarrChunks(array)
    blocks = [chunks[start : start + 3] for start in range(0, 25, 3)]
    assert np.array_equal(np.concatenate(blocks), np.asarray(array))
    assert (Counted.n_reads, chunks[5:5].shape) == (3, (0, 4))


def test_files_that_cannot_be_read_by_slices(tmp_path):
    path, y = tmp_path / "votes.npy", np.arange(8) % 2
    np.save(path, np.asfortranarray(np.full((8, 3), 0.5)))
    with pytest.raises(ValueError, match="Fortran order"):
        sb.stream_rows(path, None, y)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"truncated or not an \.npy file"):
        sb.stream_rows(path, None, y)


def test_a_reservoir_is_a_uniform_sample_and_rows_are_drawn_by_weight():
    counts = np.zeros(60)
    for seed in range(400):
        reservoir = Reservoir(15, seed)
        for rows in np.array_split(np.arange(60), 7):
            votes = np.ones((len(rows), 2))
            reservoir.add(sb.OOBEvidence(votes, None, rows.astype(float), "regression"))
        kept = reservoir.evidence().target
        assert len(kept) == len(set(kept.tolist())) == 15
        counts[kept.astype(int)] += 1
    # Binomial(400, 1/4): mean 100, deviation 8.7
    assert counts.min() > 60
    assert counts.max() < 140
    weight = np.random.default_rng(900).pareto(1.2, 5000)
    weight[::7] = 0.0
    rows, counts = draw_by_weight(weight, 200, np.random.default_rng(1))
    assert len(rows) == len(counts) == 200
    assert (weight[rows] > 0).all()
    assert len(draw_by_weight(weight, 5000, np.random.default_rng(1))[0]) == (weight > 0).sum()
    weight = np.random.default_rng(10**6).exponential(size=50)
    for scale in (1e-310, 1.0, 1e300):  # by weights of any size
        drawn = [draw_by_weight(weight * scale, 20, np.random.default_rng(s)) for s in range(500)]
        assert {len(rows) for rows, _ in drawn} == {20}
        sums = np.array([(counts / scale).sum() for _, counts in drawn])
        assert abs(sums.mean() - weight.sum()) < 4 * sums.std() / np.sqrt(500)


@pytest.fixture(scope="module")
def rows():
    return evidence(n_rows=6000, n_members=40, n_classes=2, dtype=np.float32)


def streamed(e, **settings):
    return sb.stream_rows(e.votes, e.oob_mask, e.target, task=e.task, **settings)


@pytest.mark.parametrize("solver", ["auto", "projected_gradient", "active_set"])
@pytest.mark.parametrize("memory_limit", [1 << 30, MEMORY])
def test_a_stream_gives_what_matrices_give(rows, solver, memory_limit):
    theirs = sb.fit_weights(rows.votes, rows.oob_mask, rows.target, solver="active_set")
    stream = streamed(rows, block_rows=999)
    ours = sb.fit_weights(stream, solver=solver, memory_limit=memory_limit)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)
    assert ours.weights == pytest.approx(theirs.weights, abs=2e-3)
    assert ours.status.success


def test_a_sample_of_few_rows_a_member_is_not_relied_on():
    e = evidence(n_rows=2000, n_members=150, n_classes=2)
    exact = sb.fit_weights(e.votes, e.oob_mask, e.target)
    found = sb.fit_weights(streamed(e), memory_limit=1 << 20)
    assert (found.solver, found.status.name) == ("active_set", "CONVERGED")
    assert found.objective == pytest.approx(exact.objective, rel=1e-9)
    assert found.n_passes <= 25


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_weights(rows, kind, tmp_path):
    theirs = sb.fit_weights(rows.votes, rows.oob_mask, rows.target)
    ours = sb.fit_weights(kind(rows, tmp_path), memory_limit=MEMORY)
    assert ours.weights == pytest.approx(theirs.weights, abs=1e-6)
    assert ours.n_passes < 8


def test_every_class_of_a_stream():
    e = evidence("brier", n_rows=400, n_members=30, n_classes=3)
    proba = np.stack(e.class_votes, axis=2)
    theirs = sb.fit_weights(proba, e.oob_mask, e.target, loss="brier")
    stream = sb.stream_rows(proba, e.oob_mask, e.target, every_class=True, block_rows=90)
    ours = sb.fit_weights(stream, loss="brier", memory_limit=MEMORY)
    assert ours.objective == pytest.approx(theirs.objective, abs=1e-7)


def test_whole_numbers_that_single_precision_cannot_count():
    rng = np.random.default_rng(900)
    cents = rng.integers(200_000_000, 200_000_500, 3000)
    noise = np.rint(rng.normal(size=(3000, 20)) * np.linspace(5, 60, 20)).astype(np.int64)
    votes, mask = cents[:, None] + noise, rng.random((3000, 20)) < 0.37
    memory = sb.fit_weights(votes, mask, cents, loss="squared_error")
    rows = sb.stream_rows(votes, mask, cents, task="regression", block_rows=500)
    found = sb.fit_weights(rows, loss="squared_error", memory_limit=1 << 20)
    assert found.status.success
    assert found.weights == pytest.approx(memory.weights, abs=1e-6)


def test_memory_stays_within_the_limit(tmp_path):
    e = evidence(n_rows=40_000, n_members=100, n_classes=2, dtype=np.float32)  # 20 MB
    stream, limit = from_npy(e, tmp_path), e.nbytes // 4
    expected = sb.fit_weights(e.votes, e.oob_mask, e.target)
    del e
    sb.fit_weights(stream, memory_limit=limit)  # what is imported is not counted
    found, peak = peak_memory(lambda: sb.fit_weights(stream, memory_limit=limit))
    assert found.weights == pytest.approx(expected.weights, abs=1e-5)
    assert peak < limit


def test_progress_after_every_pass(rows, capsys):
    told = []
    found = sb.fit_weights(streamed(rows, block_rows=2000), verbose=told.append)
    assert capsys.readouterr() == ("", "")
    assert [f"objective {found.objective:.8g}" in event.step for event in told][-1]
    sb.fit_weights(streamed(rows, block_rows=2000), verbose=1)
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", len(told))


class Killed(BaseException):
    """What a test can catch of a kill."""


@pytest.mark.parametrize("solver", ["auto", "projected_gradient"])
@pytest.mark.parametrize("n_passes", [1.5, 2.5, 4.2])
def test_a_killed_solve_ends_at_the_same_objective(rows, tmp_path, solver, n_passes):
    path, left = tmp_path / "solve.npz", [n_passes * rows.n_rows]

    def blocks():
        for part in parts_of(rows, 500):
            left[0] -= 500
            if left[0] < 0:
                raise Killed
            yield part

    how = {"memory_limit": MEMORY, "solver": solver}
    expected = sb.fit_weights(streamed(rows), **how)
    stream = sb.stream_rows(blocks, labels=[0, 1])
    with pytest.raises(Killed):
        sb.fit_weights(stream, checkpoint=path, **how)
    with np.load(path) as found:
        assert found["weights"].sum() == pytest.approx(1.0)
        assert int(found["n_passes"]) >= 1
    left[0] = 1e9
    again = sb.fit_weights(stream, checkpoint=path, **how)
    assert again.objective == pytest.approx(expected.objective, abs=1e-6)
    assert not list(tmp_path.glob("*.part"))
    done = sb.fit_weights(stream, checkpoint=path, **how)
    assert done.objective == pytest.approx(expected.objective, abs=1e-6)
    assert done.n_passes <= again.n_passes


def test_checkpoints_that_cannot_be_used(rows, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    stream, path = streamed(rows), tmp_path / "solve.npz"
    sb.fit_weights(stream, checkpoint="~/solve.npz")
    assert path.exists()
    cut = tmp_path / "cut.npz"
    cut.write_bytes(path.read_bytes()[:50])
    for place, changed, said in (
        (path, {"lam": 0.01}, "belongs to different evidence or settings"),
        (path, {"floor": 0.1}, "belongs to different evidence or settings"),
        (cut, {}, "is damaged, or was not written by fit_weights"),
        (tmp_path, {}, "is a folder; pass the name of a file"),
        (tmp_path / "no" / "solve.npz", {}, "in a folder that does not exist"),
    ):
        with pytest.raises(ValueError, match=said):
            sb.fit_weights(stream, checkpoint=place, **changed)


def test_rows_that_change_between_passes():
    e, n_calls = evidence("squared_error"), itertools.count()

    def shrinking():
        yield from parts_of(e.take(slice(90 if next(n_calls) < 2 else 80)), 90)

    stream = sb.stream_rows(shrinking, task="regression")
    with pytest.raises(ValueError, match="has 80 rows and had 90 before; every pass must give the"):
        sb.fit_weights(stream, solver="projected_gradient")


def test_a_parquet_file_that_cannot_be_read(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "rows.parquet"
    with pytest.raises(ValueError, match="missing, truncated or not Parquet"):
        sb.stream_rows(path)
    for columns, said in (
        ({"votes": [[0.5, 0.5]]}, "has no column 'y'"),
        ({"votes": [0.5, 0.5], "y": [0, 1]}, "must hold a list of numbers per row in 'votes'"),
        ({"votes": [[0.5, 0.5], [0.5]], "y": [0, 1]}, "votes of 1 to 2 members; every row needs 2"),
        ({"votes": [[0.5, 0.5], [0.5, None]], "y": [0, 1]}, "holds nulls in votes"),
    ):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(ValueError, match=said):
            sb.fit_weights(sb.stream_rows(path))


LITTLE = 1000
"""Memory without room for any column."""


def on_dask(f, size=64):
    dask = pytest.importorskip("dask", reason="needs the dask extra")
    e = replace(f.evidence, prior=None)
    parts = [e.take(slice(i, i + size)) for i in range(0, e.n_rows, size)]
    tasks = [dask.delayed(part, traverse=False) for part in parts]
    with dask.config.set(scheduler="sync"):
        rows = DaskRows(tasks, e.n_members, e.task, e.classes, has_mask=e.oob_mask is not None)
        return Objective(rows, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)


WAYS = {
    "stream": lambda f: streamed_objective(f, block_rows=50),
    "little memory": lambda f: streamed_objective(f, block_rows=50, memory=LITTLE),
    "generator": lambda f: streamed_objective(f, generated=True),
    "dask": on_dask,
}


def pair(way, loss="log_loss", **how):
    n_classes = 2 if loss == "brier" else 3
    f = objective(loss, n_rows=230, n_members=9, n_classes=n_classes, **how)
    return f, WAYS[way](f)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
@pytest.mark.parametrize(
    "how",
    [{}, {"weighted": True}, {"holdout": True}, {"weighted": True, "dtype": np.float32}],
    ids=str,
)
def test_every_quantity_is_the_same(way, loss, how):
    here, there = pair(way, loss, **how)
    w = interior_point(9)
    close = 1e-12 if "dtype" not in how else 1e-6
    value, gradient = here.value_and_gradient(w)
    for _ in range(2):  # what is known of rows is found in the first pass and kept
        ours = there.value_and_gradient(w)
        assert ours[0] == pytest.approx(value, rel=close)
        assert ours[1] == pytest.approx(gradient, abs=10 * close)
    assert there.hessian(w) == pytest.approx(here.hessian(w), abs=1e3 * close)
    assert np.array_equal(there.rows_won(), here.rows_won())
    for name in ("scale", "rounding", "n_rows", "n_members", "nbytes_per_pass"):
        assert getattr(there, name) == pytest.approx(getattr(here, name)), name
    for name in ("provides", "is_convex", "is_well_posed", "has_mask"):
        assert getattr(there, name) == getattr(here, name), name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weighted", [False, True])
def test_samples_are_rows_of_the_whole(way, weighted):
    here, there = pair(way, weighted=weighted)
    w = interior_point(9)
    if way != "little memory":
        assert there.row_sample(10**6, 0).value(w) == pytest.approx(here.value(w), rel=1e-12)
        sample = there.row_sample(150, 3)
        assert sample.n_rows == 150
        assert sample.value(w) == pytest.approx(here.value(w), rel=0.3)
        if way == "dask":
            assert sample.value(w) == pytest.approx(here.row_sample(150, 3).value(w), rel=1e-12)
    face = there.restrict(np.array([3, 7, 8])).row_sample(20, 0)
    assert (face.n_members, face.n_rows <= 20) == (3, True)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_no_member_has_out_of_bag(way, weighted):
    f = objective(n_rows=230, n_members=6, weighted=weighted)
    mask = f.evidence.oob_mask.copy()
    mask[40:170] = False  # whole blocks, and parts of two
    e = replace(f.evidence, oob_mask=mask, votes=f.evidence.votes * mask, prior=None)
    here = Objective(e, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)
    raw = Objective(e, f.loss, f.penalty, floor=f.floor, prior_mass=f.prior_mass)
    raw._rows.block = e  # weights as the user gave them
    there = WAYS[way](raw)
    w = interior_point(6)
    for _ in range(2):
        assert there.value(w) == pytest.approx(here.value(w), rel=1e-12)
    assert there.survey.n_covered == int(mask.any(axis=1).sum())
    with pytest.warns(UserWarning, match="rows are in every member's bag and are ignored"):
        there.warn_of_rows()


@pytest.mark.parametrize("way", WAYS)
def test_nothing_to_judge_by(way):
    f = objective(n_rows=120, n_members=6)
    e = replace(f.evidence, prior=None, sample_weight=None)
    none = replace(e, oob_mask=np.zeros_like(e.oob_mask), votes=np.zeros_like(e.votes))
    for rows, said in (
        (none, "no row is out of bag for any member"),
        (replace(e, sample_weight=np.where(e.covered(), 0.0, 1.0)), "sample_weight zero"),
        (replace(e, votes=np.zeros_like(e.votes)), "true class probability zero"),
    ):
        f._rows.block = rows
        with pytest.raises(ValueError, match=said):
            WAYS[way](f).value(interior_point(6))
