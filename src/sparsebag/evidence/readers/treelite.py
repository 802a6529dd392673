"""treelite's models of averaging forests, from whichever library treelite read them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers.from_arrays import (
    Leaf,
    Split,
    below,
    built_tree,
    category_split,
    pool_of_trees,
)

OPERATORS = ("<=", "<")


def read(model: Any, classes: Any = None, source: Any = None) -> MemberPool:
    """A pool of the trees of a model.

    Parameters
    ----------
    model : treelite.Model
        Classes are numbered from 0.
    classes : array-like, optional
        Their names.
    source : object, optional
        What the model was made of.

    Returns
    -------
    MemberPool
    """
    if not hasattr(model, "dump_as_json"):
        raise TypeError(f"cannot read treelite's {type(model).__name__}; pass a treelite.Model.")
    dump = json.loads(model.dump_as_json(pretty_print=False))
    if not dump["average_tree_output"] or any(dump["base_scores"]):
        raise TypeError(
            "this treelite model adds up its trees, which correct each other and are no votes; "
            "pass one of an averaging forest."
        )
    if dump["num_target"] != 1:
        raise ValueError("this treelite model has several outputs; pass one model an output.")
    n_classes = dump["num_class"][0]
    if dump["task_type"] == "kRegressor":
        classes = None
    else:
        n_classes = max(n_classes, 2)
        classes = np.arange(n_classes) if classes is None else np.asarray(classes)
    counted = all("data_count" in node or "sum_hess" in node for node in dump["trees"][0]["nodes"])
    trees = [_tree(tree["nodes"], dump["num_feature"], classes) for tree in dump["trees"]]
    return pool_of_trees(
        trees,
        classes,
        model if source is None else source,
        leaves_are_shares=counted,
        no_in_bag="treelite models hold no bags",
    )


def _tree(nodes: list[dict[str, Any]], n_features: int, classes: Any) -> Any:
    by_key = {node["node_id"]: node for node in nodes}

    def look(key: int) -> Leaf | Split:
        node = by_key[key]
        if "leaf_value" in node:
            value = np.atleast_1d(np.asarray(node["leaf_value"], dtype=float))
            if classes is not None and len(value) == 1:
                value = np.append(1.0 - value, value)
            return Leaf(value, float(node.get("sum_hess", node.get("data_count", 1.0))))
        feature, left, right = node["split_feature_id"], node["left_child"], node["right_child"]
        to_left = bool(node["default_left"])
        if node["node_type"] == "categorical_test_node":
            in_right = bool(node["category_list_right_child"])
            inside, outside = (right, left) if in_right else (left, right)
            missing_inside = to_left != in_right
            return category_split(feature, node["category_list"], inside, outside, missing_inside)
        if node["comparison_op"] not in OPERATORS:
            raise ValueError(
                f"this treelite model compares by {node['comparison_op']!r}; only "
                f"{' and '.join(OPERATORS)} can be read."
            )
        cut = node["threshold"] if node["comparison_op"] == "<=" else below(node["threshold"])
        return Split(feature, cut, to_left, left, right)

    return built_tree(0, look, n_features, classes)
