"""Masked arrays of NumPy are refused by name: neither data nor holes of theirs are votes."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb

N_ROWS, N_MEMBERS = 300, 6
INSTEAD = {
    "predictions": r"pass predictions\.filled\(0\), and oob_mask=~numpy\.ma\.getmaskarray\(predic",
    "oob_mask": r"pass oob_mask\.filled\(0\)\.",
    "y": r"leave out the rows it masks, and pass y\.data of the others\.",
    "sample_weight": r"leave out the rows it masks, and pass sample_weight\.data of the others\.",
    "X": r"pass X\.filled\(\.\.\.\) with a value for what it masks",
}


def given():
    rng = np.random.default_rng(0)
    return {
        "predictions": rng.beta(4, 2, (N_ROWS, N_MEMBERS)).astype(np.float32),
        "oob_mask": rng.random((N_ROWS, N_MEMBERS)) < 0.5,
        "y": np.arange(N_ROWS) % 2,
        "sample_weight": np.ones(N_ROWS),
    }


def blocks(arrays):
    def draw():
        yield tuple(values[:100] for values in arrays.values())

    return sb.stream_rows(draw, labels=[0, 1])


def on_cluster(**arrays):
    da = pytest.importorskip("dask.array")
    predictions = da.from_array(arrays.pop("predictions"), chunks=(100, -1))
    return sb.fit_weights(predictions, **arrays)


CALLS = {
    "in memory": lambda **arrays: sb.fit_weights(**arrays),
    "a stream of arrays": lambda **arrays: sb.fit_weights(sb.stream_rows(**arrays)),
    "blocks": lambda **arrays: sb.fit_weights(blocks(arrays)),
    "blocks cut": lambda **arrays: sb.fit_weights(blocks(arrays), memory_limit=1 << 20),
    "on a cluster": on_cluster,
}


@pytest.mark.parametrize("is_masked", [True, False], ids=["some masked", "none masked"])
@pytest.mark.parametrize("name", ["predictions", "oob_mask", "y", "sample_weight"])
@pytest.mark.parametrize("call", CALLS)
def test_masked_arrays_are_refused(call, name, is_masked):
    arrays = given()
    mask = np.zeros(arrays[name].shape, dtype=bool)
    mask[::3] = is_masked
    arrays[name] = np.ma.masked_array(arrays[name], mask)
    with pytest.raises(
        ValueError, match=rf"(^|: ){name} is a masked array of NumPy; {INSTEAD[name]}"
    ):
        CALLS[call](**arrays)


@pytest.mark.filterwarnings("ignore::sparsebag.evidence.evidence.UncoveredRowsWarning")
def test_what_the_sentence_advises_is_taken():
    arrays = given()
    votes = np.ma.masked_array(arrays["predictions"], ~arrays["oob_mask"])
    one = sb.fit_weights(votes.filled(0), ~np.ma.getmaskarray(votes), arrays["y"])
    other = sb.fit_weights(arrays["predictions"], arrays["oob_mask"], arrays["y"])
    assert np.array_equal(one.weights, other.weights)


class MaskedWhenRead:
    """A variable of a file that comes masked, slice by slice."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __getitem__(self, rows):
        return np.ma.masked_array(self.values[rows])


@pytest.mark.parametrize("name", ["predictions", "oob_mask"])
def test_masks_that_show_when_a_block_is_read(name):
    arrays = given()
    arrays[name] = MaskedWhenRead(arrays[name])
    with pytest.raises(ValueError, match=f"{name} is a masked array of NumPy"):
        sb.fit_weights(sb.stream_rows(**arrays))


@pytest.mark.parametrize("name", ["X", "y", "sample_weight"])
def test_masked_rows_of_an_ensemble(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) % 2
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    rows = {"X": X, "y": y, "sample_weight": np.ones(200)}
    rows[name] = np.ma.masked_array(rows[name], np.zeros(rows[name].shape, dtype=bool))
    with pytest.raises(ValueError, match=f"^{name} is a masked array of NumPy; {INSTEAD[name]}"):
        sb.compress(forest, **rows)


@pytest.mark.filterwarnings("ignore::sparsebag.evidence.evidence.UncoveredRowsWarning")
def test_masked_rows_to_predict():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), np.arange(200) % 2
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    small = sb.compress(forest, X, y, lam=0.01, refine=None, calibration=None)
    with pytest.raises(ValueError, match=r"^X is a masked array of NumPy"):
        small.predict(np.ma.masked_array(X, X > 1))
