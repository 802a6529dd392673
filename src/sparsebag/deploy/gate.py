"""A gate compiled for the kernel, beside what its weights are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsebag.deploy import _forest
from sparsebag.deploy.trees import SPARSE_BLOCK_BYTES, readable
from sparsebag.local.gate import LinearGate

SIMPLEX_TOLERANCE = 1e-6
"""Of the sum of the global weights in a file."""


@dataclass(frozen=True, eq=False)
class CompiledGate:
    """A gate and the kernel that evaluates it.

    Attributes
    ----------
    source : LinearGate
        Members in the order of the compiled groups.
    global_weights : ndarray of shape (n_members,)
        The weights without a gate, in that order.
    members : int32 ndarray of shape (n_members,)
        Positions in the ensemble that was compressed.

    Examples
    --------
    >>> gate = LinearGate([0], [1], [[1]], [0], [[1], [1]], [0, 0])
    >>> compiled = CompiledGate(gate, np.array([0.5, 0.5]), np.array([4, 7], dtype=np.int32))
    >>> compiled.weights(np.array([[3.0]])).round(6).tolist()
    [[0.5, 0.5]]
    """

    source: LinearGate
    global_weights: np.ndarray
    members: np.ndarray
    kernel: _forest.Gate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weights, members, k = self.global_weights, self.members, (self.n_members,)
        if weights.shape != k or members.shape != k or len(np.unique(members)) < k[0]:
            raise ValueError("the gate's global weights are of other members.")
        total = float(weights.sum())
        if not (weights.min() >= 0.0 and abs(total - 1.0) < SIMPLEX_TOLERANCE):
            raise ValueError("the gate's global weights are not on the simplex.")
        if members.min() < 0:
            raise ValueError("the gate's members have no negative positions.")
        gate = self.source
        kernel = _forest.Gate(
            gate.mean, gate.scale, gate.down, gate.offset, gate.up, gate.base, gate.clip
        )
        object.__setattr__(self, "kernel", kernel)

    @property
    def n_members(self) -> int:
        """Members that share the weight."""
        return self.source.n_members

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.source.n_features

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays and of the kernel's own copy."""
        return int(self.kernel.nbytes + self.source.nbytes)

    def weights(self, X: Any) -> np.ndarray:
        """Weights of the members for each row.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_members)
        """
        weights = np.empty((X.shape[0], self.n_members))
        if not hasattr(X, "toarray"):
            self.kernel.weigh(readable(X), weights)
            return weights
        step = max(1, SPARSE_BLOCK_BYTES // (8 * self.n_features))
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            self.kernel.weigh(readable(X[rows].toarray()), weights[rows])
        return weights

    def __str__(self) -> str:
        return f"gate of rank {len(self.source.offset)}"

    def __getstate__(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in ("source", "global_weights", "members")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)
        self.__post_init__()
