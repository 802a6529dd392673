"""Reading fitted ensembles: every scikit-learn quirk lives here.

To support another kind of ensemble, write a reader and add it to `READERS`; of another library, a
file in ``readers/``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from sparsebag.evidence.members import (
    FittedMembers,
    FoldForests,
    InBagRows,
    Member,
    MemberPool,
    RedrawnBags,
    Task,
    class_positions,
    does_classification,
    multi_output,
    shown,
)
from sparsebag.evidence.readers import library_reader

FORESTS = (RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor)
BAGS = (BaggingClassifier, BaggingRegressor)
VOTERS = (VotingClassifier, VotingRegressor)


def read_ensemble(ensemble: Any) -> MemberPool:
    """Turn a fitted ensemble, or a list of fitted models, into a pool of members.

    Parameters
    ----------
    ensemble : fitted ensemble, FittedMembers, or list of fitted models
        ``BaggingClassifier/Regressor``, ``RandomForest*``, ``ExtraTrees*``, ``Voting*``, or a
        plain list or tuple of models.

    Returns
    -------
    MemberPool

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> forest = RandomForestClassifier(5, random_state=0).fit(*load_iris(return_X_y=True))
    >>> len(read_ensemble(forest).members)
    5
    """
    ensemble = unfrozen(ensemble)
    if isinstance(ensemble, (list, tuple)):
        ensemble = FittedMembers(ensemble)
    kinds = ((kinds, reader) for kinds, reader in READERS if isinstance(ensemble, kinds))
    of_sklearn = type(ensemble).__module__.startswith("sklearn.")  # subclasses are other libraries'
    reader = None if of_sklearn else library_reader(ensemble)
    reader = reader or next((reader for _, reader in kinds), None)
    if reader is not None:
        check_fitted(ensemble)
        pool = reader(ensemble)
        _check_size(pool)
        return pool
    raise TypeError(
        f"cannot read a {type(ensemble).__name__}; pass a fitted BaggingClassifier/Regressor, "
        "RandomForest*, ExtraTrees*, Voting*, or a list of fitted models."
    )


def _read_forest(forest: Any) -> MemberPool:
    check_fitted(forest)
    if forest.n_outputs_ != 1:
        raise multi_output()
    classes = getattr(forest, "classes_", None)
    columns = None if classes is None else np.arange(len(classes))
    return MemberPool(
        members=tuple(Member(tree, None, columns) for tree in forest.estimators_),
        task=_task(classes),
        classes=classes,
        in_bag=RedrawnBags(forest, "estimators_") if forest.bootstrap else None,
        no_in_bag="it was fitted with bootstrap=False",
        input_kind="tree",
        n_features=int(forest.n_features_in_),
        n_rows=_remembered_rows(forest),
        source=forest,
        can_be_refitted=True,
    )


def _read_bag(bag: Any) -> MemberPool:
    classes = getattr(bag, "classes_", None)
    n_features = int(bag.n_features_in_)
    members = []
    for estimator, features in zip(bag.estimators_, bag.estimators_features_, strict=True):
        # (A neural network's n_outputs_ counts classes; a bag of classifiers has one output.)
        if classes is None and getattr(estimator, "n_outputs_", 1) != 1:
            raise multi_output()
        same = np.array_equal(features, np.arange(n_features))
        members.append(
            Member(
                estimator,
                None if same else np.asarray(features),
                _encoded_columns(estimator, classes),
            )
        )
    in_bag: InBagRows = (
        RedrawnBags(bag, "_seeds") if hasattr(bag, "_seeds") else bag.estimators_samples_
    )
    return MemberPool(
        members=tuple(members),
        task=_task(classes),
        classes=classes,
        in_bag=in_bag if len(in_bag) == len(members) else None,
        no_in_bag=f"it has {len(members)} members and remembers only the bootstrap of the last "
        f"{len(in_bag)} (scikit-learn forgets the earlier ones on warm_start)",
        input_kind="tree" if all(m.is_tree for m in members) else "array",
        n_features=n_features,
        n_rows=_remembered_rows(bag),
        source=bag,
        can_be_refitted=True,
    )


def _read_folds(folds: FoldForests) -> MemberPool:
    pools, in_bag = [_read_forest(forest) for forest in folds.forests], None
    fold_rows = folds.rows or ()
    if [len(rows) for rows in fold_rows] == [pool.n_rows for pool in pools]:  # not held-out ones
        in_bag = [
            rows if pool.in_bag is None else rows[pool.in_bag[j]]
            for pool, rows in zip(pools, fold_rows, strict=True)
            for j in range(len(pool.members))
        ]
    members = tuple(member for pool in pools for member in pool.members)
    is_other = in_bag is None and folds.rows is not None
    told = "these are not the rows it was fitted on" if is_other else "its folds are unknown"
    pool = replace(pools[0], members=members, in_bag=in_bag, no_in_bag=told, n_rows=None)
    return replace(pool, can_be_refitted=not is_other)


def _read_voter(voter: Any) -> MemberPool:
    classes = getattr(voter, "classes_", None)
    return MemberPool(
        members=tuple(Member(e, None, _encoded_columns(e, classes)) for e in voter.estimators_),
        task=_task(classes),
        classes=classes,
        in_bag=None,
        no_in_bag="its members all saw every training row",
        input_kind="as_given",
        n_features=getattr(voter, "n_features_in_", None),
        n_rows=None,
        source=voter,
        own_weights=_voting_weights(voter),
    )


def _voting_weights(voter: Any) -> np.ndarray | None:
    """Of ``Voting*(weights=...)``, without those of members that were dropped."""
    if voter.weights is None:
        return None
    paired = zip(voter.estimators, voter.weights, strict=True)
    kept = [w for (_, model), w in paired if not (isinstance(model, str) and model == "drop")]
    weights = np.asarray(kept, dtype=np.float64)
    if not (np.all(np.isfinite(weights)) and np.all(weights >= 0.0) and weights.sum() > 0.0):
        raise ValueError(
            f"the ensemble votes with weights {kept}; they must not be negative, and one must be "
            f"above zero."
        )
    return np.asarray(weights / weights.sum())


def _read_list(given: FittedMembers) -> MemberPool:
    models = list(given.models)
    if not models:
        raise ValueError("the list of models is empty; pass at least two fitted models.")
    for j, model in enumerate(models):
        if isinstance(model, type) or not hasattr(model, "predict"):
            raise TypeError(
                f"entry {j} of the list is a {type(model).__name__}, not a model with predict; "
                "pass the fitted models themselves."
            )
        check_fitted(model)
    for name in ("estimators_samples", "estimators_features"):
        entries = getattr(given, name)
        if entries is not None and len(entries) != len(models):
            raise ValueError(f"{name} has {len(entries)} entries for {len(models)} models.")
    classes = _union_of_classes(models)
    features = _index_arrays(given.estimators_features, "estimators_features", "column")
    members = tuple(
        Member(
            model,
            None if features is None else features[j],
            None if classes is None else class_positions(np.asarray(model.classes_), classes),
        )
        for j, model in enumerate(models)
    )
    all_trees = all(m.is_tree for m in members)
    return MemberPool(
        members=members,
        task=_task(classes),
        classes=classes,
        in_bag=_index_arrays(given.estimators_samples, "estimators_samples", "row"),
        no_in_bag="a list of models does not say which; pass estimators_samples=, the rows of each",
        input_kind="tree" if all_trees else "as_given",
        n_features=_common_width(members) if all_trees or features is not None else None,
        n_rows=None,
        source=None,
    )


READERS: tuple[tuple[tuple[type, ...], Callable[[Any], MemberPool]], ...] = (
    (FORESTS, _read_forest),
    (BAGS, _read_bag),
    (VOTERS, _read_voter),
    ((FittedMembers,), _read_list),
    ((FoldForests,), _read_folds),
)


def _encoded_columns(estimator: Any, classes: np.ndarray | None) -> np.ndarray | None:
    """Columns of a member's probabilities, where the ensemble encoded y before it fitted it.

    Bags and VotingClassifier do: the members' ``classes_`` are positions, and a bootstrap may
    miss some. A model that votes need not have ``classes_``.
    """
    if classes is None:
        return None
    return np.asarray(getattr(estimator, "classes_", np.arange(len(classes))), dtype=np.intp)


def _union_of_classes(models: list[Any]) -> np.ndarray | None:
    """All the classes that a list's models know; None if they are regressors."""
    if len({does_classification(model) for model in models}) != 1:
        raise ValueError("the list mixes classifiers and regressors; pass one kind.")
    if not does_classification(models[0]):
        if any(getattr(m, "n_outputs_", 1) != 1 for m in models):
            raise multi_output()
        return None
    if any(isinstance(m.classes_, list) for m in models):
        raise multi_output()
    known = [np.asarray(m.classes_) for m in models]
    if len({isinstance(labels[0], str) for labels in known}) != 1:
        raise ValueError(
            "some models of the list have string classes and some have numbers; fit them all "
            "on the same labels."
        )
    return np.unique(np.concatenate(known))


