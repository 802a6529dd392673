"""Refitted leaf values: what the definition says, computed the slow way."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.tree import DecisionTreeClassifier

from grown_trees import KINDS, grown, parts
from sparsebag.refine.leave_one_out import leave_one_out_votes, refitted_evidence
from sparsebag.refine.tree_nodes import TreeNodes


def by_hand(tree, leaf, weight, z, lam):
    """The recursion of the definition, node by node from the root."""
    value = np.zeros((tree.node_count, z.shape[1]))
    below = [set() for _ in range(tree.node_count)]
    path = {0: [0]}
    for node in range(tree.node_count):
        for child in (tree.children_left[node], tree.children_right[node]):
            if child >= 0:
                path[child] = [*path.get(node, [0]), child]
    # children may be numbered before their parents in best-first trees, so go by depth
    parent = {
        c: n
        for n in range(tree.node_count)
        for c in (tree.children_left[n], tree.children_right[n])
        if c >= 0
    }
    for i, at in enumerate(leaf):
        node = at
        while True:
            below[node].add(i)
            if node == 0:
                break
            node = parent[node]
    order, queue = [], [0]
    while queue:
        node = queue.pop()
        order.append(node)
        if tree.children_left[node] >= 0:
            queue += [tree.children_left[node], tree.children_right[node]]
    for node in order:
        rows = sorted(below[node])
        mass, total = weight[rows].sum(), (weight[rows, None] * z[rows]).sum(axis=0)
        if node == 0:
            value[0] = total / mass
        elif mass == 0:
            value[node] = value[parent[node]]
        else:
            value[node] = (total + lam * value[parent[node]]) / (mass + lam)
    return value


@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_leaf_tables_follow_the_recursion(kind, lam):
    routed, targets, _ = parts(kind)
    tree = routed.pool.members[3].estimator.tree_
    weight = np.maximum(routed.draws(3), 1).astype(float)
    z = targets.observed + 0.5 * (targets.observed - targets.predicted)
    expected = by_hand(tree, routed.leaf(3), weight, z, lam)
    assert_allclose(targets.leaf_table(routed, 3, 0.5, lam), expected, atol=1e-9)


@pytest.mark.parametrize("lam", [0.0, 2.0])
@pytest.mark.parametrize("kind", KINDS)
def test_leave_one_out_equals_refitting_without_the_row(kind, lam, monkeypatch):
    routed, targets, _ = parts(kind)
    tree = routed.pool.members[3].estimator.tree_
    rows = np.flatnonzero(routed.draws(3) == 0)[:12]
    weight = routed.weight(3)
    # nothing is negligible here: the comparison is exact
    exact = TreeNodes.smoothed_without
    monkeypatch.setattr(TreeNodes, "smoothed_without", lambda *args: exact(*args, negligible=0.0))
    found = leave_one_out_votes(routed, targets, 3, rows, lam)
    for i, vote in zip(rows, found, strict=True):
        without = np.delete(np.arange(routed.n_rows), i)
        values = by_hand(
            tree, routed.leaf(3)[without], weight[without], targets.observed[without], lam
        )
        # a leaf the row was alone in says what its nearest ancestor with rows says
        assert_allclose(vote, values[routed.leaf(3)[i]], atol=1e-9)


def test_what_is_negligible_stays_negligible():
    routed, targets, _ = parts("noisy regression")
    rows = np.flatnonzero(routed.draws(3) == 0)
    quick = leave_one_out_votes(routed, targets, 3, rows, 8.0)
    nodes, leaf, weight = routed.nodes(3), routed.leaf(3), routed.weight(3)
    sums = nodes.totals(leaf, weight[:, None] * targets.observed)
    own = weight[rows, None] * targets.observed[rows]
    exact = nodes.smoothed_without(
        leaf[rows],
        nodes.totals(leaf, weight),
        weight[rows],
        lambda active, node: sums[node] - own[active],
        np.array([8.0]),
        negligible=0.0,
    )[:, :, 0]
    assert np.abs(quick - exact).max() < 3e-3  # in standard deviations of the targets


def test_sample_weight_counts_as_repeated_rows():
    """A row of weight two is two rows of weight one, in every node."""
    pool, _, _, _, _ = grown("binary")
    weight = np.where(np.arange(569) % 3 == 0, 2.0, 1.0)
    routed, targets, _ = parts("binary", weight / weight.mean())
    routed._drawn_by_weight = False
    twice = np.repeat(np.arange(569), weight.astype(int))
    tree = pool.members[0].estimator.tree_
    draws = np.maximum(routed.draws(0), 1).astype(float)
    expected = by_hand(tree, routed.leaf(0)[twice], draws[twice], targets.observed[twice], 0.0)
    assert_allclose(targets.leaf_table(routed, 0, 0.0, 0.0), expected, atol=1e-9)


def test_rows_of_no_weight_have_no_part():
    weight = np.where(np.arange(569) < 300, 1.0, 0.0)
    routed, targets, _ = parts("binary", weight)
    other = targets.observed.copy()
    other[300:] = 1 - other[300:]
    table = targets.leaf_table(routed, 0, 0.0, 0.5)
    changed = type(targets)(other, targets.predicted, 0.0, 1.0, 2)
    assert_allclose(changed.leaf_table(routed, 0, 0.0, 0.5), table, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_refitted_evidence_has_the_form_of_the_trees_own(kind):
    routed, targets, evidence = parts(kind)
    again = refitted_evidence(evidence, routed, targets, 0.5)
    assert_array_equal(again.oob_mask, evidence.oob_mask)
    assert np.all(again.votes[~again.oob_mask] == 0)
    if evidence.n_classes is not None:
        assert again.votes.min() >= -1e-6
        assert again.votes.max() <= 1 + 1e-6
    if again.class_votes is not None:
        total = sum(again.class_votes)
        assert_allclose(total[again.oob_mask], 1, atol=1e-5)
        truth = np.take_along_axis(
            np.stack(again.class_votes, axis=2), again.target[:, None, None], axis=2
        )[:, :, 0]
        assert_allclose(again.votes, truth)


def test_threads_do_not_change_refitted_evidence():
    routed, targets, evidence = parts("binary")
    one = refitted_evidence(evidence, routed, targets, 0.5)
    again, _, _ = parts("binary")
    two = refitted_evidence(evidence, again, targets, 0.5, n_jobs=2)
    assert_array_equal(one.votes, two.votes)


def test_many_rows_are_sampled(monkeypatch):
    monkeypatch.setattr("sparsebag.refine.leave_one_out.MOST_ROWS", 100)
    routed, targets, evidence = parts("binary")
    some = refitted_evidence(evidence, routed, targets, 0.5)
    assert some.n_rows == len(some.target) == 100


def test_class_totals_are_those_of_one_column_a_class():
    X, y = np.random.default_rng(0).normal(size=(200, 4)), np.arange(200) % 3
    tree = DecisionTreeClassifier(random_state=0).fit(X, y)
    nodes, leaf = TreeNodes.of(tree.tree_), tree.apply(X)
    weight = np.random.default_rng(1).random(200)
    slow = nodes.totals(leaf, weight[:, None] * np.eye(3)[y])
    assert_allclose(nodes.totals_of_classes(leaf, weight, y, 3), slow, atol=1e-12)
    assert_allclose(slow[0], [weight[y == c].sum() for c in range(3)])
