"""A start that a user gives, checked before the evidence is read."""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.readable import check_readable, what_are_no_numbers
from sparsebag.solvers.simplex import check_start

Array = Any


def check_given_start(start: Array | None, predictions: Any) -> None:
    """One sentence for a start that is none, as far as it shows before the evidence is read.

    Parameters
    ----------
    start : array of shape (N,) or None
    predictions : array, RowStream or list of row blocks
        N is read off it where it says so.

    Examples
    --------
    >>> check_given_start([0.5, 0.5], np.ones((4, 2)))
    """
    if start is None:
        return
    check_readable(start, "start")
    given = on_host(start)
    try:
        if wrong := what_are_no_numbers(given):
            raise ValueError(f"got {wrong}")
        weights = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"start must hold one number a member ({error}).") from error
    check_start(weights, _n_members(predictions) or weights.size)


def _n_members(predictions: Any) -> int | None:
    """N, where it can be told; of tasks, which have any attribute, and of lists it cannot."""
    shape = getattr(predictions, "shape", None)
    given = getattr(predictions, "n_members", None)
    if isinstance(shape, tuple) and len(shape) > 1:
        given = shape[1]
    return given if isinstance(given, int) else None
