"""Compressing an ensemble whose rows are on a Dask cluster.

Penalised weights are fitted on the workers, over all rows. What needs rows side by side (a student,
its rehearsal, calibration) is done here, on all rows where they are few and else on a random
sample. How many, Dask's configuration says::

    dask.config.set({"sparsebag.rows-in-memory": 500_000})
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparsebag.cluster_weights import solve_blocks
from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.cluster_matrices import as_column
from sparsebag.evidence.cluster_proof import prove_on_cluster
from sparsebag.evidence.collect import encode_target, refuse_training_rows, storage_of
from sparsebag.evidence.from_cluster import blocks_of_members, checked, rows_at
from sparsebag.evidence.in_bag import InBagRows
from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.training_rows import check_columns
from sparsebag.objective.cluster_objective import picked_rows
from sparsebag.pipeline import Compressed, compress_pool
from sparsebag.settings import Settings

ROWS_IN_MEMORY = 100_000
"""Rows brought here unless Dask's configuration says otherwise."""
SEED = 0


class SampledRowsWarning(UserWarning):
    """Part of the work was done on a sample of the rows."""


class _BagsOfSample:
    """In-bag rows by their position in a sample of all rows."""

    def __init__(self, bags: InBagRows, picked: np.ndarray, n_rows: int) -> None:
        self._bags, self._picked, self._n_rows = bags, picked, n_rows

    def __len__(self) -> int:
        return len(self._bags)

    def __getitem__(self, j: int, /) -> np.ndarray:
        draws = np.bincount(self._bags[j], minlength=self._n_rows)[self._picked]
        return np.repeat(np.arange(len(draws)), draws)


def compress_on_cluster(
    pool: MemberPool, X: Any, y: Any, settings: Settings, sample_weight: Any = None
) -> Compressed:
    """What `pipeline.compress_pool` does, for rows on a cluster.

    Parameters
    ----------
    pool : MemberPool
    X : dask.array of shape (M, n_features)
    y : array of shape (M,)
    settings : Settings
    sample_weight : array of shape (M,), optional

    Returns
    -------
    Compressed
    """
    X = checked(X, "X")
    target = encode_target(pool, y)
    check_columns(pool, X, len(target), training=settings.source == "oob")
    verified_by = None
    if pool.in_bag is not None and settings.source == "oob":
        verified_by = prove_on_cluster(pool, X, target)
    elif pool.in_bag is not None:
        refuse_training_rows(pool, len(target), lambda: prove_on_cluster(pool, X, target))
    weight = as_column(sample_weight, "sample_weight")
    solution = None
    if settings.lam is not None:
        blocks = blocks_of_members(
            pool,
            X,
            on_host(y),
            source=settings.source,
            sample_weight=weight,
            class_votes=bool(settings.class_votes),
            dtype=storage_of(settings.evidence_dtype, pool, target),
        )
        solution = solve_blocks(blocks, settings, pool.task)
    n_rows, most = len(target), _rows_in_memory()
    by_block = picked_rows(X.chunks[0], most, SEED)
    starts = np.concatenate([[0], np.cumsum(X.chunks[0])[:-1]])
    picked = np.concatenate([start + rows for start, rows in zip(starts, by_block, strict=True)])
    if n_rows > most:
        warn_caller(
            f"the small model was made from a random sample of {most:,} of {n_rows:,} rows "
            "(Dask's setting sparsebag.rows-in-memory).",
            SampledRowsWarning,
        )
        bags = None if pool.in_bag is None else _BagsOfSample(pool.in_bag, picked, n_rows)
        pool = replace(pool, in_bag=bags, n_rows=len(picked))
    few = None if weight is None else on_host(weight)[picked]
    rows, labels = np.asarray(rows_at(X, by_block)), np.asarray(on_host(y))[picked]
    found = compress_pool(pool, rows, labels, settings, few, verify=False, solution=solution)
    return replace(found, verified_by=verified_by)


def _rows_in_memory() -> int:
    import dask

    rows = dask.config.get("sparsebag.rows-in-memory", ROWS_IN_MEMORY)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise ValueError(
            f"Dask's setting sparsebag.rows-in-memory must be a whole number of rows, got {rows!r}."
        )
    return rows
