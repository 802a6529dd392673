"""Honest votes of refitted leaves: what they would say of a row that had no part in them.

A refitted leaf has seen every row, so out of bag no longer means unseen: judged on the rows it
was refitted on, refitting always seems to help (plain out-of-bag is a trap). Two things must be
taken back for an honest vote of tree j on row i:

- the row's own target, from every node on its path: leave one out, exactly;
- the row's target in what the *ensemble* predicts of the other rows of the leaf: the trees that
  predict row m out of bag may well have been trained on row i. Only trees that have *both* rows
  out of bag are heard (co-OOB).

Tree j itself has row i out of bag, so its splits owe nothing to it. Votes are linear in the
strength a: ``(1 + a)·of_targets − a·of_predictions``, so one pass serves every a.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.targets import Targets, plain_votes

WINDOW = 64
"""Rows of a node up to which co-OOB matters; above, one row hardly moves the mean."""
BLOCK_ENTRIES = 1 << 24
"""Judged rows × rows × columns at a time (64 MiB of float32)."""


@dataclass(frozen=True)
class HonestVotes:
    """What refitted trees say of judged rows that had no part in it.

    Attributes
    ----------
    rows : ndarray of shape (R,)
        The judged rows.
    members : ndarray of shape (T,)
        The trees asked.
    mask : ndarray of bool of shape (R, T)
        Where the row is out of the tree's bag; votes are meaningless elsewhere.
    lams : ndarray of shape (L,)
    of_targets, of_predictions : float32 ndarray of shape (R, T, D, L)
        Smoothed leaf means of the targets, and of the ensemble's prediction of them.
    plain : float32 ndarray of shape (R, T, D)
        The trees' own votes.
    """

    rows: np.ndarray
    members: np.ndarray
    mask: np.ndarray
    lams: np.ndarray
    of_targets: np.ndarray
    of_predictions: np.ndarray
    plain: np.ndarray

    def votes(self, twicing: float, lam: float, at: np.ndarray | None = None) -> np.ndarray:
        """Votes at one strength.

        Parameters
        ----------
        twicing : float
        lam : float
            One of ``lams``.
        at : ndarray of bool of shape (R,), optional
            Only these judged rows.

        Returns
        -------
        ndarray of shape (R, T, D)
        """
        rows = slice(None) if at is None else at
        strength = int(np.flatnonzero(self.lams == lam)[0])
        first = self.of_targets[..., strength][rows]
        second = self.of_predictions[..., strength][rows]
        return np.asarray((1.0 + twicing) * first - twicing * second)


@dataclass(frozen=True)
class _TreeRows:
    """One tree's rows in the order of its leaves, and sums over them.

    ``start`` and ``stop`` bound the rows of each node in ``order``; ``top`` is the highest node
    above (or at) each that has no more than WINDOW rows.
    """

    order: np.ndarray
    ordered_weight: np.ndarray
    ordered_sums: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    top: np.ndarray
    weight: np.ndarray
    sums: np.ndarray


def honest_votes(
    evidence: OOBEvidence,
    routed: RoutedRows,
    targets: Targets,
    *,
    rows: np.ndarray,
    members: np.ndarray,
    lams: np.ndarray,
) -> HonestVotes:
    """Leave-one-out, co-OOB votes of some trees on some rows, for every λ at once.

    Parameters
    ----------
    evidence : OOBEvidence
        The trees' own votes out of bag.
    routed : RoutedRows
    targets : Targets
    rows : ndarray of indices
        Rows to judge by.
    members : ndarray of indices
        Trees to ask.
    lams : ndarray of shape (L,)

    Returns
    -------
    HonestVotes
    """
    n_columns = targets.n_columns
    seen = on_host(evidence.oob_mask)[:, members].astype(np.float32)
    said = [
        plain_votes(evidence, members, d, targets.centre, targets.scale).astype(np.float32)
        for d in range(n_columns)
    ]
    trees = [_tree_rows(routed, targets, int(j)) for j in members]
    shape = (len(rows), len(members), n_columns, len(lams))
    of_targets = np.zeros(shape, dtype=np.float32)
    of_predictions = np.zeros(shape, dtype=np.float32)
    step = max(1, BLOCK_ENTRIES // (len(seen) * n_columns))
    for begin in range(0, len(rows), step):
        place = slice(begin, begin + step)
        block = rows[place]
        both = seen[block] @ seen.T
        common = np.empty((len(block), len(seen), n_columns), dtype=np.float32)
        for d in range(n_columns):
            common[:, :, d] = (seen[block] @ said[d].T) / np.maximum(both, 1.0)
        alone = np.nonzero(both == 0.0)
        common[alone] = targets.predicted[alone[1]]
        for t, j in enumerate(members):
            heard = np.flatnonzero(seen[block, t])
            if not len(heard):
                continue
            found = _votes_of_tree(
                routed, targets, int(j), trees[t], block[heard], heard, common, lams
            )
            of_targets[place][heard, t] = found[:, :n_columns]
            of_predictions[place][heard, t] = found[:, n_columns:]
    plain = np.stack([s[rows] for s in said], axis=-1)
    return HonestVotes(rows, members, seen[rows] > 0, lams, of_targets, of_predictions, plain)


def _tree_rows(routed: RoutedRows, targets: Targets, j: int) -> _TreeRows:
    nodes, leaf, weight = routed.nodes(j), routed.leaf(j), routed.weight(j)
    order = np.argsort(nodes.place[leaf], kind="stable")
    in_leaf = np.bincount(nodes.place[leaf], minlength=nodes.n_nodes)
    before = np.concatenate([[0], np.cumsum(in_leaf)])
    start, stop = before[nodes.place], before[nodes.place + nodes.size]
    top = np.arange(nodes.n_nodes)
    for level in nodes.levels[1:]:
        above = nodes.parent[level]
        top[level] = np.where(stop[above] - start[above] <= WINDOW, top[above], level)
    ordered = weight[order]
    sums = np.cumsum(ordered[:, None] * targets.predicted[order], axis=0)
    return _TreeRows(
        order=order,
        ordered_weight=ordered,
        ordered_sums=np.concatenate([np.zeros((1, targets.n_columns)), sums]),
        start=start,
        stop=stop,
        top=top,
        weight=nodes.totals(leaf, weight),
        sums=targets.totals(nodes, leaf, weight),
    )


def _votes_of_tree(
    routed: RoutedRows,
    targets: Targets,
    j: int,
    tree: _TreeRows,
    rows: np.ndarray,
    heard: np.ndarray,
    common: np.ndarray,
    lams: np.ndarray,
) -> np.ndarray:
    """Smoothed means of targets and co-OOB predictions, shape (rows, 2D, L)."""
    leaf = routed.leaf(j)[rows]
    own_weight = routed.weight(j)[rows]
    own = own_weight[:, None] * targets.observed[rows]
    own_prediction = own_weight[:, None] * targets.predicted[rows]
    first = tree.start[tree.top[leaf]]
    columns = first[:, None] + np.arange(WINDOW)
    inside = columns < tree.stop[tree.top[leaf]][:, None]
    columns = np.minimum(columns, len(tree.order) - 1)
    others = tree.order[columns]
    weight = np.where(inside & (others != rows[:, None]), tree.ordered_weight[columns], 0.0)
    weight = weight.astype(np.float32)
    window = np.zeros((len(rows), WINDOW + 1, common.shape[2]), dtype=np.float32)
    parts = common[heard[:, None], others]
    parts *= weight[:, :, None]
    np.cumsum(parts, axis=1, out=window[:, 1:])

    def sums_without(active: np.ndarray, node: np.ndarray) -> np.ndarray:
        start, stop = tree.start[node], tree.stop[node]
        small = (stop - start <= WINDOW)[:, None]
        offset = np.where(small[:, 0], first[active], start)
        near = window[active, np.minimum(stop - offset, WINDOW)] - window[active, start - offset]
        far = tree.ordered_sums[stop] - tree.ordered_sums[start] - own_prediction[active]
        return np.concatenate([tree.sums[node] - own[active], np.where(small, near, far)], axis=1)

    return routed.nodes(j).smoothed_without(leaf, tree.weight, own_weight, sums_without, lams)
