"""Members as they are, judged out of bag: simplex weights on the full-vote risk, at every size.

The weights of a size minimise ``wᵀGw`` over the simplex (`objective.full_vote_risk`), with G
shrunk towards members that are all alike. Sizes are halved, down through the budget if there is
one: the members of least weight go, and the others' weights are fitted again. Each fold of rows is
judged by weights fitted without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import LEAST_FLOOR, finished_votes
from sparsebag.calibration.fit import Calibration, fit_calibration
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.judge.curve import RiskCurve, expected
from sparsebag.objective.full_vote_risk import (
    PairMoments,
    pair_moments,
    pair_row_weight,
    residual_blocks,
    vote_blocks,
)
from sparsebag.solvers.simplex import simplex_qp

FOLDS = 5
SHRINKAGE = 0.5
"""How far G goes towards its mean: at 1 all weights are equal."""
RIDGE = 1e-6
"""Least eigenvalue, of G's mean diagonal: makes the programme strictly convex."""
ALONE = 1e-9
"""Weight of pairs below which one member has all of it."""


@dataclass(frozen=True)
class MemberPath:
    """Weights of every size, and what each is expected to cost.

    Attributes
    ----------
    curve : RiskCurve
        Sizes rising, the whole ensemble last.
    weights : tuple of ndarray of shape (N,)
        By size.
    """

    curve: RiskCurve
    weights: tuple[np.ndarray, ...]


def judge_members(
    evidence: OOBEvidence,
    floor: float,
    own_weights: np.ndarray | None,
    nodes: np.ndarray,
    *,
    most: int | None = None,
    equal: bool = False,
) -> MemberPath:
    """Weights of falling size, judged on rows they were not fitted on.

    Parameters
    ----------
    evidence : OOBEvidence
        With ``class_votes`` where there are more than two classes.
    floor : float
        Share of the uniform class distribution in each vote, as deployed.
    own_weights : ndarray of shape (N,) or None
        What the ensemble itself weighs its members by; None: equally.
    nodes : ndarray of shape (N,)
        Of each member; zero where it is no tree.
    most : int, optional
        A budget: a size of its own among the halved ones.
    equal : bool, default False
        Weights only choose the members, which then vote equally.

    Returns
    -------
    MemberPath
    """
    n = evidence.n_members
    whole = np.full(n, 1.0 / n) if own_weights is None else own_weights
    sizes = _sizes(n, most)
    row_weight = pair_row_weight(evidence)
    order = np.random.default_rng(0).permutation(evidence.n_rows) % FOLDS
    folds = [rows for held in range(FOLDS) if len(rows := np.flatnonzero(order == held))]
    parts = [pair_moments(evidence.take(rows), row_weight[rows], floor=floor) for rows in folds]
    losses = [np.zeros(evidence.n_rows) for _ in sizes]
    as_is = np.zeros(evidence.n_rows)
    for held, rows in enumerate(folds):
        others = reduce(add, parts[:held] + parts[held + 1 :])
        paths = weights_of_sizes(others, sizes, equal=equal)
        found = row_risks(evidence.take(rows), [*paths, whole], floor)
        for loss, of_size in zip([*losses, as_is], found, strict=True):
            loss[rows] = of_size
    weights = weights_of_sizes(reduce(add, parts), sizes, equal=equal)
    ratio, error = expected([*losses[::-1], as_is], as_is, row_weight)
    kept = [*weights[::-1], whole]
    counts = np.array([np.count_nonzero(w) for w in kept])
    source = "held-out rows" if evidence.oob_mask is None else "out-of-bag rows"
    curve = RiskCurve(
        share=counts / n,
        n_nodes=np.array([nodes[w > 0].sum() for w in kept]),
        n_members=counts,
        ratio=ratio,
        error=error,
        ratio_calibrated=ratio,
        error_calibrated=error,
        whole_risk=float(row_weight @ np.nan_to_num(as_is)),
        score="squared error" if evidence.n_classes is None else "Brier score",
        judged_by=source,
    )
    return MemberPath(curve, tuple(kept))


def weights_of_sizes(
    moments: PairMoments, sizes: list[int], *, equal: bool = False
) -> list[np.ndarray]:
    """Simplex weights of falling numbers of members.

    Parameters
    ----------
    moments : PairMoments
    sizes : list of int
        Falling.
    equal : bool, default False

    Returns
    -------
    list of ndarray of shape (N,)
    """
    matrix, (own, pair) = moments.matrix(), moments.mean()
    unit = np.eye(len(matrix))
    mean = pair + (own - pair) * unit
    # Rounding makes its two halves differ in the last digits.
    matrix = (1.0 - SHRINKAGE) * (matrix + matrix.T) / 2.0 + SHRINKAGE * mean
    # Entries rest on rows of their own, so that G need not be definite.
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    matrix += max(RIDGE * abs(own) - lowest, 0.0) * unit
    if not own > np.finfo(np.float64).tiny:  # no member errs: one is as good as another
        matrix = unit
    kept = np.arange(len(matrix))
    out = []
    for size in sizes:
        weights = _solve(matrix, kept)
        if np.count_nonzero(weights) > size:
            weights = _solve(matrix, np.sort(np.argsort(-weights, kind="stable")[:size]))
        kept = np.flatnonzero(weights)
        out.append((weights > 0.0) / len(kept) if equal else weights)
    return out


