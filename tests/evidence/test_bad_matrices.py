"""Matrices that cannot be read are refused in one sentence, wherever they come from."""

import numpy as np
import pytest

import sparsebag as sb

N_ROWS, N_MEMBERS = 60, 4
RNG = np.random.default_rng(0)
Y = RNG.normal(size=N_ROWS)
VOTES = Y[:, None] + RNG.normal(size=(N_ROWS, N_MEMBERS))
MASK = RNG.random((N_ROWS, N_MEMBERS)) < 0.7
MASK[:, 0] = True
COUNTS = (~MASK).astype(np.int64)
COUNTS[41, 2] = 3
NAMES = ("predictions", "oob_mask", "y", "sample_weight")


def given(**changed):
    arrays = dict(zip(NAMES, (VOTES, MASK, Y, np.ones(N_ROWS)), strict=True))
    return {**arrays, **changed}


def in_memory(**arrays):
    return sb.fit_weights(**arrays, loss="squared_error")


def streamed(**arrays):
    return sb.fit_weights(sb.stream_rows(**arrays, task="regression", block_rows=16))


def generated(**arrays):
    def blocks():
        for i in range(0, N_ROWS, 20):
            yield tuple(values[i : i + 20] for values in arrays.values())

    return sb.fit_weights(sb.stream_rows(blocks, task="regression"))


def on_dask(**arrays):
    da = pytest.importorskip("dask.array")
    parts = {n: da.from_array(a, chunks=(20, *a.shape[1:])) for n, a in arrays.items()}
    return sb.fit_weights(**parts, loss="squared_error")


WAYS = [in_memory, streamed, generated, on_dask]
SAID = r"oob_mask must hold only 0 and 1 \(or True and False\) but has {} at row {}, member {}; {}"
OPPOSITE = "counts of how often a row trained a member say the opposite: pass counts == 0"


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_of_counts_is_refused_with_its_place(way):
    where = {streamed: "^rows 32 to 47: ", generated: "^block 2: "}.get(way, "^")
    row = 1 if way is generated else 41
    with pytest.raises(ValueError, match=where + SAID.format(3, row, 2, OPPOSITE)):
        way(**given(oob_mask=COUNTS))
    with pytest.raises(
        ValueError, match=SAID.format(r"\S+", 0, 0, "predictions go before oob_mask")
    ):
        way(**given(predictions=MASK, oob_mask=np.abs(VOTES)))


@pytest.mark.parametrize(
    ("value", "dtype"), [(-1, np.int8), (-1.0, np.float32), (np.inf, float), (None, object)]
)
def test_a_mask_of_other_values(value, dtype):
    mask = MASK.astype(dtype)
    mask[7, 3] = value
    with pytest.raises(ValueError, match=SAID.format(r"\S+", 7, 3, "")):
        in_memory(**given(oob_mask=mask))
    mask = MASK.astype(float)
    mask[0, 0] = np.nan
    with pytest.raises(ValueError, match="oob_mask holds NaN; pass 1 where the row is out of bag"):
        in_memory(**given(oob_mask=mask))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, float])
def test_zeros_and_ones_of_any_kind_are_a_mask(way, dtype):
    expected = way(**given()).weights
    np.testing.assert_array_equal(way(**given(oob_mask=MASK.astype(dtype))).weights, expected)


def masked(a):
    return np.ma.masked_array(a, np.arange(len(a)) == 5 if a.ndim == 1 else a > 1)


