"""Seeded synthetic evidence of any size, made block by block so that nothing need be held.

Members of unequal skill vote on rows of unequal difficulty, in families whose members err alike; a
row is out of bag for a member with probability 0.37. A block depends on the seed and its number
alone, so the same rows can be made again in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

OUT_OF_BAG = 0.37
ROWS_AT_ONCE = 4096
N_FAMILIES = 20


@dataclass(frozen=True)
class SyntheticRows:
    n_rows: int
    n_members: int
    seed: int = 0

    def blocks(
        self, *, held_out: bool = False
    ) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        """Votes (zero in the bag), mask and targets of 4096 rows at a time."""
        for number in range(-(-self.n_rows // ROWS_AT_ONCE)):
            n = min(ROWS_AT_ONCE, self.n_rows - number * ROWS_AT_ONCE)
            yield self.block(number, n, held_out=held_out)

    def block(
        self, number: int, n: int, *, held_out: bool = False
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """One block; held-out rows are others than those of training, and have no mask."""
        members = np.random.default_rng(self.seed)
        skill = members.normal(1.0, 0.3, self.n_members).astype(np.float32)
        family = members.integers(0, N_FAMILIES, self.n_members)
        rng = np.random.default_rng([self.seed, number, int(held_out)])
        logit = rng.standard_normal((n, self.n_members), dtype=np.float32)
        logit *= 1.2
        logit += rng.normal(0.0, 0.9, (n, N_FAMILIES)).astype(np.float32)[:, family]
        logit += skill
        logit += rng.normal(0.0, 1.5, (n, 1)).astype(np.float32)
        np.negative(logit, out=logit)
        np.exp(logit, out=logit)
        logit += 1.0
        np.reciprocal(logit, out=logit)
        y = np.arange(n) % 2
        if held_out:
            return logit, None, y
        mask = rng.random((n, self.n_members), dtype=np.float32) < OUT_OF_BAG
        logit *= mask
        return logit, mask, y

    def arrays(self, *, held_out: bool = False) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """All rows in memory, without a second copy on the way."""
        votes = np.empty((self.n_rows, self.n_members), dtype=np.float32)
        mask = None if held_out else np.empty((self.n_rows, self.n_members), dtype=np.bool_)
        y = np.empty(self.n_rows, dtype=np.int64)
        start = 0
        for block, unseen, target in self.blocks(held_out=held_out):
            rows = slice(start, start + len(block))
            votes[rows], y[rows] = block, target
            if mask is not None:
                mask[rows] = unseen
            start += len(block)
        return votes, mask, y
