"""Compiling: which path each surviving member takes, and its arrays."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils import get_tags

from sparsebag.calibration.calibrator import Calibrator
from sparsebag.deploy.compiled import CompiledEnsemble, Group
from sparsebag.deploy.trees import FlatTrees, distinct_rows, round_down
from sparsebag.deploy.votes import ACTIVATIONS, LINKS, LayeredVotes, OtherMembers
from sparsebag.evidence.members import Member, MemberPool
from sparsebag.local.gate import LinearGate

COLLAPSED = (
    "The members are linear regressors, whose weighted average is one linear regressor, exactly: "
    "one is deployed, whatever their number, and it costs what one member costs."
)


def compile_members(
    pool: MemberPool,
    weights: np.ndarray,
    floor: float = 0.0,
    calibrator: Calibrator | None = None,
    gate: LinearGate | None = None,
) -> CompiledEnsemble:
    """Kept members as arrays, or as themselves where no arrays are known for their kind.

    Parameters
    ----------
    pool : MemberPool
        The kept members only.
    weights : ndarray of shape (n_active,)
    floor : float
        Share of the uniform class distribution in each vote.
    calibrator : Calibrator, optional
    gate : LinearGate, optional
        Weights that depend on the row, in place of ``weights``; members in the pool's order.

    Returns
    -------
    CompiledEnsemble

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> forest = RandomForestClassifier(3, random_state=0).fit(*load_iris(return_X_y=True))
    >>> compile_members(read_ensemble(forest), np.full(3, 1 / 3)).paths
    ('trees', 'trees', 'trees')
    """
    n_outputs = 1 if pool.classes is None else len(pool.classes)
    n_features = pool.n_features
    if n_features is None and gate is not None:
        n_features = gate.n_features  # it was fitted to all columns, whichever members read
    if n_features is None:
        widths = {_width(m) for m in pool.members if m.features is None}
        n_features = (widths.pop() or None) if len(widths) == 1 else None
    keys = [_path(member) for member in pool.members]
    groups: list[Group] = []
    order: list[int] = []
    if gate is not None:  # weighs leaves and votes as they are
        if gate.n_members != len(pool.members):
            raise ValueError("the gate has weights for a different number of members.")
        weights = np.ones(len(pool.members))
    for key in dict.fromkeys(keys):
        chosen = [j for j, k in enumerate(keys) if k == key]
        members = [pool.members[j] for j in chosen]
        width = n_features or max(_width(m) for m in members)
        build = _BUILDERS[key[0]]
        if gate is not None and key[0] == "linear":
            build = partial(_layered_votes, collapse=False)
        groups.append(build(members, weights[chosen], n_outputs, width))
        order += chosen
    return CompiledEnsemble(
        groups=tuple(groups),
        paths=tuple(key[0] for key in keys),
        classes=pool.classes,
        n_features=n_features,
        floor=float(floor) if pool.classes is not None else 0.0,
        calibrator=calibrator,
        allow_nan=all(m.is_tree and _routes_missing(m.estimator) for m in pool.members),
        gate=None if gate is None else gate.take(np.array(order)),
    )


def collapses_into_one(pool: MemberPool) -> bool:
    """Whether the weighted average of the members is one linear regressor, whatever the weights.

    Classifiers stay a mixture: a mean of sigmoids is no sigmoid.

    Parameters
    ----------
    pool : MemberPool

    Returns
    -------
    bool

    Examples
    --------
    >>> from sklearn.ensemble import BaggingRegressor
    >>> from sklearn.linear_model import Ridge
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X = np.arange(12.0).reshape(6, 2)
    >>> collapses_into_one(read_ensemble(BaggingRegressor(Ridge(), 3).fit(X, X[:, 0])))
    True
    """
    if pool.classes is not None or any(member.is_tree for member in pool.members):
        return False
    return all(_path(member)[:2] == ("linear", "identity") for member in pool.members)


def _width(member: Member) -> int:
    """Columns of X that a member needs; zero where a model of another library does not say."""
    if member.features is not None:
        return int(member.features.max()) + 1
    return int(getattr(member.estimator, "n_features_in_", 0))


def _routes_missing(tree: Any) -> bool:
    return bool(get_tags(tree).input_tags.allow_nan) and not getattr(tree, "monotonic_cst", None)


def _path(member: Member) -> tuple[Any, ...]:
    """The kind of group a member goes to, then what its group has in common."""
    if member.is_tree:
        return ("trees",)
    if type(member.estimator) in (MLPClassifier, MLPRegressor):
        net = member.estimator
        link = {"logistic": "sigmoid"}.get(net.out_activation_, net.out_activation_)
        shapes = tuple(w.shape[1] for w in net.coefs_)
        votes = 1 if member.class_columns is None else len(member.class_columns)
        once = shapes[-1] == votes or (shapes[-1], votes) == (1, 2)
        if net.activation in ACTIVATIONS and link in LINKS and once:
            return ("mlp" if len(shapes) > 1 else "linear", link, net.activation, shapes)
    link = _linear_link(member)
    if link is not None:
        return ("linear", link, "identity", (len(_linear_arrays(member.estimator)[0]),))
    return ("other",)


# -- trees -----------------------------------------------------------------------------------


def _leaf_table(member: Member, n_outputs: int) -> np.ndarray:
    """What each node of a tree says, in the ensemble's classes."""
    values = member.estimator.tree_.value[:, 0, :]
    if member.class_columns is None:
        return np.asarray(values[:, :1])
    table = np.zeros((len(values), n_outputs))
    table[:, member.class_columns] = values[:, : len(member.class_columns)]
    return table


