"""Evidence of refitted trees: what they say of the rows out of their bags, each row left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.targets import Targets

MOST_ENTRIES = 1 << 26
"""Rows × members × columns of refitted votes that are kept (256 MiB); a sample of rows beyond."""
MOST_ROWS = 5_000
"""Rows that refitted members are chosen by: each has 1800 of them out of its bag, and what is
chosen is then refitted to the whole ensemble anyway."""


def refitted_evidence(
    evidence: OOBEvidence,
    routed: RoutedRows,
    targets: Targets,
    lam: float,
    *,
    seed: int = 0,
    n_jobs: int | None = None,
) -> OOBEvidence:
    """The votes of every tree with refitted leaves (a = 0) on rows out of its bag.

    Leaves are means over all rows, smoothed by λ, less the row that is judged.

    Parameters
    ----------
    evidence : OOBEvidence
        The trees' own votes.
    routed : RoutedRows
    targets : Targets
    lam : float
    seed : int, default 0
        Of the sample of rows, where there are many.
    n_jobs : int, optional
        Threads over trees; the result does not depend on it.

    Returns
    -------
    OOBEvidence
        Of the same members, on the same rows or a sample of them.
    """
    n = evidence.n_members
    limit = max(2, min(MOST_ROWS, MOST_ENTRIES // (n * targets.n_columns)))
    rows = np.arange(evidence.n_rows)
    if len(rows) > limit:
        rows = np.sort(np.random.default_rng(seed).choice(rows, limit, replace=False))
    sample = evidence.take(rows)
    mask = on_host(sample.oob_mask)
    dtype = on_host(evidence.votes).dtype
    columns = [np.zeros(mask.shape, dtype=dtype) for _ in range(targets.n_columns)]

    def refit_tree(j: int) -> None:
        unseen = np.flatnonzero(mask[:, j])
        said = leave_one_out_votes(routed, targets, j, rows[unseen], lam)
        if targets.n_classes is None:
            said = targets.as_votes(said)
        for d, column in enumerate(columns):
            column[unseen, j] = said[:, d]

    Parallel(n_jobs=n_jobs, require="sharedmem")(delayed(refit_tree)(j) for j in range(n))
    if targets.n_classes is None:
        return replace(sample, votes=columns[0])
    target = on_host(sample.target)
    if targets.n_classes == 2:
        true = np.where((target == 1)[:, None], columns[0], 1.0 - columns[0])
        return replace(sample, votes=np.where(mask, true, 0.0).astype(dtype))
    true = np.zeros(mask.shape, dtype=dtype)
    for c, column in enumerate(columns):
        true[target == c] = column[target == c]
    return replace(sample, votes=true, class_votes=tuple(columns))


def leave_one_out_votes(
    routed: RoutedRows, targets: Targets, j: int, rows: np.ndarray, lam: float
) -> np.ndarray:
    """What tree j says of rows, had each not been among those its leaves are refitted on.

    Parameters
    ----------
    routed : RoutedRows
    targets : Targets
    j : int
    rows : ndarray of indices
    lam : float

    Returns
    -------
    ndarray of shape (rows, D)
    """
    nodes, leaf, weight = routed.nodes(j), routed.leaf(j), routed.weight(j)
    sums = targets.totals(nodes, leaf, weight)
    own = weight[rows][:, None] * targets.observed[rows]
    values = nodes.smoothed_without(
        leaf[rows],
        nodes.totals(leaf, weight),
        weight[rows],
        lambda active, node: sums[node] - own[active],
        np.array([lam]),
    )
    return values[:, :, 0]
