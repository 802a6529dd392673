"""Students of every size: trees pruned inside, their leaves refitted to the teacher's vote.

From one size to the next, three things happen. Trees that vary least are dropped, so that the
others keep enough leaves. Subtrees collapse where that changes the vote least per leaf, over all
trees at once (cost-complexity pruning)::

    minimise   Σ_leaves mass · (value - value of the collapsed node)²  +  price · leaves

And the leaves that are left are fitted jointly, tree after tree, to the teacher's vote, with a
ridge towards where they start.

Small classifiers do better where their leaves add up to logarithms of odds: a few coarse leaves can
then make a vote as sure as it should be. Their leaves are fitted once more, as such scores, by
cross-entropy to the teacher's vote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax

from sparsebag.evidence.members import Member, MemberPool
from sparsebag.student._student import add_up, backfit, prune, prune_jointly
from sparsebag.student.teacher import MOST_TREES, Lesson
from sparsebag.student.trees import TreeTable, pruned_tree, votes

NODES_OF_ONE, POWER_OF_TREES = 13.0, 0.8
"""So many nodes are best spent on one tree, and their number grows slower than the nodes: 4000 are
a hundred trees of 40, and 500 are twenty trees of 25."""
RIDGE = 12.0
"""Training rows' worth of a leaf's start in its fitted value."""
SWEEPS = 6
"""Passes over the trees at each size; each starts from the size before."""
POLISHES = 3
"""Times that the trees of the finished student are pruned again."""
SCORES_BELOW, SCORE_SWEEPS = 0.05, 3
"""Share of the trees' nodes up to which leaves are scores, and passes over the trees for them."""
FARTHEST = 2.0
"""Of a row's step: rows that are sure have no curvature, and would leap."""
SLOPE_ROWS = 500
"""Rows that tell how steep scores start."""
TINY_MASS = 1e-9
"""Of a leaf without rows, whose value then counts for nothing."""
ROUNDING = 3e-4
"""Mean square by which rounded leaves change the vote, of its error and of its variance."""
FINEST = 1e-14
"""Of a vote's mean square: finer steps are no small integers any more."""


