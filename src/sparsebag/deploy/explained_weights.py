"""Which members a row is left to, how far from the global weights, and by which features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.deploy.gate import CompiledGate
from sparsebag.local.gate import LinearGate

SHOWN = 3
"""Features, or members, in a line."""
LEAST_SHOWN = 0.005
"""Share of the vote that a feature moves; less would read 0 %."""


@dataclass(frozen=True, eq=False)
class ExplainedWeights:
    """The members' weights for some rows. ``print`` it.

    Attributes
    ----------
    members : int ndarray of shape (n_active,)
        Positions in the ensemble that was compressed, as ``active_``; -1 where unknown.
    weights : ndarray of shape (rows, n_active)
        On the simplex; NaN of a model without a gate that was read from a file, which has them in
        its leaves.
    global_weights : ndarray of shape (n_active,)
        The weights without a gate; NaN where ``weights`` are.
    feature_effects : ndarray of shape (rows, n_features)
        Share of the vote that would move to other members if the feature's value were missing.
    feature_names : tuple of str
    """

    members: np.ndarray
    weights: np.ndarray
    global_weights: np.ndarray
    feature_effects: np.ndarray
    feature_names: tuple[str, ...]

    @property
    def moved(self) -> np.ndarray:
        """Share of each row's vote that members have who would not have it globally."""
        if np.isnan(self.global_weights).any():  # unknown, and the same for every row
            return np.zeros(len(self.weights))
        return _distance(self.weights, self.global_weights)

    def __str__(self) -> str:
        n = len(self.weights)
        if n == 0:
            return "0 rows: there is nothing to explain."
        if float(self.moved.max()) < 1e-12:
            return f"{'1 row: it' if n == 1 else f'{n:,} rows: every one'} has the global weights."
        low, middle, high = np.percentile(100.0 * self.moved, [10, 50, 90])
        spread = "" if n == 1 else f" in the median row ({low:.0f} to {high:.0f} % in most)"
        rows = "1 row" if n == 1 else f"{n:,} rows"
        lines = [f"{rows}: {middle:.0f} % of the weight moves between members{spread}."]
        strength = self.feature_effects.mean(axis=0)
        top = np.argsort(-strength, kind="stable")[:SHOWN]
        told = [
            f"{self.feature_names[f]} ({100 * strength[f]:.0f} %)"
            for f in top
            if strength[f] >= LEAST_SHOWN
        ]
        if told:
            lines.append(f"Features that move it: {', '.join(told)}.")
        gained = (self.weights - self.global_weights).max(axis=0)
        told = [
            f"{self.members[j]} ({_range(self.weights[:, j])}, globally "
            f"{self.global_weights[j]:.3f})"
            for j in np.argsort(-gained, kind="stable")[:SHOWN]
        ]
        lines.append(f"Members trusted most locally: {', '.join(told)}.")
        return "\n".join(lines)


def _range(weights: np.ndarray) -> str:
    low, high = f"{weights.min():.3f}", f"{weights.max():.3f}"
    return low if low == high else f"{low} to {high}"


def explained_weights(
    gate: LinearGate | None,
    X: Any,
    members: np.ndarray,
    global_weights: np.ndarray,
    feature_names: tuple[str, ...] | None = None,
) -> ExplainedWeights:
    """The members' weights for some rows, and what moves them.

    Parameters
    ----------
    gate : LinearGate or None
        Members in the order of ``global_weights``.
    X : array-like or sparse matrix of shape (rows, n_features)
        Numbers.
    members : int ndarray of shape (n_active,)
    global_weights : ndarray of shape (n_active,)
    feature_names : tuple of str, optional

    Returns
    -------
    ExplainedWeights
    """
    n, d = X.shape
    effects = np.zeros((n, d))
    weights = np.tile(global_weights, (n, 1))
    if gate is not None:
        z, hidden = gate.standardised(X), gate.hidden(X)
        weights = gate.weights_at(hidden)
        for f in np.flatnonzero(np.any(gate.down != 0.0, axis=0)):
            without = gate.weights_at(hidden - np.outer(z[:, f], gate.down[:, f]))
            effects[:, f] = _distance(without, weights)
    return ExplainedWeights(
        members=np.asarray(members),
        weights=weights,
        global_weights=np.asarray(global_weights),
        feature_effects=effects,
        feature_names=feature_names or tuple(f"x{f}" for f in range(d)),
    )


def explained_gate(
    gate: CompiledGate | None, X: Any, feature_names: tuple[str, ...] | None, paths: tuple[str, ...]
) -> ExplainedWeights:
    """The same of a compiled model, whose gate knows whose weights it moves.

    Parameters
    ----------
    gate : CompiledGate or None
        None: every row has the global weights, which such a model no longer knows one by one.
    X : array-like or sparse matrix of shape (rows, n_features)
        Numbers.
    feature_names : tuple of str or None
    paths : tuple of str
        Of the members, of which there are as many.

    Returns
    -------
    ExplainedWeights
    """
    if gate is None:
        unknown = np.full(len(paths), -1), np.full(len(paths), np.nan)
        return explained_weights(None, X, *unknown, feature_names)
    order = np.argsort(gate.members)
    whose = gate.members[order], gate.global_weights[order]
    return explained_weights(gate.source.take(order), X, *whose, feature_names)


def refuse_infinity(X: Any) -> None:
    """One sentence for rows that are not predicted, and so have no weights to explain.

    Parameters
    ----------
    X : ndarray or sparse matrix
        Numbers.

    Examples
    --------
    >>> refuse_infinity(np.array([[np.nan, 1.0]]))
    """
    infinite = np.isinf(X.data if hasattr(X, "toarray") else X)
    if infinite.any():
        where = "" if hasattr(X, "toarray") else f" (first in row {np.argwhere(infinite)[0][0]})"
        raise ValueError(
            f"X contains infinity{where}; rows with it are not predicted, so there are no weights "
            "to explain: leave them out."
        )


def _distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Share of the weight that has to move to make one vector the other, row by row."""
    return np.asarray(0.5 * np.abs(first - second).sum(axis=1))
