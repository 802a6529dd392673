"""`OOBEvidence`: the votes of every member on the rows it was not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, device, is_numpy_array, size

from sparsebag.evidence.arrays import on_host, row_blocks
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.members import Task

Array = Any

FEWEST_COUNTED = 30.0
"""Rows of equal weight that weighted rows must count for, to go without a warning."""
PROBABILITY_TOLERANCE = 1e-6
"""Room for rounding, in probability: weighted votes reach 1 + 2e-16, float32 ones 1 + 1e-7."""


NOT_COVERED = (
    "no row is out of bag for any member, so members cannot be judged; oob_mask must be True "
    "where a row did not train the member, or None if no row trained any."
)
NOT_TO_BE_SUMMED = (
    "sample_weight is too small or too large to be summed over a stream; divide it by its mean "
    "(members' weights stay the same)."
)
WEIGHTLESS = (
    "every out-of-bag row has sample_weight zero, so members cannot be judged; give weight to "
    "other rows, or use more members."
)


class UncoveredRowsWarning(UserWarning):
    """Some rows are out of bag for no member and carry no information."""


class UnverifiedRowsWarning(UserWarning):
    """The ensemble leaves nothing to check that the rows given are its training rows."""


@dataclass(frozen=True)
class Channels:
    """The votes a loss reads: one or more matrices (rows × members) with a target each.

    ``multiplicity`` counts how often each channel's loss enters: in binary Brier both classes
    have the same error, so one matrix counts twice.
    """

    votes: tuple[Array, ...]
    targets: Array
    multiplicity: float = 1.0


@dataclass(frozen=True)
class OOBEvidence:
    """Votes of N members on the M rows each did not see.

    Attributes
    ----------
    votes : array of shape (M, N)
        Probability given to the row's true class, or the regression prediction; 0 where the row
        is not out of bag for the member, if ``is_zeroed``. The true class is all that log-loss
        reads, so no M×N×C tensor is needed.
    oob_mask : array of shape (M, N) or None
        1 where the row is out of bag for the member. None: every row is unseen by every member
        (held-out evidence).
    target : array of shape (M,)
        Class indices into ``classes``, or regression targets.
    sample_weight : array of shape (M,) or None
        Row weights; None means equal weights.
    task : {"classification", "regression"}
    classes : ndarray or None
        Class labels, in the order of ``predict_proba``.
    class_votes : tuple of sparse matrices of shape (M, N), or None
        One a class, for what reads every class of a multiclass problem (Brier, calibrators).
        Sparse, because a tree's leaf seldom votes for more than one or two classes.
    source : {"oob", "holdout", "matrices"}
    verified_by : str or None
        What proved that these are the training rows, in order.
    is_zeroed : bool
        False: ``votes`` is a user's large matrix, which is not copied, and holds anything where a
        row was in the bag; who reads it puts zeros there, block by block (`zero_in_bag`).
    prior : array of shape (K, M) or None
        The whole ensemble's uniform out-of-bag votes, one row a channel of the loss. Where they are
        known, rows that no member has out of bag have ``sample_weight`` zero.
    """

    votes: Array
    oob_mask: Array | None
    target: Array
    task: Task
    sample_weight: Array | None = None
    classes: np.ndarray | None = None
    class_votes: tuple[Array, ...] | None = None
    source: Literal["oob", "holdout", "matrices"] = "matrices"
    verified_by: str | None = None
    is_zeroed: bool = True
    prior: Array | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows, M."""
        return int(self.votes.shape[0])

    @property
    def n_members(self) -> int:
        """Number of members, N."""
        return int(self.votes.shape[1])

    @property
    def n_classes(self) -> int | None:
        """Number of classes, C; None for regression."""
        return None if self.classes is None else len(self.classes)

    @property
    def nbytes(self) -> int:
        """Memory of the votes and the mask."""
        parts = [self.votes, self.oob_mask]
        dense = sum((size(a) or 0) * int(a.dtype.itemsize) for a in parts if a is not None)
        return int(dense + sum(_plane_bytes(plane) for plane in self.class_votes or ()))

    def __sizeof__(self) -> int:
        """What a scheduler asks before it moves evidence rather than the question put to it."""
        return object.__sizeof__(self) + self.nbytes

    def covered(self) -> Array:
        """Rows that at least one member has out of bag, as booleans.

        Returns
        -------
        array of shape (M,)
        """
        xp = array_namespace(self.votes)
        if self.oob_mask is None:
            return xp.ones(self.n_rows, dtype=xp.bool, device=device(self.votes))
        return xp.any(self.oob_mask, axis=1)

    def take(self, rows: Array) -> OOBEvidence:
        """Slice every parallel array by row.

        Parameters
        ----------
        rows : slice, index array or boolean array
            The rows to keep.

        Returns
        -------
        OOBEvidence

        Examples
        --------
        >>> e = OOBEvidence(np.eye(3), np.eye(3) > 0, np.zeros(3), "regression")
        >>> e.take([0, 2]).n_rows
        2
        """
        return replace(
            self,
            votes=self.votes[rows, ...],
            oob_mask=None if self.oob_mask is None else self.oob_mask[rows, ...],
            target=self.target[rows],
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
            class_votes=self.class_votes and tuple(v[rows, ...] for v in self.class_votes),
            prior=None if self.prior is None else self.prior[:, rows],
        )

    def take_members(self, members: Array) -> OOBEvidence:
        """Keep only some members' columns.

        Parameters
        ----------
        members : index array
            The members to keep.

        Returns
        -------
        OOBEvidence

        Examples
        --------
        >>> e = OOBEvidence(np.eye(3), np.eye(3) > 0, np.zeros(3), "regression")
        >>> e.take_members(np.array([2])).votes.ravel().tolist()
        [0.0, 0.0, 1.0]
        """
        xp = array_namespace(self.votes)
        votes = xp.take(self.votes, members, axis=1)  # a copy, so zeros may be written into it
        mask = None if self.oob_mask is None else xp.take(self.oob_mask, members, axis=1)
        if mask is not None and not self.is_zeroed:
            for rows in row_blocks(votes):
                votes[rows, ...] = zero_in_bag(votes[rows, ...], mask[rows, ...])
        return replace(
            self,
            votes=votes,
            oob_mask=mask,
            is_zeroed=True,
            class_votes=self.class_votes and tuple(v[:, members] for v in self.class_votes),
        )

    def channels(self, kind: str) -> Channels:
        """The votes a loss reads.

        Parameters
        ----------
        kind : {"true_class", "every_class", "prediction"}
            The loss's channel, see `sparsebag.objective.losses`.

        Returns
        -------
        Channels
        """
        xp = array_namespace(self.votes)
        ones = xp.ones((1, self.n_rows), dtype=xp.float64, device=device(self.votes))
        if kind == "prediction":
            return Channels((self.votes,), xp.astype(self.target, xp.float64)[None, :])
        if kind == "true_class":
            return Channels((self.votes,), ones)
        if self.n_classes == 2:
            # Binary: 1 - p of one class is p of the other, so both squared errors are equal.
            return Channels((self.votes,), ones, multiplicity=2.0)
        if self.class_votes is None:
            raise ValueError(
                "this loss reads every class, but the evidence holds only the true class's "
                "votes; pass predictions of shape (M, N, C), or every_class=True to a stream."
            )
        labels = xp.arange(len(self.class_votes), device=device(self.votes))[:, None]
        return Channels(self.class_votes, xp.astype(self.target[None, :] == labels, xp.float64))


