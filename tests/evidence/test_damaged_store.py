"""Stored evidence that is not what was stored is refused, in one sentence."""

import os
import pickle
import shutil
import sys

import numpy as np
import pytest

import sparsebag as sb
from problems import evidence
from sparsebag.evidence.npy_window import NpyWindow
from sparsebag.evidence.row_stream import concatenate
from sparsebag.evidence.store_seal import StoreSeal
from sparsebag.evidence.stored_rows import open_evidence, store_evidence


@pytest.fixture(scope="module")
def e():
    return evidence(n_rows=400, n_members=12, n_classes=2, weighted=True, dtype=np.float32)


def stream(e, **settings):
    return sb.stream_rows(
        e.votes, e.oob_mask, e.target, sample_weight=e.sample_weight, block_rows=100, **settings
    )


@pytest.fixture
def stored(e, tmp_path):
    def make(kind):
        if kind != "npy":
            pytest.importorskip("zarr" if kind == "zarr" else "pyarrow")
        store_evidence(stream(e), tmp_path / kind, format=kind)
        return tmp_path / kind

    return make


@pytest.mark.parametrize("name", ["oob_mask", "sample_weight", "y", "votes"])
def test_a_lost_array_is_named(stored, name):
    folder = stored("npy")
    os.remove(folder / f"{name}.npy")
    with pytest.raises(ValueError, match=f"has lost {name} since it was stored"):
        open_evidence(folder)
    folder = stored("zarr")
    shutil.rmtree(folder / "rows.zarr" / name)
    with pytest.raises(ValueError, match=f"has lost {name}"):
        open_evidence(folder)


def test_a_lost_chunk_is_no_zeros(stored):
    folder = stored("zarr")
    chunks = sorted(p for p in (folder / "rows.zarr/votes/c").rglob("*") if p.is_file())
    assert len(chunks) == 4
    os.remove(chunks[2])
    with pytest.raises(ValueError, match=r"votes in .* has lost 1 chunks"):
        open_evidence(folder)


def test_chunks_of_zeros_are_written(e, tmp_path):
    pytest.importorskip("zarr")
    votes = np.where(np.arange(400)[:, None] < 100, 0, e.votes)
    rows = sb.stream_rows(votes, e.oob_mask, e.target, block_rows=100)
    assert store_evidence(rows, tmp_path / "rows", format="zarr").n_rows == 400


@pytest.mark.parametrize("part", [np.s_[:, :9], np.s_[:300]])
def test_other_shapes_than_stored(stored, part):
    folder = stored("npy")
    for name in ("votes", "oob_mask"):
        np.save(folder / f"{name}.npy", np.load(folder / f"{name}.npy")[part])
    with pytest.raises(ValueError, match=r"has shape .* and \(400, 12\) was stored"):
        open_evidence(folder)


def test_a_mask_that_was_not_stored(stored, tmp_path):
    other = store_evidence(
        stream(evidence(n_rows=400, holdout=True, n_classes=2)), tmp_path / "other"
    )
    assert not other.has_mask
    np.save(tmp_path / "other/oob_mask.npy", np.ones((400, 12), bool))
    with pytest.raises(ValueError, match="has got oob_mask since it was stored"):
        open_evidence(tmp_path / "other")
    with pytest.raises(ValueError, match="nowhere is no folder"):
        open_evidence(tmp_path / "nowhere")


def test_files_cut_short(stored, tmp_path):
    folder = stored("npy")
    path = folder / "votes.npy"
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(ValueError, match=r"votes.npy is cut short: .*write it again"):
        open_evidence(folder)
    (tmp_path / "text.npy").write_text("not an array")
    with pytest.raises(ValueError, match=r"text.npy is not an .npy file"):
        NpyWindow(tmp_path / "text.npy")
    folder = stored("parquet")
    os.truncate(folder / "rows.parquet", 1000)
    with pytest.raises(ValueError, match="cut short or no Parquet file"):
        open_evidence(folder)


