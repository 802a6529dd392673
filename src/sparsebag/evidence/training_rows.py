"""Proof that X and y are the rows an ensemble was trained on, in the same order.

Out-of-bag rows are only out of bag if they are the training rows; given others, or the same ones
shuffled, every later figure would be quietly wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.metrics import r2_score
from sklearn.tree import BaseDecisionTree

from sparsebag.evidence.members import Member, MemberPool, take_rows

MEMBERS_CHECKED = 3
"""A wrong row order survives one tree's leaf counts with vanishing probability."""
OOB_TOLERANCE = 1e-6
"""Largest difference to the ensemble's own OOB prediction that rounding explains."""
OOB_ROWS_CHECKED = 200
BAGS = (BaggingClassifier, BaggingRegressor)


def check_columns(pool: MemberPool, X: Any, n_rows: int, *, training: bool) -> None:
    """Compare X's shape with y and with what the ensemble remembers.

    Parameters
    ----------
    pool : MemberPool
    X : array-like
    n_rows : int
        Length of y.
    training : bool
        Whether X should be the training rows.
    """
    shape = getattr(X, "shape", None)
    if shape is None:
        shape = np.asarray(X).shape
    if len(shape) != 2:
        raise ValueError(f"X must have two axes (rows, columns), got shape {tuple(shape)}.")
    if shape[0] != n_rows:
        raise ValueError(f"X has {shape[0]} rows but y has {n_rows}.")
    if pool.n_features is not None and shape[1] != pool.n_features:
        raise ValueError(
            f"X has {shape[1]} columns but the ensemble was fitted on {pool.n_features}; pass "
            "the data it was trained on."
        )
    names = getattr(pool.source, "feature_names_in_", None)
    if names is not None and hasattr(X, "columns") and list(X.columns) != list(names):
        raise ValueError(
            "X's column names differ from those the ensemble was fitted on; pass the same "
            "columns in the same order."
        )
    if training and pool.n_rows is not None and n_rows != pool.n_rows:
        raise _not_training(f"it has {n_rows} rows and the ensemble was fitted on {pool.n_rows}")
    if training and pool.in_bag is not None:
        highest = max(int(np.max(rows, initial=-1)) for rows in pool.in_bag)
        if highest >= n_rows:
            raise _not_training(f"a member was trained on row {highest} and X has {n_rows} rows")


def prove_training_rows(pool: MemberPool, X: Any, target: np.ndarray) -> str | None:
    """Prove that these are the training rows; raise one sentence if they are not.

    Trees: routing a member's bagged rows must reproduce its leaves' counts, and their targets
    its leaves' values. Else: our uniform OOB prediction must equal the ensemble's own, where it
    kept one.

    Parameters
    ----------
    pool : MemberPool
        With in-bag rows.
    X : array-like
        Prepared by ``pool.prepare``.
    target : ndarray of shape (M,)
        Encoded targets.

    Returns
    -------
    str or None
        What proved it; None where the ensemble leaves nothing to check.
    """
    assert pool.in_bag is not None
    trees = [j for j, member in enumerate(pool.members) if member.is_tree]
    if trees:
        picked = [trees[i] for i in np.linspace(0, len(trees) - 1, MEMBERS_CHECKED).astype(int)]
        for j in sorted(set(picked)):
            _check_leaves(pool.members[j], j, X, target, pool.in_bag[j], pool.classes is not None)
        return "leaf counts"
    kept = getattr(pool.source, "oob_decision_function_", None)
    if kept is None:
        kept = getattr(pool.source, "oob_prediction_", None)
    if kept is None or len(kept) != len(target):
        return None
    _check_oob_predictions(pool, X, np.asarray(kept))
    _check_oob_score(pool, np.asarray(kept), target)
    return "out-of-bag predictions"


