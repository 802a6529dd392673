"""treelite's models of forests, from whichever library treelite read them.

Leaves that are shares of classes, or numbers, are read as they are. Where leaves add to a score
(XGBoost, LightGBM), each tree is read as a model of its own: of regressors the mean over trees is
the forest's prediction exactly, of classifiers it is the mean of the trees' probabilities.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from sparsebag.evidence.members import Member, MemberPool
from sparsebag.evidence.readers.from_arrays import (
    Leaf,
    Split,
    below,
    built_tree,
    category_split,
    score_leaf,
)

AS_THEY_ARE, SCORES = ("identity", "identity_multiclass"), ("sigmoid", "softmax")
"""What is done to the sums of leaves that are votes, and that are scores."""


def read(
    model: Any, classes: Any = None, source: Any = None, *, is_forest: bool = False
) -> MemberPool:
    """A pool of the trees of a model.

    Parameters
    ----------
    model : treelite.Model
        Classes are numbered from 0.
    classes : array-like, optional
        Their names.
    source : object, optional
        What the model was made of.
    is_forest : bool
        Whether trees that are added up are known to vote, none of them correcting others.

    Returns
    -------
    MemberPool
    """
    if not hasattr(model, "dump_as_json"):
        raise TypeError(f"cannot read treelite's {type(model).__name__}; pass a treelite.Model.")
    source = model if source is None else source
    # treelite leaves infinity out: where a split is between missing values and all others.
    text = model.dump_as_json(pretty_print=False).replace('"threshold":,', '"threshold":Infinity,')
    dump = json.loads(text)
    trees, column, averages = dump["trees"], np.array(dump["class_id"]), dump["average_tree_output"]
    if not (averages or is_forest):
        raise TypeError(
            f"this {type(source).__name__} adds up its trees, as boosting does; pass a random "
            f"forest (XGBRFClassifier/Regressor, boosting_type='rf')."
        )
    is_vote = dump["task_type"] != "kRegressor"
    links = (*AS_THEY_ARE, *SCORES) if is_vote else AS_THEY_ARE
    if dump["postprocessor"] not in links or dump["num_target"] != 1:
        raise ValueError(
            f"trees with {dump['num_target']} outputs and the link {dump['postprocessor']} cannot "
            "be read; fit the forest for one output and squared error, or for classes."
        )
    if not is_vote:
        classes = None
    elif classes is None:
        classes = np.arange(max(dump["num_class"][0], 2))
    # By rounds, not a class after the other: the first trees should be like the others.
    rank = np.array([np.sum(column[:j] == c) for j, c in enumerate(column)])
    scale = 1.0 if averages else float(rank.max() + 1)
    base, are_scores = np.array(dump["base_scores"]), dump["postprocessor"] in SCORES
    others = np.zeros(2)
    if are_scores and len(base) > 1:  # a class's score in the mean over rows
        means = np.array([_mean_leaf(tree["nodes"]) for tree in trees])
        others = base + scale * np.array([means[column == c].mean() for c in range(len(base))])

    def leaf(node: dict[str, Any], c: int) -> Leaf:
        value, weight = scale * np.atleast_1d(node["leaf_value"]), _weight(node)
        if are_scores:
            score = dump["sigmoid_alpha"] * float(value[0] + base[c])
            return score_leaf(score, weight, c if len(base) > 1 else 1, others)
        value = value + base
        is_one_of_two = classes is not None and len(value) == 1
        return Leaf(np.append(1.0 - value, value) if is_one_of_two else value, weight)

    signs = getattr(source, "monotone_constraints", None)
    signs = signs if isinstance(signs, (list, tuple)) else None
    grown_under = (classes, signs, _class_weight(source, classes))
    made = [
        built_tree(0, _looker(trees[j], leaf, column[j]), dump["num_feature"], *grown_under)
        for j in np.argsort(rank, kind="stable")
    ]
    library = type(source).__module__.partition(".")[0]
    counted = any("data_count" in node or "sum_hess" in node for node in trees[0]["nodes"])
    columns = None if classes is None else np.arange(len(classes))
    return MemberPool(
        members=tuple(Member(tree, None, columns) for tree in made),
        task="regression" if classes is None else "classification",
        classes=classes,
        in_bag=None,
        no_in_bag=f"{library} models do not keep their bags",
        input_kind="tree",
        n_features=dump["num_feature"],
        n_rows=None,
        source=source,
        leaves_are_shares=counted and not are_scores,
    )


def imported(convert: Callable[[Any], Any], booster: Any, model: Any, advice: str = "") -> Any:
    """A library's booster as a treelite model; one sentence where treelite cannot read it.

    Parameters
    ----------
    convert : function
        Of treelite's frontend.
    booster : object
    model : object
        What the user has.
    advice : str, optional
        Ends the sentence.

    Returns
    -------
    treelite.Model
    """
    try:
        return convert(booster)
    except Exception as error:
        told = str(error).partition("\n")[0].rpartition(": ")[2].rstrip(".") or "it has no trees"
        name = type(model).__name__
        raise ValueError(f"treelite cannot read this {name} ({told}){advice}.") from None


def _weight(node: dict[str, Any]) -> float:
    return float(node.get("sum_hess", node.get("data_count", 1.0)))


def _class_weight(model: Any, classes: Any) -> Any:
    """What the classes weighed in training, by their numbers, where the model says so."""
    asked = model.get_params() if hasattr(model, "get_params") else {}
    weight = "balanced" if asked.get("is_unbalance") else asked.get("class_weight")
    if isinstance(weight, dict):
        return {i: weight.get(label, 1.0) for i, label in enumerate(classes)}
    return weight or {1: asked.get("scale_pos_weight") or 1.0}


def _mean_leaf(nodes: list[dict[str, Any]]) -> float:
    leaves = [(node["leaf_value"], _weight(node)) for node in nodes if "leaf_value" in node]
    values, weights = np.array(leaves).T
    return float(np.average(values, weights=weights))


def _looker(tree: dict[str, Any], leaf: Any, column: int) -> Any:
    by_key = {node["node_id"]: node for node in tree["nodes"]}

    def look(key: int) -> Leaf | Split:
        node = by_key[key]
        if "leaf_value" in node:
            return cast(Leaf, leaf(node, column))
        feature, left, right = node["split_feature_id"], node["left_child"], node["right_child"]
        to_left = bool(node["default_left"])
        if node["node_type"] == "categorical_test_node":
            in_right = bool(node["category_list_right_child"])
            inside, outside = (right, left) if in_right else (left, right)
            missing_inside = to_left != in_right
            return category_split(feature, node["category_list"], inside, outside, missing_inside)
        cut, operator = node["threshold"], node["comparison_op"]
        if operator not in ("<=", "<"):
            raise ValueError(f"trees that compare by {operator!r} cannot be read; only <= and <.")
        return Split(feature, cut if operator == "<=" else below(cut), to_left, left, right)

    return look
