"""Which rows a gate is fitted to and judged by, and what it can read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.members import MemberPool, take_rows
from sparsebag.refine.lost_spread import lost_spread

FEWEST_ROWS = 100
"""Below, folds cannot tell a gate from luck."""
MOST_ROWS = 4000
MOST_ELEMENTS = 2**25
"""Rows, and votes or features of them, that a gate is fitted to."""


ROWS_TO_LOOK_AT = 1000
ELEMENTS_TO_LOOK_AT = 2**18
"""For what rounding does to a column."""
MOST_NAMES = 3
"""Columns that a sentence names."""


class Rows(NamedTuple):
    """Positions of rows in the evidence, and their features."""

    at: np.ndarray
    features: np.ndarray


def sample(rows: np.ndarray, most: int) -> np.ndarray:
    """So many of the rows at most, in their order.

    Parameters
    ----------
    rows : int ndarray
    most : int
        At least `FEWEST_ROWS` are taken.

    Returns
    -------
    int ndarray

    Examples
    --------
    >>> len(sample(np.arange(5000), 300))
    300
    """
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, max(most, FEWEST_ROWS), replace=False))


def usable_rows(evidence: OOBEvidence, pool: MemberPool, X: Any) -> tuple[Rows | None, str]:
    """Rows a gate can be fitted to, or why there are none.

    Parameters
    ----------
    evidence : OOBEvidence
    pool : MemberPool
    X : array-like
        The rows of the evidence.

    Returns
    -------
    rows : Rows or None
    reason : str
        Why there are none, as the end of a sentence.
    """
    usable = on_host(evidence.covered())
    if evidence.sample_weight is not None:
        usable = usable & (on_host(evidence.sample_weight) > 0)
    at = np.flatnonzero(usable)
    if len(at) < FEWEST_ROWS:
        return None, f"there are fewer than {FEWEST_ROWS} rows to judge them by"
    prepared = pool.prepare(X)
    most = MOST_ELEMENTS // max(prepared.shape[1], 1)
    if most < FEWEST_ROWS:
        return None, f"{prepared.shape[1]} features are more than a gate can look at"
    at = sample(at, most)
    taken = take_rows(prepared, at)
    try:
        dense = taken.toarray() if sp.issparse(taken) else taken
        features = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        return None, _not_numbers(taken)
    if features.ndim != 2:
        return None, "X is no table of rows and columns"
    _warn_of_rounding(X, features, at)
    return Rows(at, features), ""


def _warn_of_rounding(X: Any, features: np.ndarray, at: np.ndarray) -> None:
    """Gates cannot see what single precision loses, and nothing else would say so."""
    n, d = features.shape
    some = sample(np.arange(n), min(ROWS_TO_LOOK_AT, ELEMENTS_TO_LOOK_AT // max(d, 1)))
    lost = lost_spread(_as_given(X, features[some], at[some]))
    if len(lost):
        names = getattr(X, "columns", None)
        warn_caller(
            f"gates read X in single precision (seven digits, up to 1e38), which hardly tells the "
            f"rows apart by {_named(lost, names)}; subtract a constant or choose another unit "
            "before the models are fitted."
        )


def _as_given(X: Any, features: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Rows of X before they were made ready for members: for trees they are rounded by then."""
    taken = take_rows(X.tocsr() if sp.issparse(X) else X, at)
    try:
        given = np.asarray(taken.toarray() if sp.issparse(taken) else taken, dtype=np.float64)
    except (TypeError, ValueError):  # such as a table's own mark for unknown values
        return features
    return given if given.shape == features.shape else features


def _named(columns: Sequence[int] | np.ndarray, names: Any) -> str:
    told = [f"x{f}" if names is None else repr(str(names[f])) for f in columns[:MOST_NAMES]]
    return ", ".join(told) + ", …" * (len(columns) > MOST_NAMES)


def _not_numbers(X: Any) -> str:
    """Which columns a gate cannot read, and what is to be done about it."""
    columns = np.asarray(X, dtype=object)
    found = []
    for f in range(columns.shape[1] if columns.ndim == 2 else 0):
        try:
            columns[:, f].astype(np.float64)
        except (TypeError, ValueError):
            found.append(f)
    told = f" ({_named(found, getattr(X, 'columns', None))})" if found else ""
    return (
        f"X has columns that are no numbers{told}, which are to be encoded before the ensemble "
        "(one-hot, for example)"
    )
