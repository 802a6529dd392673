"""The table of trees: rows reach scikit-learn's leaves, and pruned copies are its trees."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.tree import BaseDecisionTree

from sparsebag.student.student import ROUNDING, students
from sparsebag.student.teacher import RECIPES
from sparsebag.student.trees import TreeTable
from student.forests import FORESTS, fitted, teacher_of


@pytest.mark.parametrize("name", FORESTS)
def test_rows_reach_scikit_learns_leaves_and_votes_are_the_ensembles(name):
    ensemble, pool, X, _ = fitted(name)
    table, rows = TreeTable.of(pool), pool.prepare(X)
    leaf = table.route(rows)
    np.testing.assert_array_equal(table.route(rows, 3), leaf)
    for j, member in enumerate(pool.members):
        np.testing.assert_array_equal(leaf[j] - table.offset[j], member.apply(rows))
    vote = sum(table.value[of_tree] for of_tree in leaf) / table.n_trees
    if pool.classes is None:
        np.testing.assert_allclose(vote[:, 0], ensemble.predict(X), rtol=1e-12)
    else:
        np.testing.assert_allclose(vote, ensemble.predict_proba(X), atol=1e-12)


def test_values_at_thresholds_go_where_scikit_learn_sends_them():
    _, pool, X, _ = fitted("missing values")
    table, rng = TreeTable.of(pool), np.random.default_rng(0)
    at = np.float32(table.threshold[table.left >= 0])
    near = np.concatenate([at, np.nextafter(at, np.inf, dtype=np.float32), [np.nan]])
    near = np.concatenate([near, np.nextafter(at, -np.inf, dtype=np.float32)])
    rows = rng.choice(near.astype(np.float32), size=(500, X.shape[1]))
    leaf = table.route(rows)
    for j, member in enumerate(pool.members):
        expected = member.estimator.tree_.apply(rows)
        np.testing.assert_array_equal(leaf[j] - table.offset[j], expected)


@pytest.mark.parametrize("share", [0.6, 0.1, 0.01])
@pytest.mark.parametrize("name", FORESTS)
def test_pruned_copies_are_sound_trees_that_say_what_the_student_says(name, share):
    _, pool, X, _ = fitted(name)
    teacher = teacher_of(name)
    lesson = teacher.lesson(RECIPES[0])
    (student,) = students(lesson, [share * teacher.table.n_nodes])
    members, rows = student.members(pool, lesson), pool.prepare(X)
    said = student.vote(teacher.table.route(rows))
    if pool.classes is None:
        copies = np.mean([member.predict(rows) for member in members], axis=0)[:, None]
    else:
        shares = [m.estimator.tree_.value[m.estimator.tree_.apply(dense(rows)), 0] for m in members]
        copies = np.mean(shares, axis=0)[:, -said.shape[1] :]
    # Leaves are rounded, and the vote is not worse for it (training rows are the lesson's first).
    weight, changed = lesson.weight[: X.shape[0]], np.sum((copies - said) ** 2, axis=1)
    variance = np.sum(np.var(student.vote(lesson.leaf), axis=0))
    assert weight @ changed <= 2 * ROUNDING * lesson.weight.sum() * min(lesson.risk, variance)
    leaves = [m.estimator.tree_.value[m.estimator.tree_.children_left < 0, 0] for m in members]
    step = step_of(np.concatenate(leaves))
    assert np.ptp(np.concatenate(leaves)) <= 2**14 * step or student.n_nodes == len(members)
    assert sum(m.estimator.tree_.node_count for m in members) == student.n_nodes
    for tree in (member.estimator for member in members):
        assert isinstance(tree, BaseDecisionTree)
        assert tree.n_features_in_ == X.shape[1]
        own = tree.tree_
        inner = np.flatnonzero(own.children_left >= 0)
        below = np.concatenate([own.children_left[inner], own.children_right[inner]])
        assert sorted(below) == list(range(1, own.node_count))  # every node has one parent
        assert own.max_depth == tree.get_depth()
        copied = pickle.loads(pickle.dumps(tree))
        np.testing.assert_array_equal(copied.predict(X), tree.predict(X))
        clone(tree)
        values = own.value[own.children_left < 0, 0]
        if pool.classes is not None:
            assert np.all(values.sum(axis=1) == 1.0)  # exactly: they are multiples of one step


def step_of(values):
    """The largest power of two of which all values are multiples."""
    return next(s for s in 2.0 ** np.arange(20, -60, -1) if np.all(values / s % 1.0 == 0.0))


def dense(rows):
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float32)
