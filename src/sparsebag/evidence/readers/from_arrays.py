"""Trees of other libraries as scikit-learn's, which can be pruned, taught, saved and exported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logsumexp
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree

MOST_NODES = 100_000
"""Of one tree: splits on sets of categories become several on numbers, and copy what is below."""


class Leaf(NamedTuple):
    """What a leaf says, one number a class or one, and the weight of the rows in it."""

    value: np.ndarray
    weight: float


class Split(NamedTuple):
    """A row goes left where its value is at most the threshold; children are keys or nodes."""

    feature: int
    threshold: float
    missing_left: bool
    left: Any
    right: Any


def below(threshold: float) -> float:
    """The largest float32 below a threshold: ``x < t`` is ``x <= below(t)`` for float32 values.

    Examples
    --------
    >>> below(1.0) < 1.0
    True
    """
    return float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))


def category_split(
    feature: int, codes: Any, inside: Any, outside: Any, missing_inside: bool
) -> Split:
    """A split on a set of category codes, as splits on numbers.

    Parameters
    ----------
    feature : int
    codes : sequence of int
        Those that go to ``inside``.
    inside, outside : key or node
    missing_inside : bool

    Returns
    -------
    Split
    """
    sorted_codes = np.unique(np.asarray(codes, dtype=float))
    starts = np.flatnonzero(np.diff(sorted_codes, prepend=-np.inf) > 1.0)
    node: Any = outside
    for run in reversed(np.split(sorted_codes, starts[1:])):
        within = Split(feature, run[-1] + 0.5, True, inside, node)
        node = Split(feature, run[0] - 0.5, not missing_inside, outside, within)
    return Split(*node)


def score_leaf(score: float, weight: float, column: int, others: np.ndarray) -> Leaf:
    """A leaf of a tree that adds to one class's score, as shares of all classes.

    Its own share p is the softmax of the score beside the other classes' base scores. With C > 2
    classes the others fall together by as much as it rises, and one tree of C speaks of a class, so
    p's distance from 1/C counts C - 1 times: then the mean over all trees is the mean of p over the
    trees of each class, but for one constant.

    Parameters
    ----------
    score, weight : float
    column : int
        The class; of two classes the second.
    others : ndarray of shape (C,)
        Base scores of all classes.

    Returns
    -------
    Leaf

    Examples
    --------
    >>> score_leaf(0.0, 1.0, 1, np.zeros(2)).value.tolist()
    [0.5, 0.5]
    """
    n = len(others)
    rises = (score - others[column]) / (n - 1) if n > 2 else 0.0
    share = float(expit(score + rises - logsumexp(np.delete(others, column))))
    share = 1.0 / n + (n - 1) * (share - 1.0 / n)
    value = np.full(n, (1.0 - share) / (n - 1))
    value[column] = share
    return Leaf(value, weight)


def built_tree(
    root: Any,
    look: Callable[[Any], Leaf | Split],
    n_features: int,
    classes: Any,
    monotonic: Any = None,
    class_weight: Any = None,
) -> Any:
    """A scikit-learn tree with the nodes of another.

    Parameters
    ----------
    root : key or node
    look : function
        From a key to a node.
    n_features : int
    classes : array or None
        None for regression.
    monotonic : sequence of int, optional
        Signs of the constraints that the tree was grown under.
    class_weight : dict or "balanced", optional
        Under which it was grown, by the numbers of classes.

    Returns
    -------
    DecisionTreeClassifier or DecisionTreeRegressor

    Examples
    --------
    >>> leaves = Leaf(np.array([1.0]), 3.0), Leaf(np.array([2.0]), 5.0)
    >>> tree = built_tree(Split(0, 0.5, False, *leaves), lambda key: key, 1, None)
    >>> tree.predict([[0.0], [1.0]]).tolist()
    [1.0, 2.0]
    """
    found: list[list[float]] = []
    leaves: dict[int, Leaf] = {}
    deepest, pending = 0, [(root, -1, 0, 0)]
    while pending:  # parents first, left before right, as scikit-learn has them
        key, parent, side, depth = pending.pop()
        at, deepest = len(found), max(deepest, depth)
        if at >= MOST_NODES and isinstance(key, Split):  # one that a set of categories made
            raise ValueError("a tree splits on too many sets of categories; one-hot encode them.")
        if parent >= 0:
            found[parent][side] = at
        node = key if isinstance(key, (Leaf, Split)) else look(key)
        if isinstance(node, Leaf):
            leaves[at] = node
            found.append([-1, -1, -2, -2, 0])
        else:
            found.append([-1, -1, node.feature, node.threshold, node.missing_left])
            pending += [(node.right, at, 1, depth + 1), (node.left, at, 0, depth + 1)]
    n_values = 1 if classes is None else len(classes)
    tree = Tree(n_features, np.array([n_values], dtype=np.intp), 1)
    state = tree.__getstate__()
    nodes = np.zeros(len(found), dtype=state["nodes"].dtype)
    names = ("left_child", "right_child", "feature", "threshold", "missing_go_to_left")
    for name, column in zip(names, np.array(found).T, strict=True):
        nodes[name] = column
    values, weight = np.zeros((len(found), n_values)), nodes["weighted_n_node_samples"]
    squares = np.zeros(len(found))  # of leaf values, for the impurity by which importances go
    for at in reversed(range(len(found))):
        if at in leaves:
            values[at], weight[at] = leaves[at]
            squares[at] = values[at] @ values[at]
            continue
        both = [nodes["left_child"][at], nodes["right_child"][at]]
        weight[at] = weight[both].sum()
        share = weight[both] / weight[at] if weight[at] > 0 else np.full(2, 0.5)
        values[at], squares[at] = share @ values[both], share @ squares[both]
    nodes["impurity"] = np.maximum(squares - np.sum(values**2, axis=1), 0.0)
    nodes["n_node_samples"] = np.maximum(np.round(weight), 1)
    counts = {"max_depth": deepest, "node_count": len(found), "nodes": nodes}
    tree.__setstate__({**state, **counts, "values": np.ascontiguousarray(values[:, None, :])})
    kind = DecisionTreeRegressor if classes is None else DecisionTreeClassifier
    out = kind(monotonic_cst=monotonic)
    out.tree_, out.n_features_in_, out.n_outputs_ = tree, n_features, 1
    out.max_features_ = n_features
    if classes is not None:
        out.classes_, out.n_classes_ = np.arange(n_values, dtype=float), n_values
        out.class_weight = class_weight
    return out
