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
    return treelite.read(frontend.from_xgboost(booster), classes, model, is_forest=is_forest)
