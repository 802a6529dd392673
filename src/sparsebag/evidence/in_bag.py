"""In-bag rows, redrawn from an ensemble's seeds one member at a time."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import numpy as np

KEPT_BYTES = 1 << 26
"""Draws are kept, a byte a row, up to this much memory, and drawn again beyond: drawing costs as
much as a tree's vote, and both the votes and the refitted leaves ask for them."""
MOST_DRAWS = 255
"""Of one row that a byte can count."""


class InBagRows(Protocol):
    """Rows each member was trained on, with repeats: a list of arrays, or `RedrawnBags`."""

    def __len__(self) -> int: ...

    def __getitem__(self, j: int, /) -> np.ndarray: ...


class RedrawnBags:
    """Rows each member of a scikit-learn ensemble was trained on, drawn when asked for.

    scikit-learn keeps seeds, and its ``estimators_samples_`` draws every member's rows at once:
    M×N indices, more memory than the evidence itself. A copy of the ensemble with one seed draws
    one member's. Rows come in any order.

    Parameters
    ----------
    ensemble : fitted forest or bag
    seeded : str
        The attribute that holds one seed a member (a forest's trees know their own).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> forest = RandomForestClassifier(3, random_state=0).fit(*load_iris(return_X_y=True))
    >>> bags = RedrawnBags(forest, "estimators_")
    >>> np.array_equal(bags[1], forest.estimators_samples_[1])
    True
    """

    def __init__(self, ensemble: Any, seeded: str) -> None:
        self._ensemble = ensemble
        self._seeded = seeded
        self._kept: dict[int, np.ndarray] = {}
        self._kept_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}, "_kept_bytes": 0}

    def __len__(self) -> int:
        return len(getattr(self._ensemble, self._seeded))

    def __getitem__(self, j: int, /) -> np.ndarray:
        if j in self._kept:
            draws = self._kept[j]
            return np.repeat(np.arange(len(draws)), draws)
        rows = self._drawn(j)
        draws = np.bincount(rows)
        if self._kept_bytes + len(draws) <= KEPT_BYTES and draws.max(initial=0) <= MOST_DRAWS:
            self._kept[j] = draws.astype(np.uint8)
            self._kept_bytes += len(draws)
        return rows

    def _drawn(self, j: int) -> np.ndarray:
        one = copy.copy(self._ensemble)
        setattr(one, self._seeded, getattr(self._ensemble, self._seeded)[j : j + 1])
        try:
            (rows,) = one.estimators_samples_
        except AttributeError as error:
            raise ValueError(
                f"the bootstrap of this {type(self._ensemble).__name__} cannot be redrawn, "
                f"because it was fitted by another version of scikit-learn ({error}); refit it, "
                "or pass held-out rows with evidence='holdout'."
            ) from error
        return np.asarray(rows)
