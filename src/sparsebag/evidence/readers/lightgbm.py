"""LightGBM's random forests, ``LGBM*(boosting_type="rf")``, through treelite."""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers import optional_import, treelite


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest.

    Parameters
    ----------
    model : LGBMClassifier or LGBMRegressor

    Returns
    -------
    MemberPool
    """
    frontend = optional_import("treelite.frontend", "treelite", "reading LightGBM's forests")
    booster = getattr(model, "booster_", model)
    return treelite.read(frontend.from_lightgbm(booster), getattr(model, "classes_", None), model)
