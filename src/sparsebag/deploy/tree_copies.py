"""Copies of scikit-learn's trees that say other values; the user's own are never touched."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.tree._tree import Tree

from sparsebag.evidence.members import Member


def tree_saying(
    member: Member, values: np.ndarray, *, is_vote: bool, n_features: int | None = None
) -> Any:
    """A copy of a tree with other values in its nodes.

    Parameters
    ----------
    member : Member
    values : ndarray of shape (node_count, C)
    is_vote : bool
        Whether they are class probabilities, in the ensemble's order.
    n_features : int, optional
        Columns of the ensemble's rows, where the copy shall read those itself; default: it reads
        the member's own columns.

    Returns
    -------
    DecisionTreeClassifier or DecisionTreeRegressor
    """
    state = member.estimator.tree_.__getstate__()
    nodes = state["nodes"].copy()
    if n_features is not None and member.features is not None:
        inner = nodes["left_child"] >= 0
        nodes["feature"][inner] = member.features[nodes["feature"][inner]]
    width = n_features or member.estimator.n_features_in_
    n_classes = values.shape[1] if is_vote else 1
    tree = Tree(width, np.array([n_classes], dtype=np.intp), 1)
    values = np.ascontiguousarray(values[:, None, :], dtype=np.float64)
    tree.__setstate__({**state, "nodes": nodes, "values": values})
    out = clone(member.estimator)
    out.tree_, out.n_features_in_, out.n_outputs_ = tree, width, 1
    out.max_features_ = getattr(member.estimator, "max_features_", width)
    if is_vote:
        out.classes_, out.n_classes_ = np.arange(n_classes, dtype=float), n_classes
    return out
