"""A file's members as scikit-learn's models again: what `compile_members` did, undone.

A file holds no scikit-learn objects, so that it loads without scikit-learn; an export to it starts
from these. Counts and impurities are gone, and weights are those that give the same vote.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.linear import LinearVotes
from sparsebag.deploy.mlp import StackedNetworks
from sparsebag.deploy.not_exportable import check_fixed_weights
from sparsebag.deploy.to_estimators import linear_members, network_members
from sparsebag.deploy.trees import FlatTrees
from sparsebag.evidence.members import Member, MemberPool

LEAF, UNDEFINED = -1, -2
"""scikit-learn's marks for "no child" and "no feature"."""


def as_members(model: CompiledEnsemble) -> tuple[MemberPool, np.ndarray]:
    """Members and weights whose vote is the compiled model's, for `export_sklearn`.

    Parameters
    ----------
    model : CompiledEnsemble

    Returns
    -------
    pool : MemberPool
    weights : ndarray of shape (n_trees,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sparsebag.deploy.from_members import compile_members
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(3, random_state=0).fit(X, y)
    >>> compiled = compile_members(read_ensemble(forest), np.full(3, 1 / 3))
    >>> pool, weights = as_members(compiled)
    >>> again = compile_members(pool, weights)
    >>> bool(np.allclose(again.predict_proba(X), forest.predict_proba(X)))
    True
    """
    check_fixed_weights(model.gate, "scikit-learn")
    found: list[tuple[Member, float]] = []
    collapsed = None
    for group in model.groups:
        if isinstance(group, FlatTrees):
            found += _tree_members(group, model, alone=len(model.groups) == 1)
        elif isinstance(group, LinearVotes) and group.link == "identity":
            collapsed = group  # its weight is what the others leave
        elif isinstance(group, LinearVotes):
            found += linear_members(group)
        elif isinstance(group, StackedNetworks):
            found += network_members(group)
        else:
            kept = zip(group.members, group.features, group.weights, strict=True)
            found += [(replace(cast(Member, m), features=f), float(w)) for m, f, w in kept]
    if collapsed is not None:
        found += linear_members(collapsed, 1.0 - sum(weight for _, weight in found))
    weights = np.array([weight for _, weight in found])
    pool = MemberPool(
        members=tuple(member for member, _ in found),
        task="regression" if model.classes is None else "classification",
        classes=model.classes,
        in_bag=None,
        input_kind="tree" if all(member.is_tree for member, _ in found) else "array",
        n_features=model.n_features,
        n_rows=None,
        source=None,
    )
    return pool, weights


def _tree_members(
    flat: FlatTrees, model: CompiledEnsemble, *, alone: bool
) -> list[tuple[Member, float]]:
    trees = [_taken_out(flat, int(root)) for root in flat.roots]
    weights = _weights(flat, [values for _, values in trees], 1.0 if alone else flat.total)
    columns = None if model.classes is None else np.arange(model.n_outputs)
    found = []
    for (nodes, values), weight in zip(trees, weights, strict=True):
        shares = values / weight if weight > 0.0 else np.zeros_like(values)
        if flat.complement:
            shares = np.column_stack([1.0 - shares, shares])
        tree = _tree(nodes, shares, flat.n_features, model.classes is not None)
        found.append((Member(tree, None, columns), float(weight)))
    return found


def _weights(flat: FlatTrees, values: list[np.ndarray], total: float) -> np.ndarray:
    """Weights under which every leaf's shares lie between zero and one, where they did before."""
    if not flat.complement:
        return np.full(len(values), total / len(values))
    # A leaf gives its tree's weight or less to the second class; what the largest leaves do not
    # use up is spread evenly.
    least = np.array([max(float(v.max()), 0.0) for v in values])
    return np.asarray(least + (flat.total - least.sum()) / len(values))


def _taken_out(flat: FlatTrees, root: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """One tree's nodes in depth-first order, as scikit-learn has them, and what its nodes say."""
    left: list[int] = []
    right: list[int] = []
    feature, threshold, missing, says = [], [], [], []
    pending = [(root, -1, False)]
    while pending:
        at, parent, is_right = pending.pop()
        position = len(left)
        if parent >= 0:
            (right if is_right else left)[parent] = position
        left.append(LEAF)
        right.append(LEAF)
        feature.append(UNDEFINED if at < 0 else int(flat.feature[at]))
        threshold.append(float(UNDEFINED) if at < 0 else float(flat.threshold[at]))
        missing.append(0 if at < 0 else int(flat.missing_left[at]))
        says.append(flat.values[~at] if at < 0 else np.zeros(flat.values.shape[1]))
        if at >= 0:
            pending.append((int(flat.children[at, 1]), position, True))
            pending.append((int(flat.children[at, 0]), position, False))
    nodes = {
        "left_child": np.array(left),
        "right_child": np.array(right),
        "feature": np.array(feature),
        "threshold": np.array(threshold),
        "missing_go_to_left": np.array(missing),
    }
    return nodes, np.array(says)


def _tree(nodes: dict[str, np.ndarray], values: np.ndarray, n_features: int, is_vote: bool) -> Any:
    n_classes = values.shape[1] if is_vote else 1
    empty = Tree(n_features, np.array([n_classes], dtype=np.intp), 1)
    state = empty.__getstate__()
    table = np.zeros(len(values), dtype=state["nodes"].dtype)
    for name, column in nodes.items():
        table[name] = column
    table["n_node_samples"], table["weighted_n_node_samples"] = 1, 1.0
    depth = np.zeros(len(values), dtype=int)
    for i in np.flatnonzero(nodes["left_child"] >= 0):  # parents come before their children
        depth[[nodes["left_child"][i], nodes["right_child"][i]]] = depth[i] + 1
    empty.__setstate__(
        {
            **state,
            "max_depth": int(depth.max()),
            "node_count": len(values),
            "nodes": table,
            "values": np.ascontiguousarray(values[:, None, :]),
        }
    )
    out = (DecisionTreeClassifier if is_vote else DecisionTreeRegressor)()
    out.tree_, out.n_features_in_, out.n_outputs_ = empty, n_features, 1
    out.max_features_ = n_features
    if is_vote:
        out.classes_, out.n_classes_ = np.arange(n_classes, dtype=float), n_classes
    return out
