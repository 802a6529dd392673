"""From weights, however they were found, to a model that serves."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np

from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.settings import DEFAULT_FLOOR
from sparsebag.solvers.base import Solution

SUM_TOLERANCE = 1e-4
"""Of weights that are on the simplex but for rounding, float16 ones too."""


def with_weights(ensemble: Any, weights: Any, *, floor: float = DEFAULT_FLOOR) -> CompiledEnsemble:
    """The weighted vote of an ensemble's members, those of weight zero left out.

    For weights of `fit_weights`, `OnlineWeights` or anything else: `compress` fits weights and
    does this by itself.

    Parameters
    ----------
    ensemble : fitted ensemble or list of fitted models
        As `compress` takes them. It is not changed.
    weights : array-like of shape (N,) or Solution
        On the simplex, members in the ensemble's order; of a solution, its ``weights``.
    floor : float
        Share of the uniform class distribution in each vote, so that no class has probability
        zero. The default is that of `fit_weights`.

    Returns
    -------
    CompiledEnsemble
        With ``predict``, ``predict_proba``, ``predict_one`` and ``score``; not calibrated. `save`
        writes it to a file.

    Raises
    ------
    ValueError
        Where the weights are not one a member, or not on the simplex.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(50, random_state=0).fit(X, y)
    >>> solution = sb.fit_weights(sb.stream_members(forest, X, y))
    >>> model = sb.with_weights(forest, solution.weights)
    >>> model.n_models == solution.n_active
    True
    """
    pool = read_ensemble(ensemble)
    if isinstance(weights, Solution):
        weights = weights.weights
    try:
        given = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            "weights must be numbers, one for each member (weights_ of OnlineWeights, say), or the "
            "solution of fit_weights; got "
            f"{type(weights).__name__}."
        ) from None
    if given.shape != (len(pool.members),):
        raise ValueError(
            f"weights must have shape ({len(pool.members)},), one for each member; got shape "
            f"{given.shape}."
        )
    if not np.all(np.isfinite(given)) or given.min() < 0.0 or not _sums_to_one(given):
        raise ValueError(
            "weights must be finite, not negative, and sum to one; got a smallest of "
            f"{given.min():.3g} and a sum of {given.sum():.6g}."
        )
    asked: Any = floor
    is_number = isinstance(asked, Real) and asked is not True and asked is not False
    if not is_number or not 0.0 <= asked < 1.0:
        raise ValueError(f"floor must be a number, at least 0 and below 1; got {floor!r}.")
    active = np.flatnonzero(given)
    share = given[active] / given[active].sum()
    compiled = compile_members(pool.keep(active), share, floor if pool.classes is not None else 0.0)
    names = getattr(pool.source, "feature_names_in_", None)
    return compiled if names is None else replace(compiled, feature_names=tuple(map(str, names)))


def _sums_to_one(weights: np.ndarray) -> bool:
    return bool(abs(weights.sum() - 1.0) <= SUM_TOLERANCE)
