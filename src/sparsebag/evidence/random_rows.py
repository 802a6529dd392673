"""Rows drawn at random, each with a chance that grows with its weight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.reservoir import draw_by_weight


def random_rows(stream: Any, n_rows: int, seed: int, memory: int) -> OOBEvidence:
    """Rows of a stream, read where they lie.

    Parameters
    ----------
    stream : RowStream
        With ``n_rows`` and ``take``.
    n_rows : int
        How many; at most as many as there are.
    seed : int
    memory : int
        Bytes that a list of all rows' numbers may take; drawn without one where it would take more.

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> from sparsebag.evidence.array_rows import ArrayRows
    >>> stream = ArrayRows(np.eye(4), None, np.ones(4), task="regression")
    >>> random_rows(stream, 2, 0, 1 << 20).n_rows
    2
    """
    total = stream.n_rows
    rng, weight = np.random.default_rng(seed), getattr(stream, "row_weight", None)
    if weight is not None and n_rows < total:
        rows, counts = draw_by_weight(weight, n_rows, rng)
        heavy: OOBEvidence = replace(stream.take(rows), sample_weight=counts)
        return heavy
    if 8 * total > memory:
        rows = draw_by_weight(np.broadcast_to(1.0, total), n_rows, rng)[0]
    else:
        rows = np.sort(rng.choice(total, n_rows, replace=False))
    drawn: OOBEvidence = stream.take(rows)
    return drawn


def thinned(kept: OOBEvidence, n_rows: int, seed: int) -> OOBEvidence:
    """Some of the rows in memory; all where there are no more.

    Parameters
    ----------
    kept : OOBEvidence
    n_rows, seed : int

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> thinned(OOBEvidence(np.eye(3), None, np.ones(3), "regression"), 2, 0).n_rows
    2
    """
    if kept.n_rows <= n_rows:
        return kept
    rng = np.random.default_rng(seed)
    if kept.sample_weight is None:
        return kept.take(np.sort(rng.choice(kept.n_rows, n_rows, replace=False)))
    rows, counts = draw_by_weight(on_host(kept.sample_weight), n_rows, rng)
    return replace(kept.take(rows), sample_weight=counts)
