"""Evidence from a user's own matrices: taken as they are, or refused in one sentence."""

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sparsebag as sb
from problems import objective_on
from processes import peak_memory
from sparsebag.evidence import from_predictions as evidence_of_matrices
from sparsebag.evidence.from_predictions import from_predictions

ROWS, MEMBERS, CLASSES = 12, 4, 3
rng = np.random.default_rng(0)
mask, proba = rng.random((ROWS, MEMBERS)) < 0.4, rng.random((ROWS, MEMBERS))
tensor = rng.dirichlet(np.ones(CLASSES), size=(ROWS, MEMBERS))
y = np.arange(ROWS) % CLASSES


def classification(predictions, mask, y, **options):
    return from_predictions(predictions, mask, y, task="classification", **options)


def regression(predictions, mask, y, **options):
    return from_predictions(predictions, mask, y, task="regression", **options)


@pytest.mark.parametrize("given", ["f2", "f4", "f8", ">f8", "i8", "u1", "?", "O"])
def test_precision(given):
    votes = (np.arange(ROWS * MEMBERS).reshape(ROWS, MEMBERS) % 2).astype(given)
    kept = np.float32 if given in ("f2", "f4") else np.float64
    evidence = classification(votes, mask, y)
    assert evidence.votes.dtype == kept
    np.testing.assert_array_equal(evidence.votes, np.where(mask, votes.astype(kept), 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_copied_when_nothing_must_change(dtype):
    unseen = classification(proba, None, y)  # no mask: every row is unseen
    assert unseen.oob_mask is None
    assert unseen.votes is proba
    clean = np.where(mask, proba, 0).astype(dtype)
    for make in (classification, regression):
        evidence = make(clean, mask, y)
        assert np.shares_memory(evidence.votes, clean)
        assert np.shares_memory(evidence.oob_mask, mask)


@pytest.mark.parametrize("hidden", [np.nan, np.inf, -np.inf, 1e9])
def test_in_bag_entries_may_be_anything(hidden):
    expected = classification(proba, mask, y).votes
    given, in_mask = np.where(mask, proba, hidden), mask.copy()
    before = given.copy()
    for make in (classification, regression):
        found = make(given, in_mask, y)
        np.testing.assert_array_equal(found.votes, expected)
        assert not np.shares_memory(found.votes, given)
    odd = (mask.astype(np.uint8) * 255).view(bool)  # a true may be any byte
    np.testing.assert_array_equal(classification(given, odd, y).votes, expected)
    np.testing.assert_array_equal(given, before)  # the caller's matrices are never changed
    np.testing.assert_array_equal(in_mask, mask)
    given = np.where(mask[:, :, None], tensor, hidden)
    before = given.copy()
    evidence = classification(given, mask, y, every_class=True)
    np.testing.assert_array_equal(given, before)
    assert np.all(np.isfinite(evidence.votes))
    assert all(np.all(np.isfinite(plane.data)) for plane in evidence.class_votes)


def test_labels_give_the_order_of_the_third_axis():
    names = np.array(["x", "m", "b"])  # not sorted
    evidence = classification(tensor, mask, names[y], labels=names)
    np.testing.assert_array_equal(evidence.votes, classification(tensor, mask, y).votes)
    np.testing.assert_array_equal(evidence.target, y)
    assert (evidence.classes.tolist(), evidence.source) == (["x", "m", "b"], "matrices")
    few = np.where(np.arange(ROWS) % 2, 0, 2)  # labels may name classes that y lacks
    np.testing.assert_array_equal(classification(tensor, mask, few, labels=[0, 1, 2]).target, few)


@pytest.mark.parametrize(
    "kind",
    [list, pd.Series, lambda y: y[:, None], lambda y: pd.DataFrame({"y": y}), np.float32],
    ids=["list", "Series", "column", "DataFrame", "floats"],
)
def test_targets_of_every_kind(kind):
    given = y.astype(kind) if kind is np.float32 else kind(y)
    np.testing.assert_array_equal(classification(proba, mask, given).target, y)
    framed = classification(pd.DataFrame(proba), mask.tolist(), given)
    np.testing.assert_array_equal(framed.oob_mask, mask)
    listed = classification(proba.tolist(), pd.DataFrame(mask), given)
    np.testing.assert_array_equal(listed.votes, np.where(mask, proba, 0))
    for labels in (np.array(["c", "a", "b"])[y], pd.Series(["c", "a", "b"])[y], y > 0):
        evidence = classification(proba, mask, labels)
        np.testing.assert_array_equal(evidence.classes[evidence.target], np.asarray(labels))
    evidence = regression(proba, mask, given)
    assert evidence.target.dtype == np.float64
    np.testing.assert_array_equal(evidence.target, y)


@hypothesis.settings(max_examples=60, deadline=None, derandomize=True)
@hypothesis.given(
    hnp.arrays(np.float64, (9, 5, 3), elements=st.floats(0, 1)),
    hnp.arrays(np.bool_, (9, 5)),
    hnp.arrays(np.int64, 9, elements=st.integers(0, 2)),
)
def test_votes_are_the_true_class_where_unseen(tensor, mask, y):
    tensor[:, 0, :] = 0.5
    mask[:, 0] = True  # someone votes
    tensor = np.where(tensor.sum(axis=2, keepdims=True) > 0, tensor, 1.0)
    tensor = tensor / tensor.sum(axis=2, keepdims=True)
    evidence = classification(tensor, mask, y, labels=[0, 1, 2], every_class=True)
    for i in range(9):
        for j in range(5):
            assert evidence.votes[i, j] == (tensor[i, j, y[i]] if mask[i, j] else 0)
            for c in range(3):
                assert evidence.class_votes[c][i, j] == (tensor[i, j, c] if mask[i, j] else 0)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_arrays_of_other_libraries_stay_what_they_are(library):
    xp = pytest.importorskip(library)
    true = np.take_along_axis(tensor, y[:, None, None], axis=2)[:, :, 0]
    for matrix in (tensor, true):
        given = xp.asarray(matrix)
        options = {"every_class": matrix.ndim == 3, "sample_weight": np.arange(1.0, ROWS + 1)}
        expected = classification(matrix, mask, y, **options)
        for targets, oob in ((xp.asarray(y), xp.asarray(mask)), (y, mask), (y.tolist(), mask)):
            evidence = classification(given, oob, targets, **options)
            for name in ("votes", "oob_mask", "target", "sample_weight"):
                part = getattr(evidence, name)
                assert type(part) is type(given)
                np.testing.assert_array_equal(np.asarray(part), getattr(expected, name))
            planes = zip(evidence.class_votes or (), expected.class_votes or (), strict=True)
            for plane, same in planes:
                np.testing.assert_array_equal(np.asarray(plane), same.toarray())
            assert np.asarray(evidence.covered()).tolist() == expected.covered().tolist()
            assert evidence.take(slice(2, 5)).n_rows == 3
            if library == "torch":  # a strict dtype does not tell its size
                assert evidence.nbytes >= expected.votes.nbytes
    np.testing.assert_array_equal(np.asarray(given), true)  # unchanged
    evidence = regression(xp.asarray(true), xp.asarray(mask), xp.asarray(y))
    np.testing.assert_array_equal(np.asarray(evidence.votes), np.where(mask, true, 0))
    with pytest.raises(ValueError, match="oob_mask has shape"):
        classification(xp.asarray(true), xp.asarray(mask[1:]), y)


def test_what_looks_wrong_and_is_not():
    in_bag = np.where(mask[:, :, None], tensor, 0.9)  # nobody reads those
    assert classification(in_bag, mask, y).n_rows == ROWS
    assert classification(np.round(tensor, 4), None, y).n_rows == ROWS  # printed digits
    assert classification(proba, mask, np.full(ROWS, 7), labels=[7, 8]).n_classes == 2
    over_one = np.full(proba.shape, np.nextafter(np.float32(1), np.float32(2)), np.float32)
    assert classification(over_one, mask, y).votes.max() > 1
    assert not regression(0 * proba, mask, y).votes.any()
    assert classification(tensor, mask, y).class_votes is None  # kept only if asked for
    two = classification(np.stack([proba, 1 - proba], axis=2), mask, y % 2, every_class=True)
    assert two.class_votes is None  # two classes need none
    evidence = classification(proba, mask, y, sample_weight=np.arange(ROWS))
    np.testing.assert_array_equal(evidence.sample_weight, np.arange(ROWS))


@pytest.fixture
def too_large(monkeypatch):
    monkeypatch.setattr(evidence_of_matrices, "LARGEST_COPY_BYTES", 0)


@pytest.mark.parametrize("hidden", [np.nan, 1e9])
@pytest.mark.parametrize("solver", ["projected_gradient", "active_set", "slsqp"])
@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_weights_do_not_depend_on_the_copy(too_large, hidden, solver, loss):
    rng = np.random.default_rng(0)
    votes, oob = rng.random((300, 12)).astype(np.float32), rng.random((300, 12)) < 0.5
    y = np.arange(300) % 2
    options = {"loss": loss, "solver": solver}
    clean = sb.fit_weights(np.where(oob, votes, np.float32(0)), oob, y, **options)
    given = np.where(oob, votes, np.float32(hidden))
    before = given.copy()
    found = sb.fit_weights(given, oob, y, **options)
    np.testing.assert_array_equal(found.weights, clean.weights)
    np.testing.assert_array_equal(given, before)
    if loss == "log_loss":  # what is seen nowhere in the bag is checked all the same
        for bad, said in ((0.0, "true class probability zero"), (1.5, "between 0 and 1")):
            with pytest.raises(ValueError, match=said):
                sb.fit_weights(np.where(oob, bad, hidden), oob, y, **options)


def test_peak_memory_of_a_matrix_with_votes_in_the_bag(too_large):
    rng = np.random.default_rng(0)
    votes = rng.random((20_000, 300), dtype=np.float32)
    oob = rng.random(votes.shape) < 0.37

    def a_gradient():
        evidence = classification(votes, oob, np.arange(len(votes)) % 2)
        objective = objective_on(evidence, lam=0.0, floor=0.0, prior_mass=0.0)
        return objective.gradient(objective.uniform_weights())

    _, peak = peak_memory(a_gradient)
    assert peak < 0.5 * votes.nbytes  # beside the caller's own matrix


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
OPPOSITE = "for counts of how often a row trained a member, pass counts == 0"


@pytest.mark.parametrize("way", WAYS)
def test_a_mask_of_counts_is_refused_with_its_place(way):
    where = {streamed: "^rows 32 to 47: ", generated: "^block 2: "}.get(way, "^")
    row = 1 if way is generated else 41
    with pytest.raises(ValueError, match=where + SAID.format(3, row, 2, OPPOSITE)):
        way(**given(oob_mask=COUNTS))
    with pytest.raises(ValueError, match=SAID.format(r"\S+", 0, 0, "the order is predictions")):
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
    "y": "y must hold one number per row \\(got {}\\)",
    "sample_weight": "sample_weight must hold one number per row \\(got {}\\)",
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
        ([np.nan, 1.0, 0, 0], "start must hold finite, non-negative weights"),
        ([1.5, -0.5, 0, 0], "start must hold finite, non-negative weights"),
        (["1", "0", "0", "0"], r"start must hold one number per member \(got strings\)"),
        (np.ma.masked_array([1.0, 0, 0, 0], [0, 0, 0, 1]), "start is a masked array of NumPy"),
    ],
)
def test_a_start_is_refused_before_a_stream_is_read(start, said):
    def unread():
        yield VOTES, MASK, Y
        raise AssertionError("the stream was read")

    with pytest.raises(ValueError, match=said):
        sb.fit_weights(VOTES, MASK, Y, loss="squared_error", start=start)
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
