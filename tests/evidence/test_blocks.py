"""Row blocks cover every row once, whatever the shape."""

import numpy as np
import pytest

from sparsebag.evidence.blocks import CPU_BLOCK_ENTRIES, row_blocks


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
