"""Which members a row is left to, how far from the global weights, and by which features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.deploy.gate import CompiledGate
from sparsebag.refine.gate import ACTIVATIONS, Gate, LinearGate, in_dense_blocks
from sparsebag.refine.region_gate import RegionGate

SHOWN = 3
"""Features, members or regions that are told of in a line."""
DIGITS_OF_UNIT, MOST_DIGITS = 3, 15
"""Digits of a threshold, below its unit and in all."""
LEAST_SHOWN = 0.005
"""Share of the vote that a feature moves; less would be told as 0 %."""


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
        What they would be without a gate; NaN likewise.
    temperatures : ndarray of shape (rows,) or None
        Of the vote, where they depend on the row.
    feature_effects : ndarray of shape (rows, n_features)
        How much of the vote would move to other members if the feature's value were missing: from
        0 (the gate does not look at it, or the value is an ordinary one) to 1.
    regions : int ndarray of shape (rows,) or None
        Region of each row, where the gate has regions.
    rules : tuple of str
        Each region in words.
    feature_names : tuple of str
    """

    members: np.ndarray
    weights: np.ndarray
    global_weights: np.ndarray
    temperatures: np.ndarray | None
    feature_effects: np.ndarray
    regions: np.ndarray | None
    rules: tuple[str, ...]
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
            told = "1 row: it has" if n == 1 else f"{n:,} rows: every one has"
            told += " the global weights."
            return told if self.temperatures is None else f"{told} {self._temperature()}"
        low, middle, high = np.percentile(100.0 * self.moved, [10, 50, 90])
        where = "1 row:" if n == 1 else f"{n:,} rows: in the median one"
        spread = "" if n == 1 else f" ({low:.0f} to {high:.0f} % in most rows)"
        lines = [
            f"{where} {middle:.0f} % of the weight is moved between members, against the global "
            f"weights{spread}."
        ]
        strength = self.feature_effects.mean(axis=0)
        top = [
            f for f in np.argsort(-strength, kind="stable")[:SHOWN] if strength[f] >= LEAST_SHOWN
        ]
        if top:
            told = ", ".join(f"{self.feature_names[f]} ({100 * strength[f]:.0f} %)" for f in top)
            lines.append(f"Features that move the vote: {told}.")
        gained = (self.weights - self.global_weights).max(axis=0)
        told = ", ".join(
            f"{self.members[j]} ({_by_row(self.weights[:, j])}, globally "
            f"{self.global_weights[j]:.3f})"
            for j in np.argsort(-gained, kind="stable")[:SHOWN]
        )
        lines.append(f"Members trusted most locally, by their number in the ensemble: {told}.")
        lines += [] if self.temperatures is None else [self._temperature()]
        return "\n".join(lines)

    def _temperature(self) -> str:
        assert self.temperatures is not None
        low, high = float(self.temperatures.min()), float(self.temperatures.max())
        if len(self.temperatures) == 1:
            return f"Temperature {low:.2f}."
        if high - low < 0.005:
            return f"Temperature {low:.2f} everywhere."
        return f"Temperatures from {low:.2f} to {high:.2f}."


def _by_row(weights: np.ndarray) -> str:
    """A member's weights in words."""
    if len(weights) == 1:
        return f"{weights[0]:.3f} here"
    return f"between {weights.min():.3f} and {weights.max():.3f} by row"