def _solve(matrix: np.ndarray, kept: np.ndarray) -> np.ndarray:
    """Weights of least ``wᵀGw`` over some of the members."""
    n, weights = len(kept), np.zeros(len(matrix))
    weights[kept] = simplex_qp(matrix[np.ix_(kept, kept)], np.zeros(n), np.full(n, 1.0 / n))
    return weights


def row_risks(evidence: OOBEvidence, weights: list[np.ndarray], floor: float) -> list[np.ndarray]:
    """Each row's risk when all members vote, from those that have it out of bag.

    Squares and products of residuals are scaled up by the weight that is missing, each by its
    own: ``Σ w_j² e_j²`` by that of the squares, the rest by that of the pairs.

    Parameters
    ----------
    evidence : OOBEvidence
    weights : list of ndarray of shape (N,)
    floor : float

    Returns
    -------
    list of ndarray of shape (rows,)
        NaN where too few of the members have a row out of bag.
    """
    out = [np.zeros(evidence.n_rows) for _ in weights]
    for block, mask, residual in residual_blocks(evidence, floor):
        for found, w in zip(out, weights, strict=True):
            heard = mask * w
            vote = np.einsum("rn,rnc->rc", heard, residual)
            own = np.einsum("rn,rnc->r", heard**2, residual**2)
            pair = np.sum(vote**2, axis=1) - own
            squares, total = (heard**2).sum(axis=1), heard.sum(axis=1)
            pairs, of_pairs = total**2 - squares, 1.0 - w @ w
            with np.errstate(divide="ignore", invalid="ignore"):
                risk = own * (w @ w / squares)
                if of_pairs >= ALONE:
                    risk = np.where(pairs > ALONE, risk + pair * (of_pairs / pairs), np.nan)
            found[block] = risk  # below zero for some rows: clipped, their mean would be too high
    return out


def calibrate_members(
    calibration: Any, evidence: OOBEvidence, weights: np.ndarray, floor: float
) -> Calibration | None:
    """A calibrator of out-of-bag votes of as many members as are kept.

    A vote of fewer is less sure. So on every row members that have it in bag are stood in for by
    others that do not, drawn at random; where these run out, the vote is of those there are.

    Parameters
    ----------
    calibration : {"auto", "temperature"}, object or None
    evidence : OOBEvidence
    weights : ndarray of shape (N,)
    floor : float

    Returns
    -------
    Calibration or None
        None where there are no classes or no calibration is wanted.
    """
    if calibration is None or evidence.n_classes is None:
        return None
    kept, rest = np.flatnonzero(weights), np.flatnonzero(weights == 0.0)
    rng, most = np.random.default_rng(0), min(len(kept), len(rest))
    votes, heard = np.zeros((evidence.n_rows, evidence.n_classes)), np.zeros(evidence.n_rows)
    for block, mask, of_member in vote_blocks(evidence):
        missing, there = mask[:, kept] == 0.0, mask[:, rest] > 0.0
        missed = np.argsort(rng.random(missing.shape) - missing, axis=1)[:, :most]
        others = np.argsort(rng.random(there.shape) - there, axis=1)[:, :most]
        pairs = np.take_along_axis(missing, missed, 1) & np.take_along_axis(there, others, 1)
        share = mask * weights
        np.put_along_axis(share, rest[others], pairs * weights[kept][missed], axis=1)
        heard[block] = share.sum(axis=1)
        votes[block] = np.einsum("rn,rnc->rc", share, of_member)
    rows = heard > 0.0
    weight = np.ones(len(rows)) if evidence.sample_weight is None else evidence.sample_weight
    rows &= np.asarray(weight) > 0.0
    proba = finished_votes(votes[rows] / heard[rows, None], max(floor, LEAST_FLOOR))
    target = np.asarray(evidence.target)[rows].astype(np.intp)
    return fit_calibration(calibration, proba, target, np.asarray(weight, dtype=float)[rows])


def _sizes(n: int, most: int | None) -> list[int]:
    """Halves of n, and the budget; falling."""
    sizes = {most} if most is not None and most < n else set()
    while n > 1:
        n = -(-n // 2)
        sizes.add(n)
    return sorted(sizes, reverse=True)
