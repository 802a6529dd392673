"""LightGBM's random forests: ``LGBMClassifier/Regressor(boosting_type="rf")``.

LightGBM averages scores. Each tree is read as a model of its own; of regressors the mean is the
forest's prediction exactly, of classifiers it is the mean of the trees' probabilities.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers.from_arrays import (
    Leaf,
    Split,
    built_tree,
    category_split,
    pool_of_trees,
    score_leaf,
)

OBJECTIVES = ("regression", "binary", "multiclass")


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest.

    Parameters
    ----------
    model : LGBMClassifier or LGBMRegressor

    Returns
    -------
    MemberPool
    """
    name = type(model).__name__
    if not hasattr(model, "booster_"):
        raise TypeError(
            f"cannot read LightGBM's {name}; pass the fitted LGBMClassifier or LGBMRegressor."
        )
    dump = model.booster_.dump_model()
    if not dump["average_output"]:
        raise TypeError(
            f"this {name} boosts: its trees correct each other and are no votes; fit it with "
            "boosting_type='rf'."
        )
    objective = dump["objective"].split()
    if objective[0] not in OBJECTIVES or "sqrt" in objective:
        raise ValueError(
            f"forests with the objective {dump['objective']} cannot be read; use "
            f"{', '.join(OBJECTIVES)}."
        )
    classes = None if objective[0] == "regression" else np.asarray(model.classes_)
    n_features, per_round = dump["max_feature_idx"] + 1, dump["num_tree_per_iteration"]
    signs = dump["monotone_constraints"] or None
    roots = [tree["tree_structure"] for tree in dump["tree_info"]]
    others = None if classes is None else np.zeros(2)
    if per_round > 1:  # a tree holds its class's score before the first split
        scores = [root.get("internal_value", root.get("leaf_value", 0.0)) for root in roots]
        others = np.reshape(scores, (-1, per_round)).mean(axis=0)
    trees = [
        _tree(root, n_features, j % per_round if per_round > 1 else 1, others, classes, signs)
        for j, root in enumerate(roots)
    ]
    return pool_of_trees(trees, classes, model, leaves_are_shares=False)


def _tree(
    root: dict[str, Any], n_features: int, column: int, others: Any, classes: Any, signs: Any
) -> Any:
    def look(node: dict[str, Any]) -> Leaf | Split:
        if "leaf_value" in node:
            weight = float(node.get("leaf_count", 1))
            return score_leaf(node["leaf_value"], weight, column, others)
        feature, threshold = node["split_feature"], node["threshold"]
        left, right = node["left_child"], node["right_child"]
        if node["decision_type"] == "==":  # the set goes left, anything else right
            codes = [int(code) for code in threshold.split("||")]
            return category_split(feature, codes, left, right, False)
        if node["missing_type"] == "Zero":
            raise ValueError(
                "forests with zero_as_missing=True cannot be read; mark what is missing by NaN."
            )
        # Where nothing was missing in training, LightGBM reads NaN as zero.
        is_known = node["missing_type"] == "NaN"
        to_left = bool(node["default_left"]) if is_known else threshold >= 0.0
        return Split(feature, float(threshold), to_left, left, right)

    return built_tree(root, look, n_features, classes, monotonic_cst=signs)
