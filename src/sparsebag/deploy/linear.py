"""Linear members: one vector for regressors, one matrix product and a link for classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from sparsebag.deploy.votes import (
    check_class_columns,
    scores_in_blocks,
    sigmoid,
    softmax,
    weighted_votes,
)


def _two(positive: np.ndarray) -> np.ndarray:
    return np.concatenate([1.0 - positive, positive], axis=-1)


def _one_vs_rest(z: np.ndarray) -> np.ndarray:
    # sigmoid(z), normalised; in logarithms, where scores far below zero do not become 0/0
    return softmax(np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))))


def _largest(z: np.ndarray) -> np.ndarray:
    chosen = np.argmax(z, axis=-1)[..., None] == np.arange(z.shape[-1])
    return np.asarray(chosen, dtype=np.float64)


LINKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda z: z,
    "sigmoid": lambda z: _two(sigmoid(z)),
    "softmax": softmax,
    "one_vs_rest": _one_vs_rest,
    "sign": lambda z: _two((z > 0.0).astype(np.float64)),
    "largest": _largest,
}
"""Scores of shape (..., q) to votes; "sigmoid" and "sign" make two columns of one."""
TWO_CLASS_LINKS = ("sigmoid", "sign")


@dataclass(frozen=True, eq=False)
class LinearVotes:
    """Linear members with one link.

    Attributes
    ----------
    coef : float64 ndarray of shape (n_features, members * q)
        Zero where a member does not read a column.
    intercept : float64 ndarray of shape (members * q,)
    weights : float64 ndarray of shape (members,)
    class_columns : int32 ndarray of shape (members, classes a member)
        Position of each vote in the ensemble's classes.
    link : str
        Key of `LINKS`.
    n_outputs : int
        Classes, or one for regression.
    n_members : int
        How many there were: regressors collapse into one.
    """

    coef: np.ndarray
    intercept: np.ndarray
    weights: np.ndarray
    class_columns: np.ndarray
    link: str
    n_outputs: int
    n_members: int
    kind: ClassVar[str] = "linear"
    DTYPES: ClassVar[dict[str, str]] = {
        "coef": "<f8",
        "intercept": "<f8",
        "weights": "<f8",
        "class_columns": "<i4",
    }

    def __post_init__(self) -> None:
        if self.link not in LINKS:
            raise ValueError(f"link {self.link!r} is not known.")
        shapes = (self.coef.ndim, self.intercept.ndim, self.weights.ndim, self.class_columns.ndim)
        members = len(self.weights) if shapes == (2, 1, 1, 2) else 0
        votes = self.class_columns.shape[1] if members else 0
        q = 1 if self.link in TWO_CLASS_LINKS else votes
        if (
            votes == 0
            or (self.link in TWO_CLASS_LINKS and votes != 2)
            or self.coef.shape[1] != members * q
            or self.intercept.shape != (members * q,)
            or self.class_columns.shape[0] != members
        ):
            raise ValueError("the arrays of the linear members do not fit together.")
        one_each = self.link != "identity"  # regressors collapse into one
        if self.n_members < members or (one_each and self.n_members != members):
            raise ValueError("the number of linear members is wrong.")
        check_class_columns(self.class_columns, self.n_outputs)
        for array in (self.coef, self.intercept, self.weights):
            if not np.all(np.isfinite(array)):
                raise ValueError("a linear member has a coefficient that is not finite.")

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.coef.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        return {name: getattr(self, name) for name in self.DTYPES}

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""
        return {"link": self.link, "n_outputs": self.n_outputs, "n_members": self.n_members}

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError where it cannot be."""
        return cls(
            **{name: arrays[name] for name in cls.DTYPES},
            link=str(settings["link"]),
            n_outputs=int(settings["n_outputs"]),
            n_members=int(settings["n_members"]),
        )

    def scores(self, X: Any, row_weights: np.ndarray | None = None) -> np.ndarray:
        """Weighted sum of the members' votes.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)
        row_weights : ndarray of shape (rows, members), optional
            A gate's, in place of the members' own.

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """

        def of_block(X: Any, rows: slice) -> np.ndarray:
            weights = self.weights if row_weights is None else row_weights[rows]
            return weighted_votes(self._votes(X), weights, self.class_columns, self.n_outputs)

        return scores_in_blocks(X, self.n_outputs, self.coef.shape[1], of_block)

    def _votes(self, X: Any) -> np.ndarray:
        z = np.asarray(X @ self.coef) + self.intercept
        z = z.reshape(len(z), len(self.weights), -1).transpose(1, 0, 2)
        return LINKS[self.link](z)
