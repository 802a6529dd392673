"""Where in feature space which members are trusted: a gate's weights on the test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.deploy.explained_weights import ExplainedWeights, explained_weights
from sparsebag.deploy.real_numbers import as_numbers
from sparsebag.deploy.weighted_vote import WeightedVote

SHOWN_MEMBERS = 4
"""With a colour of their own; more cannot be told apart."""
DRAWN_ROWS = 600
OUTER = 0.5
"""Percent of the rows at either end that an axis may leave out: far ones would press the rest."""


@dataclass(frozen=True)
class Group:
    """Rows that have something in common: the member they trust more than globally, or how sure.

    Attributes
    ----------
    name : str
    n_rows : int
    usual, here : str
        Of a member: its global weight, and its mean weight on these rows; else empty.
    where : str
        Their middle values of the features that decide, beside those of all rows.
    """

    name: str
    n_rows: int
    usual: str
    here: str
    where: str


@dataclass(frozen=True)
class TrustedMembers:
    """What the page shows of a gate.

    Attributes
    ----------
    summary : str
    groups : tuple of Group
    labels : tuple of str
        Of the two axes.
    x, y : ndarray of shape (drawn rows,)
    group_of : int ndarray of shape (drawn rows,)
        Position in ``groups``.
    """

    summary: str
    groups: tuple[Group, ...]
    labels: tuple[str, str]
    x: np.ndarray
    y: np.ndarray
    group_of: np.ndarray


def trusted_members(small: WeightedVote, X: Any, members: np.ndarray) -> TrustedMembers | None:
    """The gate's weights on some rows, as the page shows them; None without a gate.

    Parameters
    ----------
    small : WeightedVote
    X : array-like, sparse matrix or DataFrame of shape (rows, n_features)
    members : int ndarray of shape (n_active,)
        Positions of the survivors in the full ensemble.

    Returns
    -------
    TrustedMembers or None
    """
    if small.gate is None:
        return None
    columns = getattr(X, "columns", None)
    names = None if columns is None else tuple(map(str, columns))
    rows = X.toarray() if hasattr(X, "toarray") else as_numbers(X, names)
    if len(rows) == 0:
        return None
    found = explained_weights(small.gate, rows, members, small.weights, names)
    strength = found.feature_effects.mean(axis=0)
    own, groups = _by_member(found)
    deciding = np.argsort(-strength, kind="stable")[:2]
    groups = tuple(
        _with_place(group, rows[own == g], rows, found, deciding) for g, group in enumerate(groups)
    )
    x, y, labels = _axes(found, rows, strength, deciding)
    seen = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    drawn = seen[np.linspace(0, len(seen) - 1, min(len(seen), DRAWN_ROWS)).astype(int)]
    return TrustedMembers(
        summary=str(found),
        groups=groups,
        labels=labels,
        x=x[drawn],
        y=y[drawn],
        group_of=own[drawn],
    )


def axis_range(values: np.ndarray) -> tuple[float, float]:
    """Where an axis begins and ends; a few far rows do not press all others together.

    Parameters
    ----------
    values : ndarray

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> axis_range(np.array([1.0, 1.0]))
    (0.5, 1.5)
    """
    if len(values) == 0:
        return 0.0, 1.0
    low, high = (float(v) for v in np.percentile(values, [OUTER, 100.0 - OUTER]))
    room = 0.04 * (high - low) or max(0.5, 0.04 * abs(low))
    return low - room, high + room


def _by_member(found: ExplainedWeights) -> tuple[np.ndarray, tuple[Group, ...]]:
    """Rows by the member whose weight is above its global one by most."""
    favoured = np.argmax(found.weights - found.global_weights, axis=1)
    count = np.bincount(favoured, minlength=len(found.members))
    top = [j for j in np.argsort(-count, kind="stable")[:SHOWN_MEMBERS] if count[j]]
    own = np.full(len(favoured), len(top))
    groups = []
    for g, j in enumerate(top):
        own[favoured == j] = g
        mean = float(found.weights[favoured == j, j].mean())
        usual = f"{found.global_weights[j]:.3f}"
        groups.append(Group(f"member {found.members[j]}", int(count[j]), usual, f"{mean:.3f}", ""))
    others = int(np.sum(own == len(top)))
    if others:
        groups.append(Group("another member", others, "", "", ""))
    return own, tuple(groups)


def _with_place(
    group: Group, own: np.ndarray, rows: np.ndarray, found: ExplainedWeights, deciding: np.ndarray
) -> Group:
    parts = []
    for f in deciding:
        here, usual = (_middle(values[:, f]) for values in (own, rows))
        parts.append(f"{found.feature_names[f]} {here} (all rows {usual})")
    return Group(group.name, group.n_rows, group.usual, group.here, ", ".join(parts))


def _middle(values: np.ndarray) -> str:
    known = values[np.isfinite(values)]
    return f"{np.median(known):.3g}" if len(known) else "missing"


def _axes(
    found: ExplainedWeights, rows: np.ndarray, strength: np.ndarray, deciding: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    """The two features that decide; of one alone, how much of the vote it moves."""
    first = rows[:, deciding[0]].astype(np.float64)
    if len(deciding) > 1 and strength[deciding[1]] > 0.0:
        a, b = (found.feature_names[f] for f in deciding)
        return first, rows[:, deciding[1]].astype(np.float64), (a, b)
    name = found.feature_names[deciding[0]]
    return first, found.moved, (name, "share of the vote moved")
