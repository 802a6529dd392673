"""Members of any other kind: their own ``predict_proba`` or ``predict``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

ROWS_TO_THREAD = 500
"""Below this a pool of threads costs more than it saves."""


class Voter(Protocol):
    """What `sparsebag.evidence.members.Member` is."""

    @property
    def features(self) -> np.ndarray | None:
        """Columns it reads; None means all."""

    def predict(self, X: Any) -> np.ndarray:
        """Numbers."""

    def predict_proba(self, X: Any, n_classes: int) -> np.ndarray:
        """Votes in the ensemble's classes."""


@dataclass(frozen=True, eq=False)
class OtherMembers:
    """Members that predict for themselves.

    Attributes
    ----------
    members : tuple of Member
        Without their feature subsets: X comes sliced.
    features : tuple of (ndarray or None)
        Columns each reads.
    weights : ndarray of shape (members,)
    n_outputs : int
        Classes, or one for regression.
    is_vote : bool
        Classification or regression.
    """

    members: tuple[Voter, ...]
    features: tuple[np.ndarray | None, ...]
    weights: np.ndarray
    n_outputs: int
    is_vote: bool
    kind: ClassVar[str] = "other"

    @property
    def n_members(self) -> int:
        """How many members there are."""
        return len(self.members)

    @property
    def n_features(self) -> int:
        """Columns of X that are needed, where subsets say."""
        return max((int(f.max()) + 1 for f in self.features if f is not None), default=0)

    def scores(
        self, X: Any, row_weights: np.ndarray | None = None, *, n_threads: int = 1
    ) -> np.ndarray:
        """Weighted sum of the members' votes.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame
        row_weights : ndarray of shape (rows, members), optional
            A gate's, in place of the members' own.
        n_threads : int

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        threads = min(n_threads, self.n_members) if n_rows >= ROWS_TO_THREAD else 1
        out = np.zeros((n_rows, self.n_outputs))
        weights = self.weights if row_weights is None else row_weights.T[:, :, None]
        for weight, vote in zip(weights, self._votes(X, threads), strict=True):
            out += weight * vote
        return out

    def _votes(self, X: Any, n_threads: int) -> Iterator[np.ndarray]:
        slices: dict[bytes, Any] = {}

        def sliced(features: np.ndarray | None) -> Any:
            if features is None:
                return X
            name = features.tobytes()
            if name not in slices:  # members of one subset share the copy
                by_position = hasattr(X, "iloc")
                slices[name] = X.iloc[:, features] if by_position else X[:, features]
            return slices[name]

        work: list[Callable[[], np.ndarray]] = [
            self._bound(member, sliced(features))
            for member, features in zip(self.members, self.features, strict=True)
        ]
        if n_threads == 1:
            yield from (vote() for vote in work)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield from pool.map(lambda vote: vote(), work)

    def _bound(self, member: Voter, X: Any) -> Callable[[], np.ndarray]:
        if self.is_vote:
            return lambda: member.predict_proba(X, self.n_outputs)
        return lambda: member.predict(X)[:, None]
