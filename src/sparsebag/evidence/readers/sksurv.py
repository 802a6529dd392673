"""scikit-survival's forests, which are refused with a sentence that says what to pass.

The mean of their trees' leaves is a risk score, and could be read. But no row has an observed risk
score, so nothing could be refitted or judged by y.
"""

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
        f"a {type(model).__name__} predicts survival curves and risk scores, and y has no "
        f"observed values of these to judge a smaller model by; for risk scores, compress a "
        f"forest fitted to them, RandomForestRegressor().fit(X, model.predict(X))."
    )
