"""Out-of-bag votes of the kept members beside the features of their rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.local.gate import CLIP, standardised

MOST_ROWS = 4000
"""Rows a gate is fitted to; more change it little."""
MOST_ELEMENTS = 2**25
"""Votes, or features, of these rows (256 MiB)."""
LEAST_PAIRS = 1e-2
"""Weight of the pairs of members that have a row out of bag together, to be judged on it."""
TAIL, FAR = 0.01, 3.0
"""Share of a feature's values that may be outliers, and how many ranges of the rest is far."""


class FullVote(NamedTuple):
    """What the vote of all members costs.

    Attributes
    ----------
    losses : ndarray of shape (R,)
        Squared error, or Brier score.
    heard : ndarray of bool of shape (R,)
        False where too little weight is on members that have not seen the row.
    stretch : float
        Factor that class votes were multiplied by, about the uniform distribution.
    """

    losses: np.ndarray
    heard: np.ndarray
    stretch: float


@dataclass(frozen=True)
class RowVotes:
    """Votes of k members on R rows that they have not seen.

    Attributes
    ----------
    features : ndarray of shape (R, d)
        NaN where unknown.
    votes : ndarray of shape (R, k, C)
        Class probabilities, or with C = 1 predictions; 0 where ``mask`` is False.
    mask : ndarray of bool of shape (R, k)
        Where the member has not seen the row; two in every row at least.
    target : ndarray of shape (R,)
        Class positions, or numbers.
    weight : ndarray of shape (R,)
        Row weights, above zero, summing to one.
    base : ndarray of shape (k,)
        The global weights, none zero.
    """

    features: np.ndarray
    votes: np.ndarray
    mask: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    base: np.ndarray

    @classmethod
    def read(cls, evidence: OOBEvidence, X: Any, weights: np.ndarray, seed: int = 0) -> RowVotes:
        """The rows that two members with weight can be asked about; a sample where there are many.

        Parameters
        ----------
        evidence : OOBEvidence
        X : ndarray or sparse matrix of shape (M, d)
            Numbers.
        weights : ndarray of shape (N,)
        seed : int, default 0
            Of the sample.

        Returns
        -------
        RowVotes
        """
        active = np.flatnonzero(weights)
        base = np.asarray(weights[active] / weights[active].sum())
        n = evidence.n_rows
        weight = np.ones(n)
        if evidence.sample_weight is not None:
            weight = on_host(evidence.sample_weight).astype(np.float64)
        usable = weight > 0.0
        if evidence.oob_mask is not None:
            usable &= (on_host(evidence.oob_mask)[:, active] != 0).sum(axis=1) >= 2
        rows = np.flatnonzero(usable)
        wide = max(len(active) * (evidence.n_classes or 1), X.shape[1])
        most = min(MOST_ROWS, MOST_ELEMENTS // wide)
        if len(rows) > most:
            rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
        taken = evidence.take_members(active).take(rows)
        shape = len(rows), len(active)
        mask = np.ones(shape, bool)
        if taken.oob_mask is not None:
            mask = on_host(taken.oob_mask) != 0
        features = X[rows].toarray() if hasattr(X, "toarray") else np.asarray(X)[rows]
        return cls(
            features=np.asarray(features, dtype=np.float64),
            votes=np.where(mask[:, :, None], _every_class(taken), 0.0),
            mask=mask,
            target=on_host(taken.target),
            weight=weight[rows] / max(float(weight[rows].sum()), np.finfo(float).tiny),
            base=base,
        )

    @property
    def classifies(self) -> bool:
        """Whether votes are class probabilities."""
        return bool(self.votes.shape[2] > 1)

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.target)

    @property
    def effective_rows(self) -> float:
        """How many rows of equal weight say as much (Kish 1965)."""
        return float(1.0 / np.sum(self.weight**2)) if self.n_rows else 0.0

    def take(self, rows: np.ndarray) -> RowVotes:
        """Slice every parallel array by row.

        Parameters
        ----------
        rows : index array

        Returns
        -------
        RowVotes
        """
        weight = self.weight[rows]
        return replace(
            self,
            features=self.features[rows],
            votes=self.votes[rows],
            mask=self.mask[rows],
            target=self.target[rows],
            weight=weight / weight.sum(),
        )

    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the features; outliers are drawn in first.

        One code for "missing" of 1e9 would otherwise make all other values equal.

        Returns
        -------
        mean, scale : ndarrays of shape (d,)
            Scales are 1 for constant features.
        """
        with np.errstate(over="ignore"):
            X = self.features.astype(np.float32).astype(np.float64)
        X = np.where(np.isfinite(X), X, np.nan)
        X[:, np.isnan(X).all(axis=0)] = 0.0
        low, high = np.nanquantile(X, [TAIL, 1.0 - TAIL], axis=0)
        reach = np.where(high > low, FAR * (high - low), np.inf)
        X = np.clip(X, low - reach, high + reach)
        mean, scale = np.nanmean(X, axis=0), np.nanstd(X, axis=0)
        # Rounding leaves a constant column a spread of 1e-16 of its size.
        return mean, np.where(scale > 1e-9 * np.abs(mean), scale, 1.0)

    def columns(self, mean: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """The standardised features.

        Parameters
        ----------
        mean, scale : ndarrays of shape (d,)

        Returns
        -------
        ndarray of shape (R, d)
        """
        return standardised(self.features, mean, scale, CLIP)

    def full_vote(self, weights: np.ndarray) -> FullVote:
        """Each row's squared error or Brier score of the vote of *all* members.

        Out of bag a row hears 37 % of the members. A quadratic score of all of them needs only
        means over single members and over pairs, which those 37 % give without bias. Class votes
        are first rescaled about the uniform distribution by the one factor that is best for all
        rows: what a calibrator does for every vote is no merit of a gate.

        Parameters
        ----------
        weights : ndarray of shape (R, k)
            Of each row, on the simplex.

        Returns
        -------
        FullVote
        """
        w = np.where(self.mask, weights, 0.0)
        n_classes = self.votes.shape[2]
        if self.classifies:
            votes, truth = (
                self.votes - 1.0 / n_classes,
                np.eye(n_classes)[self.target] - 1.0 / n_classes,
            )
        else:
            votes, truth = self.votes - self.target[:, None, None], np.zeros((self.n_rows, 1))
        vote = np.einsum("ij,ijc->ic", w, votes)
        squares = np.einsum("ij,ijc,ijc->i", w**2, votes, votes)
        total, alone = w.sum(axis=1), np.sum(w**2, axis=1)
        pairs = total**2 - alone
        heard = pairs > LEAST_PAIRS
        pair = (np.sum(vote**2, axis=1) - squares) / np.where(heard, pairs, 1.0)
        own = squares / np.where(heard, alone, 1.0)
        concentration = np.sum(weights**2, axis=1)
        square = (1.0 - concentration) * pair + concentration * own
        if not self.classifies:
            return FullVote(np.asarray(square), heard, 1.0)
        along = np.sum(vote * truth, axis=1) / np.where(heard, total, 1.0)
        share = np.where(heard, self.weight, 0.0)
        curve = float(share @ square)
        stretch = float(share @ along) / curve if curve > 0.0 else 1.0
        losses = np.sum(truth**2, axis=1) - 2.0 * stretch * along + stretch**2 * square
        return FullVote(np.asarray(losses), heard, stretch)


def _every_class(evidence: OOBEvidence) -> np.ndarray:
    """Votes of shape (rows, members, C); C = 1 for regression."""
    of_true = on_host(evidence.votes).astype(np.float64)
    if evidence.n_classes is None:
        return np.asarray(of_true[:, :, None])
    if evidence.n_classes == 2:
        of_second = np.where((on_host(evidence.target) == 1)[:, None], of_true, 1.0 - of_true)
        return np.stack([1.0 - of_second, of_second], axis=2)
    if evidence.class_votes is None:
        raise ValueError(
            "a gate reads every class's votes, but the evidence holds only those of the true "
            "class; collect it with class_votes=True."
        )
    planes = (p.toarray() if hasattr(p, "toarray") else on_host(p) for p in evidence.class_votes)
    return np.stack([np.asarray(plane, dtype=np.float64) for plane in planes], axis=2)
