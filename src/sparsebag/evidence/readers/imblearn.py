"""imbalanced-learn's ensembles, each of whose members saw a resampled part of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sparsebag.evidence.members import MemberPool


@dataclass(frozen=True)
class ResampledBags:
    """Rows each member was trained on: drawn by the ensemble, and picked by a sampler.

    Attributes
    ----------
    rows : function
        From the number of a member to its rows.
    n_members : int
    """

    rows: Callable[[int], np.ndarray]
    n_members: int
    are_resampled: ClassVar[bool] = True
    """Classes have the sampler's shares."""

    def __len__(self) -> int:
        return self.n_members

    def __getitem__(self, j: int, /) -> np.ndarray:
        return np.asarray(self.rows(j))


def _picked(forest: Any, j: int) -> np.ndarray:
    """Rows that a forest's sampler picked, and their bootstrap."""
    rows = np.asarray(forest.samplers_[j].sample_indices_)
    if not forest.bootstrap:
        return rows
    seeded, n_drawn = check_random_state(forest.estimators_[j].random_state), forest.max_samples
    return np.asarray(rows[seeded.randint(0, len(rows), min(n_drawn or len(rows), len(rows)))])


def read(model: Any) -> MemberPool:
    """A pool of the members of a fitted ensemble.

    Parameters
    ----------
    model : BalancedRandomForestClassifier, BalancedBaggingClassifier or EasyEnsembleClassifier

    Returns
    -------
    MemberPool
    """
    from imblearn import ensemble as imb

    from sparsebag.evidence.from_ensemble import _read_bag, _read_forest

    if isinstance(model, imb.BalancedRandomForestClassifier):
        pool = _read_forest(model)
        bags = ResampledBags(partial(_picked, model), len(model.estimators_))
        if model.bootstrap and isinstance(model.max_samples, float):
            told = "imbalanced-learn forgets how many rows a share in max_samples is"
            return replace(pool, in_bag=None, no_in_bag=told)
        return replace(pool, in_bag=bags, n_rows=None)
    if isinstance(model, (imb.BalancedBaggingClassifier, imb.EasyEnsembleClassifier)):
        pool = _read_bag(model)
        steps = [member.estimator.steps for member in pool.members]
        pairs = zip(pool.members, steps, strict=True)
        members = tuple(replace(member, estimator=step[-1][1]) for member, step in pairs)
        drawn = pool.in_bag
        if drawn is not None:
            bags = ResampledBags(lambda j: drawn[j][steps[j][0][1].sample_indices_], len(steps))
            pool = replace(pool, in_bag=bags)
        is_tree = all(member.is_tree for member in members)
        return replace(pool, members=members, input_kind="tree" if is_tree else "array")
    raise TypeError(
        f"cannot compress imbalanced-learn's {type(model).__name__}; pass a "
        "BalancedRandomForestClassifier, BalancedBaggingClassifier or EasyEnsembleClassifier."
    )
