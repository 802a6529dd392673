"""The compressed ensemble as an ordinary scikit-learn one: a forest of scaled trees, or a vote."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import FunctionTransformer, LabelEncoder, StandardScaler, normalize
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import Bunch

from sparsebag.deploy.calibrators import CALIBRATORS, Temperature, name_of
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.from_members import leaf_table, width_of
from sparsebag.deploy.not_exportable import NotExportable, check_fixed_weights
from sparsebag.deploy.tree_copies import tree_saying
from sparsebag.deploy.verification import TOLERANCE, probe_rows, verify
from sparsebag.evidence.members import Member, MemberPool


def export_sklearn(model: CompiledEnsemble, pool: MemberPool, weights: np.ndarray) -> Any:
    """An ordinary ensemble that predicts what the compressed one does.

    Trees become a ``RandomForest*`` whose leaves carry the weights and the floor; its single
    trees are no classifiers of their own any more. Other members become a ``Voting*``, the floor
    a uniform voter. A calibrator, or refined leaves below zero, wraps the whole in a
    ``StackingClassifier`` of one, whose final estimator does the rest; a calibrator's share of the
    uniform distribution is a voter again.

    Parameters
    ----------
    model : CompiledEnsemble
    pool : MemberPool
        The members it was compiled from.
    weights : ndarray of shape (n_active,)

    Returns
    -------
    RandomForestClassifier, RandomForestRegressor, VotingClassifier, VotingRegressor,
    StackingClassifier or CalibratedClassifierCV
    """
    check_fixed_weights(model.gate, "scikit-learn")
    clip = model.classes is not None and _says_less_than_nothing(pool, model.n_outputs)
    voted = replace(model, floor=0.0) if clip else model  # the floor comes after the clip
    if all(member.is_tree for member in pool.members):
        out = _forest(voted, pool, weights)
    else:
        out = _vote(voted, pool, weights)
    ensemble = out
    if model.calibrator is not None or clip:
        out = _calibrated(out, model, clip=clip)
    predict = out.predict if model.classes is None else out.predict_proba
    verify(model, predict, probe_rows(model), TOLERANCE)
    if model.feature_names is not None:  # last: scikit-learn warns of rows without names then
        for estimator in (ensemble, out):
            estimator.feature_names_in_ = np.array(model.feature_names, dtype=object)
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
        says = k * weight * table
        tree = tree_saying(member, says, is_vote=is_vote, n_features=n_features)
        forest.estimators_.append(tree)
    return forest


def _vote(model: CompiledEnsemble, pool: MemberPool, weights: np.ndarray) -> Any:
    n_features = _n_features(model, pool)
    members = [_voter(member, model, n_features) for member in pool.members]
    names = [f"member_{j}" for j in range(len(members))]
    shares = list(weights)
    if model.classes is None:
        vote = VotingRegressor(list(zip(names, members, strict=True)), weights=shares)
    else:
        if model.floor:
            names, members = [*names, "floor"], [*members, _uniform_voter(model)]
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
            raise NotExportable(
                f"a {name} votes for one class, which scikit-learn's soft vote cannot express; "
                "use save."
            )
        assert member.class_columns is not None
        if not np.array_equal(member.class_columns, np.arange(model.n_outputs)):
            raise NotExportable(
                f"a {name} was trained without some class, which scikit-learn's vote cannot "
                "express; use save."
            )
    if member.features is None:
        return member.estimator
    columns = ColumnTransformer([("columns", "passthrough", list(member.features))])
    return make_pipeline(columns.fit(np.zeros((1, n_features))), member.estimator)


def _says_less_than_nothing(pool: MemberPool, n_outputs: int) -> bool:
    """Whether refitted leaves have to be clipped: they left the simplex."""
    trees = [member for member in pool.members if member.is_tree]
    return any(bool(np.any(leaf_table(member, n_outputs) < 0.0)) for member in trees)


# -- calibrators -----------------------------------------------------------------------------
#
# scikit-learn has no clip, no floor and one temperature. A StackingClassifier on one ensemble has
# all of it: its final estimator is a pipeline from the vote to a LogisticRegression on the
# logarithms, whose coefficients are the inverse temperature.


def _calibrated(ensemble: Any, model: CompiledEnsemble, *, clip: bool) -> Any:
    calibrator = model.calibrator
    if calibrator is not None and calibrator.kind not in CALIBRATORS:
        raise NotExportable(
            f"scikit-learn has no form for the calibrator {name_of(calibrator)!r}; use one of "
            f"{', '.join(sorted(CALIBRATORS))}."
        )
    power, share = 1.0, 0.0
    if isinstance(calibrator, Temperature):
        power, share = 1.0 / calibrator.temperature, calibrator.share
    out = _scaled(ensemble, model, power, clip)
    return _mixed(out, model, share) if share else out


def _scaled(ensemble: Any, model: CompiledEnsemble, power: float, clip: bool) -> Any:
    """softmax(power * log(vote))."""
    n_classes = model.n_outputs
    steps: list[Any] = []
    if clip:  # the ensemble has no floor then: it comes after the clip
        most = 1.0 if n_classes == 2 else None  # of two classes, what is normalised is clipped
        steps.append(FunctionTransformer(np.clip, kw_args={"a_min": 0.0, "a_max": most}))
        if n_classes > 2:
            steps.append(FunctionTransformer(normalize, kw_args={"norm": "l1"}))
        floor = StandardScaler()
        width = 1 if n_classes == 2 else n_classes
        floor.scale_ = np.full(width, 1.0 / (1.0 - model.floor))
        floor.mean_ = np.full(width, -model.floor / n_classes / (1.0 - model.floor))
        floor.var_, floor.n_features_in_, floor.n_samples_seen_ = floor.scale_**2, width, 1
        steps.append(floor)
    final = LogisticRegression()
    final.classes_ = np.arange(n_classes)
    if n_classes == 2:
        # Stacking drops the first of two classes: log(1 - p) is made of the second.
        rest = make_pipeline(FunctionTransformer(np.negative), FunctionTransformer(np.log1p))
        steps.append(make_union(FunctionTransformer(np.log), rest))
        final.coef_, final.intercept_ = np.array([[power, -power]]), np.zeros(1)
    else:
        steps.append(FunctionTransformer(np.log))
        final.coef_, final.intercept_ = power * np.eye(n_classes), np.zeros(n_classes)
    final.n_features_in_ = final.coef_.shape[1]
    out = StackingClassifier([("vote", FrozenEstimator(ensemble))], cv="prefit")
    out.estimators_, out.stack_method_ = [FrozenEstimator(ensemble)], ["predict_proba"]
    out.named_estimators_ = Bunch(vote=out.estimators_[0])
    out.final_estimator_ = make_pipeline(*steps, final)
    out.final_estimator = out.final_estimator_
    out._label_encoder = LabelEncoder().fit(model.classes)
    out.classes_ = out._label_encoder.classes_
    return out


def _mixed(vote: Any, model: CompiledEnsemble, share: float) -> Any:
    """A soft vote of the ensemble and, for its share, of a uniform voter."""
    voters, shares = [vote, _uniform_voter(model)], [1.0 - share, share]
    named = list(zip(("calibrated", "floor"), voters, strict=True))
    out = VotingClassifier(named, voting="soft", weights=shares)
    out.le_ = LabelEncoder().fit(model.classes)
    out.classes_, out.estimators_ = out.le_.classes_, voters
    out.named_estimators_ = Bunch(**dict(named))
    return out


def _uniform_voter(model: CompiledEnsemble) -> Any:
    uniform = DummyClassifier(strategy="uniform")
    return uniform.fit(np.zeros((model.n_outputs, 1)), np.arange(model.n_outputs))
