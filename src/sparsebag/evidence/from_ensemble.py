"""Reading fitted ensembles: every scikit-learn quirk lives here.

To support another kind of ensemble, write a reader and add it to `READERS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import is_classifier
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
from sklearn.utils.validation import check_is_fitted

from sparsebag.evidence.evidence import Task
from sparsebag.evidence.members import FittedMembers, Member, MemberPool

FORESTS = (
    RandomForestClassifier,
    RandomForestRegressor,
    ExtraTreesClassifier,
    ExtraTreesRegressor,
)
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
    if isinstance(ensemble, (list, tuple)):
        ensemble = FittedMembers(ensemble)
    for kinds, reader in READERS:
        if isinstance(ensemble, kinds):
            pool = reader(ensemble)
            _check_size(pool)
            return pool
    raise TypeError(
        f"cannot read a {type(ensemble).__name__}; pass a fitted BaggingClassifier/Regressor, "
        "RandomForest*, ExtraTrees*, Voting*, or a list of fitted models."
    )


def _read_forest(forest: Any) -> MemberPool:
    _check_fitted(forest)
    if forest.n_outputs_ != 1:
        raise _multi_output()
    classes = getattr(forest, "classes_", None)
    columns = None if classes is None else np.arange(len(classes))
    return MemberPool(
        members=tuple(Member(tree, None, columns) for tree in forest.estimators_),
        task=_task(classes),
        classes=classes,
        in_bag=forest.estimators_samples_ if forest.bootstrap else None,
        input_kind="tree",
        n_features=int(forest.n_features_in_),
        n_rows=_remembered_rows(forest),
        source=forest,
    )


def _read_bag(bag: Any) -> MemberPool:
    _check_fitted(bag)
    classes = getattr(bag, "classes_", None)
    n_features = int(bag.n_features_in_)
    members = []
    for estimator, features in zip(bag.estimators_, bag.estimators_features_, strict=True):
        if getattr(estimator, "n_outputs_", 1) != 1:
            raise _multi_output()
        # Inside a bag the members' classes_ are the bag's *encoded* labels, that is, columns;
        # a bootstrap may miss some.
        columns = None if classes is None else np.asarray(estimator.classes_, dtype=np.intp)
        same = np.array_equal(features, np.arange(n_features))
        members.append(Member(estimator, None if same else np.asarray(features), columns))
    in_bag = bag.estimators_samples_
    if len(in_bag) != len(members):
        raise ValueError(
            f"this bag has {len(members)} members but remembers the bootstrap of the last "
            f"{len(in_bag)} only (scikit-learn forgets the earlier ones on warm_start); refit it "
            "in one go, or pass held-out rows with evidence='holdout'."
        )
    return MemberPool(
        members=tuple(members),
        task=_task(classes),
        classes=classes,
        in_bag=in_bag,
        input_kind="tree" if all(m.is_tree for m in members) else "array",
        n_features=n_features,
        n_rows=_remembered_rows(bag),
        source=bag,
    )


def _read_voter(voter: Any) -> MemberPool:
    _check_fitted(voter)
    classes = getattr(voter, "classes_", None)
    if isinstance(classes, list):
        raise _multi_output()
    members = [
        # VotingClassifier encodes y before it fits its members, as a bag does.
        Member(e, None, None if classes is None else np.asarray(e.classes_, dtype=np.intp))
        for e in voter.estimators_
    ]
    return MemberPool(
        members=tuple(members),
        task=_task(classes),
        classes=classes,
        in_bag=None,
        input_kind="as_given",
        n_features=getattr(voter, "n_features_in_", None),
        n_rows=None,
        source=voter,
    )


def _read_list(given: FittedMembers) -> MemberPool:
    models = given.models
    estimators_samples = given.estimators_samples
    estimators_features = given.estimators_features
    for model in models:
        _check_fitted(model)
    if not models:
        raise ValueError("the list of models is empty.")
    for name in ("estimators_samples", "estimators_features"):
        entries = getattr(given, name)
        if entries is not None and len(entries) != len(models):
            raise ValueError(f"{name} has {len(entries)} entries for {len(models)} models.")
    kinds = {is_classifier(model) for model in models}
    if len(kinds) != 1:
        raise ValueError("the list mixes classifiers and regressors; pass one kind.")
    classes = None
    if kinds.pop():
        if any(isinstance(m.classes_, list) for m in models):
            raise _multi_output()
        classes = np.unique(np.concatenate([np.asarray(m.classes_) for m in models]))
    elif any(getattr(m, "n_outputs_", 1) != 1 for m in models):
        raise _multi_output()
    features = estimators_features or [None] * len(models)
    members = tuple(
        Member(
            model,
            None if f is None else np.asarray(f),
            None if classes is None else np.searchsorted(classes, model.classes_),
        )
        for model, f in zip(models, features, strict=True)
    )
    in_bag = None
    if estimators_samples is not None:
        in_bag = [np.asarray(rows) for rows in estimators_samples]
        for rows in in_bag:
            if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
                raise ValueError("estimators_samples must hold one array of row indices a model.")
    n_features = getattr(models[0], "n_features_in_", None)
    return MemberPool(
        members=members,
        task=_task(classes),
        classes=classes,
        in_bag=in_bag,
        input_kind=_list_input_kind(members, sliced=estimators_features is not None),
        n_features=n_features if estimators_features is None else None,
        n_rows=None,
        source=None,
    )


READERS: tuple[tuple[tuple[type, ...], Callable[[Any], MemberPool]], ...] = (
    (FORESTS, _read_forest),
    (BAGS, _read_bag),
    (VOTERS, _read_voter),
    ((FittedMembers,), _read_list),
)


def _list_input_kind(members: tuple[Member, ...], *, sliced: bool) -> Any:
    if all(m.is_tree for m in members):
        return "tree"
    return "array" if sliced else "as_given"


def _task(classes: np.ndarray | None) -> Task:
    return "regression" if classes is None else "classification"


def _remembered_rows(ensemble: Any) -> int | None:
    n_rows = getattr(ensemble, "_n_samples", None)
    return None if n_rows is None else int(n_rows)


def _check_fitted(model: Any) -> None:
    try:
        check_is_fitted(model)
    except (NotFittedError, TypeError) as error:
        raise NotFittedError(
            f"this {type(model).__name__} is not fitted; fit it first, or let "
            "SparseBaggingClassifier/Regressor fit it."
        ) from error


def _check_size(pool: MemberPool) -> None:
    if pool.classes is not None and len(pool.classes) < 2:
        raise ValueError(
            f"the ensemble knows one class only ({pool.classes[0]!r}); classification needs two."
        )
    if len(pool.members) < 2:
        raise ValueError("the ensemble has one member only; there is nothing to choose from.")


def _multi_output() -> ValueError:
    return ValueError(
        "multi-output ensembles are not supported; fit and compress one ensemble an output."
    )
