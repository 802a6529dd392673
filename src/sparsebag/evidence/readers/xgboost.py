"""XGBoost's random forests: ``XGBRFClassifier``, ``XGBRFRegressor``.

XGBoost adds up scores. Each tree is read as a model of its own, from the base score plus its
leaf times the number of trees; of regressors the mean is the forest's prediction exactly, of
classifiers it is the mean of the trees' probabilities.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from scipy.special import logit

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers.from_arrays import (
    Leaf,
    Split,
    below,
    built_tree,
    category_split,
    pool_of_trees,
    score_leaf,
)

OBJECTIVES = ("reg:squarederror", "binary:logistic", "multi:softprob", "multi:softmax")


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest.

    Parameters
    ----------
    model : XGBRFClassifier or XGBRFRegressor

    Returns
    -------
    MemberPool
    """
    name = type(model).__name__
    if not hasattr(model, "get_booster"):
        raise TypeError(f"cannot read XGBoost's {name}; pass the fitted XGBRFClassifier/Regressor.")
    learner = json.loads(model.get_booster().save_raw("json"))["learner"]
    gradient_booster, objective = learner["gradient_booster"], learner["objective"]["name"]
    trees = gradient_booster.get("model", {}).get("trees", [])
    parallel = int(gradient_booster.get("model", {})["gbtree_model_param"]["num_parallel_tree"])
    n_outputs = max(int(learner["learner_model_param"]["num_class"]), 1)
    if len(trees) != parallel * n_outputs or parallel < 2:
        raise TypeError(
            f"this {name} boosts: its trees correct each other and are no votes; pass an "
            "XGBRFClassifier or XGBRFRegressor."
        )
    if objective not in OBJECTIVES:
        raise ValueError(
            f"forests with the objective {objective} cannot be read; use {', '.join(OBJECTIVES)}."
        )
    base = json.loads(learner["learner_model_param"]["base_score"].lower())
    bases = np.broadcast_to(np.asarray(base, dtype=float).reshape(-1), n_outputs)
    classes = None
    if objective != "reg:squarederror":
        classes = np.asarray(model.classes_)
        bases = logit(bases) if n_outputs == 1 else np.asarray(bases - bases.mean())
    n_features = int(learner["learner_model_param"]["num_feature"])
    info = gradient_booster["model"]["tree_info"]
    # A class after the other in the file; in the pool by rounds, whose first trees are alike.
    rounds = np.argsort(info, kind="stable").reshape(n_outputs, parallel).T.ravel()
    made = [_tree(trees[j], n_features, bases, parallel, info[j], classes) for j in rounds]
    return pool_of_trees(made, classes, model, leaves_are_shares=False)


def _tree(
    tree: Any, n_features: int, bases: np.ndarray, n_trees: int, output: int, classes: Any
) -> Any:
    sets = {}
    for node, first, n in zip(
        tree["categories_nodes"],
        tree["categories_segments"],
        tree["categories_sizes"],
        strict=True,
    ):
        sets[node] = tree["categories"][first : first + n]
    base, column = bases[output], output
    others: np.ndarray | None = bases
    if classes is None or len(bases) == 1:
        column, others = 1, None if classes is None else np.zeros(2)

    def look(key: int) -> Leaf | Split:
        left, right = tree["left_children"][key], tree["right_children"][key]
        if left < 0:
            score = base + n_trees * tree["split_conditions"][key]
            return score_leaf(score, tree["sum_hessian"][key], column, others)
        feature, to_left = tree["split_indices"][key], bool(tree["default_left"][key])
        if key in sets:  # the set goes right
            return category_split(feature, sets[key], right, left, not to_left)
        return Split(feature, below(tree["split_conditions"][key]), to_left, left, right)

    return built_tree(0, look, n_features, classes)
