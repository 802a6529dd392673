"""Isotonic calibration: a monotone map a class, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sparsebag.refine.calibrator import Params


# eq=False: comparing arrays has no single truth value.
@dataclass(frozen=True, eq=False)
class Isotonic:
    """Monotone maps, linear between knots and constant outside: one a class, or one for two.

    With two classes the second one's probability is mapped, and the first one's is the rest; with
    more, every class is mapped and the results are normalised.

    Attributes
    ----------
    knots : ndarray of shape (knots of all maps,)
        Ascending within a map.
    values : ndarray of shape (knots of all maps,)
        Ascending within a map, from 0 to 1.
    lengths : ndarray of shape (maps,)
        Knots of each map.

    Examples
    --------
    >>> maps = Isotonic(np.array([0.0, 1.0]), np.array([0.2, 0.8]), np.array([2.0]))
    >>> maps.transform(np.array([[0.5, 0.5], [1.0, 0.0]])).round(6).tolist()
    [[0.5, 0.5], [0.8, 0.2]]
    """

    knots: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    kind: ClassVar[str] = "isotonic"

    def __post_init__(self) -> None:
        sizes = self.lengths
        if sizes.ndim != 1 or not np.all((sizes == np.floor(sizes)) & (sizes >= 1)):
            raise ValueError("an isotonic map has at least one knot.")
        if self.knots.ndim != 1 or self.knots.shape != self.values.shape:
            raise ValueError("isotonic maps have one value a knot.")
        if sizes.sum() != len(self.knots):
            raise ValueError("the lengths of isotonic maps do not add up to their knots.")
        if not np.all((self.values >= 0.0) & (self.values <= 1.0)):
            raise ValueError("the values of isotonic maps are not probabilities.")
        for knots, values in self.maps():
            if np.any(np.diff(knots) <= 0.0) or np.any(np.diff(values) < 0.0):
                raise ValueError("an isotonic map does not ascend.")

    def maps(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Knots and values of each map."""
        cuts = np.cumsum(self.lengths.astype(np.int64))[:-1]
        return list(zip(np.split(self.knots, cuts), np.split(self.values, cuts), strict=True))

    @property
    def params(self) -> Params:
        """Knots, values and lengths."""
        return {"knots": self.knots, "values": self.values, "lengths": self.lengths}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """The maps, class by class, normalised; uniform where every class is mapped to zero."""
        maps = self.maps()
        if len(maps) == 1:
            second = np.interp(proba[:, 1], *maps[0])
            return np.stack([1.0 - second, second], axis=1)
        mapped = np.stack([np.interp(p, *m) for p, m in zip(proba.T, maps, strict=True)], axis=1)
        total = mapped.sum(axis=1, keepdims=True)
        uniform = np.full_like(mapped, 1.0 / mapped.shape[1])
        return np.asarray(np.divide(mapped, total, out=uniform, where=total > 0.0))


def isotonic_from(models: Sequence[Any]) -> Isotonic:
    """The maps of fitted ``sklearn.isotonic.IsotonicRegression`` objects.

    Parameters
    ----------
    models : sequence of IsotonicRegression
        One a class, or one for two classes.

    Returns
    -------
    Isotonic

    Examples
    --------
    >>> from sklearn.isotonic import IsotonicRegression
    >>> model = IsotonicRegression().fit([0.0, 1.0], [0.2, 0.8])
    >>> isotonic_from([model]).knots.tolist()
    [0.0, 1.0]
    """
    return Isotonic(
        np.concatenate([m.X_thresholds_ for m in models]).astype(np.float64),
        np.clip(np.concatenate([m.y_thresholds_ for m in models]), 0.0, 1.0).astype(np.float64),
        np.array([float(len(m.X_thresholds_)) for m in models]),
    )


def fit_isotonic(
    proba: np.ndarray, target: np.ndarray, weight: np.ndarray, n_rows: int | None = None
) -> Isotonic:
    """Monotone maps of least squared error that never say 0 or 1.

    Parameters
    ----------
    proba : ndarray of shape (votes, C)
    target : int ndarray of shape (votes,)
        Column of each vote's true class.
    weight : ndarray of shape (votes,)
    n_rows : int, optional
        Rows behind the votes, where there are several votes a row: a map is no surer than as
        many rows allow.

    Returns
    -------
    Isotonic

    Examples
    --------
    >>> votes = np.array([[0.9, 0.1]] * 8 + [[0.1, 0.9]] * 8)
    >>> fitted = fit_isotonic(votes, np.repeat([0, 1], 8), np.ones(16))
    >>> fitted.transform(votes)[0].round(2).tolist()
    [0.94, 0.06]
    """
    from sklearn.isotonic import IsotonicRegression

    n_classes = proba.shape[1]
    least = 1.0 / ((len(proba) if n_rows is None else n_rows) + 2.0)  # Laplace's rule
    columns = [1] if n_classes == 2 else range(n_classes)
    models = [
        IsotonicRegression(y_min=least, y_max=1.0 - least, out_of_bounds="clip").fit(
            proba[:, c], target == c, sample_weight=weight
        )
        for c in columns
    ]
    return isotonic_from(models)
