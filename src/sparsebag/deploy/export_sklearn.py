"""The compressed ensemble as an ordinary scikit-learn one: a forest of scaled trees, or a vote.

Made from the compiled arrays, so that a model read from a file can be exported too. Counts of
nodes are gone: each leaf counts for one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit
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
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    LabelBinarizer,
    LabelEncoder,
    StandardScaler,
    normalize,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils import Bunch

from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees
from sparsebag.deploy.verification import (
    TOLERANCE,
    NotExportable,
    check_fixed_weights,
    name_of,
    probe_rows,
    verify,
    width_of_rows,
)
from sparsebag.deploy.votes import LayeredVotes, OtherMembers
from sparsebag.evidence.readers.from_arrays import Leaf, Split, built_tree

LEAST_VOTE = 1e-300
"""In place of zero, whose logarithm scikit-learn refuses; nothing at any temperature."""
OUT_ACTIVATIONS = {"identity": "identity", "sigmoid": "logistic", "softmax": "softmax"}

Voter = tuple[Any, float]
"""A fitted estimator and its weight."""


def export_sklearn(model: CompiledEnsemble) -> Any:
    """An ordinary ensemble that predicts what the compressed one does.

    Trees become a ``RandomForest*`` whose leaves carry the weights and the floor; its single
    trees are no classifiers of their own any more. Other members become a ``Voting*``, the floor
    a uniform voter. A temperature, or votes that may be below zero, make it the one estimator of a
    ``StackingClassifier``, whose final estimator does the rest.

    Parameters
    ----------
    model : CompiledEnsemble

    Returns
    -------
    RandomForestClassifier, RandomForestRegressor, VotingClassifier, VotingRegressor or
    StackingClassifier

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sparsebag.deploy.from_members import compile_members
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(3, random_state=0).fit(X, y)
    >>> again = export_sklearn(compile_members(read_ensemble(forest), np.full(3, 1 / 3)))
    >>> bool(np.allclose(again.predict_proba(X), forest.predict_proba(X)))
    True
    """
    check_fixed_weights(model.gate, "scikit-learn")
    clip = any(g.may_be_negative for g in model.groups if isinstance(g, FlatTrees))
    clip = clip and model.classes is not None
    # Of three classes and more, the floor comes after a clip; of two it commutes with it.
    floor = 0.0 if clip and model.n_outputs > 2 else model.floor
    if len(model.groups) == 1 and isinstance(model.groups[0], FlatTrees):
        out = _forest(model.groups[0], model, floor)
    else:
        out = _vote(_voters(model), model.classes, floor)
    ensemble = out
    if model.calibrator is not None or clip:
        out = _calibrated(out, model, clip=clip)
    predict = out.predict if model.classes is None else out.predict_proba
    verify(model, predict, probe_rows(model), TOLERANCE)
    if model.feature_names is not None:  # last: scikit-learn warns of rows without names then
        for estimator in (ensemble, out):
            estimator.feature_names_in_ = np.array(model.feature_names, dtype=object)
    return out


def _vote(voters: list[Voter], classes: np.ndarray | None, floor: float) -> Any:
    """A vote of estimators and, for the share of the floor, of a uniform voter."""
    named = [(f"member_{j}", estimator) for j, (estimator, _) in enumerate(voters)]
    weights = [weight for _, weight in voters]
    if classes is None:
        out = VotingRegressor(named, weights=weights)
    else:
        if floor:
            uniform = DummyClassifier(strategy="uniform")
            uniform.fit(np.zeros((len(classes), 1)), np.arange(len(classes)))
            named = [*named, ("floor", uniform)]
            total = sum(weights)
            weights = [(1.0 - floor) * weight / total for weight in weights] + [floor]
        out = VotingClassifier(named, voting="soft", weights=weights)
        out.le_ = LabelEncoder().fit(classes)
        out.classes_ = out.le_.classes_
    out.estimators_, out.named_estimators_ = [e for _, e in named], Bunch(**dict(named))
    return out


# -- members ---------------------------------------------------------------------------------


def _voters(model: CompiledEnsemble) -> list[Voter]:
    found: list[Voter] = []
    collapsed = None
    for group in model.groups:
        if isinstance(group, FlatTrees):
            found.append((_forest(group, model, 0.0, group.total), group.total))
        elif isinstance(group, OtherMembers):
            found += _others(group, model)
        elif group.kind == "linear" and group.link == "identity":
            collapsed = group
        else:
            columns, every = group.class_columns, np.arange(model.n_outputs)
            if columns.shape[-1] != len(every) or not np.all(columns == every):
                raise _without_some_class("linear model or network")
            made = _networks(group) if group.layers else _linear(group)
            found += zip(made, map(float, group.weights), strict=True)
    if collapsed is not None:  # it has its members' weights in it: what the others leave
        rest = 1.0 - sum(weight for _, weight in found)
        line = LinearRegression()
        line.coef_, line.intercept_ = collapsed.coef[:, 0] / rest, collapsed.intercept[0] / rest
        line.n_features_in_ = collapsed.n_features
        found.append((line, rest))
    return found


def _forest(flat: FlatTrees, model: CompiledEnsemble, floor: float, total: float = 1.0) -> Any:
    """Trees whose plain mean is the weighted vote, divided by ``total``."""
    is_vote, k = model.classes is not None, flat.n_members
    forest = (RandomForestClassifier if is_vote else RandomForestRegressor)(n_estimators=k)
    forest.n_features_in_, forest.n_outputs_ = flat.n_features, 1
    forest.estimator_ = DecisionTreeClassifier() if is_vote else DecisionTreeRegressor()
    says = k * flat.values
    if flat.complement:
        says = np.column_stack([flat.total - says, says])
    if is_vote:
        forest.classes_, forest.n_classes_ = model.classes, model.n_outputs
        says = (1.0 - floor) * says + floor / model.n_outputs
    says = says / total

    def look(at: int) -> Leaf | Split:
        if at < 0:
            return Leaf(says[~at], 1.0)
        test = int(flat.feature[at]), float(flat.threshold[at]), bool(flat.missing_left[at])
        return Split(*test, *map(int, flat.children[at]))

    forest.estimators_ = [
        built_tree(int(root), look, flat.n_features, model.classes) for root in flat.roots
    ]
    return forest


def _linear(group: LayeredVotes) -> list[Any]:
    if group.link not in ("sigmoid", "softmax", "one_vs_rest"):
        raise NotExportable(
            "linear members without predict_proba vote for one class, which scikit-learn's soft "
            "vote cannot express; use save."
        )
    coef = group.coef.T.reshape(group.n_members, -1, group.n_features)
    build = _one_vs_rest if group.link == "one_vs_rest" else _logistic
    return list(map(build, coef, group.intercept.reshape(group.n_members, -1)))


def _logistic(coef: np.ndarray, intercept: np.ndarray) -> Any:
    out = LogisticRegression()
    out.coef_, out.intercept_, out.n_features_in_ = coef, intercept, coef.shape[1]
    out.classes_ = np.arange(max(2, len(coef)))
    return out


def _one_vs_rest(coef: np.ndarray, intercept: np.ndarray) -> Any:
    out = OneVsRestClassifier(LogisticRegression())
    out.estimators_ = [_logistic(coef[[c]], intercept[[c]]) for c in range(len(coef))]
    out.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(np.arange(len(coef)))
    out.n_features_in_ = coef.shape[1]
    return out


def _networks(group: LayeredVotes) -> list[Any]:
    m, is_vote, found = group.n_members, group.link != "identity", []
    first = group.coef.reshape(group.n_features, m, -1).transpose(1, 0, 2)
    layers, biases = (first, *group.layers), (group.intercept.reshape(m, 1, -1), *group.biases)
    for j in range(m):
        out = (MLPClassifier if is_vote else MLPRegressor)(
            hidden_layer_sizes=tuple(layer.shape[2] for layer in layers[:-1]),
            activation=group.activation,
        )
        out.coefs_ = [layer[j] for layer in layers]
        out.intercepts_ = [bias[j, 0] for bias in biases]
        out.n_layers_, out.n_outputs_ = len(layers) + 1, layers[-1].shape[2]
        out.out_activation_, out.n_features_in_ = OUT_ACTIVATIONS[group.link], group.n_features
        if is_vote:
            out.classes_ = np.arange(group.n_outputs)
            out._label_binarizer = LabelBinarizer().fit(out.classes_)
        found.append(out)
    return found


def _others(group: OtherMembers, model: CompiledEnsemble) -> list[Voter]:
    found = []
    for member, features, weight in zip(group.members, group.features, group.weights, strict=True):
        estimator: Any = getattr(member, "estimator", member)
        name = type(estimator).__name__
        if model.classes is not None:
            if not hasattr(estimator, "predict_proba"):
                raise NotExportable(
                    f"a {name} votes for one class, which scikit-learn's soft vote cannot "
                    "express; use save."
                )
            if not np.array_equal(getattr(member, "class_columns", ()), np.arange(model.n_outputs)):
                raise _without_some_class(name)
        if features is not None:
            columns = ColumnTransformer([("columns", "passthrough", list(features))])
            columns.fit(np.zeros((1, width_of_rows(model))))
            estimator = make_pipeline(columns, estimator)
        found.append((estimator, float(weight)))
    return found


def _without_some_class(name: str) -> NotExportable:
    return NotExportable(
        f"a {name} was trained without some class, which scikit-learn's vote cannot express; "
        "use save."
    )


# -- calibrators -----------------------------------------------------------------------------
#
# scikit-learn has no clip, and no share of the uniform distribution. A StackingClassifier of one
# ensemble has all of it: its final estimator is a pipeline from the vote to a LogisticRegression on
# the logarithms, whose coefficients are the inverse temperature.


def _calibrated(ensemble: Any, model: CompiledEnsemble, *, clip: bool) -> Any:
    calibrator = model.calibrator
    power, share, scale = 1.0, 0.0, 0.0
    if calibrator is not None:
        if calibrator.kind != Temperature.kind:
            raise NotExportable(
                f"scikit-learn has no form for the calibrator {name_of(calibrator)!r}; use "
                f"{Temperature.kind}."
            )
        power = 1.0 / float(calibrator.params["temperature"][0])
        share, scale = (float(calibrator.params[name][0]) for name in ("share", "scale"))
    final, numbers = _tempered(model, power, clip, scale), np.arange(model.n_outputs)
    out = StackingClassifier([("vote", FrozenEstimator(ensemble))], cv="prefit")
    out.estimators_, out.stack_method_ = [ensemble], ["predict_proba"]
    out.named_estimators_ = Bunch(vote=ensemble)
    out.final_estimator_ = _vote([(final, 1.0 - share)], numbers, share) if share else final
    out.final_estimator = FrozenEstimator(out.final_estimator_)
    out._label_encoder = LabelEncoder().fit(model.classes)
    out.classes_ = out._label_encoder.classes_
    return out


def _tempered(model: CompiledEnsemble, power: float, clip: bool, scale: float) -> Any:
    """softmax(power * log(vote)) of a vote; of two classes, of the second one's share.

    Votes that are scores, times ``scale``, are read without a logarithm.
    """
    n, floor, steps = model.n_outputs, model.floor, []
    offset = 0.0
    if scale:
        power *= scale if n > 2 else 2.0 * scale
        offset = 0.0 if n > 2 else -power / 2.0
    if n == 2:
        if clip or not floor:  # it is in the leaves: (1 - f) clip(p) + f/2 = clip((1 - f) p + f/2)
            steps.append(_clipped(floor / 2, 1.0 - floor / 2))
        if not scale:
            steps.append(FunctionTransformer(logit))
        if not floor and not scale:
            steps.append(_clipped(np.log(LEAST_VOTE), -np.log(LEAST_VOTE)))
    else:
        if clip or not floor:
            steps += [_clipped(LEAST_VOTE), FunctionTransformer(normalize, kw_args={"norm": "l1"})]
        if clip:
            scaler = StandardScaler()
            scaler.scale_ = np.full(n, 1.0 / (1.0 - floor))
            scaler.mean_ = np.full(n, -floor / n / (1.0 - floor))
            scaler.var_, scaler.n_features_in_, scaler.n_samples_seen_ = scaler.scale_**2, n, 1
            steps.append(scaler)
        if not scale:
            steps.append(FunctionTransformer(np.log))
    final = LogisticRegression()
    final.classes_, final.n_features_in_ = np.arange(n), 1 if n == 2 else n
    final.coef_ = power * np.eye(final.n_features_in_)
    final.intercept_ = np.full(final.n_features_in_, offset)
    return make_pipeline(*steps, final)


def _clipped(least: float, most: float | None = None) -> Any:
    return FunctionTransformer(np.clip, kw_args={"a_min": least, "a_max": most})
