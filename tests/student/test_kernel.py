"""Sums over trees, pruning and refitting against slow and plain versions of themselves."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsebag.student._student import (
    Trees,
    add_rows,
    add_up,
    add_votes,
    backfit,
    prune,
    shrink_to_parent,
)


def random_trees(rng, sizes):
    """Trees with so many leaves each, in preorder: left, right, offset."""
    left, right, offset = [], [], [0]
    for leaves in sizes:
        grow(rng, leaves, left, right)
        offset.append(len(left))
    return np.array(left, np.int32), np.array(right, np.int32), np.array(offset, np.int64)


def grow(rng, leaves, left, right):
    here = len(left)
    left.append(-1)
    right.append(-1)
    if leaves > 1:
        first = int(rng.integers(1, leaves))
        left[here] = len(left)
        grow(rng, first, left, right)
        right[here] = len(left)
        grow(rng, leaves - first, left, right)


def below(left, right, node):
    """The leaves of a subtree."""
    if left[node] < 0:
        return [node]
    return below(left, right, left[node]) + below(left, right, right[node])


def losses(rng, left, right):
    """What is lost where each subtree becomes a leaf: a weighted sum of squares."""
    mass, value = rng.integers(1, 9, len(left)).astype(float), rng.normal(size=len(left))
    lost = np.zeros(len(left))
    for node in range(len(left)):
        leaves = below(left, right, node)
        mean = np.average(value[leaves], weights=mass[leaves])
        lost[node] = np.sum(mass[leaves] * (value[leaves] - mean) ** 2) if len(leaves) > 1 else 0.0
    return lost


def prunings(left, right, node):
    """Every pruning of a subtree, as tuples of the nodes that become leaves."""
    yield (node,)
    if left[node] >= 0:
        for a in prunings(left, right, left[node]):
            for b in prunings(left, right, right[node]):
                yield a + b


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(2, 5), min_size=1, max_size=2))
def test_pruning_is_the_best_of_all_prunings_of_its_size(seed, sizes):
    """At a price per leaf none is better; so none of as many leaves is."""
    rng = np.random.default_rng(seed)
    left, right, offset = random_trees(rng, sizes)
    lost = losses(rng, left, right)
    every = [
        (sum(map(len, combined)), sum(lost[list(leaves)].sum() for leaves in combined))
        for combined in itertools.product(*(list(prunings(left, right, o)) for o in offset[:-1]))
    ]
    for most in range(len(sizes), len(left) + 1):
        ends = np.empty(len(left), np.int32)
        count = prune(left, right, offset, lost, most, ends)
        kept = np.flatnonzero(ends == np.arange(len(left)))
        leaves = [n for n in kept if left[n] < 0 or left[n] not in kept]
        assert 2 * len(leaves) - len(sizes) == count <= most
        best = min(cost for n, cost in every if n <= len(leaves))
        assert lost[leaves].sum() <= best + 1e-9


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), shrink=st.sampled_from([0.0, 0.1, 3.0, 100.0]))
def test_shrinking_is_the_recursion_from_the_root(seed, shrink):
    rng = np.random.default_rng(seed)
    left, right, offset = random_trees(rng, rng.integers(1, 12, 3))
    counts = np.where(left < 0, rng.integers(0, 5, len(left)), 0).astype(float)
    counts[offset[1:] - 1] += 1.0  # every tree has rows
    mass = counts * rng.uniform(0.5, 3.0, len(left))  # rows have weights
    total = mass[:, None] * rng.normal(size=(len(left), 2))
    sums = np.concatenate([counts[:, None], mass[:, None], total], axis=1)
    add_up(left, right, sums)
    count, mass = np.ascontiguousarray(sums[:, 0]), np.ascontiguousarray(sums[:, 1])
    value = np.ascontiguousarray(sums[:, 2:])
    expected = np.zeros_like(value)

    def walk(node, parent):
        own = count[node] / (count[node] + max(shrink, 1e-9)) if parent is not None else 1.0
        mean = sums[node, 2:] / mass[node] if mass[node] > 0.0 else np.zeros(2)
        expected[node] = own * mean + (0.0 if parent is None else (1.0 - own) * parent)
        if left[node] >= 0:
            walk(left[node], expected[node])
            walk(right[node], expected[node])

    for root in offset[:-1]:
        walk(root, None)
    shrink_to_parent(left, right, mass, count, offset, shrink, value)
    np.testing.assert_allclose(value, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("width", [1, 3, 70])
@pytest.mark.parametrize("ridge", [0.5, 25.0])
def test_refitted_leaves_solve_the_ridge_regression(width, ridge):
    rng = np.random.default_rng(0)
    n_rows, n_trees, leaves = 60, 4, 5
    leaf = rng.integers(0, leaves, (n_trees, n_rows)).astype(np.int32)
    leaf += leaves * np.arange(n_trees, dtype=np.int32)[:, None]
    offset = leaves * np.arange(n_trees + 1)
    weight, goal = rng.uniform(0.5, 2.0, n_rows), rng.normal(size=(n_rows, width))
    start = rng.normal(size=(leaves * n_trees, width))
    design = np.zeros((n_rows, leaves * n_trees))
    for of_tree in leaf:
        design[np.arange(n_rows), of_tree] = 1.0
    # minimise Σ weight (goal - design v)² + ridge |v - start|²
    normal = design.T @ (weight[:, None] * design) + ridge * np.eye(leaves * n_trees)
    right = design.T @ (weight[:, None] * goal) + ridge * start
    expected = np.linalg.solve(normal, right)
    value = start.copy()
    backfit(leaf, weight, offset, goal, ridge, 2000, False, value)
    np.testing.assert_allclose(value, expected, atol=1e-8)
    # Of clipped votes the ridge regression is not linear; its gradient vanishes all the same.
    goal, clipped = np.clip(goal, 0.0, 1.0), start.copy()
    backfit(leaf, weight, offset, goal, ridge, 2000, True, clipped)
    error = goal - np.clip(design @ clipped, 0.0, 1.0)
    slope = design.T @ (weight[:, None] * error) + ridge * (start - clipped)
    np.testing.assert_allclose(slope, 0.0, atol=1e-4)
    assert (design @ clipped).min() < -0.01  # or clipping would not have been tried


def test_leaves_without_rows_stay_where_they_are():
    value = np.array([[1.0], [2.0]])
    leaf = np.zeros((1, 1), np.int32)
    backfit(leaf, np.ones(1), np.array([0, 2]), np.array([[4.0]]), 1.0, 3, False, value)
    assert value[1, 0] == 2.0
    assert value[0, 0] > 1.0


@pytest.mark.parametrize("n_threads", [1, 2, 7])
def test_sums_do_not_depend_on_the_threads(n_threads):
    rng = np.random.default_rng(0)
    leaf = rng.integers(0, 40, (9, 1000)).astype(np.int32)
    leaf += 40 * np.arange(9, dtype=np.int32)[:, None]
    weight, values = rng.random(1000), rng.normal(size=(1000, 2))
    mass, total, vote = np.zeros(360), np.zeros((360, 2)), np.zeros((1000, 2))
    add_rows(leaf, weight, values, mass, total, n_threads)
    add_votes(leaf, total, vote, n_threads)
    one_mass, one_total, one_vote = np.zeros(360), np.zeros((360, 2)), np.zeros((1000, 2))
    add_rows(leaf, weight, values, one_mass, one_total, 1)
    add_votes(leaf, one_total, one_vote, 1)
    np.testing.assert_array_equal(total, one_total)
    np.testing.assert_array_equal(vote, one_vote)
    expected = np.bincount(leaf[3], weight, 360)
    np.testing.assert_allclose(mass[120:160], expected[120:160])
    np.testing.assert_allclose(vote[5], total[leaf[:, 5]].sum(axis=0))


@pytest.mark.parametrize(
    ("left", "right", "feature", "message"),
    [
        (0, 2, 0, "a node leads nowhere"),  # to itself
        (1, 9, 0, "a node leads nowhere"),  # out of the tree
        (1, 2, 5, "a column there is not"),
    ],
)
def test_trees_that_lead_nowhere_are_refused(left, right, feature, message):
    def made(left, right, feature):
        nodes = ([left, -1, -1], [right, -1, -1], [feature, -2, -2])
        arrays = (np.array(a, np.int32) for a in nodes)
        return Trees(*arrays, np.zeros(3), np.zeros(3, np.uint8), np.array([0, 3]), 2)

    made(1, 2, 0)
    with pytest.raises(ValueError, match=message):
        made(left, right, feature)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("wrong", [-1, 6, 2**31 - 1, -(2**31)])
def test_rows_in_nodes_there_are_not_are_refused(wrong, n_threads):
    leaf = np.zeros((5, 400), np.int32)
    leaf[3, 300] = wrong
    weight, values, total = np.ones(400), np.ones((400, 2)), np.zeros((6, 2))
    with pytest.raises(ValueError, match="a node that its tree does not have"):
        add_rows(leaf, weight, values, np.zeros(6), total, n_threads)
    with pytest.raises(ValueError, match="a node that its tree does not have"):
        add_votes(leaf, total, np.zeros((400, 2)), n_threads)


@pytest.mark.parametrize("wrong", [-1, 1, 4, 2**31 - 1, -(2**31)])
def test_rows_in_nodes_of_other_trees_are_not_refitted(wrong):
    leaf, value = np.array([[0], [wrong]], np.int32), np.zeros((4, 1))
    with pytest.raises(ValueError, match="a node that its tree does not have"):
        backfit(leaf, np.ones(1), np.array([0, 2, 4]), np.ones((1, 1)), 1.0, 1, True, value)


@pytest.mark.parametrize(
    ("offset", "children", "message"),
    [
        *((o, (1, 2), "offsets do not fit") for o in ([0], [0, 2], [1, 3], [0, -5, 3], [0, 9, 3])),
        ([0, 0, 3], (1, 2), "offsets do not fit"),
        *(([0, 3], children, "a node leads nowhere") for children in ((0, 2), (1, 3), (1, -1))),
    ],
)
def test_offsets_and_children_that_do_not_fit_are_refused(offset, children, message):
    left, right = (np.array([child, -1, -1], np.int32) for child in children)
    one, value, offset = np.ones(3), np.zeros((3, 1)), np.array(offset)
    leaf = np.zeros((len(offset) - 1, 1), np.int32)
    with pytest.raises(ValueError, match=message):
        shrink_to_parent(left, right, one, one, offset, 1.0, value)
    with pytest.raises(ValueError, match=message):
        prune(left, right, offset, one, 1, np.zeros(3, np.int32))
    arguments = (leaf, np.ones(1), offset, np.ones((1, 1)), 1.0, 1, False, value)
    call, given = (backfit, arguments) if children == (1, 2) else (add_up, (left, right, value))
    with pytest.raises(ValueError, match=message):
        call(*given)


@pytest.mark.skipif(sys.platform != "linux", reason="limits its memory as Linux does")
def test_where_no_more_threads_can_be_started_those_there_are_do_the_work():
    code = """if True:
        import resource, numpy as np
        from sparsebag.student._student import add_votes
        leaf, vote = np.zeros((1, 100_000), np.int32), np.zeros((100_000, 1))
        pages = int(open("/proc/self/statm").read().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (4096 * pages + 50_000_000,) * 2)
        add_votes(leaf, np.ones((1, 1)), vote, 300)  # stacks of 8 MB each
        assert vote.sum() == 100_000
    """
    subprocess.run([sys.executable, "-c", code], check=True)
