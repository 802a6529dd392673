"""Linear members and networks of a file as scikit-learn's own models again."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import LabelBinarizer

from sparsebag.deploy.linear import LinearVotes
from sparsebag.deploy.mlp import StackedNetworks
from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.evidence.members import Member

OUT_ACTIVATIONS = {"identity": "identity", "sigmoid": "logistic", "softmax": "softmax"}


def linear_members(group: LinearVotes, rest: float = 1.0) -> list[tuple[Member, float]]:
    """Linear members and their weights.

    Parameters
    ----------
    group : LinearVotes
    rest : float
        Weight of regressors, which have become one whose coefficients hold their weights.

    Returns
    -------
    list of (Member, float)

    Examples
    --------
    >>> one = LinearVotes(np.array([[2.0]]), np.array([1.0]), np.ones(1),
    ...                   np.zeros((1, 1), dtype=np.int32), "identity", 1, 5)
    >>> member, weight = linear_members(one)[0]
    >>> member.predict(np.array([[3.0]])).tolist(), weight
    ([7.0], 1.0)
    """
    n_members = len(group.weights)
    coef = group.coef.T.reshape(n_members, -1, group.n_features)
    intercept = group.intercept.reshape(n_members, -1)
    if group.link == "identity":
        out = LinearRegression()
        out.coef_, out.intercept_ = coef[0, 0] / rest, float(intercept[0, 0]) / rest
        out.n_features_in_ = group.n_features
        return [(Member(out), rest)]
    if group.link not in ("sigmoid", "softmax", "one_vs_rest"):
        raise NotExportable(
            "linear members without predict_proba vote for one class, which scikit-learn's soft "
            "vote cannot express; use the file as it is."
        )
    build = _one_vs_rest if group.link == "one_vs_rest" else _logistic
    return [
        (Member(build(coef[j], intercept[j]), None, group.class_columns[j]), float(weight))
        for j, weight in enumerate(group.weights)
    ]


def network_members(group: StackedNetworks) -> list[tuple[Member, float]]:
    """Networks and their weights.

    Parameters
    ----------
    group : StackedNetworks

    Returns
    -------
    list of (Member, float)
    """
    is_vote = group.link != "identity"
    found = []
    for j, weight in enumerate(group.weights):
        out = (MLPClassifier if is_vote else MLPRegressor)(
            hidden_layer_sizes=tuple(layer.shape[2] for layer in group.layers[:-1]),
            activation=group.activation,
        )
        out.coefs_ = [layer[j] for layer in group.layers]
        out.intercepts_ = [bias[j, 0] for bias in group.biases]
        out.n_layers_, out.n_outputs_ = len(group.layers) + 1, group.layers[-1].shape[2]
        out.out_activation_, out.n_features_in_ = OUT_ACTIVATIONS[group.link], group.n_features
        columns = None
        if is_vote:
            columns = group.class_columns[j]
            out.classes_ = np.arange(len(columns))
            out._label_binarizer = LabelBinarizer().fit(out.classes_)
        found.append((Member(out, None, columns), float(weight)))
    return found


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
