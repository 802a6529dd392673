"""A compiled forest's trees as scikit-learn trees again: what `compile_members` did, undone.

A file holds no scikit-learn objects, so that it loads without scikit-learn; an export to it starts
from these. Counts and impurities are gone, and weights are those that give the same vote.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.not_exportable import NotExportable, check_fixed_weights
from sparsebag.deploy.trees import FlatTrees
from sparsebag.evidence.members import Member, MemberPool

LEAF, UNDEFINED = -1, -2
"""scikit-learn's marks for "no child" and "no feature"."""


def as_members(model: CompiledEnsemble) -> tuple[MemberPool, np.ndarray]:
    """Members and weights whose vote is the compiled model's, for `export_sklearn`.

    Parameters
    ----------
    model : CompiledEnsemble
        Of trees only.

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
    if len(model.groups) != 1 or not isinstance(model.groups[0], FlatTrees):
        raise NotExportable(
            "a file keeps members that are no trees as plain arrays, which scikit-learn's "
            "ensembles do not read; call to_sklearn() on the estimator that compress returned."
        )
    flat = model.groups[0]
    trees = [_taken_out(flat, int(root)) for root in flat.roots]
    weights = _weights(flat, [values for _, values in trees])
    columns = None if model.classes is None else np.arange(model.n_outputs)
    members = []
    for (nodes, values), weight in zip(trees, weights, strict=True):
        shares = values / weight if weight > 0.0 else np.zeros_like(values)
        if flat.complement:
            shares = np.column_stack([1.0 - shares, shares])
        tree = _tree(nodes, shares, flat.n_features, model.classes is not None)
        members.append(Member(tree, None, columns, leaf_values=shares))
    pool = MemberPool(
        members=tuple(members),
        task="regression" if model.classes is None else "classification",
        classes=model.classes,
        in_bag=None,
        input_kind="tree",
        n_features=model.n_features,
        n_rows=None,
        source=None,
    )
    return pool, weights


def _weights(flat: FlatTrees, values: list[np.ndarray]) -> np.ndarray:
    """Weights under which every leaf's shares lie between zero and one, where they did before."""
    if not flat.complement:
        return np.full(len(values), 1.0 / len(values))
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
