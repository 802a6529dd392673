"""How well the out-of-bag rows cover the data: what a choice of members rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.report.seen_rows import seen_rows


@dataclass(frozen=True)
class Coverage:
    """Rows that had a say.

    Attributes
    ----------
    source : str
        "oob", "holdout" or "matrices".
    n_rows : int
    n_uncovered : int
        Rows no member has out of bag: they carry no information.
    n_without_survivor : int
        Rows none of the survivors has out of bag; in them the prior speaks.
    voters, survivors : float
        Members, and survivors, that have a row out of bag, on average.
    seen : ndarray or None
        By which these rows are known again; see `report.seen_rows`.
    """

    source: str
    n_rows: int
    n_uncovered: int
    n_without_survivor: int
    voters: float
    survivors: float
    seen: np.ndarray | None = None


def oob_coverage(evidence: OOBEvidence, weights: np.ndarray, X: Any = None) -> Coverage:
    """Count the rows that judged an ensemble and its survivors.

    Parameters
    ----------
    evidence : OOBEvidence
    weights : ndarray of shape (N,)
    X : array-like, optional
        The rows themselves.

    Returns
    -------
    Coverage

    Examples
    --------
    >>> mask = np.array([[1, 0], [0, 1], [0, 0]]) > 0
    >>> evidence = OOBEvidence(mask * 1.0, mask, np.zeros(3), "regression")
    >>> found = oob_coverage(evidence, np.array([1.0, 0.0]))
    >>> found.n_uncovered, found.n_without_survivor
    (1, 2)
    """
    active = np.flatnonzero(on_host(weights))
    seen = None if X is None else seen_rows(X)
    if evidence.oob_mask is None:
        n = evidence.n_members
        return Coverage(evidence.source, evidence.n_rows, 0, 0, float(n), float(len(active)), seen)
    mask = np.asarray(on_host(evidence.oob_mask), dtype=bool)
    voters, survivors = mask.sum(axis=1), mask[:, active].sum(axis=1)
    return Coverage(
        source=evidence.source,
        n_rows=len(mask),
        n_uncovered=int(np.sum(voters == 0)),
        n_without_survivor=int(np.sum(survivors == 0)),
        voters=float(voters.mean()),
        survivors=float(survivors.mean()),
        seen=seen,
    )
