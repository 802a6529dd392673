"""Proof that rows on a Dask cluster are the training rows, found where they are.

As `sparsebag.evidence.training_rows` proves it in memory: of a few trees one leaf number a row
comes back, of other models what they say of a few rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from sparsebag.evidence.cluster_rows import ClusterBlocks, on_every_worker
from sparsebag.evidence.from_cluster import delayed_call, row_pieces
from sparsebag.evidence.members import MemberPool, take_rows
from sparsebag.evidence.training_rows import (
    SummedVotes,
    kept_predictions,
    prove_by_leaves,
    prove_by_predictions,
    rows_to_check,
    sum_of_votes,
    trees_to_check,
    unseen_by,
)


def prove_on_cluster(pool: MemberPool, X: Any, target: np.ndarray) -> str | None:
    """As `sparsebag.evidence.training_rows.prove_training_rows`, of rows on a cluster.

    Parameters
    ----------
    pool : MemberPool
        With in-bag rows.
    X : dask.array of shape (M, n_features)
    target : ndarray of shape (M,)
        Encoded targets.

    Returns
    -------
    str or None
        What proved it; None where the ensemble leaves nothing to check.
    """
    if any(member.is_tree for member in pool.members):
        trees = trees_to_check(pool)
        proved = bool(trees) and prove_by_leaves(pool, _leaves_of(pool, X, trees), target)
        return "leaf counts" if proved else None
    kept = kept_predictions(pool)
    if kept is None:
        return None
    prove_by_predictions(pool, kept, _votes_on(pool, X, rows_to_check(len(kept))), target)
    return "out-of-bag predictions"


def _leaves_of(pool: MemberPool, X: Any, trees: list[int]) -> dict[int, np.ndarray]:
    """The leaf of every row in some trees, found on the workers and brought here."""
    some = replace(pool.keep(np.asarray(trees)), in_bag=None)
    pieces = row_pieces(X, X.chunks[0], int(X.shape[0]), "X")
    call = delayed_call(_routed)

    def recipe() -> list[Any]:
        members = on_every_worker(some)
        return [call(members, piece) for piece in pieces]

    found = np.concatenate(ClusterBlocks(recipe).each(np.asarray), axis=1)
    return dict(zip(trees, found, strict=True))


def _votes_on(pool: MemberPool, X: Any, rows: np.ndarray) -> SummedVotes:
    """What members say of some rows out of their bags, predicted on the workers."""
    members_alone = replace(pool, in_bag=None, source=None)
    pieces = row_pieces(X, X.chunks[0], int(X.shape[0]), "X")
    ends = np.cumsum(X.chunks[0])
    cuts = np.searchsorted(rows, ends[:-1])
    picked = [
        (some - first, unseen)
        for some, unseen, first in zip(
            np.split(rows, cuts),
            np.split(unseen_by(pool, rows), cuts),
            ends - X.chunks[0],
            strict=True,
        )
        if len(some)
    ]
    asked = np.unique(np.searchsorted(ends, rows, side="right"))
    call = delayed_call(_summed)

    def recipe() -> list[Any]:
        members = on_every_worker(members_alone)
        return [
            call(members, pieces[block], *which) for block, which in zip(asked, picked, strict=True)
        ]

    found: list[SummedVotes] = ClusterBlocks(recipe).each(_itself)
    return SummedVotes(
        np.concatenate([part.total for part in found]),
        np.concatenate([part.voters for part in found]),
        any(part.is_single for part in found),
    )


# -- what workers do -------------------------------------------------------------------------


def _routed(pool: MemberPool, X: Any) -> np.ndarray:
    rows = pool.prepare(X)
    return np.stack([member.apply(rows) for member in pool.members]).astype(np.int32)


def _summed(pool: MemberPool, X: Any, rows: np.ndarray, unseen: np.ndarray) -> SummedVotes:
    return sum_of_votes(pool, take_rows(pool.prepare(X), rows), unseen)


def _itself(found: SummedVotes) -> SummedVotes:
    return found