def _index_arrays(entries: Any, name: str, axis: str) -> list[np.ndarray] | None:
    if entries is None:
        return None
    arrays = [np.asarray(entry) for entry in entries]
    arrays = [a if a.size else a.astype(np.intp).reshape(-1) for a in arrays]
    for a in arrays:
        if a.ndim != 1 or not np.issubdtype(a.dtype, np.integer) or np.min(a, initial=0) < 0:
            raise ValueError(
                f"{name} must hold one array of {axis} indices (integers from 0) per model; for "
                f"a boolean mask pass np.flatnonzero(mask)."
            )
    return arrays


def _common_width(members: tuple[Member, ...]) -> int | None:
    """Columns of X that a list's models were fitted on; None where each has its own."""
    widths: list[Any] = [getattr(m.estimator, "n_features_in_", None) for m in members]
    for j, (member, width) in enumerate(zip(members, widths, strict=True)):
        if member.features is not None and width not in (None, len(member.features)):
            raise ValueError(
                f"estimators_features names {len(member.features)} columns for model {j}, which "
                f"was fitted on {width}."
            )
    if members[0].features is not None:
        return None
    if len(set(widths)) > 1:
        found = ", ".join(map(str, dict.fromkeys(widths)))
        raise ValueError(
            f"the models of the list were fitted on different numbers of columns ({found}); pass "
            f"estimators_features=, one array of column indices per model."
        )
    return None if widths[0] is None else int(widths[0])


