"""How much worse it may get: ``tolerance=``."""

from __future__ import annotations

import math

import numpy as np

from sparsebag.selection.budget import Budget

SPEND_BUDGET = -1.0
"""The tolerance of None: whatever is best within the budget is kept."""


def check_tolerance(tolerance: object, budget: Budget | None = None) -> float:
    """The tolerance as a number, or one sentence on what it must be.

    Parameters
    ----------
    tolerance : object
    budget : Budget, optional
        What a tolerance of None spends.

    Returns
    -------
    float

    Examples
    --------
    >>> check_tolerance(0.02)
    0.02
    """
    if tolerance is None:
        if budget is not None and not budget.named():
            raise ValueError(
                "tolerance=None keeps the best within a budget, and there is none; set "
                "max_estimators, max_nodes or max_bytes, or say what loss you accept."
            )
        return SPEND_BUDGET
    number = isinstance(tolerance, (int, float, np.integer, np.floating))
    if not number or isinstance(tolerance, bool) or not math.isfinite(tolerance) or tolerance < 0:  # type: ignore[arg-type,operator]
        raise ValueError(
            f"tolerance must be a finite number that is not negative (0.01 accepts one percent), "
            f"or None to keep the best within a budget; got {tolerance!r}."
        )
    return float(tolerance)  # type: ignore[arg-type]