def rewrite(folder, name, values, kind):
    """The Parquet file with another column in the place of one, or without it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "rows.parquet")
    number = table.schema.get_field_index(name)
    if values is None:
        table = table.remove_column(number)
    else:
        column = pa.array(values(table.column(name).to_pylist()), kind(pa))
        table = table.set_column(number, name, column)
    pq.write_table(table, folder / "rows.parquet", row_group_size=100)


def changed(row, change):
    def apply(rows):
        rows[row] = change(rows[row])
        return rows

    return apply


def ragged(rows):
    rows[3], rows[4] = rows[3][:6], rows[4] + rows[4][:6]
    return rows


@pytest.mark.parametrize(
    ("name", "values", "kind", "words"),
    [
        ("oob_mask", changed(3, lambda r: [None, *r[1:]]), "bool_", "nulls in oob_mask"),
        ("oob_mask", changed(3, lambda r: None), "bool_", "nulls in oob_mask"),
        ("votes", changed(3, lambda r: [None, *r[1:]]), "float32", "nulls in votes"),
        ("votes", ragged, "float32", "votes of 6 to 18 members; every row needs 12"),
        ("y", changed(3, lambda r: None), None, "nulls in y"),
        ("sample_weight", changed(3, lambda r: None), None, "nulls in sample_weight"),
        ("oob_mask", None, None, "has lost oob_mask"),
        ("y", None, None, "no column 'y'"),
    ],
)
def test_parquet_nulls_and_ragged_lists(stored, name, values, kind, words):
    folder = stored("parquet")
    scalar = {"y": "int64", "sample_weight": "float64"}.get(name)
    rewrite(
        folder,
        name,
        values,
        lambda pa: getattr(pa, scalar)() if scalar else pa.list_(getattr(pa, kind)()),
    )
    with pytest.raises(ValueError, match=words):
        list(open_evidence(folder).blocks())


def test_large_row_groups_are_read_in_pieces(e, stored):
    folder = stored("parquet")
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(folder / "rows.parquet"), folder / "rows.parquet")
    whole = open_evidence(folder)
    assert whole.n_blocks == 1
    cut = whole.with_block_bytes(64 * 12 * 5)
    assert cut.n_blocks == 7
    assert max(block.n_rows for block in cut.blocks()) == 64
    assert np.array_equal(concatenate(list(cut.blocks())).votes, e.votes)
    backwards = [cut.block(number) for number in reversed(range(7))]
    assert np.array_equal(concatenate(backwards[::-1]).sample_weight, e.sample_weight)


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_what_cannot_be_stored_is_told_at_once(e, tmp_path, kind):
    if kind != "npy":
        pytest.importorskip("zarr" if kind == "zarr" else "pyarrow")

    def sometimes():
        yield e.votes[:100], e.oob_mask[:100], e.target[:100]
        yield e.votes[100:], e.oob_mask[100:], e.target[100:], e.sample_weight[100:]

    rows = sb.stream_rows(sometimes, n_members=12, labels=[0, 1])
    with pytest.raises(ValueError, match="either every block carries sample_weight or none"):
        store_evidence(rows, tmp_path / "rows", format=kind)
    cube = np.random.default_rng(0).dirichlet(np.ones(3), (50, 12))
    rows = sb.stream_rows(cube, None, np.arange(50) % 3, every_class=True)
    with pytest.raises(ValueError, match="keeps the true class's votes alone"):
        store_evidence(rows, tmp_path / "cube", format=kind)


def overwrite_votes(folder, kind, votes):
    """As another program might: the same names and shapes."""
    if kind == "npy":
        np.save(folder / "votes.npy", votes)
    elif kind == "zarr":
        import zarr

        zarr.open_group(str(folder / "rows.zarr"), mode="r+")["votes"][:] = votes
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pq.read_table(folder / "rows.parquet")
        flat = pa.array(np.ascontiguousarray(votes).reshape(-1))
        column = pa.FixedSizeListArray.from_arrays(flat, votes.shape[1])
        place = table.schema.get_field_index("votes")
        pq.write_table(
            table.set_column(place, "votes", column), folder / "rows.parquet", row_group_size=100
        )


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_votes_overwritten_in_the_same_shape_are_noticed(e, stored, kind):
    folder = stored(kind)
    open_evidence(folder)
    other = np.where(e.oob_mask, 1 - e.votes, 0).astype(np.float32)
    overwrite_votes(folder, kind, other)
    with pytest.raises(ValueError, match=r"was overwritten since it was stored.*rows are not"):
        open_evidence(folder)


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_a_copied_store_is_the_same_store(stored, tmp_path, kind):
    shutil.copytree(stored(kind), tmp_path / "copy", copy_function=shutil.copyfile)
    assert open_evidence(tmp_path / "copy").n_rows == 400


def overwrite_store(e, folder, kind, *, keep_times=False):
    """Another store's files over these, as ``cp`` does, or ``cp -p`` of an older one."""
    theirs = folder.with_name("theirs")
    mask, votes = e.oob_mask, np.where(e.oob_mask, 1 - e.votes, 0)
    other = sb.stream_rows(
        votes, mask, e.target, sample_weight=e.sample_weight, block_rows=100, labels=[0, 1]
    )
    store_evidence(other, theirs, format=kind)
    for path in theirs.rglob("*"):
        if path.is_file() and path.name != "evidence.json":
            if keep_times:
                os.utime(path, ns=(10**18, 10**18))
            copy = shutil.copy2 if keep_times else shutil.copyfile
            copy(path, folder / path.relative_to(theirs))


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_an_older_store_restored_over_this_one_is_noticed(e, stored, kind):
    folder = stored(kind)
    overwrite_store(e, folder, kind, keep_times=True)
    with pytest.raises(ValueError, match=r"was overwritten since it was stored.*rows are not"):
        open_evidence(folder)


