"""Honest votes at the deployed size: every row is judged by as many members as will vote.

A row is out of bag for 37 % of the members only. A calibrator fitted on the k survivors' own
out-of-bag votes sees 0.37 k voters, which are less sure than k, and corrects what is not wrong.
Members are alike enough for others of the pool to stand in: each row gets k of those that have
it out of bag.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sparsebag.evidence.evidence import OOBEvidence

DRAWS = 3
"""Draws of voters a row: one is noisy, and more than a few say the same again."""
MOST_ROWS = 5000
"""Rows a calibrator of a few parameters is fitted on; more would only take longer."""
BLOCK_ELEMENTS = 2**22
"""Votes held at a time."""


class SizeMatched(NamedTuple):
    """Votes of the deployed number of members.

    Attributes
    ----------
    votes : ndarray of shape (draws * rows, C)
        Weighted means of the drawn members' votes.
    row : int ndarray of shape (draws * rows,)
        The row each vote is about; rows that no member has out of bag are left out.
    """

    votes: np.ndarray
    row: np.ndarray


def size_matched_votes(
    votes: np.ndarray,
    mask: np.ndarray | None,
    size: float,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    weights: np.ndarray | None = None,
) -> SizeMatched:
    """Average, for each row, as many out-of-bag members as will be deployed.

    Parameters
    ----------
    votes : ndarray of shape (rows, members, C)
        Honest votes; anything where the row is in a member's bag.
    mask : ndarray of booleans of shape (rows, members) or None
        True where the row is out of bag; None: everywhere.
    size : float
        Members to draw a row. A fraction is drawn by chance: 2.5 is two or three. Where fewer
        have the row out of bag, all of them vote.
    draws : int, default 3
        How often; the draws are stacked.
    seed : int, default 0
    weights : ndarray of shape (k,), optional
        The survivors' weights, given to the drawn members in random order (repeated where
        ``size`` is above k). Default: equal weights.

    Returns
    -------
    SizeMatched

    Examples
    --------
    >>> votes = np.array([[[0.0], [1.0], [2.0]]])
    >>> two = size_matched_votes(votes, np.array([[True, False, True]]), 2, draws=1)
    >>> two.votes.tolist(), two.row.tolist()
    ([[1.0]], [0])
    """
    votes = np.asarray(votes)
    if votes.ndim != 3:
        raise ValueError(f"votes must have shape (rows, members, C), not {votes.shape}.")
    own = np.ones(votes.shape[:2], bool) if mask is None else np.asarray(mask) != 0
    if own.shape != votes.shape[:2]:
        raise ValueError(f"mask has shape {own.shape}, but votes {votes.shape}.")
    rows = np.flatnonzero(own.any(axis=1))
    return _stacked(
        ((part, own[part], votes[part]) for part in _blocks(rows, votes[0].size)),
        size,
        draws,
        seed,
        weights,
    )


def size_matched_evidence(
    evidence: OOBEvidence,
    size: float,
    *,
    draws: int = DRAWS,
    seed: int = 0,
    weights: np.ndarray | None = None,
    most_rows: int | None = MOST_ROWS,
) -> SizeMatched:
    """The same from collected evidence, on a sample of rows and block by block.

    Parameters
    ----------
    evidence : OOBEvidence
        Of a classification problem; with ``class_votes`` where there are more than two classes.
    size : float
        Members to draw a row.
    draws : int, default 3
    seed : int, default 0
        Of the draws and of the sample of rows.
    weights : ndarray of shape (k,), optional
        The survivors' weights.
    most_rows : int or None, default 5000
        Rows to use; None: all.

    Returns
    -------
    SizeMatched
        With C columns, in the order of ``evidence.classes``.

    Examples
    --------
    >>> sure = np.array([[0.75, 0.25], [0.5, 1.0]])  # of the true class
    >>> evidence = OOBEvidence(
    ...     sure, None, np.array([0, 1]), "classification", classes=np.array(["no", "yes"])
    ... )
    >>> size_matched_evidence(evidence, 2, draws=1).votes.tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    if evidence.classes is None:
        raise ValueError("only the votes of classifiers can be calibrated.")
    n_classes = len(evidence.classes)
    if n_classes > 2 and evidence.class_votes is None:
        raise ValueError(
            "calibration reads every class, but the evidence holds only the true class's votes; "
            "collect it with class_votes=True."
        )
    rows = np.flatnonzero(np.asarray(evidence.covered()))
    if most_rows is not None and len(rows) > most_rows:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most_rows, replace=False))
    blocks = _blocks(rows, evidence.n_members * n_classes)
    return _stacked(
        ((part, *dense_votes(evidence.take(part))) for part in blocks),
        size,
        draws,
        seed,
        weights,
    )


def finished_votes(votes: np.ndarray, floor: float = 0.0) -> np.ndarray:
    """Votes as they are deployed before calibration: clipped at zero, normalised, floored.

    Refined leaves may say less than nothing of a class.

    Parameters
    ----------
    votes : ndarray of shape (rows, C)
    floor : float, default 0
        Share of the uniform class distribution mixed in.

    Returns
    -------
    ndarray of shape (rows, C)

    Examples
    --------
    >>> finished_votes(np.array([[1.5, -0.5]]), 0.5).tolist()
    [[0.75, 0.25]]
    """
    kept = np.maximum(np.asarray(votes, dtype=np.float64), 0.0)
    total = kept.sum(axis=1, keepdims=True)
    uniform = np.full_like(kept, 1.0 / kept.shape[1])
    kept = np.divide(kept, total, out=uniform, where=total > 0.0)
    return np.asarray((1.0 - floor) * kept + floor / kept.shape[1])


