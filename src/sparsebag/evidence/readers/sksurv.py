"""scikit-survival: curves are neither classes nor numbers, and a sentence says what to pass."""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.members import MemberPool


def read(model: Any) -> MemberPool:
    """Refuse a survival forest, and say what to compress in its place.

    Parameters
    ----------
    model : RandomSurvivalForest or ExtraSurvivalTrees

    Returns
    -------
    MemberPool
    """
    raise TypeError(
        f"a {type(model).__name__} predicts curves, and sparsebag compresses classifiers and "
        "regressors; for its risk scores compress a forest that is fitted to them, "
        "RandomForestRegressor().fit(X, model.predict(X))."
    )
