"""Measuring how members' votes differ, on rows that carry no label."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from sparsebag.evidence.members import MemberPool
from sparsebag.objective.vote_disagreement import VoteDisagreement

MOST_ROWS = 32_000
"""Beyond it the disagreement of a hundred trees is known as well as it needs to be."""
MOST_VOTES = 4_000_000
"""Rows × members that are asked: about half a second for trees."""
MOST_PRODUCTS = 10_000_000_000
"""Rows × members² × classes that are multiplied: below half a second."""
BLOCK_VOTES = 1 << 22
"""Votes held at a time (16 MiB of float32)."""


def rows_to_ask(n_members: int, n_classes: int | None) -> int:
    """How many rows the members' disagreement is worth.

    Parameters
    ----------
    n_members : int
    n_classes : int or None
        None: regression.

    Returns
    -------
    int

    Examples
    --------
    >>> rows_to_ask(100, 2), rows_to_ask(500, 2), rows_to_ask(500, 10)
    (32000, 8000, 4000)
    """
    planes = _planes(n_classes)
    affordable = min(MOST_VOTES // n_members, MOST_PRODUCTS // (n_members**2 * planes))
    return max(1, min(MOST_ROWS, affordable))


def vote_disagreement(pool: MemberPool, blocks: Iterable[np.ndarray]) -> VoteDisagreement | None:
    """How the members' votes on some rows differ from the whole ensemble's.

    Parameters
    ----------
    pool : MemberPool
    blocks : iterable of ndarray of shape (rows, n_features)
        In the form the members read; none of them may have been trained on one.

    Returns
    -------
    VoteDisagreement or None
        None where the members all say the same.
    """
    n, n_classes = len(pool.members), None if pool.classes is None else len(pool.classes)
    planes = _planes(n_classes)
    products, n_rows = np.zeros((n, n)), 0
    step = max(1, BLOCK_VOTES // (n * planes))
    for rows in blocks:
        n_rows += len(rows)
        for begin in range(0, len(rows), step):
            for away in _deviations(pool, rows[begin : begin + step], n_classes):
                products += away.T @ away
    return VoteDisagreement.of(products / max(n_rows, 1))


def left_over(pool: MemberPool) -> float:
    """Share of the targets' spread in their bags that trees' leaves leave; 0: they are grown out.

    Parameters
    ----------
    pool : MemberPool
        Of trees.

    Returns
    -------
    float
    """
    left, spread = 0.0, 0.0
    for member in pool.members:
        tree = member.estimator.tree_
        leaves = tree.children_left < 0
        rows = tree.weighted_n_node_samples
        left += float(rows[leaves] @ tree.impurity[leaves])
        spread += float(rows[0] * tree.impurity[0])
    return max(left / spread, 0.0) if spread > 0.0 else 0.0


def _deviations(pool: MemberPool, rows: np.ndarray, n_classes: int | None) -> np.ndarray:
    """Votes less their mean over the members, shape (planes, rows, N)."""
    planes, level = _planes(n_classes), 0.0
    said = np.empty((planes, len(rows), len(pool.members)), dtype=np.float32)
    for j, member in enumerate(pool.members):
        if n_classes is None:
            vote = member.predict(rows)
            # Beside targets such as years, float32 would blur what members differ by.
            level = float(vote.mean()) if j == 0 else level
            said[0, :, j] = vote - level
        else:
            said[:, :, j] = member.predict_proba(rows, n_classes).T[:planes]
    said -= said.mean(axis=2, keepdims=True)
    return said


def _planes(n_classes: int | None) -> int:
    """Two classes' votes mirror each other: one of them tells all."""
    return 1 if n_classes is None or n_classes <= 2 else n_classes