def explained_weights(
    gate: Gate | None,
    X: Any,
    members: np.ndarray,
    global_weights: np.ndarray,
    feature_names: tuple[str, ...] | None = None,
) -> ExplainedWeights:
    """The members' weights for some rows, and what moved them.

    Parameters
    ----------
    gate : Gate or None
        Members in the order of ``global_weights``.
    X : array-like or sparse matrix of shape (rows, n_features)
        Numbers.
    members : int ndarray of shape (n_active,)
    global_weights : ndarray of shape (n_active,)
    feature_names : tuple of str, optional

    Returns
    -------
    ExplainedWeights

    Examples
    --------
    >>> gate = LinearGate(np.zeros(2), np.ones(2), np.array([[1.0, 0.0]]),
    ...                   np.array([[1.0], [0.0]]), np.log([0.5, 0.5]))
    >>> found = explained_weights(gate, np.array([[np.log(3.0), 1.0]]), np.array([4, 7]),
    ...                           np.array([0.5, 0.5]))
    >>> found.weights.round(6).tolist(), found.feature_effects.round(6).tolist()
    ([[0.75, 0.25]], [[0.25, 0.0]])
    """
    n, d = X.shape
    names = feature_names or tuple(f"x{f}" for f in range(d))
    weights = np.tile(global_weights, (n, 1)) if gate is None else gate.weights(X)
    tree = gate if isinstance(gate, RegionGate) else None
    return ExplainedWeights(
        members=np.asarray(members),
        weights=weights,
        global_weights=np.asarray(global_weights),
        temperatures=None if gate is None else gate.temperatures(X),
        feature_effects=_effects(gate, X, weights),
        regions=None if tree is None else tree.regions(X),
        rules=() if tree is None else tuple(region_rules(tree, names)),
        feature_names=names,
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
    if gate.global_weights is None or gate.members is None:
        raise ValueError(
            "the file is of an early version, without the global weights that a gate's are "
            "compared with; save the model again."
        )
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


def region_rules(gate: RegionGate, names: tuple[str, ...]) -> list[str]:
    """Each region in words: the tests on the way to it, a feature's merged into one.

    Parameters
    ----------
    gate : RegionGate
    names : tuple of str
        Of the features.

    Returns
    -------
    list of str

    Examples
    --------
    >>> gate = RegionGate([0, 0, 0], [0.5, 0, 0], [1, -1, -1], [2, -1, -1], [1, 0, 0], [-1, 0, 1],
    ...                   [[1.0], [1.0]], 1)
    >>> region_rules(gate, ("age",))
    ['(age <= 0.5 or missing)', 'age > 0.5']
    """
    rules = [""] * gate.n_regions
    for region, tests in _tests(gate):
        own = " and ".join(_test(gate, names, f, *test) for f, test in tests.items()) or "all rows"
        rules[region] = f"{rules[region]}, or {own}" if rules[region] else own
    return rules


def _test(
    gate: RegionGate, names: tuple[str, ...], f: int, low: float, high: float, missing: bool
) -> str:
    if f < gate.n_features:
        return _words(names[f], low, high, missing)
    assert gate.directions is not None
    at = f - gate.n_features
    text, high, unit = gate.directions.in_words(names, at, high)
    return _words(text, gate.directions.in_words(names, at, low)[1], high, False, unit)


def _figure(value: float, unit: float | None) -> str:
    """Six digits, or as many as tell a thousandth of the unit."""
    if unit is None or value == 0.0:
        return f"{value:.6g}"
    digits = int(np.ceil(np.log10(max(abs(value) / unit, 1e-3)))) + DIGITS_OF_UNIT
    return f"{value:.{min(max(digits, 1), MOST_DIGITS)}g}"


def _words(name: str, low: float, high: float, missing: bool, unit: float | None = None) -> str:
    """Above ``low`` and up to ``high``, or missing."""
    if low >= high:  # no number is
        return f"{name} missing"
    if low == -np.inf and high == np.inf:
        return name if missing else f"{name} not missing"
    if low == -np.inf:
        text = f"{name} <= {_figure(high, unit)}"
    elif high == np.inf:
        text = f"{name} > {_figure(low, unit)}"
    else:
        text = f"{_figure(low, unit)} < {name} <= {_figure(high, unit)}"
    return f"({text} or missing)" if missing else text


Tests = dict[int, tuple[float, float, bool]]


def _tests(gate: RegionGate) -> Iterator[tuple[int, Tests]]:
    """Leaves' regions and, for each feature on the way: above, up to, and whether NaN comes too."""
    pending: list[tuple[int, Tests]] = [(0, {})]
    while pending:
        node, tests = pending.pop()
        if gate.region[node] >= 0:
            yield int(gate.region[node]), tests
            continue
        f, cut = int(gate.feature[node]), float(gate.threshold[node])
        low, high, missing = tests.get(f, (-np.inf, np.inf, True))
        to_left = bool(gate.missing_left[node])
        left = (low, min(high, cut), missing and to_left)
        right = (max(low, cut), high, missing and not to_left)
        pending.append((int(gate.right[node]), {**tests, f: right}))
        pending.append((int(gate.left[node]), {**tests, f: left}))


def _effects(gate: Gate | None, X: Any, weights: np.ndarray) -> np.ndarray:
    """Share of the vote that moves if a value is missing, feature by feature."""
    out = np.zeros(X.shape)
    if isinstance(gate, LinearGate):
        z = in_dense_blocks(X, gate.n_features, gate.standardised)
        hidden = gate.hidden(X)
        for f in np.flatnonzero(np.any(gate.down != 0.0, axis=0)):
            without = gate.logits(hidden - np.outer(z[:, f], gate.down[:, f]))
            out[:, f] = _distance(ACTIVATIONS[gate.activation](without), weights)
    elif isinstance(gate, RegionGate):
        rows = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        with np.errstate(over="ignore"):
            rows = rows.astype(np.float32)
        for f in _features_read(gate):
            holes = rows.copy()
            holes[:, f] = np.nan
            out[:, f] = _distance(gate.weights(holes), weights)
    return out


def _features_read(gate: RegionGate) -> np.ndarray:
    """Features that a test reads, alone or in a sum."""
    tested = np.unique(gate.feature[gate.region < 0])
    alone = tested[tested < gate.n_features]
    if gate.directions is None:
        return np.asarray(alone)
    sums = gate.directions.down[tested[tested >= gate.n_features] - gate.n_features]
    return np.union1d(alone, np.flatnonzero(np.any(sums != 0.0, axis=0)))


def _distance(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Share of the weight that has to move to make one vector the other, row by row."""
    return np.asarray(0.5 * np.abs(first - second).sum(axis=1))