def _flat_trees(
    members: list[Member], weights: np.ndarray, n_outputs: int, n_features: int
) -> FlatTrees:
    tables = [_leaf_table(member, n_outputs) for member in members]
    leaf_sets = [m.estimator.tree_.children_left < 0 for m in members]
    complement = n_outputs == 2 and all(
        np.all(np.abs(table[leaf].sum(axis=1) - 1.0) <= 1e-12)
        for table, leaf in zip(tables, leaf_sets, strict=True)
    )
    parts: dict[str, list[np.ndarray]] = {name: [] for name in FlatTrees.DTYPES}
    n_nodes = n_values = 0
    for member, table, leaf, weight in zip(members, tables, leaf_sets, weights, strict=True):
        tree = member.estimator.tree_
        n_leaves = int(np.count_nonzero(leaf))
        number = np.empty(tree.node_count, dtype=np.int32)  # a node's, or ~row for a leaf
        number[~leaf] = n_nodes + np.arange(len(leaf) - n_leaves)
        number[leaf] = ~(n_values + np.arange(n_leaves))
        inner = np.flatnonzero(~leaf)
        columns = np.arange(n_features)[_read(member)][tree.feature[inner]]
        children = np.stack([tree.children_left[inner], tree.children_right[inner]], axis=1)
        parts["threshold"].append(round_down(tree.threshold[inner]))
        parts["feature"].append(columns)
        parts["missing_left"].append(tree.missing_go_to_left[inner])
        parts["children"].append(number[children])
        parts["roots"].append(number[:1])
        parts["values"].append(weight * (table[leaf, 1:] if complement else table[leaf]))
        n_nodes, n_values = n_nodes + len(inner), n_values + n_leaves
    # Leaves that say the same share a row: pure leaves are most of a deep tree.
    distinct, row = distinct_rows(np.concatenate(parts["values"]))
    parts["values"] = [distinct]
    arrays = {
        name: np.ascontiguousarray(np.concatenate(parts[name]), dtype=dtype)
        for name, dtype in FlatTrees.DTYPES.items()
    }
    for linked in (arrays["children"], arrays["roots"]):
        linked[linked < 0] = ~row[~linked[linked < 0]]
    total = 0.0
    for weight in weights:  # in the kernel's order: a class with every vote leaves exactly zero
        total += float(weight)
    return FlatTrees(**arrays, n_features=n_features, complement=complement, total=total)


# -- linear members, networks, and the rest ----------------------------------------------------