def zero_in_bag(votes: Array, mask: Array | None) -> Array:
    """A block of votes with zeros where the row was in the member's bag.

    Parameters
    ----------
    votes : array of shape (B, N) or (B, N, C)
        Single or double precision.
    mask : array of booleans of shape (B, N) or None
        True where the row is out of bag; None: everywhere.

    Returns
    -------
    array
        Another one, unless the mask is None.

    Examples
    --------
    >>> zero_in_bag(np.array([[0.9, np.nan]]), np.array([[True, False]])).tolist()
    [[0.9, 0.0]]
    """
    if mask is None:
        return votes
    mask = mask if votes.ndim == 2 else mask[:, :, None]
    if is_numpy_array(votes):
        # NumPy's where branches on every entry, which costs 25 times as much as this.
        word = np.int32 if votes.dtype == np.float32 else np.int64
        keep = np.negative((mask.view(np.int8) != 0).view(np.int8), dtype=word)  # all bits, or none
        return np.bitwise_and(votes.view(word), keep).view(votes.dtype)
    xp = array_namespace(votes)
    return xp.where(mask, votes, xp.zeros((), dtype=votes.dtype, device=device(votes)))


def concatenate(parts: Sequence[OOBEvidence]) -> OOBEvidence:
    """Blocks of the same members as one evidence, in memory.

    Rows without a mask beside rows with one are out of bag for every member; rows without a weight
    beside rows with one weigh 1.

    Parameters
    ----------
    parts : sequence of OOBEvidence

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> one = OOBEvidence(np.eye(2), None, np.zeros(2), "regression")
    >>> concatenate([one, one]).n_rows
    4
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    xp = array_namespace(first.votes)
    masks = weights = planes = None
    if any(part.oob_mask is not None for part in parts):
        masks = [_or_ones(part.oob_mask, part.votes, xp.bool) for part in parts]
    if any(part.sample_weight is not None for part in parts):
        weights = [_or_ones(part.sample_weight, part.target, xp.float64) for part in parts]
    if first.class_votes is not None:
        by_class = zip(*(tuple(part.class_votes or ()) for part in parts), strict=True)
        planes = tuple(
            sp.vstack(c, format="csr") if sp.issparse(c[0]) else xp.concat(c, axis=0)
            for c in by_class
        )
    return replace(
        first,
        votes=xp.concat([_zeroed(part) for part in parts], axis=0),
        oob_mask=None if masks is None else xp.concat(masks, axis=0),
        target=xp.concat([part.target for part in parts], axis=0),
        sample_weight=None if weights is None else xp.concat(weights, axis=0),
        class_votes=planes,
        is_zeroed=True,
        prior=None if first.prior is None else xp.concat([part.prior for part in parts], axis=1),
    )


def _or_ones(values: Array | None, like: Array, dtype: Any) -> Array:
    xp = array_namespace(like)
    return values if values is not None else xp.ones_like(like, dtype=dtype)


def _zeroed(part: OOBEvidence) -> Array:
    return part.votes if part.is_zeroed else zero_in_bag(part.votes, part.oob_mask)


def warn_uncovered(evidence: OOBEvidence) -> int:
    """Count the rows no member has out of bag; warn once if there are any, raise if all are.

    Parameters
    ----------
    evidence : OOBEvidence

    Returns
    -------
    int
        How many rows are left out.

    Examples
    --------
    >>> warn_uncovered(OOBEvidence(np.ones((4, 2)), None, np.ones(4), "regression"))
    0
    """
    xp = array_namespace(evidence.votes)
    covered = evidence.covered()
    missing = evidence.n_rows - int(xp.sum(xp.astype(covered, xp.int64)))
    if missing == evidence.n_rows:
        raise ValueError(
            NOT_COVERED
            if evidence.source == "matrices"
            else "no row is out of bag for any member, so members cannot be judged; use a "
            "bootstrapped ensemble, or pass held-out rows with evidence='holdout'."
        )
    if evidence.sample_weight is not None and not bool(xp.any(evidence.sample_weight[covered] > 0)):
        raise ValueError(WEIGHTLESS)
    if missing:
        warn_of_uncovered(missing, evidence.n_rows)
    if evidence.sample_weight is not None:
        weight = on_host(evidence.sample_weight)[on_host(covered)]
        share = weight / weight.max()
        warn_of_uneven(float(share.sum()), float(share @ share), len(weight))
    return missing


def warn_of_uncovered(missing: int, n_rows: int) -> None:
    """Say how many rows no member has out of bag."""
    warn_caller(
        f"{missing} of {n_rows} rows are in every member's bag and are ignored; use more members "
        f"or a smaller max_samples (if bags were drawn by class or row weights: fit without "
        f"class_weight, or pass held-out rows with evidence='holdout').",
        UncoveredRowsWarning,
    )


def warn_of_uneven(total: float, square: float, n_rows: int) -> None:
    """Say so where a few rows weigh so much that they decide alone.

    Parameters
    ----------
    total, square : float
        Sums of the rows' weights and of their squares.
    n_rows : int

    Examples
    --------
    >>> warn_of_uneven(300.0, 300.0, 300)
    """
    counted = total**2 / square if np.isfinite(square) and square > 0 else n_rows
    if counted < FEWEST_COUNTED <= n_rows:
        warn_caller(
            f"with these sample weights, {n_rows} rows count as about {counted:.0f} of equal "
            f"weight; estimates from so few rows are unreliable.",
            UserWarning,
        )


def warn_unverified() -> None:
    """Say so where nothing proves that rows are the ensemble's training rows."""
    warn_caller(
        "could not verify that X, y are the ensemble's training rows in their original order; "
        "make sure they are, or fit the ensemble with oob_score=True so that sparsebag can check.",
        UnverifiedRowsWarning,
    )


def _plane_bytes(plane: Array) -> int:
    if sp.issparse(plane):
        return int(plane.data.nbytes + plane.indices.nbytes + plane.indptr.nbytes)
    return (size(plane) or 0) * int(plane.dtype.itemsize)
