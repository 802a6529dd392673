"""Students of every size: trees pruned inside, their leaves refitted to the teacher's vote.

From one size to the next, three things happen. Trees that vary least are dropped, so that the
others keep some 25 leaves. Subtrees collapse where that changes the vote least per leaf, over all
trees at once (cost-complexity pruning)::

    minimise   Σ_leaves mass · (value - value of the collapsed node)²  +  price · leaves

And the leaves that are left are fitted jointly, tree after tree, to the teacher's vote, with a
ridge towards where they start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.evidence.members import Member, MemberPool
from sparsebag.student._student import add_up, backfit, prune
from sparsebag.student.teacher import Lesson
from sparsebag.student.trees import TreeTable, pruned_tree, votes

NODES_A_TREE = 40
"""Fewer nodes than this a tree are better spent on fewer trees."""
RIDGE = 12.0
"""Training rows' worth of a leaf's start in its fitted value."""
SWEEPS = 6
"""Passes over the trees at each size; each starts from the size before."""
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
    """

    table: TreeTable
    trees: np.ndarray
    node: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    leaf_of: np.ndarray
    offset: np.ndarray

    @property
    def n_nodes(self) -> int:
        """Nodes that are left."""
        return len(self.node)

    def vote(self, leaf: np.ndarray) -> np.ndarray:
        """What the student says of rows that the table has routed, shape (rows, columns)."""
        return votes(self.leaf_of[leaf[self.trees]], self.value)

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
        first, lost = self._collapsed(mass)
        ends = np.empty(self.n_nodes, dtype=np.int32)
        prune(self.left, self.right, self.offset, lost, most, ends)
        chosen = np.flatnonzero(ends == np.arange(self.n_nodes))
        is_cut = (self.left >= 0) & (ends[self.left] != self.left)
        value = np.where(is_cut[:, None], first, self.value)[chosen]
        offset = np.searchsorted(chosen, self.offset).astype(np.int64)
        return self._reindexed(chosen, offset=offset, value=value, ends=ends)

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

    def _rounded(self, lesson: Lesson) -> np.ndarray:
        """Leaves of equal weight in steps of a power of two, which files hold as small integers.

        The step is halved until the vote on the rows of the lesson stays what it is. (Trees agree,
        so their rounding errors do not cancel.)
        """
        k, leaf = len(self.trees), self.leaf_of[lesson.leaf[self.trees]]
        weight, vote = lesson.weight / lesson.weight.sum(), votes(leaf, self.value)
        square = weight @ vote**2
        variance = float(np.sum(square - (weight @ vote) ** 2))
        most = ROUNDING * min(lesson.risk, variance)
        value, change = k * self.value, np.inf
        if most <= FINEST * float(square.sum()):
            return value
        step = 2.0 ** np.floor(np.log2(np.sqrt(12.0 * k * most)))
        while change > most:
            value = np.round(k * self.value / step) * step + 0.0  # -0 is no integer
            if value.shape[1] > 1:  # the largest share gets what rounding took from the others
                value[np.arange(len(value)), value.argmax(axis=1)] += 1.0 - value.sum(axis=1)
            change = float(np.sum(weight @ (votes(leaf, value / k) - vote) ** 2))
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
        square = here * np.einsum("ic,ic->i", self.value, self.value)
        sums = (here[:, None], here[:, None] * self.value, square[:, None])
        totals = np.concatenate(sums, axis=1)
        add_up(self.left, self.right, totals)
        mean = totals[:, 1:-1] / totals[:, :1]
        lost = totals[:, -1] - totals[:, 0] * np.einsum("ic,ic->i", mean, mean)
        return mean, np.maximum(lost, 0.0)

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
    student = Student(
        table=table,
        trees=np.arange(table.n_trees),
        node=np.arange(table.n_nodes),
        left=table.left,
        right=table.right,
        value=lesson.value / table.n_trees,
        leaf_of=np.arange(table.n_nodes, dtype=np.int32),
        offset=table.offset,
    )
    for most in allowed:
        k = trees_for(most, most_trees or table.n_trees, table.n_nodes / table.n_trees)
        if k < len(student.trees):
            order = np.argsort(-student.spread(lesson.mass[student.node]), kind="stable")
            student = student.take(np.sort(order[:k]))
        if student.n_nodes > most:
            student = student.pruned(max(1, int(most)), lesson.mass[student.node])
        if lesson.monotonic is None:
            student = student.refitted(lesson)
        else:  # leaves that make up for each other's steps would not be monotonic one by one
            student = student.bounded(lesson.monotonic, lesson.mass[student.node])
        yield student


def trees_for(nodes: float, most: int, of_tree: float = NODES_A_TREE) -> int:
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
    return int(np.clip(nodes // min(NODES_A_TREE, of_tree), 1, most))
