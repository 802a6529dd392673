"""Kept trees as `shap.TreeExplainer` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.deploy.from_members import _leaf_table
from sparsebag.deploy.verification import NotExportable
from sparsebag.deploy.weighted_vote import WeightedVote


def export_shap(vote: WeightedVote) -> dict[str, Any]:
    """Trees whose leaves carry their weights.

    Parameters
    ----------
    vote : WeightedVote
        Of trees with fixed weights.

    Returns
    -------
    dict
        For ``shap.TreeExplainer``.
    """
    if vote.gate is not None or not all(member.is_tree for member in vote.pool.members):
        raise NotExportable(
            "shap.TreeExplainer reads trees with fixed weights only; use "
            "shap.Explainer(small.predict, X) for other members and for local weights."
        )
    classes, trees = vote.pool.classes, []
    scale = getattr(vote.calibrator, "scale", 0.0)
    outputs = 1 if classes is None else len(classes)
    for member, weight in zip(vote.pool.members, vote.weights, strict=True):
        tree = member.estimator.tree_
        left, right, feature = tree.children_left, tree.children_right, tree.feature
        if member.features is not None:
            feature = np.where(left < 0, feature, member.features[feature])
        says = _leaf_table(member, outputs)
        trees.append(
            {
                "children_left": left,
                "children_right": right,
                "children_default": np.where(tree.missing_go_to_left, left, right),
                "features": feature,
                "thresholds": tree.threshold,
                "values": weight * (scale * (says - 1.0 / outputs) if scale else says),
                "node_sample_weight": tree.weighted_n_node_samples,
            }
        )
    return {"trees": trees, "input_dtype": np.float32, "internal_dtype": np.float64}