@dataclass(frozen=True)
class Student:
    """Some trees of a table, pruned, with new values.

    Attributes
    ----------
    table : TreeTable
    trees : int ndarray of shape (k,)
        The trees that are kept.
    node : int ndarray of shape (n_nodes,)
        Their nodes that are left, tree after tree.
    left, right : int32 ndarray of shape (n_nodes,)
        Children among these, or -1.
    value : ndarray of shape (n_nodes, columns)
        What leaves add to the vote.
    leaf_of : int32 ndarray of shape (table's nodes,)
        Where a row is now that reached a leaf of the table; -1 in dropped trees.
    offset : int64 ndarray of shape (k + 1,)
        First node of each kept tree.
    scale : float or None
        Where leaves are scores: what shares of the vote are multiplied with to get them.
    """

    table: TreeTable
    trees: np.ndarray
    node: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    leaf_of: np.ndarray
    offset: np.ndarray
    scale: float | None = None

    @classmethod
    def of_whole_trees(cls, lesson: Lesson, trees: np.ndarray) -> Student:
        """Some trees with the teacher's values, nothing pruned."""
        table = lesson.table
        node = np.concatenate([np.arange(*table.offset[t : t + 2]) for t in trees])
        position = np.full(table.n_nodes + 1, -1, dtype=np.int32)  # the last is for -1
        position[node] = np.arange(len(node))
        return cls(
            table=table,
            trees=trees,
            node=node,
            left=position[table.left[node]],
            right=position[table.right[node]],
            value=lesson.value[node] / len(trees),
            leaf_of=position[:-1],
            offset=np.concatenate([[0], np.cumsum(np.diff(table.offset)[trees])]),
        )

    @property
    def n_nodes(self) -> int:
        """Nodes that are left."""
        return len(self.node)

    def vote(self, leaf: np.ndarray) -> np.ndarray:
        """What the student says of rows that the table has routed, shape (rows, columns)."""
        total = votes(self.leaf_of[leaf[self.trees]], self._shares())
        return self._said(total / len(self.trees))

    def members(self, pool: MemberPool, lesson: Lesson) -> tuple[Member, ...]:
        """The kept trees as scikit-learn trees of equal weight, their leaves rounded.

        Parameters
        ----------
        pool : MemberPool
            The ensemble's.
        lesson : Lesson
            On whose rows rounding must not change the vote.

        Returns
        -------
        tuple of Member
        """
        is_vote, value = pool.classes is not None, self._rounded(lesson)
        if is_vote and value.shape[1] == 1:
            value = np.concatenate([1.0 - value, value], axis=1)
        columns = None if pool.classes is None else np.arange(len(pool.classes))
        n_features = self.table.n_features
        out = []
        for j, tree in enumerate(self.trees):
            own = slice(self.offset[j], self.offset[j + 1])
            node = self.node[own] - self.table.offset[tree]
            ends = self.left[own] < 0
            small = pruned_tree(
                self.table.members[tree], node, ends, value[own], is_vote, n_features
            )
            out.append(Member(small, None, columns))
        return tuple(out)

    def take(self, keep: np.ndarray) -> Student:
        """Only some of the kept trees, each with a larger part of the vote."""
        parts = [np.arange(self.offset[j], self.offset[j + 1]) for j in keep]
        chosen = np.concatenate(parts)
        sizes = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
        return self._reindexed(
            chosen,
            trees=self.trees[keep],
            offset=sizes.astype(np.int64),
            value=self.value[chosen] * (len(self.trees) / len(keep)),
        )

    def pruned(self, most: int, mass: np.ndarray) -> Student:
        """Subtrees collapsed where that changes the vote least, until so few nodes are left.

        Parameters
        ----------
        most : int
        mass : ndarray of shape (n_nodes,)
            Row weight in each node.

        Returns
        -------
        Student
        """
        if self.n_nodes <= most:
            return self
        first, lost = self._collapsed(mass)
        ends = np.empty(self.n_nodes, dtype=np.int32)
        prune(self.left, self.right, self.offset, lost, most, ends)
        is_cut = (self.left >= 0) & (ends[self.left] != self.left)
        return self._cut(ends, np.where(is_cut[:, None], first, self.value))

    def polished(self, lesson: Lesson, most: int) -> Student:
        """As many nodes, better placed: where all trees together need them, not each for itself.

        Every tree in turn is pruned again, from the whole tree, to what the others leave over.
        Trees that keep most of their nodes, or must be monotonic one by one, stay as they are.
        """
        whole, student = Student.of_whole_trees(lesson, self.trees), self
        if lesson.monotonic is not None or self.n_nodes > whole.n_nodes // 2:
            return self
        leaf = whole.leaf_of[lesson.leaf[self.trees]]
        # Squares of numbers far from zero would lose their last digits.
        middle = 0.0 if lesson.is_vote else np.average(lesson.goal, axis=0, weights=lesson.weight)
        of_tree = middle / len(self.trees)
        goal, start = lesson.goal - middle, whole.value - of_tree
        for _ in range(POLISHES):
            value = student.value[student.leaf_of[whole.node]] - of_tree
            ends = np.empty_like(whole.left)
            prune_jointly(
                *(leaf, lesson.weight, goal, whole.left, whole.right, whole.offset),
                *(start, RIDGE, lesson.is_vote, most, value, ends),
            )
            student = whole._cut(ends, value + of_tree)
        return student.pruned(most, lesson.mass[student.node]).refitted(lesson)

    def spread(self, mass: np.ndarray) -> np.ndarray:
        """How much each kept tree varies: what is lost where it becomes one leaf."""
        return np.asarray(self._collapsed(mass)[1][self.offset[:-1]])

    def refitted(self, lesson: Lesson) -> Student:
        """Leaves fitted jointly to the teacher's vote on the rows of the lesson."""
        leaf = self.leaf_of[lesson.leaf[self.trees]]
        value = self.value.copy()
        how = (RIDGE, SWEEPS, lesson.is_vote)
        backfit(leaf, lesson.weight, self.offset, lesson.goal, *how, value)
        if value.shape[1] > 1:  # each class was fitted by itself: together they are one again
            value += (1.0 / len(self.trees) - value.sum(axis=1, keepdims=True)) / value.shape[1]
        return replace(self, value=value)

    def scored(self, lesson: Lesson) -> Student:
        """Leaves as scores, fitted by cross-entropy.

        Numbers, and trees with monotonic constraints, stay as they are.
        """
        if not lesson.is_vote or lesson.monotonic is not None:
            return self
        k, columns = len(self.trees), self.value.shape[1]
        n_classes, leaf = max(2, columns), self.leaf_of[lesson.leaf[self.trees]]
        slope = _slope(votes(leaf, self.value), lesson.goal, lesson.weight)
        value = np.asfortranarray(slope * (self.value - 1.0 / (n_classes * k)))
        # Classes share their odds, so that together they would go too far.
        step = 1.0 if columns == 1 else 1.0 - 1.0 / columns
        for _ in range(SCORE_SWEEPS):  # Newton's steps: least squares, weighted by the curvature
            score = votes(leaf, value)
            odds = expit(score) if columns == 1 else softmax(score, axis=1)
            error = lesson.goal - odds
            curve = np.maximum(odds * (1.0 - odds), np.abs(error) / FARTHEST) + TINY_MASS
            ridge = RIDGE * float(np.average(curve.mean(axis=1), weights=lesson.weight))
            wanted = score + step * error / curve
            for c in range(columns):
                how = (lesson.weight * curve[:, c], self.offset, wanted[:, c, None].copy())
                backfit(leaf, *how, ridge, 1, False, value[:, c, None])
        if columns > 1:  # what all classes gain alike changes nothing
            value -= value.mean(axis=1, keepdims=True)
        # Shares of a leaf must not fall below zero; half of a score for one class is against the
        # other.
        largest = np.abs(value).max() / 2.0 if columns == 1 else -value.min()
        scale = float(2.0 ** np.ceil(np.log2(max(n_classes * k * float(largest), 1.0))))
        return replace(self, value=value, scale=scale)

    def _shares(self) -> np.ndarray:
        """What each leaf says, in a vote to which every tree has an equal part."""
        says = len(self.trees) * self.value
        if self.scale is None:
            return says
        if says.shape[1] == 1:
            return np.asarray(0.5 + says / (2.0 * self.scale))
        return np.asarray(1.0 / says.shape[1] + says / self.scale)

    def _said(self, vote: np.ndarray) -> np.ndarray:
        """Probabilities, or numbers, that a vote of the trees stands for."""
        if self.scale is None:
            return vote
        if vote.shape[1] == 1:
            return np.asarray(expit(self.scale * (2.0 * vote - 1.0)))
        return np.asarray(softmax(self.scale * vote, axis=1))

    def _rounded(self, lesson: Lesson) -> np.ndarray:
        """Leaves of equal weight in steps of a power of two, which files hold as small integers.

        The step is halved until the vote on the rows of the lesson stays what it is. (Trees agree,
        so their rounding errors do not cancel.)
        """
        k, leaf, exact = len(self.trees), self.leaf_of[lesson.leaf[self.trees]], self._shares()
        weight, said = lesson.weight / lesson.weight.sum(), self._said(votes(leaf, exact) / k)
        square = weight @ said**2
        variance = float(np.sum(square - (weight @ said) ** 2))
        most = ROUNDING * min(lesson.risk, variance)
        value, change = exact, np.inf
        if most <= FINEST * float(square.sum()):
            if value.shape[1] > 1:
                value[:, -1] = 1.0 - value[:, :-1].sum(axis=1)
            return value
        step = 2.0 ** np.floor(np.log2(np.sqrt(12.0 * k * most) / (self.scale or 1.0)))
        while change > most:
            value = np.round(exact / step) * step + 0.0  # -0 is no integer
            if value.shape[1] > 1:  # the largest share gets what rounding took from the others
                value[np.arange(len(value)), value.argmax(axis=1)] += 1.0 - value.sum(axis=1)
            change = float(np.sum(weight @ (self._said(votes(leaf, value) / k) - said) ** 2))
            step /= 2.0
        return value

    def bounded(self, monotonic: np.ndarray, mass: np.ndarray) -> Student:
        """Leaves clipped so that every tree rises or falls with a feature as it must.

        As in scikit-learn, both sides of a split on such a feature keep to their side of the
        middle between them.

        Parameters
        ----------
        monotonic : ndarray of shape (n_features,)
            1 where the vote rises, -1 where it falls, else 0.
        mass : ndarray of shape (n_nodes,)
            Row weight in each node.

        Returns
        -------
        Student
        """
        mean = self._collapsed(mass)[0][:, 0]
        low, high = np.full(self.n_nodes, -np.inf), np.full(self.n_nodes, np.inf)
        feature = self.table.feature[self.node]
        for i in np.flatnonzero(self.left >= 0):  # parents come first
            sides = (self.left[i], self.right[i])
            low[list(sides)], high[list(sides)] = low[i], high[i]
            sign = monotonic[feature[i]]
            if sign:
                below, above = sides if sign > 0 else sides[::-1]
                middle = np.clip((mean[below] + mean[above]) / 2.0, low[i], high[i])
                high[below] = low[above] = middle
        return replace(self, value=np.clip(self.value, low[:, None], high[:, None]))

    def _collapsed(self, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Each node's mean value, and what is lost where its subtree becomes one leaf."""
        here = np.where(self.left < 0, mass + TINY_MASS, 0.0)
        middle = self.value.mean(axis=0)  # squares of numbers far from zero lose their last digits
        value = self.value - middle
        square = here * np.einsum("ic,ic->i", value, value)
        sums = (here[:, None], here[:, None] * value, square[:, None])
        totals = np.concatenate(sums, axis=1)
        add_up(self.left, self.right, totals)
        mean = totals[:, 1:-1] / totals[:, :1]
        lost = totals[:, -1] - totals[:, 0] * np.einsum("ic,ic->i", mean, mean)
        return mean + middle, np.maximum(lost, 0.0)

    def _cut(self, ends: np.ndarray, value: np.ndarray) -> Student:
        """Without the nodes whose rows end elsewhere."""
        chosen = np.flatnonzero(ends == np.arange(self.n_nodes))
        offset = np.searchsorted(chosen, self.offset).astype(np.int64)
        return self._reindexed(chosen, offset=offset, value=value[chosen], ends=ends)

    def _reindexed(self, chosen: np.ndarray, ends: np.ndarray | None = None, **new: Any) -> Student:
        position = np.full(len(self.node) + 1, -1, dtype=np.int32)  # the last is for -1
        position[chosen] = np.arange(len(chosen))
        leaf_of = self.leaf_of
        if ends is not None:
            leaf_of = np.where(leaf_of < 0, -1, ends[leaf_of])
        return replace(
            self,
            node=self.node[chosen],
            left=position[self.left[chosen]],
            right=position[self.right[chosen]],
            leaf_of=position[leaf_of],
            **new,
        )


def students(
    lesson: Lesson, allowed: Iterable[float], most_trees: int | None = None
) -> Iterator[Student]:
    """Students of falling size, each made from the one before.

    Parameters
    ----------
    lesson : Lesson
    allowed : iterable of float
        Most nodes of each, falling.
    most_trees : int, optional

    Yields
    ------
    Student
    """
    table = lesson.table
    student = Student.of_whole_trees(lesson, np.arange(table.n_trees))
    for most in allowed:
        k = trees_for(most, most_trees or table.n_trees, table.n_nodes / table.n_trees)
        if k < len(student.trees):
            order = np.argsort(-student.spread(lesson.mass[student.node]), kind="stable")
            student = student.take(np.sort(order[:k]))
        student = student.pruned(max(1, int(most)), lesson.mass[student.node])
        if lesson.monotonic is None:
            student = student.refitted(lesson)
        else:  # leaves that make up for each other's steps would not be monotonic one by one
            student = student.bounded(lesson.monotonic, lesson.mass[student.node])
        yield student


def are_scores(share: float, n_members: int) -> bool:
    """Whether a classifier of this share of the ensemble's nodes is small enough for scores.

    Parameters
    ----------
    share : float
    n_members : int
        Of the ensemble; a student keeps trees of the first hundred.

    Returns
    -------
    bool

    Examples
    --------
    >>> are_scores(0.05, 100), are_scores(0.05, 200)
    (True, False)
    """
    return share * n_members <= 1.001 * SCORES_BELOW * min(n_members, MOST_TREES)


def _slope(vote: np.ndarray, goal: np.ndarray, weight: np.ndarray) -> float:
    """Factor of the votes that makes them scores of least cross-entropy to the goal."""
    every = slice(None, None, max(1, len(vote) // SLOPE_ROWS))
    vote, goal, weight = vote[every], goal[every], weight[every]
    of_one = vote.shape[1] == 1
    if of_one:
        vote, goal = (np.concatenate([1.0 - p, p], axis=1) for p in (vote, goal))

    def cross_entropy(log_slope: float) -> float:
        said = log_softmax(np.exp(log_slope) * vote, axis=1)
        return -float(weight @ np.sum(goal * said, axis=1))

    slope = float(np.exp(minimize_scalar(cross_entropy, bounds=(0.0, 5.0), method="bounded").x))
    return 2.0 * slope if of_one else slope  # one column is the difference of two


def trees_for(nodes: float, most: int, of_tree: float = np.inf) -> int:
    """How many trees so many nodes are best spread over.

    Parameters
    ----------
    nodes : float
    most : int
        Trees there are.
    of_tree : float, optional
        Nodes that a whole tree has.

    Returns
    -------
    int

    Examples
    --------
    >>> trees_for(4000, 60), trees_for(10, 60)
    (60, 1)
    """
    best = (nodes / NODES_OF_ONE) ** POWER_OF_TREES
    return int(np.clip(max(best, nodes / of_tree), 1, most))
