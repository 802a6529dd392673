"""The compressed ensemble as an ordinary scikit-learn one: a forest of scaled trees, or a vote."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelEncoder
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.tree._tree import Tree
from sklearn.utils import Bunch

from sparsebag.deploy.calibrators import Calibrator
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import leaf_table, width_of
from sparsebag.deploy.verification import probe_rows, verify
from sparsebag.evidence.members import Member, MemberPool

TOLERANCE = 1e-9


def export_sklearn(model: CompiledEnsemble, pool: MemberPool, weights: np.ndarray) -> Any:
    """An ordinary ensemble that predicts what the compressed one does.

    Trees become a ``RandomForest*`` whose leaves carry the weights and the floor; its single
    trees are no classifiers of their own any more. Other members become a ``Voting*``, the floor
    a uniform voter. A temperature wraps the whole in ``CalibratedClassifierCV``.

    Parameters
    ----------
    model : CompiledEnsemble
    pool : MemberPool
        The survivors it was compiled from.
    weights : ndarray of shape (n_active,)

    Returns
    -------
    RandomForestClassifier, RandomForestRegressor, VotingClassifier, VotingRegressor or
    CalibratedClassifierCV
    """
    if all(member.is_tree for member in pool.members):
        out = _forest(model, pool, weights)
    else:
        out = _vote(model, pool, weights)
    if model.calibrator is not None:
        out = _calibrated(out, model.calibrator)
    predict = out.predict if model.classes is None else out.predict_proba
    verify(model, predict, probe_rows(model), TOLERANCE)
    return out


def _n_features(model: CompiledEnsemble, pool: MemberPool) -> int:
    return model.n_features or max(width_of(member) for member in pool.members)


def _forest(model: CompiledEnsemble, pool: MemberPool, weights: np.ndarray) -> Any:
    n_features, k = _n_features(model, pool), len(pool.members)
    is_vote = model.classes is not None
    forest = (RandomForestClassifier if is_vote else RandomForestRegressor)(n_estimators=k)
    forest.n_features_in_, forest.n_outputs_ = n_features, 1
    if is_vote:
        forest.classes_, forest.n_classes_ = model.classes, model.n_outputs
    forest.estimator_ = (DecisionTreeClassifier if is_vote else DecisionTreeRegressor)()
    forest.estimators_ = []
    for member, weight in zip(pool.members, weights, strict=True):
        table = leaf_table(member, model.n_outputs)
        if is_vote:
            table = (1.0 - model.floor) * table + model.floor / model.n_outputs
        # The forest takes the plain mean over k trees.
        forest.estimators_.append(_tree(member, k * weight * table, n_features, is_vote))
    return forest


def _tree(member: Member, values: np.ndarray, n_features: int, is_vote: bool) -> Any:
    """A copy of a tree that reads all columns and says other values."""
    state = member.estimator.tree_.__getstate__()
    nodes = state["nodes"].copy()
    if member.features is not None:
        inner = nodes["left_child"] >= 0
        nodes["feature"][inner] = member.features[nodes["feature"][inner]]
    n_classes = values.shape[1] if is_vote else 1
    tree = Tree(n_features, np.array([n_classes], dtype=np.intp), 1)
    tree.__setstate__({**state, "nodes": nodes, "values": np.ascontiguousarray(values[:, None, :])})
    out = clone(member.estimator)
    out.tree_, out.n_features_in_, out.n_outputs_ = tree, n_features, 1
    out.max_features_ = getattr(member.estimator, "max_features_", n_features)
    if is_vote:
        out.classes_, out.n_classes_ = np.arange(n_classes, dtype=float), n_classes
    return out


def _vote(model: CompiledEnsemble, pool: MemberPool, weights: np.ndarray) -> Any:
    n_features = _n_features(model, pool)
    members = [_voter(member, model, n_features) for member in pool.members]
    names = [f"member_{j}" for j in range(len(members))]
    shares = list(weights)
    if model.classes is None:
        vote = VotingRegressor(list(zip(names, members, strict=True)), weights=shares)
    else:
        if model.floor:
            uniform = DummyClassifier(strategy="uniform")
            uniform.fit(np.zeros((model.n_outputs, 1)), np.arange(model.n_outputs))
            names, members = [*names, "floor"], [*members, uniform]
            shares = [(1.0 - model.floor) * w for w in shares] + [model.floor]
        named = list(zip(names, members, strict=True))
        vote = VotingClassifier(named, voting="soft", weights=shares)
        vote.le_ = LabelEncoder().fit(model.classes)
        vote.classes_ = vote.le_.classes_
    vote.estimators_ = members
    vote.named_estimators_ = Bunch(**dict(zip(names, members, strict=True)))
    return vote


def _voter(member: Member, model: CompiledEnsemble, n_features: int) -> Any:
    name = type(member.estimator).__name__
    if model.classes is not None:
        if not hasattr(member.estimator, "predict_proba"):
            raise ValueError(
                f"a {name} votes for one class, which scikit-learn's soft vote cannot express; "
                "use save or to_onnx."
            )
        assert member.class_columns is not None
        if not np.array_equal(member.class_columns, np.arange(model.n_outputs)):
            raise ValueError(
                f"a {name} was trained without some class, which scikit-learn's vote cannot "
                "express; use save or to_onnx."
            )
    if member.leaf_values is not None:
        raise ValueError(
            "refined trees beside other members cannot be exported to scikit-learn; use save."
        )
    if member.features is None:
        return member.estimator
    columns = ColumnTransformer([("columns", "passthrough", list(member.features))])
    return make_pipeline(columns.fit(np.zeros((1, n_features))), member.estimator)


def _calibrated(ensemble: Any, calibrator: Calibrator) -> Any:
    try:
        from sklearn.calibration import _CalibratedClassifier, _TemperatureScaling
    except ImportError:
        supported = False
    else:
        supported = calibrator.kind == "temperature"
    if not supported:
        raise ValueError(
            f"this scikit-learn has no form for the calibrator {calibrator.kind!r}; use save or "
            "to_onnx."
        )
    scaling = _TemperatureScaling()
    scaling.beta_ = 1.0 / float(calibrator.params["temperature"][0])
    out = CalibratedClassifierCV(FrozenEstimator(ensemble), method="temperature")
    out.classes_ = ensemble.classes_
    out.calibrated_classifiers_ = [
        _CalibratedClassifier(
            FrozenEstimator(ensemble), [scaling], classes=ensemble.classes_, method="temperature"
        )
    ]
    return out
