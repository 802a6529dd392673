"""quantile-forest's regressors: their trees are scikit-learn's, whose leaves say means.

What a leaf knows of quantiles is in tables beside the trees, which pruning would not keep.
"""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.members import MemberPool


def read(model: Any) -> MemberPool:
    """A pool of the trees of a fitted forest, which vote for the mean.

    Parameters
    ----------
    model : RandomForestQuantileRegressor or ExtraTreesQuantileRegressor

    Returns
    -------
    MemberPool
    """
    from sparsebag.evidence.from_ensemble import _read_forest

    told = "quantiles are in tables beside the trees, which are not compressed"
    warn_caller(f"the small model predicts the mean: {told}.")
    return _read_forest(model)
