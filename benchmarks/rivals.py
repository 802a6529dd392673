"""Other ways to 5 % of the nodes, for `benchmarks.quality`, which treats them alike.

A copy of the ensemble is fitted on four fifths of the training rows; what a method leaves open, and
the temperature of its votes, are what suits the last fifth best. With these it is applied to the
ensemble as given, or fitted to all rows; LOP, judged at every step, stays fitted to four fifths.

Written here from the papers: members in order (reduced error: Margineantu and Dietterich, 1997,
without backfitting; complementariness: Martínez-Muñoz and Suárez, 2004), minimal cost-complexity
pruning at one price for all trees (Breiman et al., 1984), depths of trees (ForestPrune: Liu and
Mazumder, 2023, without its local search), L1 models level by level (LOP: Devos et al., 2025).
Hierarchical shrinkage is imodels'.
"""

import copy
import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
from scipy.sparse import csr_matrix
from scipy.special import expit
from sklearn.linear_model import Lasso, LogisticRegression
from sklearn.model_selection import ParameterGrid

from benchmarks.problem import new_ensemble

SHARE = 0.05
STRENGTHS = np.geomspace(0.1, 1e-4, 6)
"""Of the penalties of `level_wise`."""


class Nodes:
    """The nodes of all trees, one after another, a parent before its children."""

    def __init__(self, ensemble: Any, n_classes: int) -> None:
        self.trees = list(ensemble.estimators_)
        arrays = [tree.tree_ for tree in self.trees]

        def joined(name: str) -> np.ndarray:
            return np.concatenate([getattr(tree, name) for tree in arrays])

        counts = [tree.node_count for tree in arrays]
        self.tree = np.repeat(np.arange(len(counts)), counts)
        self.roots = np.cumsum([0, *counts])[:-1]
        root, mass = self.roots[self.tree], joined("weighted_n_node_samples")
        self.is_leaf = joined("children_left") < 0
        self.left, self.right = joined("children_left") + root, joined("children_right") + root
        self.feature, self.threshold = joined("feature"), joined("threshold")
        self.risk = joined("impurity") * mass / mass[root]
        self.value = np.zeros((len(root), max(n_classes, 1)))
        for j, tree in enumerate(self.trees):  # a bag may miss a class, and members number theirs
            names = ensemble.classes_[np.asarray(tree.classes_, dtype=int)] if n_classes else [0]
            self.value[np.ix_(self.tree == j, names)] = arrays[j].value[:, 0]
        self.depth, level, self.levels = np.zeros(len(root), dtype=int), self.roots, []
        while len(level):
            self.depth[level] = len(self.levels)
            self.levels.append(level[~self.is_leaf[level]])
            level = np.r_[self.left[self.levels[-1]], self.right[self.levels[-1]]]

    def ends(self, X: np.ndarray) -> np.ndarray:
        """The leaves of rows, (rows, trees)."""
        return np.stack([tree.apply(X) for tree in self.trees], axis=1) + self.roots

    def stops(self, is_leaf: np.ndarray) -> np.ndarray:
        """For each node the one above it, or itself, at which its rows stop."""
        stop = np.arange(len(self.tree))
        for level in self.levels:
            for child in (self.left[level], self.right[level]):
                stop[child] = np.where(is_leaf[stop[level]], stop[level], child)
        return stop


@dataclass(frozen=True)
class Data:
    """An ensemble, its training rows, and perhaps rows that it has not seen."""

    ensemble: Any
    X: np.ndarray
    y: np.ndarray
    kind: str
    n_classes: int
    seed: int
    X_held: np.ndarray | None = None
    loss_held: Callable[[np.ndarray], float] | None = None
    """Of a prediction of ``X_held``, at its own temperature."""
    forests: dict[Any, Any] = field(default_factory=dict)
    """Small ones, fitted before."""

    @cached_property
    def nodes(self) -> Nodes:
        return Nodes(self.ensemble, self.n_classes)

    @cached_property
    def ends(self) -> np.ndarray:
        return self.nodes.ends(self.X)

    @property
    def most_nodes(self) -> int:
        return int(SHARE * len(self.nodes.tree))

    @property
    def targets(self) -> np.ndarray:
        """One-hot classes, or numbers as a column."""
        return np.eye(self.n_classes)[self.y] if self.n_classes else self.y[:, None]