def draw_voters(
    mask: np.ndarray,
    size: float,
    rng: np.random.Generator,
    weights: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Members drawn for each row out of those that have it out of bag, and their weights.

    Parameters
    ----------
    mask : ndarray of booleans of shape (rows, N)
        Every row with one True at least.
    size : float
        At least 1.
    rng : numpy.random.Generator
    weights : ndarray of shape (k,), optional

    Returns
    -------
    voters : int ndarray of shape (rows, n)
    share : ndarray of shape (rows, n)
        Rows sum to one; zero where ``n`` is more than the row has voters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> voters, share = draw_voters(np.array([[True, True, False]]), 5, rng)
    >>> share.tolist(), sorted(voters[0, :2].tolist())
    ([[0.5, 0.5, 0.0]], [0, 1])
    """
    n_rows, n_members = mask.shape
    n = min(int(np.ceil(size)), n_members)
    key = rng.random(mask.shape)
    key[~mask] = 2.0
    voters = np.argpartition(key, n - 1, axis=1)[:, :n]
    key = np.take_along_axis(key, voters, axis=1)
    order = np.argsort(key, axis=1)
    voters, key = np.take_along_axis(voters, order, axis=1), np.take_along_axis(key, order, axis=1)
    wanted = np.floor(size) + (rng.random(n_rows) < size - np.floor(size))
    share = ((key < 2.0) & (np.arange(n) < wanted[:, None])).astype(np.float64)
    if weights is not None:
        pattern = np.resize(np.asarray(weights, dtype=np.float64), n)
        if n < len(weights):  # a small pool: any of the weights, not the first ones
            pattern = rng.choice(weights, n, replace=False)
        share *= rng.permuted(np.tile(pattern, (n_rows, 1)), axis=1)
    return voters, share / share.sum(axis=1, keepdims=True)


def _stacked(
    blocks: Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]],
    size: float,
    draws: int,
    seed: int,
    weights: np.ndarray | None,
) -> SizeMatched:
    if not (np.isfinite(size) and size >= 1.0):
        raise ValueError(f"size must be a number of members, at least 1, not {size}.")
    if draws < 1:
        raise ValueError(f"draws must be at least 1, not {draws}.")
    if weights is not None and not (np.all(np.asarray(weights) > 0.0) and np.size(weights)):
        raise ValueError("weights must be those of the survivors, all above 0.")
    rng = np.random.default_rng([seed, 1])
    means: list[list[np.ndarray]] = [[] for _ in range(draws)]
    rows: list[np.ndarray] = []
    for part, mask, votes in blocks:
        rows.append(part)
        for draw in range(draws):
            voters, share = draw_voters(mask, size, rng, weights)
            chosen = np.take_along_axis(votes, voters[:, :, None], axis=1)
            chosen = np.where(share[:, :, None] > 0.0, chosen, 0.0)  # in-bag votes may be NaN
            means[draw].append(np.einsum("ij,ijc->ic", share, chosen))
    if not rows:
        raise ValueError("no row is out of bag for any member, so there is nothing to calibrate.")
    row = np.concatenate(rows)
    return SizeMatched(np.concatenate([m for draw in means for m in draw]), np.tile(row, draws))


def _blocks(rows: np.ndarray, row_elements: int) -> Iterator[np.ndarray]:
    step = max(1, BLOCK_ELEMENTS // max(1, row_elements))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def dense_votes(evidence: OOBEvidence) -> tuple[np.ndarray, np.ndarray]:
    """Mask and votes of a block of rows.

    Parameters
    ----------
    evidence : OOBEvidence
        With ``class_votes`` where there are more than two classes.

    Returns
    -------
    mask : ndarray of bool of shape (rows, N)
    votes : ndarray of shape (rows, N, C)
        C = 1 for regression.

    Examples
    --------
    >>> evidence = OOBEvidence(np.ones((2, 3)), None, np.zeros(2), "regression")
    >>> dense_votes(evidence)[1].shape
    (2, 3, 1)
    """
    shape = (evidence.n_rows, evidence.n_members)
    mask = np.ones(shape, bool) if evidence.oob_mask is None else np.asarray(evidence.oob_mask) != 0
    if evidence.n_classes is None:
        return mask, np.asarray(evidence.votes, dtype=np.float64)[:, :, None]
    if evidence.n_classes == 2:  # what the true class does not have, the other one has
        of_true = np.asarray(evidence.votes, dtype=np.float64)
        second = np.asarray(evidence.target)[:, None] == 1
        of_second = np.where(second, of_true, 1.0 - of_true)
        return mask, np.stack([1.0 - of_second, of_second], axis=2)
    assert evidence.class_votes is not None
    return mask, np.stack([_plane(plane) for plane in evidence.class_votes], axis=2)


def _plane(plane: Any) -> np.ndarray:
    return np.asarray(plane.toarray() if hasattr(plane, "toarray") else plane, dtype=np.float64)