KINDS = {
    "strings": (lambda a: a.astype(str), "strings"),
    "bytes": (lambda a: a.astype("S8"), "strings"),
    "objects": (lambda a: a.astype(str).astype(object), "strings"),
    "complex": (lambda a: a.astype(complex), "complex numbers"),
    "times": (lambda a: a.astype("m8[s]"), "times"),
    "masked": (masked, "is a masked array of NumPy; {instead}"),
}
NO_NUMBERS = {
    "predictions": "predictions must be numbers \\(got {}\\)",
    "oob_mask": "oob_mask holds {}; pass 1 where the row is out of bag, else 0",
    "y": "y must hold one number a row \\(got {}\\)",
    "sample_weight": "sample_weight must hold one number a row \\(got {}\\)",
}
INSTEAD = {
    "predictions": r"pass predictions\.filled\(0\), and oob_mask=~numpy\.ma\.getmaskarray\(predic",
    "oob_mask": r"pass oob_mask\.filled\(0\)\.",
    "y": r"leave out the rows it masks, and pass y\.data of the others\.",
    "sample_weight": r"leave out the rows it masks, and pass sample_weight\.data of the others\.",
}


@pytest.mark.parametrize("way", [in_memory, streamed, generated])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_no_numbers(way, kind, name):
    change, held = KINDS[kind]
    said = NO_NUMBERS[name].format(held)
    if kind == "masked":
        said = f"{name} {held.format(instead=INSTEAD[name])}"
    with pytest.raises(ValueError, match=f"(^|: ){said}"):
        way(**given(**{name: change(given()[name].astype(float))}))


class MaskedWhenRead:
    """A variable of a file that comes masked, slice by slice."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __getitem__(self, rows):
        return np.ma.masked_array(self.values[rows])


@pytest.mark.parametrize("name", ["predictions", "oob_mask"])
def test_masks_that_show_when_a_block_is_read(name):
    with pytest.raises(ValueError, match=f"{name} is a masked array of NumPy"):
        streamed(**given(**{name: MaskedWhenRead(given()[name])}))


@pytest.mark.parametrize("way", [in_memory, streamed])
@pytest.mark.parametrize("name", NAMES)
def test_tensors_without_values(way, name):
    torch = pytest.importorskip("torch")
    tensors = {key: torch.tensor(values) for key, values in given().items()}
    for tensor, said in (
        (tensors[name].to_sparse(), rf"sparse tensor of PyTorch; pass {name}\.to_dense"),
        (tensors[name].to("meta"), "tensor on PyTorch's meta device"),
    ):
        with pytest.raises(ValueError, match=f"^{name} is a {said}"):
            way(**{**tensors, name: tensor})


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (np.ones(3) / 3, r"start has shape \(3,\) but there are 4 members"),
        (np.ones(4), "start sums to 4; weights must sum to one"),
        (np.zeros(4), "zero everywhere"),
        ([np.nan, 1.0, 0, 0], "start must hold finite weights"),
        ([1.5, -0.5, 0, 0], "start must hold finite weights that are not negative"),
        (["1", "0", "0", "0"], r"start must hold one number a member \(got strings\)"),
        (np.ma.masked_array([1.0, 0, 0, 0], [0, 0, 0, 1]), "start is a masked array of NumPy"),
    ],
)
def test_a_start_is_refused_before_the_evidence_is_read(start, said):
    def unread():
        yield VOTES, MASK, Y
        raise AssertionError("the stream was read")

    bad = np.where(MASK, np.nan, VOTES)
    with pytest.raises(ValueError, match=said):
        sb.fit_weights(bad, MASK, Y, loss="squared_error", start=start)
    with pytest.raises(ValueError, match=said):
        sb.fit_weights(sb.stream_rows(unread, task="regression"), start=start)


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_masked_rows_of_an_ensemble(name):
    from sklearn.ensemble import RandomForestClassifier

    X, y = RNG.normal(size=(200, 3)), np.arange(200) % 2
    forest = RandomForestClassifier(50, random_state=0).fit(X, y)
    rows = {"X": X, "y": y, "sample_weight": np.ones(200)}
    rows[name] = np.ma.masked_array(rows[name], np.zeros(rows[name].shape, dtype=bool))
    with pytest.raises(ValueError, match=f"^{name} is a masked array of NumPy"):
        sb.compress(forest, **rows)
    small = sb.compress(forest, X, y, lam=0.01, refine=None, calibration=None)
    with pytest.raises(ValueError, match=r"^X is a masked array of NumPy"):
        small.predict(np.ma.masked_array(X, X > 1))