@dataclass(frozen=True)
class Pruned:
    """Trees that stop at leaves, with values there and weights; a lone root is a constant."""

    nodes: Nodes
    is_leaf: np.ndarray
    value: np.ndarray
    weight: np.ndarray
    link: Callable[[np.ndarray], np.ndarray] = np.asarray

    def predict(self, X: np.ndarray) -> np.ndarray:
        ends = self.nodes.stops(self.is_leaf)[self.nodes.ends(X)].T
        return self.link(sum(w * self.value[at] for w, at in zip(self.weight, ends, strict=True)))

    @cached_property
    def kept(self) -> np.ndarray:
        splits = (self.weight != 0) & ~self.is_leaf[self.nodes.roots]
        is_kept = self.nodes.stops(self.is_leaf) == np.arange(len(self.is_leaf))
        return np.flatnonzero(is_kept & splits[self.nodes.tree])

    @property
    def n_nodes(self) -> int:
        return len(self.kept)

    @property
    def n_members(self) -> int:
        return len(np.unique(self.nodes.tree[self.kept]))

    @property
    def n_bytes(self) -> int:
        n, leaf, inner = (self.nodes, *(self.kept[self.is_leaf[self.kept] == b] for b in (1, 0)))
        right = np.searchsorted(self.kept, n.right[inner])  # the left child is the next node
        parts = (n.feature[inner], np.int16), (n.threshold[inner], np.float32), (right, np.int32)
        return packed([a.astype(t) for a, t in (*parts, (self.value[leaf], np.float32))])


def whole(nodes: Nodes) -> Pruned:
    """All trees, which vote equally."""
    return Pruned(
        nodes, nodes.is_leaf, nodes.value, np.full(len(nodes.roots), 1 / len(nodes.roots))
    )


def packed(thing: Any, compress: int = 3) -> int:
    """Bytes of joblib's file."""
    joblib.dump(thing, file := io.BytesIO(), compress=compress)
    return file.getbuffer().nbytes


def ordered(data: Data, measure: str) -> Pruned | None:
    """Whole trees, the next one being that after which the out-of-bag loss is lowest.

    Complementariness takes the tree that is right most often where those before it are wrong.
    """
    if measure == "complementariness" and not data.n_classes:
        return None
    nodes, size, y = data.nodes, np.bincount(data.nodes.tree), data.targets
    out = np.ones(data.ends.shape, dtype=bool)
    for j, rows in enumerate(data.ensemble.estimators_samples_):
        out[rows, j] = False
    votes, few = nodes.value[data.ends] * out[..., None], 1e-3
    total, seen = np.tile(few * y.mean(axis=0), (len(y), 1)), np.full(len(y), few)
    order, left = [], data.most_nodes
    while some := [j for j in np.flatnonzero(size <= left) if j not in order]:
        if measure == "complementariness" and order:
            wrong = total.argmax(axis=1) != data.y
            right = votes[:, some].argmax(axis=2) == data.y[:, None]
            score = -(right & out[:, some] & wrong[:, None]).sum(axis=0)
        else:
            mean = (total[:, None] + votes[:, some]) / (seen[:, None] + out[:, some])[..., None]
            score = ((mean - y[:, None]) ** 2).sum(axis=(0, 2))
        best = some[int(np.argmin(score))]
        total, seen = total + votes[:, best], seen + out[:, best]
        order, left = [*order, best], left - size[best]
    weight = np.isin(np.arange(len(size)), order) / max(len(order), 1)
    return Pruned(nodes, nodes.is_leaf, nodes.value, weight)


def cheapest(at: Callable[[float], Pruned], most: float, most_nodes: int) -> float:
    """The lowest price at which few enough nodes are left; at the price ``most`` there are none."""
    low, high = np.log(most) - 18.0, np.log(most) + 0.01
    for _ in range(16):
        middle = (low + high) / 2
        fits = at(float(np.exp(middle))).n_nodes <= most_nodes
        low, high = (low, middle) if fits else (middle, high)
    return float(np.exp(high))


def cost_complexity(data: Data, k: int) -> Pruned:
    """The first k trees, each the best subtree at one price a leaf."""
    nodes = data.nodes
    weight = (np.arange(len(nodes.roots)) < k) / k

    def at(price: float) -> Pruned:
        cost, is_leaf = nodes.risk + price, nodes.is_leaf.copy()
        for level in reversed(nodes.levels):
            below = cost[nodes.left[level]] + cost[nodes.right[level]]
            is_leaf[level] = cost[level] <= below
            cost[level] = np.minimum(cost[level], below)
        return Pruned(nodes, is_leaf, nodes.value, weight)

    return at(cheapest(at, nodes.risk[nodes.roots].max(), data.most_nodes))


