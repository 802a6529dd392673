"""Trees from a file somebody else may have made: nothing in them may lead outside their arrays.

scikit-learn's kernels follow a tree's nodes and count on the widths its models state; neither is
checked when they predict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

LEAF = -1


def check_trees(model: Any) -> None:
    """Refuse trees whose nodes lead astray, or whose widths are not those of their models.

    Parameters
    ----------
    model : object
        Whatever a file held.
    """
    from sklearn.ensemble._forest import BaseForest
    from sklearn.tree import BaseDecisionTree
    from sklearn.tree._tree import Tree

    for thing in _inside(model):
        if isinstance(thing, Tree):
            _check_nodes(thing)
        elif isinstance(thing, BaseDecisionTree) and hasattr(thing, "tree_"):
            _check_widths(thing)
        if hasattr(thing, "estimators_"):
            _check_members(thing, is_forest=isinstance(thing, BaseForest))


def _inside(model: Any) -> Iterator[Any]:
    """A model and everything it holds, each once."""
    seen: set[int] = set()
    pending = [model]
    while pending:
        thing = pending.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        if isinstance(thing, dict):
            pending += thing.values()
        elif isinstance(thing, (list, tuple, set)):
            pending += thing
        elif isinstance(thing, np.ndarray):
            pending += thing.ravel().tolist() if thing.dtype == object else []
        elif hasattr(thing, "__dict__"):
            pending += vars(thing).values()


def _check_nodes(tree: Any) -> None:
    left, right = tree.children_left, tree.children_right
    at = np.arange(tree.node_count)
    inner = left != LEAF
    sound = (
        np.array_equal(inner, right != LEAF)
        and np.all((left[inner] > at[inner]) & (left[inner] < len(at)))
        and np.all((right[inner] > at[inner]) & (right[inner] < len(at)))
        and np.all((tree.feature[inner] >= 0) & (tree.feature[inner] < tree.n_features))
    )
    if not sound:
        raise ValueError("a tree's nodes lead outside it")


def _check_widths(model: Any) -> None:
    tree = model.tree_
    classes = getattr(model, "classes_", None)
    n_classes = 1 if classes is None else len(classes)
    stated = int(np.max(getattr(model, "n_classes_", 1)))
    sound = (
        tree.n_features == model.n_features_in_
        and tree.n_outputs == 1 == getattr(model, "n_outputs_", 1)
        and int(tree.n_classes[0]) == n_classes == stated
        and tree.value.shape[1:] == (1, n_classes)
    )
    if not sound:
        raise ValueError("a tree reads or tells something else than its model says")


def _check_members(ensemble: Any, *, is_forest: bool) -> None:
    members = list(np.ravel(np.asarray(ensemble.estimators_, dtype=object)))
    width = getattr(ensemble, "n_features_in_", None)
    subsets = getattr(ensemble, "estimators_features_", None)
    n_classes = len(getattr(ensemble, "classes_", ()))
    for j, member in enumerate(members):
        reads = getattr(member, "n_features_in_", None)
        expected = width
        if subsets is not None:
            columns = np.asarray(subsets[j])
            expected = len(columns)
            if width is not None and np.any((columns < 0) | (columns >= width)):
                raise ValueError("a member reads columns its ensemble does not have")
        if None not in (reads, expected) and reads != expected:
            raise ValueError("a member reads another number of columns than its ensemble")
        if is_forest and len(getattr(member, "classes_", ())) != n_classes:
            raise ValueError("a tree votes for other classes than its forest")
