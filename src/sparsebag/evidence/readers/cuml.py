"""cuML's random forests, through treelite; no GPU is needed to read a model that treelite has."""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.members import MemberPool
from sparsebag.evidence.readers import treelite as by_treelite


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest.

    Parameters
    ----------
    model : cuml.ensemble.RandomForestClassifier or RandomForestRegressor

    Returns
    -------
    MemberPool
    """
    convert = getattr(model, "as_treelite", None) or getattr(
        model, "convert_to_treelite_model", None
    )
    if convert is None:
        raise TypeError(
            f"cannot read cuML's {type(model).__name__}; pass a fitted RandomForestClassifier or "
            "RandomForestRegressor."
        )
    return by_treelite.read(convert(), getattr(model, "classes_", None), model)