def _check_leaves(
    member: Member, j: int, X: Any, target: np.ndarray, bag: np.ndarray, classification: bool
) -> None:
    tree: BaseDecisionTree = member.estimator
    rows, counts = np.unique(bag, return_counts=True)
    block = take_rows(X, rows)
    if member.features is not None:
        block = block[:, member.features]
    leaves = tree.apply(block, check_input=False)
    nodes = tree.tree_
    is_leaf = nodes.children_left < 0
    routed = np.bincount(leaves, minlength=nodes.node_count)
    # A bag passes repeats as weights (a leaf counts distinct rows), a hand-made bootstrap as
    # repeated rows (it counts all of them).
    repeated = np.bincount(leaves, weights=counts, minlength=nodes.node_count)
    expected = nodes.n_node_samples
    if not (
        np.array_equal(routed[is_leaf], expected[is_leaf])
        or np.array_equal(repeated[is_leaf], expected[is_leaf])
    ):
        raise _not_training(f"routing member {j}'s bagged rows does not give its leaf counts")
    if getattr(tree, "monotonic_cst", None) is not None:
        return  # leaf values are clipped to the constraint, so they prove nothing about y
    values = nodes.value[:, 0, :]
    if classification:
        assert member.class_columns is not None
        present = np.zeros((nodes.node_count, int(target.max()) + 1), dtype=bool)
        present[leaves, target[rows]] = True
        voted = np.zeros((nodes.node_count, max(present.shape[1], member.class_columns.max() + 1)))
        voted[:, member.class_columns] = values
        present = np.pad(present, ((0, 0), (0, voted.shape[1] - present.shape[1])))
        # A class may be present with zero weight (class_weight, sample_weight), never the reverse.
        agrees = not np.any((voted[is_leaf] > 0) & ~present[is_leaf])
    else:
        low = np.full(nodes.node_count, np.inf)
        high = np.full(nodes.node_count, -np.inf)
        np.minimum.at(low, leaves, target[rows])
        np.maximum.at(high, leaves, target[rows])
        slack = 1e-9 * max(1.0, float(np.abs(target).max()))
        filled = is_leaf & (routed > 0)
        inside = (values[:, 0] >= low - slack) & (values[:, 0] <= high + slack)
        agrees = bool(np.all(inside[filled]))
    if not agrees:
        raise _not_training(f"the targets of member {j}'s bagged rows do not give its leaf values")


def _check_oob_predictions(pool: MemberPool, X: Any, kept: np.ndarray) -> None:
    assert pool.in_bag is not None
    n_rows = len(kept)
    rows = np.unique(np.linspace(0, n_rows - 1, OOB_ROWS_CHECKED).astype(int))
    out_of_bag = np.ones((len(rows), len(pool.members)), dtype=bool)
    for j, bag in enumerate(pool.in_bag):
        out_of_bag[:, j] = ~np.isin(rows, bag)
    total = np.zeros((len(rows), *kept.shape[1:]))
    for j, member in enumerate(pool.members):
        unseen = np.flatnonzero(out_of_bag[:, j])
        if not len(unseen):
            continue
        block = take_rows(X, rows[unseen])
        if pool.classes is None:
            total[unseen] += member.predict(block)
        else:
            total[unseen] += member.predict_proba(block, len(pool.classes))
    voters = out_of_bag.sum(axis=1)
    ours = total[voters > 0] / voters[voters > 0].reshape(-1, *[1] * (kept.ndim - 1))
    theirs = kept[rows][voters > 0]
    scale = max(1.0, float(np.nanmax(np.abs(theirs), initial=0.0)))
    if not np.allclose(ours, theirs, atol=OOB_TOLERANCE * scale, rtol=0, equal_nan=True):
        raise _not_training("the members' out-of-bag predictions differ from those it kept")


def _check_oob_score(pool: MemberPool, kept: np.ndarray, target: np.ndarray) -> None:
    """The kept predictions do not know y; the score kept with them does."""
    score = getattr(pool.source, "oob_score_", None)
    if score is None or not isinstance(pool.source, BAGS):
        return
    if pool.classes is None:
        ours = r2_score(target, kept)
    else:
        ours = float(np.mean(np.argmax(kept, axis=1) == target))
    if not np.isclose(ours, score, rtol=0, atol=OOB_TOLERANCE):
        raise _not_training("y does not give the out-of-bag score it kept")


def _not_training(found: str) -> ValueError:
    return ValueError(
        f"X, y are not the ensemble's training rows in their original order: {found}. Pass the "
        "arrays it was fitted on, or rows it has never seen with evidence='holdout'."
    )
