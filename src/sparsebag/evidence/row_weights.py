"""Row weights of every step: the caller's, times what the ensemble makes of its classes.

``class_weight``, balanced bags and weighted draws say what the probabilities are *for*. Calibrating
or refitting to the raw class shares would undo them, so every step weighs rows as the ensemble did.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from sparsebag.evidence.members import MemberPool

LEAST_CHANGE, ERRORS = 0.05, 4.0
"""Balanced classes change a class's share by more; and so many standard errors of bootstraps."""


def row_weights(
    pool: MemberPool,
    target: np.ndarray,
    sample_weight: np.ndarray | None,
    *,
    held_out: bool = False,
) -> np.ndarray:
    """Weights of mean one under which the classes have the shares that the members saw.

    Parameters
    ----------
    pool : MemberPool
    target : ndarray of shape (M,)
        Class positions, or numbers.
    sample_weight : ndarray of shape (M,) or None
    held_out : bool, default False
        Whether the members were trained on other rows, whose class shares differ by chance.

    Returns
    -------
    ndarray of shape (M,)

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X, y = np.arange(40.0).reshape(40, 1), np.repeat([0, 1], [30, 10])
    >>> forest = RandomForestClassifier(50, class_weight="balanced", random_state=0).fit(X, y)
    >>> weight = row_weights(read_ensemble(forest), y, None)
    >>> float(round(weight[y == 1].sum() / weight.sum(), 1))
    0.5
    """
    weight = np.ones(len(target)) if sample_weight is None else np.array(sample_weight, dtype=float)
    if pool.classes is not None:
        given = np.bincount(target, weight, minlength=len(pool.classes)) / weight.sum()
        seen = _seen_shares(pool, target, given)
        factor = np.divide(seen, given, out=np.ones_like(given), where=given > 0.0)
        drawn = np.bincount(target, minlength=len(given)) * (1 if held_out else len(pool.members))
        least = np.maximum(LEAST_CHANGE, ERRORS / np.sqrt(np.maximum(drawn, 1)))
        if np.any(np.abs(factor - 1.0) > least):
            weight = weight * factor[target]
    return np.asarray(weight / weight.mean())


def _seen_shares(pool: MemberPool, target: np.ndarray, given: np.ndarray) -> np.ndarray:
    """Mean share of each class among the rows a member was trained on, as it weighed them."""
    if all(member.is_tree for member in pool.members):
        shares = np.zeros((len(pool.members), len(given)))
        for share, member in zip(shares, pool.members, strict=True):
            root = np.asarray(member.estimator.tree_.value[0, 0], dtype=float)
            share[member.class_columns] = root / root.sum()
        return np.asarray(shares.mean(axis=0))
    asked: Any = getattr(pool.members[0].estimator, "class_weight", None)
    if asked is None or pool.classes is None:
        return given
    present = np.unique(target)
    if isinstance(asked, dict):  # inside a bag the labels are positions
        known = {int(p): asked.get(p, asked.get(pool.classes[p], 1.0)) for p in present}
        asked = known
    per_class = np.ones(len(given))
    per_class[present] = compute_class_weight(asked, classes=present, y=target)
    return np.asarray(given * per_class / (given @ per_class))
