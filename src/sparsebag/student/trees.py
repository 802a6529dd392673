"""The trees of an ensemble in one table of nodes, and scikit-learn trees made from a part of it."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.tree._tree import Tree

from sparsebag.evidence.members import Member, MemberPool
from sparsebag.student._student import Trees, add_up, add_votes


@dataclass(frozen=True, eq=False)
class TreeTable:
    """Nodes of several trees, one tree after the other, children after their parents.

    Attributes
    ----------
    members : tuple of Member
        The trees.
    left, right : int32 ndarray of shape (n_nodes,)
        Children, or -1 for a leaf.
    feature : int32 ndarray of shape (n_nodes,)
        Column of the ensemble's X that a node reads.
    threshold : float64 ndarray of shape (n_nodes,)
    missing_left : uint8 ndarray of shape (n_nodes,)
    offset : int64 ndarray of shape (n_trees + 1,)
        First node of each tree.
    value : float64 ndarray of shape (n_nodes, n_outputs)
        Class shares in the ensemble's order, or the mean target.
    n_features : int
    """

    members: tuple[Member, ...]
    left: np.ndarray
    right: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    missing_left: np.ndarray
    offset: np.ndarray
    value: np.ndarray
    n_features: int
    _kernel: Trees = field(init=False)

    def __post_init__(self) -> None:
        arrays = (self.left, self.right, self.feature, self.threshold, self.missing_left)
        object.__setattr__(self, "_kernel", Trees(*arrays, self.offset, self.n_features))

    @classmethod
    def of(cls, pool: MemberPool) -> TreeTable:
        """The trees of a pool."""
        trees = [member.estimator.tree_ for member in pool.members]
        counts = [tree.node_count for tree in trees]
        offset = np.concatenate([[0], np.cumsum(counts)])
        shift = np.repeat(offset[:-1], counts)

        def joined(name: str) -> np.ndarray:
            return np.concatenate([np.asarray(getattr(tree, name)) for tree in trees])

        left, right = joined("children_left"), joined("children_right")
        is_leaf = left < 0
        feature = np.concatenate([_columns(member) for member in pool.members])
        n_outputs = 1 if pool.classes is None else len(pool.classes)
        return cls(
            members=pool.members,
            left=np.where(is_leaf, -1, left + shift).astype(np.int32),
            right=np.where(is_leaf, -1, right + shift).astype(np.int32),
            feature=feature.astype(np.int32),
            threshold=joined("threshold"),
            missing_left=joined("missing_go_to_left").astype(np.uint8),
            offset=offset.astype(np.int64),
            value=np.concatenate([_values(member, n_outputs) for member in pool.members]),
            n_features=int(pool.n_features or trees[0].n_features),
        )

    @property
    def n_trees(self) -> int:
        """How many trees there are."""
        return len(self.offset) - 1

    @property
    def n_nodes(self) -> int:
        """How many nodes they have together."""
        return len(self.left)

    def route(self, X: Any, n_threads: int = 1) -> np.ndarray:
        """The leaf of each row in each tree, shape (n_trees, rows)."""
        if sp.issparse(X):
            leaves = [member.apply(X) for member in self.members]
            return np.stack(leaves).astype(np.int32) + self.offset[:-1, None].astype(np.int32)
        leaf = np.empty((len(self.members), X.shape[0]), dtype=np.int32)
        self._kernel.route(np.ascontiguousarray(X, dtype=np.float32), leaf, n_threads)
        return leaf

    def added_up(self, leaf_totals: np.ndarray) -> np.ndarray:
        """Totals of every node from those of the leaves, shape (n_nodes, columns)."""
        totals = np.ascontiguousarray(leaf_totals, dtype=np.float64)
        add_up(self.left, self.right, totals)
        return totals


def votes(leaf: np.ndarray, value: np.ndarray, n_threads: int = 1) -> np.ndarray:
    """Sums over trees of the values of each row's leaves.

    Parameters
    ----------
    leaf : int32 ndarray of shape (n_trees, rows)
    value : ndarray of shape (n_nodes, columns)
    n_threads : int, default 1

    Returns
    -------
    ndarray of shape (rows, columns)
    """
    out = np.zeros((leaf.shape[1], value.shape[1]))
    add_votes(np.ascontiguousarray(leaf), np.ascontiguousarray(value), out, n_threads)
    return out


def pruned_tree(
    member: Member,
    node: np.ndarray,
    ends: np.ndarray,
    values: np.ndarray,
    is_vote: bool,
    n_features: int,
) -> Any:
    """A copy of a tree with some of its nodes and other values.

    Parameters
    ----------
    member : Member
        One decision tree; not changed.
    node : int ndarray of shape (n,)
        The nodes that are left, parents first.
    ends : bool ndarray of shape (n,)
        Which of them are leaves now.
    values : ndarray of shape (n, columns)
        What they say.
    is_vote : bool
        Whether these are class shares, in the ensemble's order.
    n_features : int
        Columns of the ensemble's X, which the copy reads.

    Returns
    -------
    DecisionTreeClassifier, DecisionTreeRegressor or their Extra kin
    """
    old = member.estimator.tree_.__getstate__()["nodes"]
    position = np.full(len(old) + 1, -1, dtype=np.int64)
    position[node] = np.arange(len(node))
    nodes = old[node].copy()
    for side in ("left_child", "right_child"):
        nodes[side] = np.where(ends, -1, position[nodes[side]])
    nodes["feature"] = np.where(ends, -2, _columns(member)[node])
    nodes["threshold"][ends] = -2.0
    depth = np.zeros(len(node), dtype=np.int64)
    for i in np.flatnonzero(~ends):
        depth[nodes["left_child"][i]] = depth[nodes["right_child"][i]] = depth[i] + 1
    n_classes = values.shape[1] if is_vote else 1
    tree = Tree(n_features, np.array([n_classes], dtype=np.intp), 1)
    state = {"max_depth": int(depth.max()), "node_count": len(node), "nodes": nodes}
    shaped = np.ascontiguousarray(values[:, None, :], dtype=np.float64)
    tree.__setstate__({**state, "values": shaped})
    out = copy(member.estimator)  # a tenth of what clone takes
    out.tree_, out.n_features_in_, out.n_outputs_ = tree, n_features, 1
    out.max_features_ = getattr(member.estimator, "max_features_", n_features)
    if is_vote:
        out.classes_, out.n_classes_ = np.arange(n_classes, dtype=float), n_classes
    return out


def _columns(member: Member) -> np.ndarray:
    """The ensemble's column that each node of a tree reads; -2 in leaves."""
    feature = np.asarray(member.estimator.tree_.feature)
    if member.features is None:
        return feature
    return np.where(feature < 0, feature, member.features[feature])


def _values(member: Member, n_outputs: int) -> np.ndarray:
    value = member.estimator.tree_.value[:, 0, :]
    if member.class_columns is None:
        return np.asarray(value, dtype=np.float64)
    out = np.zeros((len(value), n_outputs))
    out[:, member.class_columns] = value / value.sum(axis=1, keepdims=True)
    return out
