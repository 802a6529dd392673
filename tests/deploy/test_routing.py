"""Every row takes scikit-learn's path: leaf for leaf, on rows made to break it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)

from deploy.ensembles import outputs, with_leaves
from sparsebag.deploy._forest import instruction_sets, use_instructions
from sparsebag.deploy.artifact import dumps, loads
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.trees import FlatTrees, round_down
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.from_ensemble import read_ensemble

FORESTS = (RandomForestClassifier, RandomForestRegressor, ExtraTreesClassifier, ExtraTreesRegressor)
SPECIAL = np.array(
    [0.0, -0.0, np.nan, 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, -3.4028235e38], dtype=np.float32
)


def random_forest(seed: int):
    """A small forest on data of one of several scales, with and without missing values."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 120)), int(rng.integers(1, 8))
    scale = 10.0 ** rng.integers(-42, 36)
    X = (rng.normal(size=(n, d)) * scale).astype(np.float32)
    if rng.random() < 0.3:
        X = np.round(X / scale).astype(np.float32)  # ties, zeros of both signs
    if rng.random() < 0.5:
        X[rng.random(X.shape) < 0.2] = np.nan
    kind = FORESTS[seed % 4]
    y = rng.integers(0, 2 + seed % 3, n) if "Classifier" in kind.__name__ else rng.normal(size=n)
    depth = [None, 3, 1][int(rng.integers(3))]
    leaves = [None, None, 6][int(rng.integers(3))]  # 6: nodes in best-first order
    return kind(3, max_depth=depth, max_leaf_nodes=leaves, random_state=seed).fit(X, y), rng


def hostile_rows(forest, rng) -> np.ndarray:
    """Values at thresholds, their float32 neighbours, and what floats have in store."""
    trees = [tree.tree_ for tree in forest.estimators_]
    cut = np.concatenate([t.threshold[t.feature >= 0] for t in trees])
    with np.errstate(over="ignore"):
        near = cut.astype(np.float32)
        pool = np.concatenate(
            [
                near,
                np.nextafter(near, np.float32(np.inf)),
                np.nextafter(near, np.float32(-np.inf)),
                round_down(cut),
                SPECIAL,
            ]
        )
    pool = pool[~np.isinf(pool)]  # refused
    return rng.choice(pool, size=(200, forest.n_features_in_))


def leaves_as_values(member):
    """The same tree, saying the number of the leaf."""
    ids = np.arange(member.estimator.tree_.node_count, dtype=float)[:, None]
    return with_leaves(member, ids, is_vote=False)


def numbered_leaves(pool, member) -> FlatTrees:
    """One tree of a pool; its leaves say their number, as `apply` does."""
    numbered = replace(pool, members=(leaves_as_values(member),), task="regression", classes=None)
    (trees,) = compile_members(numbered, np.ones(1)).groups
    return trees


def check_routing(seed: int) -> None:
    forest, rng = random_forest(seed)
    rows = hostile_rows(forest, rng)
    pool = read_ensemble(forest)
    for member in pool.members:
        trees = numbered_leaves(pool, member)
        expected = member.estimator.tree_.apply(rows)  # no checks: NaN is routed too
        assert_array_equal(trees.scores(rows)[:, 0], expected)
        assert_array_equal(trees.scores(rows.astype(np.float64))[:, 0], expected)
        few = trees.scores(rows[:5])  # trees side by side instead of rows
        assert_array_equal(few[:, 0], expected[:5])
    weights = rng.dirichlet(np.ones(3))
    compiled, vote = compile_members(pool, weights, 1e-3), WeightedVote(pool, weights, 1e-3)
    ours, theirs = outputs(compiled, rows), outputs(vote, rows)
    assert np.abs(ours - theirs).max() <= 1e-12 * max(1.0, np.abs(theirs).max())
    assert_array_equal(outputs(loads(dumps(compiled)), rows), ours)


