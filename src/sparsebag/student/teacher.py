"""What the whole ensemble teaches: better node values, and its vote on many rows.

Leaves of deep trees rest on one or two bagged rows. A teacher takes each node's mean over *all*
rows and shrinks it to its parent's value with ``shrink`` pseudo-rows, as hierarchical shrinkage
does::

    v_node = (n_node · mean_node + shrink · v_parent) / (n_node + shrink)

Averaging also pulls predictions to the middle. What the out-of-bag vote Q misses of the targets is
therefore given back, ``twice`` times (Tukey's twicing)::

    mean_node = mean of  y + twice · (y - Q)

Noisy data want shrinking, clean data twicing; `RECIPES` are three points between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.evidence.members import MemberPool
from sparsebag.student._student import add_rows, shrink_to_parent
from sparsebag.student.mixtures import mixtures, neighbours
from sparsebag.student.trees import TreeTable, votes

BLOCK_ROWS = 16_384
"""Rows routed through all trees at a time."""
MOST_ROWS = 15_000
"""Training rows that leaves are refitted on; node values are of all rows."""
MIXTURES_A_ROW, MOST_MIXTURES = 4, 12_000
"""Mixtures for each training row, and at most."""
SHARE_OF_MIXTURES = 0.8
"""Weight of all mixtures together: training rows alone would teach the noise of their labels."""
UNEVEN = 0.1
"""How much more a row of one class may weigh than one of another before classes are weighted."""
MOST_TEACHING, MOST_TREES = 300, 100
"""Trees that teach, and trees of a student: more change nothing but the time it takes."""


@dataclass(frozen=True)
class Recipe:
    """How a teacher's node values are made.

    Attributes
    ----------
    shrink : float or None
        Pseudo-rows of the parent's value in each node's; None: the trees' own values.
    twice : float
        Share of the out-of-bag residual that is added to the targets.
    """

    shrink: float | None
    twice: float


RECIPES = (Recipe(3.0, 0.0), Recipe(1.0, 0.5), Recipe(1.0, 1.0))
"""From noisy data to clean."""
RECIPES_AS_IS = (Recipe(None, 0.0),)
"""Where classes are weighted: shrinking would move the decisions the weights were chosen for."""
RECIPES_WITHOUT_BAGS = (Recipe(3.0, 0.0), *RECIPES_AS_IS, Recipe(0.1, 0.0))
"""Where nobody knows which rows were out of bag, there is no residual to add; few rows do not tell
every node's value, and the trees' own may be better."""


def recipes_for(
    pool: MemberPool, target: np.ndarray, weight: np.ndarray, knows_bags: bool
) -> tuple[Recipe, ...]:
    """The recipes that are worth a try.

    Parameters
    ----------
    pool : MemberPool
    target : ndarray of shape (M, n_outputs)
        One-hot classes, or numbers.
    weight : ndarray of shape (M,)
    knows_bags : bool

    Returns
    -------
    tuple of Recipe
    """
    if pool.classes is not None:
        rows = np.maximum(target.sum(axis=0), 1.0)
        mean, square = weight @ target / rows, weight**2 @ target / rows
        error = np.sqrt(np.maximum(square - mean**2, 0.0) / rows)
        if np.any((target.sum(axis=0) > 0) & (np.abs(mean - 1.0) > UNEVEN + 4.0 * error)):
            return RECIPES_AS_IS
    if getattr(pool.members[0].estimator, "criterion", None) == "absolute_error":
        return RECIPES_AS_IS  # leaves are medians, which means over rows would undo
    return RECIPES if knows_bags and pool.in_bag is not None else RECIPES_WITHOUT_BAGS


@dataclass(frozen=True)
class Lesson:
    """What a student learns from.

    Attributes
    ----------
    table : TreeTable
        The trees a student may keep.
    leaf : int32 ndarray of shape (n_trees, rows)
        Where the rows of the lesson fall in them.
    weight : ndarray of shape (rows,)
        One in the mean over training rows, mixtures included.
    mass : ndarray of shape (n_nodes,)
        Weight of all training rows in each node.
    value : ndarray of shape (n_nodes, columns)
        The teacher's node values.
    goal : ndarray of shape (rows, columns)
        The teacher's vote.
    risk : float
        Mean squared error of the ensemble on rows that its trees have not seen.
    is_vote : bool
        Whether these are class shares, between zero and one.
    monotonic : ndarray of shape (n_features,) or None
        Sign of the vote's slope in features that the trees were constrained in.
    """

    table: TreeTable
    leaf: np.ndarray
    weight: np.ndarray
    mass: np.ndarray
    value: np.ndarray
    goal: np.ndarray
    risk: float
    is_vote: bool
    monotonic: np.ndarray | None


class Teacher:
    """The whole ensemble on its rows: routed once, taught from as often as there are recipes.

    Parameters
    ----------
    pool : MemberPool
        Of trees.
    X : float32 ndarray or sparse matrix of shape (M, n_features)
        As `MemberPool.prepare` gives it.
    target : ndarray of shape (M, n_outputs)
        One-hot classes, or numbers.
    weight : ndarray of shape (M,)
        Row weights, of mean one.
    knows_bags : bool
        Whether ``pool.in_bag`` tells of X; else X is held out.
    n_threads : int, default 1
    mixtures : int, default 4
        For each row.
    seed : int, default 0

    Attributes
    ----------
    table : TreeTable
        Of the trees that teach.
    trees : int ndarray of shape (n_trees,)
        Which members these are.
    """

    def __init__(
        self,
        pool: MemberPool,
        X: Any,
        target: np.ndarray,
        weight: np.ndarray,
        *,
        knows_bags: bool = True,
        n_threads: int = 1,
        mixtures: int = MIXTURES_A_ROW,
        seed: int = 0,
    ) -> None:
        self.pool, self.n_threads = pool, n_threads
        self.knows_bags = knows_bags and pool.in_bag is not None
        # Of two classes one column says all.
        is_binary = pool.classes is not None and target.shape[1] == 2
        self.column = slice(1, 2) if is_binary else slice(None)
        rng, n_members = np.random.default_rng(seed), len(pool.members)
        # Trees of a list may be of several kinds, one after another: some of each are taken.
        self.trees = np.arange(n_members)
        if n_members > MOST_TREES:
            self.trees = rng.permutation(n_members)[:MOST_TEACHING]
        self.table = TreeTable.of(pool.keep(self.trees))
        n_rows = X.shape[0]
        picked = np.arange(n_rows)
        if n_rows > MOST_ROWS:
            picked = np.sort(rng.choice(n_rows, MOST_ROWS, replace=False))
        unseen = _unseen(pool.in_bag, self.trees, n_rows) if self.knows_bags else None
        leaf = self._add_up_rows(X, target, weight, picked, unseen)
        as_many = n_rows / len(picked)
        self._weight = weight[picked] * as_many
        self._unweighted = np.full(len(picked), as_many)
        self._leaf = leaf
        self._add_mixtures(X, picked, min(mixtures * len(picked), MOST_MIXTURES), rng)

    def lesson(self, recipe: Recipe) -> Lesson:
        """What a student learns by a recipe.

        Parameters
        ----------
        recipe : Recipe

        Returns
        -------
        Lesson
        """
        table, weight, mass = self.table, self._weight, self._mass
        if recipe.shrink is None:
            value = np.ascontiguousarray(table.value[:, self.column])
            # What is taught is the vote itself. Weights that follow the labels would bend it.
            weight, mass = self._unweighted, self._count
        else:
            value = (1.0 + recipe.twice) * self._of_target - recipe.twice * self._of_oob_vote
            value = np.ascontiguousarray(value)
            sizes = (self._mass, self._count, table.offset)
            shrink_to_parent(table.left, table.right, *sizes, recipe.shrink, value)
        goal = votes(self._leaf, value, self.n_threads) / table.n_trees
        kept, is_vote = _first_trees(table, MOST_TREES), self.pool.classes is not None
        return Lesson(
            table=kept,
            leaf=self._leaf[: kept.n_trees],
            weight=weight,
            mass=mass[: kept.n_nodes],
            value=value[: kept.n_nodes],
            goal=np.clip(goal, 0.0, 1.0) if is_vote else goal,
            risk=self._risk,
            is_vote=is_vote,
            monotonic=_monotonic(table),
        )

    @property
    def oob_vote(self) -> np.ndarray | None:
        """Each row's vote by the trees that have not seen it, shape (M, n_outputs)."""
        if self._heard is None:
            return None
        vote = np.concatenate(self._heard)
        is_one_of_two = vote.shape[1] == 1 and self.pool.classes is not None
        return np.concatenate([1.0 - vote, vote], axis=1) if is_one_of_two else vote

    def _add_up_rows(
        self,
        X: Any,
        target: np.ndarray,
        weight: np.ndarray,
        picked: np.ndarray,
        unseen: np.ndarray | None,
    ) -> np.ndarray:
        """Row weights, targets and out-of-bag votes in every node; leaves of the picked rows."""
        table, column = self.table, self.column
        own = np.ascontiguousarray(table.value[:, column])
        width = own.shape[1]
        mass, sums = np.zeros(table.n_nodes), np.zeros((table.n_nodes, 2 * width + 1))
        one = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0.0)[:, None]
        heard, leaves, risk = [], [], 0.0
        for start in range(0, X.shape[0], BLOCK_ROWS):
            rows = slice(start, start + BLOCK_ROWS)
            leaf = table.route(X[rows], self.n_threads)
            truth = target[rows, column]
            vote = truth
            if unseen is not None:
                bits = np.unpackbits(
                    unseen[:, start // 8 : rows.stop // 8], axis=1, count=len(truth)
                )
                vote = _oob_vote(leaf, bits.view(np.bool_), own, truth)
            said = votes(leaf, own) / table.n_trees if unseen is None else vote
            risk += float(np.sum(weight[rows] @ (truth - said) ** 2))
            added = np.concatenate([truth, vote, one[rows]], axis=1)
            add_rows(leaf, weight[rows], added, mass, sums, self.n_threads)
            first, last = np.searchsorted(picked, (start, start + BLOCK_ROWS))
            leaves.append(leaf[:, picked[first:last] - start])
            heard.append(vote)
        self._risk = risk / weight.sum()
        self._heard = heard if unseen is not None else None
        totals = table.added_up(np.concatenate([mass[:, None], sums], axis=1))
        self._mass, self._count = totals[:, 0].copy(), totals[:, -1].copy()
        self._of_target, self._of_oob_vote = totals[:, 1 : 1 + width], totals[:, 1 + width : -1]
        return np.concatenate(leaves, axis=1)

    def _add_mixtures(self, X: Any, picked: np.ndarray, n: int, rng: np.random.Generator) -> None:
        """So many mixtures of training rows beside them."""
        n_rows = len(picked)
        first, second = neighbours(self._leaf, n, rng)

        def with_mixed(weight: np.ndarray) -> np.ndarray:
            of_mixed = SHARE_OF_MIXTURES * weight[first] * (n_rows / n)
            return np.concatenate([(1.0 - SHARE_OF_MIXTURES) * weight, of_mixed])

        mixed = mixtures(X, picked[first], picked[second], rng)
        leaves = [self.table.route(block, self.n_threads) for block in mixed]
        self._leaf = np.concatenate([self._leaf, *leaves], axis=1)
        self._weight, self._unweighted = with_mixed(self._weight), with_mixed(self._unweighted)


def _unseen(bags: Any, trees: np.ndarray, n_rows: int) -> np.ndarray:
    """Whether each row is out of each bag, bits of shape (trees, rows / 8)."""
    unseen = []
    for tree in trees:
        mask = np.ones(n_rows, dtype=np.bool_)
        mask[bags[tree]] = False
        unseen.append(np.packbits(mask))
    return np.stack(unseen)


def _oob_vote(
    leaf: np.ndarray, unseen: np.ndarray, value: np.ndarray, otherwise: np.ndarray
) -> np.ndarray:
    """Mean vote of the trees that have not seen a row; the truth where all have."""
    total, count = np.zeros(otherwise.shape), unseen.sum(axis=0)
    for of_tree, mask in zip(leaf, unseen, strict=True):
        total[mask] += value[of_tree[mask]]
    return np.where(count[:, None] > 0, total / np.maximum(count, 1)[:, None], otherwise)


def _monotonic(table: TreeTable) -> np.ndarray | None:
    asked = getattr(table.members[0].estimator, "monotonic_cst", None)
    return None if asked is None or table.members[0].features is not None else np.asarray(asked)


def _first_trees(table: TreeTable, most: int) -> TreeTable:
    """A table of the first trees, which are no others than the last."""
    if table.n_trees <= most:
        return table
    end = table.offset[most]
    return TreeTable(
        members=table.members[:most],
        left=table.left[:end],
        right=table.right[:end],
        feature=table.feature[:end],
        threshold=table.threshold[:end],
        missing_left=table.missing_left[:end],
        offset=table.offset[: most + 1],
        value=table.value[:end],
        n_features=table.n_features,
    )
