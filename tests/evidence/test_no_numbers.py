"""What would become numbers without a word is refused: strings, complex numbers, times, nothing."""

import warnings

import numpy as np
import pytest

import sparsebag as sb

N_ROWS, N_MEMBERS = 60, 4
RNG = np.random.default_rng(0)
VOTES = RNG.normal(size=(N_ROWS, N_MEMBERS))
MASK = RNG.random((N_ROWS, N_MEMBERS)) < 0.7
Y = RNG.normal(size=N_ROWS)
KINDS = {
    "strings": (lambda a: a.astype(str), "strings"),
    "bytes": (lambda a: a.astype("S8"), "strings"),
    "objects": (lambda a: a.astype(str).astype(object), "strings"),
    "lists": (lambda a: a.astype(str).tolist(), "strings"),
    "complex": (lambda a: a.astype(complex), "complex numbers"),
    "times": (lambda a: a.astype("m8[s]"), "times"),
}
SAID = {
    "predictions": "predictions must be numbers \\(got {}\\)",
    "oob_mask": "oob_mask holds {}; pass 1 where the row is out of bag, else 0",
    "y": "y must hold one number a row \\(got {}\\)",
    "sample_weight": "sample_weight must hold one number a row \\(got {}\\)",
}


def in_memory(**arrays):
    return sb.fit_weights(**arrays, loss="squared_error")


def streamed(**arrays):
    return sb.fit_weights(sb.stream_rows(**arrays, task="regression"))


@pytest.mark.parametrize("call", [in_memory, streamed])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SAID)
def test_no_numbers(call, kind, name):
    change, held = KINDS[kind]
    arrays = {"predictions": VOTES, "oob_mask": MASK, "y": Y, "sample_weight": np.ones(N_ROWS)}
    arrays[name] = change(arrays[name].astype(float))
    with pytest.raises(ValueError, match=SAID[name].format(held)):
        call(**arrays)


@pytest.mark.parametrize("name", SAID)
def test_complex_tensors(name):
    torch = pytest.importorskip("torch")
    arrays = {"predictions": VOTES, "oob_mask": MASK, "y": Y, "sample_weight": np.ones(N_ROWS)}
    tensors = {key: torch.asarray(values) for key, values in arrays.items()}
    tensors[name] = tensors[name] * (1 + 0j)
    with pytest.raises(ValueError, match=SAID[name].format("complex numbers")):
        in_memory(**tensors)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sb.fit_weights(None, MASK, Y),
        lambda: sb.stream_rows(None, MASK, Y),
    ],
)
def test_nothing(call):
    with pytest.raises(ValueError, match=r"predictions are missing; pass what the members predict"):
        call()


@pytest.mark.parametrize("lam", [-1, np.nan, np.inf, True, [0.1]])
def test_a_strength_that_is_none(lam):
    said = "The 'lam' parameter of fit_weights must be"
    with pytest.raises(ValueError, match=said):
        sb.fit_weights(VOTES, MASK, Y, loss="squared_error", lam=lam)


def test_matrices_have_no_strength_of_their_own():
    with pytest.raises(ValueError, match="lam='auto' needs an ensemble"):
        sb.fit_weights(VOTES, MASK, Y, loss="squared_error", lam="auto")


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (np.ones(3) / 3, r"start has shape \(3,\) but there are 4 members"),
        (np.ones(4), "start sums to 4; weights must sum to one"),
        ([1.5, -0.5, 0, 0], "start must hold finite weights that are not negative"),
        (["1", "0", "0", "0"], r"start must hold one number a member \(got strings\)"),
        (np.ma.masked_array([1.0, 0, 0, 0], [0, 0, 0, 1]), "start is a masked array of NumPy"),
    ],
)
def test_a_start_is_refused_before_the_evidence_is_read(start, said):
    bad = np.where(MASK, np.nan, VOTES)  # and rows that would be warned of

    def unread():
        yield VOTES, MASK, Y
        raise AssertionError("the stream was read")

    streams = [sb.stream_rows(unread, task="regression")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in ((bad, MASK, Y), (bad.tolist(), MASK, Y)):
            if isinstance(given[0], list) and len(start) != N_MEMBERS:
                continue  # rows of lists are counted when they are read
            with pytest.raises(ValueError, match=said):
                sb.fit_weights(*given, loss="squared_error", start=start)
        for stream in streams:
            with pytest.raises(ValueError, match=said):
                sb.fit_weights(stream, start=start)
