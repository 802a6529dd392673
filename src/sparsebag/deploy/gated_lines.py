"""Linear regressors under a gate: one line a region, or all of them weighed in one call.

With weights w(x) the vote is ``sum_j w_j(x) (b_j + a_j x)``. Where weights are those of a region,
its members collapse into one line, exactly, as all of them do where weights are global. Where
weights are smooth, every member has to speak.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsebag.deploy import _forest
from sparsebag.deploy.gate import CompiledGate, RegionGate
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

    Examples
    --------
    >>> from sparsebag.deploy.gate import LinearGate
    >>> gate = LinearGate(np.zeros(1), np.ones(1), np.ones((1, 1)), np.ones((2, 1)), np.zeros(2))
    >>> columns = np.zeros((2, 1), dtype=np.int32)
    >>> slopes, intercepts = np.array([[1.0, 3.0]]), np.zeros(2)
    >>> members = LinearVotes(slopes, intercepts, np.ones(2), columns, "identity", 1, 2)
    >>> GatedLines(members, CompiledGate(gate)).predict(np.array([[3.0]])).tolist()
    [6.0]
    """

    members: LinearVotes
    gate: CompiledGate
    _kernel: _forest.GatedLines | None = field(init=False, repr=False)
    """Where the gate is smooth, and the members are few enough."""
    _region_lines: tuple[np.ndarray, np.ndarray] | None = field(init=False, repr=False)
    """Slopes of shape (regions, n_features) and intercepts, where it is one of regions."""

    def __post_init__(self) -> None:
        lines = kernel = None
        coef, intercept = self.members.coef, self.members.intercept
        if isinstance(self.gate.source, RegionGate):
            weights = self.gate.source.region_weights
            lines = np.ascontiguousarray(weights @ coef.T), weights @ intercept
        elif coef.size <= MOST_IN_KERNEL:
            kernel = _forest.GatedLines(self.gate.kernel, np.ascontiguousarray(coef), intercept)
        object.__setattr__(self, "_kernel", kernel)
        object.__setattr__(self, "_region_lines", lines)

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
        kernel, lines = self._kernel, self._region_lines
        if hasattr(X, "toarray") or (kernel is None and lines is None):
            return self.members.scores(X, self.gate.weigh(X)[0])[:, 0]
        kind = X.dtype
        if kind.char not in "fd" or not (kind.isnative and X.flags.aligned):
            X = np.require(X, dtype=np.float64, requirements="A")
        out = np.empty(len(X))
        if kernel is not None:
            finite = kernel.predict(X, out)
        else:
            assert lines is not None
            finite = _forest.region_lines(self.gate.kernel, X, *lines, out)
        if not finite:
            finite_numbers(X)  # raises, with the reason, unless it is a sum that is too large
        return out