def _linear_arrays(estimator: Any) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients (q, features) and intercepts (q,); AttributeError where there are none."""
    coef = estimator.coef_.toarray() if hasattr(estimator.coef_, "toarray") else estimator.coef_
    coef = np.atleast_2d(coef).astype(np.float64)
    intercept = np.broadcast_to(np.asarray(estimator.intercept_, dtype=np.float64), len(coef))
    return coef, intercept


def _linear_link(member: Member) -> str | None:
    """The link under which a scikit-learn model equals its coefficients on random rows."""
    if not type(member.estimator).__module__.startswith("sklearn."):
        return None
    try:
        coef, intercept = _linear_arrays(member.estimator)
    except (AttributeError, ValueError):  # SVC(kernel="rbf").coef_, callables, ragged ones
        return None
    n_votes = 1 if member.class_columns is None else len(member.class_columns)
    two = len(coef) == 1 and n_votes == 2
    if not two and len(coef) != n_votes:
        return None
    if member.class_columns is None:
        candidates = ["identity"]
    elif hasattr(member.estimator, "predict_proba"):
        candidates = ["sigmoid"] if two else ["softmax", "one_vs_rest"]
    else:
        candidates = ["sign"] if two else ["largest"]
    # Rows at the scale on which the scores are of order one: links differ there.
    size = float(np.abs(coef).max()) or 1.0
    X = np.random.default_rng(0).normal(size=(16, coef.shape[1])) / size
    nameless = copy(member.estimator)  # scikit-learn warns of rows without names
    vars(nameless).pop("feature_names_in_", None)
    columns = None if member.class_columns is None else np.arange(n_votes)
    alone = replace(member, features=None, estimator=nameless, class_columns=columns)
    own = alone.predict(X)[:, None] if columns is None else alone.predict_proba(X, n_votes)
    for link in candidates:
        votes = LINKS[link](X @ coef.T + intercept)
        scale = max(1.0, float(np.abs(own).max()))
        if votes.shape == own.shape and np.abs(votes - own).max() <= 1e-9 * scale:
            return link
    return None


def _layers(estimator: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """Coefficients (inputs, outputs) and intercepts (outputs,), layer by layer."""
    if isinstance(estimator, MLPClassifier | MLPRegressor):
        return list(zip(estimator.coefs_, estimator.intercepts_, strict=True))
    coef, intercept = _linear_arrays(estimator)
    return [(coef.T, intercept)]


def _layered_votes(
    members: list[Member],
    weights: np.ndarray,
    n_outputs: int,
    n_features: int,
    *,
    collapse: bool = True,
) -> LayeredVotes:
    kind, link, activation, shapes = _path(members[0])
    first, *others = zip(*(_layers(member.estimator) for member in members), strict=True)
    coef = np.zeros((n_features, len(members), shapes[0]))
    for j, (member, (own, _)) in enumerate(zip(members, first, strict=True)):
        np.add.at(coef[:, j], _read(member), own)  # bags may draw a column twice
    coef, intercept = coef.reshape(n_features, -1), np.concatenate([b for _, b in first])
    columns = [[0] if m.class_columns is None else m.class_columns for m in members]
    if kind == "linear" and link == "identity" and collapse:
        # A weighted sum of affine maps is one affine map.
        coef, intercept = (coef @ weights)[:, None], np.array([intercept @ weights])
        weights, columns = np.ones(1), columns[:1]
    return LayeredVotes(
        coef=np.ascontiguousarray(coef),
        intercept=np.asarray(intercept, dtype=np.float64),
        layers=tuple(np.array([w for w, _ in layer], dtype=np.float64) for layer in others),
        biases=tuple(np.array([[b] for _, b in layer], dtype=np.float64) for layer in others),
        weights=np.asarray(weights, dtype=np.float64),
        class_columns=np.array(columns, dtype=np.int32),
        activation=activation,
        link=link,
        n_outputs=n_outputs,
        n_members=len(members),
    )


def _read(member: Member) -> Any:
    """An index of the columns a member reads."""
    return slice(None) if member.features is None else member.features


def _others(
    members: list[Member], weights: np.ndarray, n_outputs: int, n_features: int
) -> OtherMembers:
    return OtherMembers(
        members=tuple(replace(m, features=None) for m in members),
        features=tuple(m.features for m in members),
        weights=np.asarray(weights, dtype=np.float64),
        n_outputs=n_outputs,
        is_vote=members[0].class_columns is not None,
    )


_BUILDERS: dict[str, Callable[[list[Member], np.ndarray, int, int], Group]] = {
    "trees": _flat_trees,
    "linear": _layered_votes,
    "mlp": _layered_votes,
    "other": _others,
}