def _task(classes: np.ndarray | None) -> Task:
    return "regression" if classes is None else "classification"


def _remembered_rows(ensemble: Any) -> int | None:
    n_rows = getattr(ensemble, "_n_samples", None)
    return None if n_rows is None else int(n_rows)


def unfrozen(ensemble: Any) -> Any:
    """The ensemble itself, where it comes in a ``FrozenEstimator``.

    Parameters
    ----------
    ensemble : object

    Returns
    -------
    object
    """
    return ensemble.estimator if isinstance(ensemble, FrozenEstimator) else ensemble


def check_fitted(model: Any) -> None:
    """One sentence for a model that is not fitted.

    Parameters
    ----------
    model : object
    """
    try:
        check_is_fitted(model)
    except NotFittedError as error:
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted; fit it first, or let "
            "SparseBaggingClassifier/Regressor fit it."
        ) from error
    except (AttributeError, TypeError):
        # Not a scikit-learn estimator: nothing tells whether it is fitted but its own predict.
        return


def _check_size(pool: MemberPool) -> None:
    if pool.classes is not None and len(pool.classes) < 2:
        raise ValueError(
            f"the ensemble has only one class ({shown(pool.classes[0])}); classification needs two."
        )
    if len(pool.members) < 2 and not pool.members[0].is_tree:
        raise ValueError("the ensemble has only one member; there is nothing to choose from.")
