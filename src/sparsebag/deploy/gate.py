"""Gates of a deployed vote: compiled for the kernel, and known to files by their kind.

The gates themselves are in `sparsebag.refine`, where they are fitted, as calibrators are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sparsebag.deploy import _forest
from sparsebag.deploy.trees import SPARSE_BLOCK_BYTES, readable, round_down
from sparsebag.refine.gate import Gate, LinearGate
from sparsebag.refine.region_gate import SIMPLEX_TOLERANCE, RegionGate
from sparsebag.refine.temperature import SHARPEST, SOFTEST

__all__ = ["GATES", "CompiledGate", "Gate", "LinearGate", "RegionGate", "rebuild_gate"]

GATES: dict[str, type[LinearGate] | type[RegionGate]] = {
    LinearGate.kind: LinearGate,
    RegionGate.kind: RegionGate,
}
"""Kind to class."""


@dataclass(frozen=True, eq=False)
class CompiledGate:
    """A gate and the kernel that evaluates it.

    Attributes
    ----------
    source : Gate
        One of `GATES`, its members in the order of the compiled groups.
    global_weights : ndarray of shape (n_members,) or None
        What the weights would be without a gate, in that order; None in files of early versions.
    members : int32 ndarray of shape (n_members,) or None
        Positions in the ensemble that was compressed.

    Examples
    --------
    >>> gate = LinearGate(np.zeros(1), np.ones(1), np.ones((1, 1)), np.ones((2, 1)), np.zeros(2))
    >>> CompiledGate(gate).weigh(np.array([[3.0]]))[0].tolist()
    [[0.5, 0.5]]
    """

    source: Gate
    global_weights: np.ndarray | None = None
    members: np.ndarray | None = None
    kernel: _forest.Gate = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weights, members = self.global_weights, self.members
        if (weights is None) != (members is None):
            raise ValueError("the gate's global weights and its members come together.")
        if weights is not None and members is not None:
            k = (self.source.n_members,)
            if weights.shape != k or members.shape != k or len(np.unique(members)) < k[0]:
                raise ValueError("the gate's global weights are of other members.")
            on_simplex = (
                weights.min() >= 0.0 and abs(float(weights.sum()) - 1.0) < SIMPLEX_TOLERANCE
            )
            if not on_simplex or members.min() < 0:
                raise ValueError("the gate's global weights are not on the simplex.")
        object.__setattr__(self, "kernel", _kernel(self.source))

    @property
    def n_members(self) -> int:
        """How many members share the weight."""
        return self.source.n_members

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.source.n_features

    @property
    def has_temperature(self) -> bool:
        """Whether there is a temperature that depends on the row."""
        return self.source.has_temperature

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays and of the kernel's own copy."""
        return self.kernel.nbytes + sum(a.nbytes for a in self.source.arrays().values())

    def weigh(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Weights and inverse temperatures, ones where the gate has none.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_members), ndarray of shape (rows,)
        """
        weights, inverse = np.empty((X.shape[0], self.n_members)), np.empty(X.shape[0])
        if not hasattr(X, "toarray"):
            self.kernel.weigh(readable(X), weights, inverse)
            return weights, inverse
        step = max(1, SPARSE_BLOCK_BYTES // (8 * self.n_features))
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            self.kernel.weigh(readable(X[rows].toarray()), weights[rows], inverse[rows])
        return weights, inverse

    def __str__(self) -> str:
        source = self.source
        if isinstance(source, LinearGate):
            how = f"{source.activation} of rank {len(source.down)}"
        else:
            how = f"{len(source.arrays()['region_weights'])} regions"
            how += ", oblique" if "down" in source.arrays() else ""
        return f"gate {source.kind} ({how}{', temperature' if self.has_temperature else ''})"

    def __getstate__(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in ("source", "global_weights", "members")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name in ("source", "global_weights", "members"):
            object.__setattr__(self, name, state.get(name))
        self.__post_init__()


def _kernel(gate: Gate) -> _forest.Gate:
    none = np.empty(0)
    if isinstance(gate, LinearGate):
        log_temperature = none if gate.log_temperature is None else gate.log_temperature
        return _forest.Gate.linear(
            gate.mean,
            gate.scale,
            gate.down,
            gate.up,
            gate.base,
            gate.activation == "sparsemax",
            log_temperature,
            gate.clip,
            float(np.log(SHARPEST)),
            float(np.log(SOFTEST)),
            none if gate.offset is None else gate.offset,
        )
    if not isinstance(gate, RegionGate):
        raise TypeError(f"a {type(gate).__name__} is no gate that can be deployed.")
    along = gate.directions
    sums: tuple[Any, ...] = (none, none, np.empty((0, 0)), 1.0)
    if along is not None:
        sums = along.mean, along.scale, along.down, along.clip
    return _forest.Gate.regions(
        gate.feature,
        round_down(gate.threshold),
        gate.left,
        gate.right,
        gate.missing_left,
        gate.region,
        gate.region_weights,
        none if gate.temperature is None else gate.temperature,
        gate.n_features,
        *sums,
    )


def rebuild_gate(
    kind: str, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> LinearGate | RegionGate:
    """A gate from its kind and what a file holds of it.

    Parameters
    ----------
    kind : str
    arrays : mapping of str to ndarray
    settings : mapping of str to values

    Returns
    -------
    LinearGate or RegionGate

    Examples
    --------
    >>> gate = LinearGate(np.zeros(1), np.ones(1), np.ones((1, 1)), np.ones((2, 1)), np.zeros(2))
    >>> rebuild_gate(gate.kind, gate.arrays(), gate.settings()).n_members
    2
    """
    if kind not in GATES:
        known = ", ".join(sorted(GATES))
        raise ValueError(f"gate {kind[:20]!r} is not known to this version; it knows {known}.")
    return GATES[kind].rebuild(arrays, settings)
