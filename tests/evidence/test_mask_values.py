"""A mask says 0 or 1; counts, votes and other numbers in its place are refused with their place."""

import numpy as np
import pytest

import sparsebag as sb

N_ROWS, N_MEMBERS = 60, 4
RNG = np.random.default_rng(0)
Y = RNG.normal(size=N_ROWS)
VOTES = Y[:, None] + RNG.normal(size=(N_ROWS, N_MEMBERS))
MASK = RNG.random((N_ROWS, N_MEMBERS)) < 0.7
COUNTS = (~MASK).astype(np.int64)
COUNTS[41, 2] = 3
SAID = r"oob_mask must hold only 0 and 1 \(or True and False\) but has {} at row {}, member {}; {}"
OPPOSITE = "counts of how often a row trained a member say the opposite: pass counts == 0"


def fit(votes, mask):
    return sb.fit_weights(votes, mask, Y, loss="squared_error")


def stream_in_memory(votes, mask):
    return sb.fit_weights(sb.stream_rows(votes, mask, Y, task="regression", block_rows=16))


def stream_blocks(votes, mask):
    parts = [slice(i, i + 20) for i in range(0, N_ROWS, 20)]
    blocks = [(votes[rows], mask[rows], Y[rows]) for rows in parts]
    return sb.fit_weights(sb.stream_rows(blocks, task="regression"))


def dask_arrays(votes, mask):
    da = pytest.importorskip("dask.array")
    columns = [da.from_array(a, chunks=(20, *a.shape[1:])) for a in (votes, mask, Y)]
    return sb.fit_weights(*columns, loss="squared_error")


WAYS = [fit, stream_in_memory, stream_blocks, dask_arrays]


@pytest.mark.parametrize("way", WAYS)
def test_counts_are_refused_with_their_place(way):
    row = 1 if way is stream_blocks else 41
    where = {
        stream_in_memory: "rows 32 to 47: ",
        stream_blocks: "block 2: ",
    }.get(way, "^")
    with pytest.raises(ValueError, match=where + SAID.format(3, row, 2, OPPOSITE)):
        way(VOTES, COUNTS)


def test_counts_in_a_file_are_refused(tmp_path):
    for name, values in (("votes", VOTES), ("mask", COUNTS.astype(np.uint8)), ("y", Y)):
        np.save(tmp_path / f"{name}.npy", values)
    paths = (tmp_path / f"{name}.npy" for name in ("votes", "mask", "y"))
    stream = sb.stream_rows(*paths, task="regression")
    with pytest.raises(ValueError, match=SAID.format(3, 41, 2, OPPOSITE)):
        sb.fit_weights(stream)


@pytest.mark.parametrize("way", WAYS)
def test_votes_in_place_of_the_mask_are_refused(way):
    place = SAID.format(r"\S+", 0, 0, "predictions go before oob_mask")
    with pytest.raises(ValueError, match=place):
        way(MASK, np.abs(VOTES))


@pytest.mark.parametrize(
    ("value", "dtype"), [(-1, np.int8), (-1.0, np.float32), (np.inf, float), (None, object)]
)
def test_other_values_are_refused(value, dtype):
    mask = MASK.astype(dtype)
    mask[7, 3] = value
    with pytest.raises(ValueError, match=SAID.format(r"\S+", 7, 3, "")):
        fit(VOTES, mask)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32, float])
def test_zeros_and_ones_of_any_kind_are_welcome(way, dtype):
    expected = way(VOTES, MASK).weights
    np.testing.assert_array_equal(way(VOTES, MASK.astype(dtype)).weights, expected)


def test_objects_and_tensors_are_read_alike():
    torch = pytest.importorskip("torch")
    expected = fit(VOTES, MASK).weights
    np.testing.assert_array_equal(fit(VOTES, MASK.astype(object)).weights, expected)
    counts = torch.from_numpy(COUNTS)
    with pytest.raises(ValueError, match=SAID.format(3, 41, 2, OPPOSITE)):
        fit(torch.from_numpy(VOTES), counts)


def test_nan_is_named_as_before():
    mask = MASK.astype(float)
    mask[0, 0] = np.nan
    with pytest.raises(ValueError, match="oob_mask holds NaN; pass 1 where the row is out of bag"):
        fit(VOTES, mask)
