"""The deployed prediction: the kept members' weighted vote, with the floor it was fitted under."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

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

    def predict(self, X: Any) -> np.ndarray:
        """Weighted mean of the members' predictions (regression)."""
        prepared = self.pool.prepare(X)
        return self._weighted_sum((m.predict(prepared) for m in self.pool.members), X)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Weighted mean of the members' probabilities, floored and calibrated (classification)."""
        assert self.pool.classes is not None
        n_classes, prepared = len(self.pool.classes), self.pool.prepare(X)
        votes = (member.predict_proba(prepared, n_classes) for member in self.pool.members)
        proba = finished_votes(self._weighted_sum(votes, X), self.floor)
        # Rows sum to one but for rounding, which scikit-learn's scorers do not forgive.
        proba = np.asarray(proba / proba.sum(axis=1, keepdims=True))
        return proba if self.calibrator is None else self.calibrator.transform(proba)

    def _weighted_sum(self, votes: Iterable[np.ndarray], X: Any) -> np.ndarray:
        weights: Any = self.weights
        if self.gate is not None:  # a row of them a member, of X not rounded to what trees read
            weights = self.gate.weights(X if hasattr(X, "toarray") else as_numbers(X)).T
            weights = weights if self.pool.classes is None else weights[:, :, None]
        total: Any = 0.0
        for weight, vote in zip(weights, votes, strict=True):
            total = total + weight * vote
        return np.asarray(total)