@pytest.mark.parametrize("seed", range(40))
def test_leaves_equal_scikit_learns(seed):
    check_routing(seed)


@pytest.fixture(params=instruction_sets())
def instructions(request):
    """Each way this machine can compare rows with splits; the fastest is the default."""
    use_instructions(request.param)
    yield request.param
    use_instructions(instruction_sets()[-1])


@pytest.mark.parametrize("seed", range(12))
def test_leaves_are_the_same_whatever_the_instructions(instructions, seed):
    check_routing(seed)


def first_tree(forest) -> FlatTrees:
    pool = read_ensemble(forest)
    return numbered_leaves(pool, pool.members[0])


@pytest.mark.parametrize("leaves", [2, 63, 64, 65, 255, 256, 257, 900])
def test_trees_and_batches_of_every_size(instructions, leaves):
    """Tops end at 63 or 255 inner nodes, and words of rows at multiples of 64."""
    rng = np.random.default_rng(leaves)
    X = rng.normal(size=(2000, 5)).astype(np.float32)
    X[rng.random(X.shape) < 0.02] = np.nan
    forest = RandomForestRegressor(2, max_leaf_nodes=leaves, bootstrap=False, random_state=0)
    forest.fit(X, rng.normal(size=2000))
    assert forest.estimators_[0].get_n_leaves() == leaves
    trees, expected = first_tree(forest), forest.apply(X)[:, 0]
    for n in (31, 32, 63, 64, 65, 128, 129, 150, 193, 256, 257, 1024, 1025, 1500):
        assert_array_equal(trees.scores(X[:n])[:, 0], expected[:n])
        assert_array_equal(trees.scores(np.asfortranarray(X[:n], float))[:, 0], expected[:n])


def test_instructions_this_machine_lacks_are_refused():
    with pytest.raises(ValueError, match=r"no instructions named quantum"):
        use_instructions("quantum")


def test_a_chain_deeper_than_a_word_is_walked_to_its_end():
    """One split a level: no top is complete, and each level waits for the one above."""
    X = np.sort(np.random.default_rng(0).normal(size=300)).astype(np.float32)[:, None]
    tree = RandomForestRegressor(2, bootstrap=False, random_state=0).fit(X, 3.0 ** np.arange(300))
    assert tree.estimators_[0].get_depth() > 200
    assert_array_equal(first_tree(tree).scores(X)[:, 0], tree.apply(X)[:, 0])


@pytest.mark.parametrize("n_trees", [2, 33, 127, 129])
def test_many_trees_add_in_their_order_whatever_the_batch(instructions, n_trees):
    rng = np.random.default_rng(n_trees)
    X, y = rng.normal(size=(400, 30)), rng.integers(0, 3, 400)
    forest = ExtraTreesClassifier(n_trees, random_state=0).fit(X, y)
    compiled = compile_members(read_ensemble(forest), rng.dirichlet(np.ones(n_trees)))
    one_by_one = np.vstack([compiled.predict_proba_one(row) for row in X])
    assert_array_equal(compiled.predict_proba(X), one_by_one)
    many = np.tile(X, (20, 1))  # of most of these trees, enough for a second thread
    assert_array_equal(compiled.predict_proba(many, n_jobs=2), np.tile(one_by_one, (20, 1)))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 1000, 40))
def test_leaves_equal_scikit_learns_on_a_thousand_forests(first):
    for seed in range(first, first + 40):
        check_routing(seed)


def test_float64_rows_are_rounded_as_scikit_learn_rounds_them():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    forest = RandomForestRegressor(5, random_state=0).fit(X, X[:, 0])
    cut = np.concatenate([t.tree_.threshold for t in forest.estimators_])
    rows = rng.choice(cut, size=(500, 4)) * (1.0 + rng.choice([-1e-8, 0.0, 1e-8], size=(500, 4)))
    compiled = compile_members(read_ensemble(forest), np.full(5, 0.2))
    assert np.abs(compiled.predict(rows) - forest.predict(rows)).max() < 1e-12
