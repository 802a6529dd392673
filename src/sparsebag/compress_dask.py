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

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.collect import encode_target, storage_of
from sparsebag.evidence.members import InBagRows, MemberPool
from sparsebag.evidence.training_rows import check_columns
from sparsebag.fit_weights import solve_weights
from sparsebag.pipeline import Compressed, compress_pool
from sparsebag.settings import Settings
from sparsebag.sources.dask import as_column, checked, computed, rows_of_members
from sparsebag.sources.sampling import draw_rows

ROWS_IN_MEMORY = 100_000
"""Rows brought here unless Dask's configuration says otherwise."""


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
        Training rows are verified where all of them fit in memory here.
    """
    X = checked(X, "X")
    target = encode_target(pool, y)
    check_columns(pool, X, len(target), training=settings.source == "oob")
    weight = as_column(sample_weight, "sample_weight")
    solution = None
    if settings.lam is not None:
        rows = rows_of_members(
            pool,
            X,
            on_host(y),
            source=settings.source,
            sample_weight=weight,
            class_votes=settings.class_votes,
            dtype=storage_of(settings.evidence_dtype, pool, target),
        )
        solution = solve_weights(rows, settings)
    n_rows, most = len(target), _rows_in_memory()
    picked, _ = draw_rows(n_rows, None, most, np.random.default_rng(0))
    if n_rows > most:
        warn_caller(
            f"the small model was made from a random sample of {most:,} of {n_rows:,} rows; "
            f"raise Dask's setting sparsebag.rows-in-memory to use more.",
            SampledRowsWarning,
        )
        bags = None if pool.in_bag is None else _BagsOfSample(pool.in_bag, picked, n_rows)
        pool = replace(pool, in_bag=bags, n_rows=len(picked))
    few = None if weight is None else on_host(computed(weight))[picked]
    rows_here, labels = np.asarray(X[picked].compute()), np.asarray(on_host(y))[picked]
    return compress_pool(
        pool, rows_here, labels, settings, few, verify=n_rows <= most, solution=solution
    )


def _rows_in_memory() -> int:
    import dask

    rows = dask.config.get("sparsebag.rows-in-memory", ROWS_IN_MEMORY)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise ValueError(
            f"Dask's setting sparsebag.rows-in-memory must be a whole number of rows, got {rows!r}."
        )
    return rows
