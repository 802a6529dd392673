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
    if "[zero_as_missing: 1]" in booster.model_to_string():
        raise ValueError(
            f"this {type(model).__name__} treats zeros as missing, which treelite does not; fit "
            f"it without zero_as_missing, with NaN in place of these zeros."
        )
    trees = treelite.imported(frontend.from_lightgbm, booster, model)
    return treelite.read(trees, getattr(model, "classes_", None), model)
