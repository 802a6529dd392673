"""LightGBM's random forests, ``LGBM*(boosting_type="rf")``, through treelite."""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers import treelite as by_treelite


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest.

    Parameters
    ----------
    model : LGBMClassifier or LGBMRegressor

    Returns
    -------
    MemberPool
    """
    from treelite.frontend import from_lightgbm

    booster = getattr(model, "booster_", model)
    return by_treelite.read(from_lightgbm(booster), getattr(model, "classes_", None), model)
