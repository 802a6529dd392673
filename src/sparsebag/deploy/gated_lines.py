"""Linear regressors under a gate, all weighed in one call of the kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsebag.deploy import _forest
from sparsebag.deploy.gate import CompiledGate
from sparsebag.deploy.linear import LinearVotes
from sparsebag.deploy.votes import finite_numbers

MOST_IN_KERNEL = 2**13
"""Coefficients for which the kernel is faster than a matrix product and the sum of its columns."""


@dataclass(frozen=True, eq=False)
class GatedLines:
    """Linear regressors, and the gate whose members they are, all of them and no others.

    Attributes
    ----------
    members : LinearVotes
        With the link "identity", and weights of one.
    gate : CompiledGate
    """

    members: LinearVotes
    gate: CompiledGate
    _kernel: _forest.GatedLines | None = field(init=False, repr=False)
    """Where the members are few enough."""

    def __post_init__(self) -> None:
        coef, kernel = self.members.coef, None
        if coef.size <= MOST_IN_KERNEL:
            lines = np.ascontiguousarray(coef), self.members.intercept
            kernel = _forest.GatedLines(self.gate.kernel, *lines)
        object.__setattr__(self, "_kernel", kernel)

    def reads(self, X: Any, n_features: int | None) -> bool:
        """Whether X is an array of numbers, of the model's width, that needs no other look.

        Parameters
        ----------
        X : array-like
        n_features : int or None
            Of the model.

        Returns
        -------
        bool
        """
        return (
            type(X) is np.ndarray
            and X.dtype.char in "fd"
            and X.shape[1:] == (n_features,)
            and n_features == self.gate.n_features
        )

    def predict(self, X: Any) -> np.ndarray:
        """What the members say together; NaN and infinity raise.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        if hasattr(X, "toarray") or self._kernel is None:
            return self.members.scores(X, self.gate.weights(X))[:, 0]
        kind = X.dtype
        if kind.char not in "fd" or not (kind.isnative and X.flags.aligned):
            X = np.require(X, dtype=np.float64, requirements="A")
        out = np.empty(len(X))
        if not self._kernel.predict(X, out):
            finite_numbers(X)  # raises, with the reason, unless it is a sum that is too large
        return out
