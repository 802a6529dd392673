"""The deployed prediction: the kept members' weighted vote, with the floor it was fitted under."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from sparsebag.calibration.calibrator import Calibrator, finished_votes
from sparsebag.deploy.rows import as_numbers
from sparsebag.evidence.members import MemberPool
from sparsebag.local.gate import LinearGate


@dataclass(frozen=True)
class WeightedVote:
    """Kept members, their weights, and what finishes the vote.

    Attributes
    ----------
    pool : MemberPool
        The kept members only.
    weights : ndarray of shape (n_active,)
        On the simplex, none zero.
    floor : float
        Share of the uniform class distribution in each vote.
    calibrator : Calibrator or None
    gate : LinearGate or None
        Weights that depend on the row, in place of ``weights``.
    """

    pool: MemberPool
    weights: np.ndarray
    floor: float = 0.0
    calibrator: Calibrator | None = None
    gate: LinearGate | None = None

    def predict(self, X: Any, n_jobs: int | None = None) -> np.ndarray:
        """Weighted mean of the members' predictions (regression)."""
        prepared = self.pool.prepare(X)
        votes = self._votes(lambda member: member.predict(prepared), n_jobs)
        return self._weighted_sum(votes, X)

    def predict_proba(self, X: Any, n_jobs: int | None = None) -> np.ndarray:
        """Weighted mean of the members' probabilities, floored and calibrated (classification)."""
        assert self.pool.classes is not None
        n_classes = len(self.pool.classes)
        prepared = self.pool.prepare(X)
        votes = self._votes(lambda member: member.predict_proba(prepared, n_classes), n_jobs)
        proba = finished_votes(self._weighted_sum(votes, X), self.floor)
        # Rows sum to one but for rounding, which scikit-learn's scorers do not forgive.
        proba = np.asarray(proba / proba.sum(axis=1, keepdims=True))
        return proba if self.calibrator is None else self.calibrator.transform(proba)

    def _votes(self, predict: Any, n_jobs: int | None) -> Any:
        if n_jobs in (None, 1):
            return map(predict, self.pool.members)
        work = Parallel(n_jobs=n_jobs, require="sharedmem", return_as="generator")
        return work(delayed(predict)(member) for member in self.pool.members)

    def _weighted_sum(self, votes: Any, X: Any) -> np.ndarray:
        weights: Any = self.weights
        if self.gate is not None:
            weights = self.gate.weights(_numbers(X)).T  # a row of them a member
            weights = weights if self.pool.classes is None else weights[:, :, None]
        total: Any = 0.0
        for weight, vote in zip(weights, votes, strict=True):  # in order, whatever n_jobs
            total = total + weight * vote
        return np.asarray(total)


def _numbers(X: Any) -> Any:
    """X as the gate reads it: not rounded to what trees read."""
    return X if hasattr(X, "toarray") else as_numbers(X)
