"""What the objective of a stream takes from the part that is one block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.reservoir import draw_by_weight
from sparsebag.objective.pass_journal import PassSums
from sparsebag.objective.simplex_objective import SimplexObjective


def some_rows(
    part: SimplexObjective, n_rows: int, rng: np.random.Generator
) -> SimplexObjective | None:
    """Rows of a block, drawn by weight where they have any; None where none of them counts.

    Parameters
    ----------
    part : SimplexObjective
    n_rows : int
    rng : Generator

    Returns
    -------
    SimplexObjective or None
    """
    if part.evidence.sample_weight is not None:
        rows, counts = draw_by_weight(on_host(part.facts.row_weight), n_rows, rng)
        return part.at_rows(rows, counts)
    kept = np.sort(rng.choice(part.n_rows, n_rows, replace=False))
    return part.at_rows(kept) if part.facts.row_weight[kept].sum() > 0 else None


def surveyed(sums: PassSums, part: SimplexObjective) -> PassSums:
    """What only the first pass has to find out, with one more block's part.

    Parameters
    ----------
    sums : PassSums
        Of the blocks before it.
    part : SimplexObjective

    Returns
    -------
    PassSums
    """
    mass = part.facts.total
    targets = on_host(part.evidence.target).astype(np.float64)
    row_weight = on_host(part.facts.row_weight)
    idle = row_weight == 0
    if part.evidence.sample_weight is not None:
        idle &= on_host(part.evidence.sample_weight) > 0
    return replace(
        sums,
        scale=sums.scale + mass * part.scale,
        square=sums.square + mass * float(row_weight @ targets**2),
        squared_weight=sums.squared_weight + mass * (mass * float(row_weight @ row_weight)),
        n_rows=sums.n_rows + part.n_rows,
        n_covered=sums.n_covered + part.n_rows - int(idle.sum()),
        nbytes=sums.nbytes + part.nbytes_per_pass,
    )