def depth_pruned(data: Data, k: int, ridge: float) -> Pruned:
    """A depth for each of k trees, by coordinate descent at one price a node; then new weights."""
    nodes, y = data.nodes, data.targets.ravel().astype(np.float32)
    weight = (np.arange(len(nodes.roots)) < k) / k
    stops = [nodes.stops(nodes.is_leaf | (nodes.depth >= d)) for d in range(len(nodes.levels) + 1)]
    votes, sizes = [], []
    for j, ends in enumerate(data.ends.T[:k]):
        depths = np.sort(nodes.depth[nodes.tree == j])
        upto = np.arange(depths[-1] + 1)
        votes.append(np.array([nodes.value[stops[d][ends]].ravel() for d in upto], np.float32))
        sizes.append(np.searchsorted(depths, upto, "right") * (upto > 0))
    squares = [np.einsum("dr,dr->d", v, v) / k for v in votes]

    def depths_at(price: float) -> np.ndarray:
        found, before = np.zeros(len(nodes.roots), dtype=int), None
        residual = y - sum(v[0] for v in votes) / k
        for _ in range(5):
            if np.array_equal(before, found):
                break
            before = found.copy()
            for j, v in enumerate(votes):
                residual += v[found[j]] / k
                found[j] = np.argmin(squares[j] - 2.0 * (v @ residual) + price * sizes[j])
                residual -= v[found[j]] / k
        return found

    def at(price: float) -> Pruned:
        is_leaf = nodes.is_leaf | (nodes.depth >= depths_at(price)[nodes.tree])
        return Pruned(nodes, is_leaf, nodes.value, weight)

    price = cheapest(at, float(y @ y), data.most_nodes)
    A = np.stack([v[d] for v, d in zip(votes, depths_at(price), strict=False)], axis=1)
    gram = A.T @ A
    gram += ridge * np.trace(gram) * np.eye(k)
    new = weight.copy()
    new[:k] += np.linalg.solve(gram, A.T @ (y - A @ weight[:k]))
    return replace(at(price), weight=new)


def level_wise(data: Data, tolerance: float) -> Pruned | None:
    """Level by level, an L1 model scales and shifts subtrees; a scale of 0 cuts them.

    Of each level the strongest penalty that leaves the loss on the held-out rows within
    ``tolerance`` of the ensemble's; without one the level stays. Two rounds; two classes or
    numbers, as published. The published score, balanced accuracy, has no temperature, so here the
    loss is that at its own.
    """
    if data.n_classes > 2:
        return None
    nodes, classify = data.nodes, data.n_classes == 2
    start, spread = (0.5, 0.5) if classify else (data.y.mean(), data.y.std())
    y = data.y if classify else (data.y - start) / spread
    limit = (1.0 + tolerance) * data.loss_held(whole(nodes).predict(data.X_held))
    is_leaf, value, offset = nodes.is_leaf.copy(), (nodes.value[:, -1] - start) / spread, 0.0
    ends = data.ends, nodes.ends(data.X_held)

    def link(votes: np.ndarray) -> np.ndarray:
        votes = votes.ravel() + offset
        return columns(expit(votes) if classify else start + spread * votes, data.n_classes)

    for level in [*range(len(nodes.levels))] * 2:
        tops, stops = nodes.stops(is_leaf | (nodes.depth >= level)), nodes.stops(is_leaf)
        names = np.unique(tops[ends[0]])
        if nodes.depth[names].max() < level:
            continue
        votes = value[stops] * ~is_leaf[tops]
        X, X_held = (_scaled_and_shifted(votes[at], tops[at], names) for at in ends)
        for strength in STRENGTHS:
            if classify:
                how = {"solver": "liblinear", "l1_ratio": 1.0, "random_state": data.seed}
                lasso: Any = LogisticRegression(C=1 / (strength * len(y)), **how)
            else:
                lasso = Lasso(strength, max_iter=100, tol=1e-3)
            weights = lasso.fit(X, y).coef_.ravel()
            before, offset = offset, float(np.ravel(lasso.intercept_)[0])
            if data.loss_held(link(X_held @ weights)) <= limit:
                scale, shift = np.zeros((2, len(value)))
                scale[names], shift[names] = weights.reshape(2, -1)
                value = scale[tops] * value + shift[tops]
                is_leaf[names[scale[names] == 0]] = True
                break
            offset = before
    pruned = Pruned(nodes, is_leaf, value[:, None], np.ones(len(nodes.roots)), link)
    return pruned if pruned.n_nodes <= data.most_nodes else None


def _scaled_and_shifted(votes: np.ndarray, node: np.ndarray, names: np.ndarray) -> csr_matrix:
    """Of each row, the votes of its nodes, and that it is in them."""
    column = np.searchsorted(names, node)
    known = names[np.minimum(column, len(names) - 1)] == node
    row, column = np.nonzero(known)[0], column[known]
    filled = np.r_[votes[known], np.ones(len(row))]
    at = np.r_[row, row], np.r_[column, column + len(names)]
    return csr_matrix((filled, at), shape=(len(votes), 2 * len(names)))


