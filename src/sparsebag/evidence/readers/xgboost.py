"""XGBoost's random forests, ``XGBRFClassifier`` and ``XGBRFRegressor``, through treelite."""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers import optional_import, treelite


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest.

    Parameters
    ----------
    model : XGBRFClassifier or XGBRFRegressor

    Returns
    -------
    MemberPool
    """
    frontend = optional_import("treelite.frontend", "treelite", "reading XGBoost's forests")
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    classes = getattr(model, "classes_", None)
    is_forest = booster.num_boosted_rounds() == 1
    try:
        trees = frontend.from_xgboost(booster)
    except Exception as error:
        told = str(error).splitlines()[0].rpartition(": ")[2].rstrip(".") or "it has no trees"
        raise ValueError(
            f"treelite cannot read this {type(model).__name__} ({told}); of pandas categories, fit "
            "it on their codes with feature_types=['c', ...]."
        ) from None
    return treelite.read(trees, classes, model, is_forest=is_forest)
