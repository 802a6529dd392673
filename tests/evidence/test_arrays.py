"""Arrays of other libraries, without their gradients and on the host; row blocks."""

import numpy as np
import pytest

import sparsebag as sb
from sparsebag.evidence.arrays import CPU_BLOCK_ENTRIES, row_blocks


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_weights_are_fitted_to_tensors_that_carry_gradients(loss):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    numbers = rng.random((60, 5))
    mask = rng.random((60, 5)) < 0.6
    mask[:, 0] = True
    y = (np.arange(60) % 2).astype(float)
    sample_weight = rng.random(60) + 0.5
    start = np.full(5, 0.2)
    given = [torch.tensor(a, requires_grad=True) for a in (numbers, sample_weight, start)]
    target = torch.tensor(y, requires_grad=True)
    plain = sb.fit_weights(numbers, mask, y, loss=loss, sample_weight=sample_weight, start=start)
    learnt = sb.fit_weights(
        given[0], torch.tensor(mask), target, loss=loss, sample_weight=given[1], start=given[2]
    )
    assert not learnt.weights.requires_grad
    assert given[0].grad is None
    np.testing.assert_allclose(learnt.weights.numpy(), plain.weights, atol=1e-6)


@pytest.mark.parametrize(
    "shape", [(1, 1), (7, 3), (0, 5), (1000, 999), (3, 2 * CPU_BLOCK_ENTRIES), (40, 1000, 26)]
)
def test_blocks_cover_every_row_once(shape):
    matrix = np.broadcast_to(np.float32(0), shape)
    blocks = list(row_blocks(matrix))
    rows = [i for block in blocks for i in range(block.start, block.stop)]
    assert rows == list(range(shape[0]))
    width = int(np.prod(shape[1:]))
    assert all((b.stop - b.start) * width <= max(CPU_BLOCK_ENTRIES, width) for b in blocks)
