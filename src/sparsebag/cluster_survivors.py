"""Survivors of an ensemble whose rows are on a Dask cluster.

What is a sum over rows runs on the workers, over all rows: the penalised objective with its
gradient, and the pairs of members that selection reads. What needs rows side by side (refitting on
another loss, calibration, made-up rows, refitted leaves) runs here, on all rows where they are few
and else on a random sample. How many, Dask's configuration says::

    dask.config.set({"sparsebag.rows-in-memory": 500_000})
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from sparsebag.cluster_weights import solve_blocks
from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.cluster_matrices import as_column
from sparsebag.evidence.cluster_proof import prove_on_cluster
from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.collect import encode_target, refuse_training_rows, storage_of
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_cluster import (
    blocks_of_members,
    checked,
    rows_at,
)
from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.row_stream import concatenate
from sparsebag.evidence.training_rows import check_columns
from sparsebag.objective.cluster_objective import picked_rows
from sparsebag.objective.cluster_risk import ClusterRisk
from sparsebag.refine.refinement import Refinement
from sparsebag.refining import Survivors, find_survivors
from sparsebag.selection.budget import Budget
from sparsebag.settings import Settings
from sparsebag.telling import NOT_ASKED

ROWS_IN_MEMORY = 100_000
"""Rows brought here unless Dask's configuration says otherwise."""
SEED = 0
LEAVES_STAY = (
    "the rows are spread over a cluster and only a sample of them is at hand; with "
    "dask.config.set({'sparsebag.rows-in-memory': rows}) they all are"
)


class SampledRowsWarning(UserWarning):
    """Part of the work was done on a sample of the rows."""


def survivors_on_cluster(
    pool: MemberPool,
    X: Any,
    y: Any,
    settings: Settings,
    *,
    budget: Budget,
    tolerance: float,
    source: Literal["oob", "holdout"] = "oob",
    sample_weight: Any = None,
    class_votes: bool = False,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> tuple[Survivors, str | None]:
    """What `fit` does with rows in memory, for rows on a cluster.

    Parameters
    ----------
    pool : MemberPool
    X : dask.array of shape (M, n_features)
    y : array of shape (M,)
    settings : Settings
    budget, tolerance
        As in `sparsebag.refining.find_survivors`.
    source : {"oob", "holdout"}
    sample_weight : array of shape (M,), optional
    class_votes : bool, default False
        Whether anything reads every class's votes.
    n_jobs : int, optional
    verbose : int, default 0

    Returns
    -------
    Survivors
    str or None
        What proved that these are the training rows.
    """
    X = checked(X, "X")
    target = encode_target(pool, y)
    check_columns(pool, X, len(target), training=source == "oob")
    if source == "oob" and pool.in_bag is None:
        raise ValueError(
            f"there are no out-of-bag rows to judge the members by: {pool.no_in_bag}. Use a "
            "bootstrapped ensemble, or pass rows it has never seen with evidence='holdout'."
        )
    verified_by = None
    if source == "oob":
        verified_by = prove_on_cluster(pool, X, target)
    elif pool.in_bag is not None:
        refuse_training_rows(pool, len(target), lambda: prove_on_cluster(pool, X, target))
    blocks = blocks_of_members(
        pool,
        X,
        on_host(y),
        source=source,
        sample_weight=as_column(sample_weight, "sample_weight"),
        class_votes=class_votes,
        dtype=storage_of(settings.evidence_dtype, pool, target),
        verbose=verbose,
    )
    solution = None
    if settings.lam is not None:
        solution = solve_blocks(blocks, settings, pool.task, verbose=verbose)
        if settings.refine is settings.calibration is settings.local is None:
            kept = pool.keep(np.flatnonzero(solution.weights))
            refinement = Refinement(False, reason=NOT_ASKED)
            return Survivors(kept, solution, None, refinement, None), verified_by
    n_rows, most = len(target), _rows_in_memory()
    picked = picked_rows(X.chunks[0], most, SEED)
    evidence = _gathered(blocks, picked)
    risk, told = None, ""
    if n_rows > most:
        risk = None if solution is not None else ClusterRisk(blocks, floor=settings.floor)
        settings, told = _of_a_sample(settings, n_rows, most, pairs=risk is not None)
    found = find_survivors(
        evidence,
        pool,
        rows_at(X, picked),
        settings,
        budget=budget,
        tolerance=tolerance,
        n_jobs=n_jobs,
        verbose=verbose,
        solution=solution,
        risk=risk,
    )
    if told:
        found = replace(found, refinement=Refinement(False, reason=LEAVES_STAY))
        if found.selection is not None:
            words = f"{found.selection.explanation}\n{told}"
            found = replace(found, selection=replace(found.selection, explanation=words))
    return found, verified_by


def _rows_in_memory() -> int:
    import dask

    rows = dask.config.get("sparsebag.rows-in-memory", ROWS_IN_MEMORY)
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 1:
        raise ValueError(
            f"Dask's setting sparsebag.rows-in-memory must be a whole number of rows, got {rows!r}."
        )
    return rows


def _of_a_sample(
    settings: Settings, n_rows: int, most: int, *, pairs: bool
) -> tuple[Settings, str]:
    """The settings for a sample of the rows, and what to say of it."""
    if settings.refine == "leaves":
        raise ValueError(f"refine='leaves' cannot refit leaves, because {LEAVES_STAY}.")
    done = "pairs of members were compared" if pairs else "weights were fitted"
    told = (
        f"On the cluster: {done} on all {n_rows} rows; what needs rows side by side was done on a "
        f"random sample of {most}, and leaves were not refitted "
        "(Dask's setting sparsebag.rows-in-memory)."
    )
    warn_caller(told, SampledRowsWarning)
    return replace(settings, refine=None), told


def _gathered(blocks: ClusterBlocks, picked: list[np.ndarray]) -> OOBEvidence:
    parts = blocks.each(_rows_of, own=picked)
    return concatenate([part for part in parts if part is not None])


def _rows_of(evidence: OOBEvidence, rows: np.ndarray) -> OOBEvidence | None:
    return evidence.take(rows) if len(rows) else None
