"""Tensors that have no value for every entry are refused in one sentence, by their name."""

import numpy as np
import pytest

import sparsebag as sb

torch = pytest.importorskip("torch")

N_ROWS, N_MEMBERS = 50, 5
KINDS = {
    "coo": (lambda tensor: tensor.to_sparse(), r"is a sparse tensor of PyTorch; pass {}\.to_dense"),
    "csr": (lambda tensor: tensor.to_sparse_csr(), r"is a sparse tensor of PyTorch; pass {}\.to_"),
    "meta": (lambda tensor: tensor.to("meta"), r"is a tensor on PyTorch's meta device"),
}


def given():
    rng = np.random.default_rng(0)
    return {
        "predictions": torch.tensor(rng.random((N_ROWS, N_MEMBERS), dtype=np.float32)),
        "oob_mask": torch.tensor(rng.random((N_ROWS, N_MEMBERS)) < 0.5),
        "y": torch.tensor(np.arange(N_ROWS) % 2),
        "sample_weight": torch.ones(N_ROWS),
    }


def in_memory(start=None, labels=None, **arrays):
    return sb.fit_weights(**arrays, start=start, labels=labels)


def streamed(labels=None, **arrays):
    return sb.fit_weights(sb.stream_rows(**arrays, labels=labels))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.parametrize("call", [in_memory, streamed])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["predictions", "oob_mask", "y", "sample_weight"])
def test_one_sentence_for_tensors_without_values(call, kind, name):
    if kind == "csr" and name in ("y", "sample_weight"):
        pytest.skip("a vector has no rows to compress")
    change, said = KINDS[kind]
    arrays = given()
    arrays[name] = change(arrays[name])
    with pytest.raises(ValueError, match=f"^{name} {said.format(name)}"):
        call(**arrays)


@pytest.mark.parametrize("kind", ["coo", "meta"])
@pytest.mark.parametrize("name", ["start", "labels"])
def test_what_else_may_be_a_tensor(kind, name):
    change, said = KINDS[kind]
    values = {"start": torch.full((N_MEMBERS,), 1 / N_MEMBERS), "labels": torch.tensor([0, 1])}
    with pytest.raises(ValueError, match=f"^{name} {said.format(name)}"):
        in_memory(**given(), **{name: change(values[name])})
