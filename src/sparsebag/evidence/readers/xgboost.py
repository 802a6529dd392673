"""XGBoost's random forests, ``XGBRFClassifier`` and ``XGBRFRegressor``, through treelite."""

from __future__ import annotations

from typing import Any

import numpy as np

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
    missing = float(getattr(model, "missing", np.nan))
    if not np.isnan(missing):
        raise ValueError(
            f"this {type(model).__name__} treats {missing:g} as missing; use NaN instead, here "
            f"and in predict, and call model.set_params(missing=numpy.nan)."
        )
    advice = "; of pandas categories, fit it on their codes with feature_types=['c', ...]"
    trees = treelite.imported(frontend.from_xgboost, booster, model, advice)
    return treelite.read(trees, classes, model, is_forest=is_forest)