def test_votes_changed_and_their_times_put_back_are_noticed(stored):
    path = stored("npy") / "votes.npy"
    before = path.stat()
    votes = np.lib.format.open_memmap(path, mode="r+")
    votes[:] = votes[::-1].copy()
    votes.flush()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(ValueError, match="was overwritten"):
        open_evidence(path.parent)


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_a_store_overwritten_after_it_was_opened_is_noticed(e, stored, kind):
    folder = stored(kind)
    opened = open_evidence(folder)
    overwrite_store(e, folder, kind)
    with pytest.raises(ValueError, match="was overwritten since it was stored or opened"):
        sb.fit_weights(opened)


@pytest.mark.parametrize("kind", ["npy", "zarr", "parquet"])
def test_a_store_overwritten_during_a_solve_is_noticed(e, stored, kind):
    folder = stored(kind)
    opened = open_evidence(folder, block_rows=100)
    read, n_read = opened.block, []

    def block(number, members=None):
        n_read.append(number)
        if len(n_read) == 6:
            overwrite_store(e, folder, kind)
        return read(number, members)

    opened.block = block
    with pytest.raises(ValueError, match=r"overwritten|holds other rows"):
        sb.fit_weights(opened)
    assert len(n_read) >= 6


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
def test_a_touched_store_goes_on(stored):
    folder = stored("npy")
    opened = open_evidence(folder)
    os.utime(folder / "votes.npy")
    assert sb.fit_weights(opened).n_active > 0


def test_stray_files_and_copies_cost_no_second_look(stored, tmp_path, monkeypatch):
    looks = []
    look = StoreSeal.add_all
    monkeypatch.setattr(StoreSeal, "add_all", lambda *a: (looks.append(a), look(*a)))
    for kind in ("npy", "zarr", "parquet"):
        folder = stored(kind)
        (folder / ".DS_Store").write_text("a desktop was here")
        (folder / "NOTES.txt").write_text("so was I")
        open_evidence(folder)
        assert not looks
        copy = tmp_path / f"copy of {kind}"
        shutil.copytree(folder, copy)
        for _ in range(3):
            open_evidence(copy)
        assert len(looks) == 1  # then it was sealed again
        looks.clear()


def test_a_store_that_cannot_be_written_is_still_opened(stored, monkeypatch):
    folder = stored("npy")
    os.utime(folder / "votes.npy")

    def refuse(*a):
        raise PermissionError("read-only file system")

    monkeypatch.setattr(os, "replace", refuse)
    assert open_evidence(folder).n_rows == 400


def test_what_a_killed_store_left_is_refused_before_anything_is_written(e, tmp_path):
    np.save(tmp_path / "sample_weight.npy", np.ones(400))
    rows = sb.stream_rows(e.votes, e.oob_mask, e.target)
    with pytest.raises(ValueError, match=r"holds sample_weight.npy of a store .* never finished"):
        store_evidence(rows, tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["sample_weight.npy"]
    os.remove(tmp_path / "sample_weight.npy")
    np.save(tmp_path / "votes.npy", np.ones(3))  # one that is written anyway is no obstacle
    assert store_evidence(rows, tmp_path).n_rows == 400


def test_windows_of_any_length_show_the_rows_asked_for(tmp_path):
    rows = np.arange(3000.0).reshape(1000, 3)
    np.save(tmp_path / "rows.npy", rows)
    window = NpyWindow(tmp_path / "rows.npy")
    for start, stop in [(0, 5), (5, 10), (36, 44), (2, 4), (990, 1000), (995, 2000), (0, 1000)]:
        assert np.array_equal(window[start:stop], rows[start:stop])
    again = pickle.loads(pickle.dumps(window))
    assert np.array_equal(again[3:9], rows[3:9])
    assert len(pickle.dumps(window)) < 1000  # without the rows


def test_what_is_no_stream_is_not_stored(e, tmp_path):
    with pytest.raises(TypeError, match="not a ndarray; make one with stream_rows"):
        store_evidence(e.votes, tmp_path)


def test_writing_parquet_names_the_extra_that_is_missing(e, tmp_path, monkeypatch):
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'sparsebag\[parquet\]'"):
        store_evidence(stream(e), tmp_path / "rows", format="parquet")
