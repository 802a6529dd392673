"""imbalanced-learn's ensembles, each of whose members saw a resampled part of the rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from sparsebag.evidence.members import InBagRows, MemberPool


@dataclass(frozen=True)
class ResampledBags:
    """Rows each member was trained on: drawn by the ensemble, and picked by a sampler.

    Attributes
    ----------
    drawn : sequence of ndarray
        By the ensemble.
    samplers : list
        Fitted, one a member.
    first : {"draw", "sampler"}
        Who picked from all rows; the other picked from those.
    """

    drawn: Any
    samplers: list[Any]
    first: str
    are_resampled: ClassVar[bool] = True
    """Trees count a row as often as it was picked, and classes have the sampler's shares."""

    def __len__(self) -> int:
        return len(self.samplers)

    def __getitem__(self, j: int, /) -> np.ndarray:
        picked, drawn = np.asarray(self.samplers[j].sample_indices_), self.drawn[j]
        return np.asarray(picked[drawn] if self.first == "sampler" else drawn[picked])


@dataclass(frozen=True)
class _Bootstraps:
    """A forest's bootstrap of the rows that each tree's sampler picked."""

    forest: Any

    def __getitem__(self, j: int, /) -> np.ndarray:
        forest, n_rows = self.forest, len(self.forest.samplers_[j].sample_indices_)
        if not forest.bootstrap:
            return np.arange(n_rows)
        n_drawn = min(forest.max_samples or n_rows, n_rows)
        seeded = check_random_state(forest.estimators_[j].random_state)
        return np.asarray(seeded.randint(0, n_rows, n_drawn))


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
        bags: InBagRows = ResampledBags(_Bootstraps(model), model.samplers_, "sampler")
        if model.bootstrap and isinstance(model.max_samples, float):
            told = "imbalanced-learn forgets how many rows a share in max_samples is"
            return replace(pool, in_bag=None, no_in_bag=told)
        return replace(pool, in_bag=bags, n_rows=None)
    if isinstance(model, (imb.BalancedBaggingClassifier, imb.EasyEnsembleClassifier)):
        pool = _read_bag(model)
        steps = [member.estimator.steps for member in pool.members]
        members = tuple(
            replace(m, estimator=last[-1][1]) for m, last in zip(pool.members, steps, strict=True)
        )
        if pool.in_bag is not None:
            bags = ResampledBags(pool.in_bag, [step[0][1] for step in steps], "draw")
            pool = replace(pool, in_bag=bags)
        is_tree = all(member.is_tree for member in members)
        return replace(pool, members=members, input_kind="tree" if is_tree else "array")
    raise TypeError(
        f"cannot compress imbalanced-learn's {type(model).__name__}; pass a "
        "BalancedRandomForestClassifier, BalancedBaggingClassifier or EasyEnsembleClassifier."
    )