def small_forest(data: Data, k: int, max_features: Any, shrinkage: float = 0.0) -> Pruned | None:
    """A new forest of small trees, grown best first, shrunk by imodels."""
    n_leaves = (data.most_nodes // k + 1) // 2
    if n_leaves < 2:
        return None
    if (k, max_features) not in data.forests:
        task = "classification" if data.n_classes else "regression"
        size = {"max_leaf_nodes": n_leaves, "max_features": max_features}
        new = new_ensemble(task, data.kind, k, data.seed, **size)
        data.forests[k, max_features] = new.fit(data.X, data.y)
    forest = copy.deepcopy(data.forests[k, max_features])
    if shrinkage:
        from imodels import HSTreeClassifier, HSTreeRegressor

        kind = HSTreeClassifier if data.n_classes else HSTreeRegressor
        forest = kind(estimator_=forest, reg_param=shrinkage).estimator_
    return whole(Nodes(forest, data.n_classes))


def lightgbm(data: Data, rate: float, n_leaves: int, share: float) -> SimpleNamespace:
    """LightGBM, stopped at a share of the rounds that the nodes are enough for."""
    import lightgbm as lgb

    of_class = data.n_classes if data.n_classes > 2 else 1
    objective = ("multiclass" if of_class > 1 else "binary") if data.n_classes else "regression"
    params = {"objective": objective, "num_leaves": n_leaves, "learning_rate": rate}
    params |= {"num_class": of_class, "seed": data.seed, "num_threads": 1, "verbosity": -1}
    rounds = max(1, int(share * data.most_nodes / (2 * n_leaves - 1) / of_class))
    model = lgb.train(params, lgb.Dataset(data.X, data.y), rounds)
    sizes = [2 * tree["num_leaves"] - 1 for tree in model.dump_model()["tree_info"]]
    return boosted(model.predict, data, sum(sizes), len(sizes), model.model_to_string())


def ydf(data: Data, rate: float, depth: int) -> SimpleNamespace:
    """YDF's boosting, stopped by a tenth of the rows that it holds out itself."""
    import ydf

    ydf.verbose(0)
    task = ydf.Task.CLASSIFICATION if data.n_classes else ydf.Task.REGRESSION
    how = {"label": "y", "task": task, "num_threads": 1, "random_seed": data.seed}
    how |= {"shrinkage": rate, "max_depth": depth, "num_trees": 2000}
    learner = ydf.GradientBoostedTreesLearner(**how, total_max_num_nodes=data.most_nodes)
    model = learner.train({"x": data.X, "y": data.y})
    size = model.num_nodes(), model.num_trees(), model.serialize()
    return boosted(lambda X: model.predict({"x": X}), data, *size)


def boosted(
    predict: Callable[[np.ndarray], np.ndarray], data: Data, n_nodes: int, n_members: int, file: Any
) -> SimpleNamespace:
    """What a library of its own made, as `Pruned` is read."""
    size = {"n_nodes": n_nodes, "n_members": n_members, "n_bytes": packed(file)}
    return SimpleNamespace(predict=lambda X: columns(predict(X), data.n_classes), **size)


def columns(predicted: np.ndarray, n_classes: int) -> np.ndarray:
    """Both classes, where the probability of the second is given; numbers as a column."""
    both = np.column_stack([1.0 - predicted, predicted]) if predicted.ndim == 1 else predicted
    return both if n_classes or predicted.ndim == 2 else predicted[:, None]


SMALL = {"k": [5, 10, 20, 50], "max_features": ["sqrt", 0.33, 1.0]}
BOOSTED = {"rate": [0.1, 0.2, 0.4], "n_leaves": [4, 8, 16], "share": [0.3, 1.0]}
RIVALS: dict[str, tuple[Callable[..., Any], Iterable[dict[str, Any]]]] = {
    name: (make, ParameterGrid(choices))
    for name, make, choices in (
        ("reduced error", ordered, {"measure": ["reduced error"]}),
        ("complementariness", ordered, {"measure": ["complementariness"]}),
        ("cost-complexity", cost_complexity, {"k": [5, 10, 20, 50, 100]}),
        ("depth pruning", depth_pruned, {"k": [10, 20, 50, 100], "ridge": [1e-3, 1e2]}),
        ("level-wise L1", level_wise, {"tolerance": [0.0, 0.1, 0.3, 1.0]}),
        ("small forest", small_forest, SMALL),
        ("hierarchical shrinkage", small_forest, SMALL | {"shrinkage": [0.1, 1.0, 10.0]}),
        ("lightgbm tuned", lightgbm, BOOSTED),
        ("ydf", ydf, {"rate": [0.1, 0.3], "depth": [3, 5]}),
    )
}
"""Of each method, what is tried on the held-out rows."""
