"""What members cost and what the user will pay."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.naive_bayes import GaussianNB

from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.selection.budget import Budget, Prices, member_prices

IRIS = load_iris(return_X_y=True)
PRICES = Prices(np.array([10, 20, 30]), np.array([500, 300, 400]))


@pytest.mark.parametrize("name", ["max_estimators", "max_nodes", "max_bytes"])
@pytest.mark.parametrize("value", [0, -1, 0.5, np.nan, np.inf, True, "ten", [5]])
def test_a_bad_limit_is_named_in_one_sentence(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be a number, at least 1, or None; got "):
        Budget(**{name: value})


@pytest.mark.parametrize("value", [1, 5.0, np.int64(7), 1e6, None])
def test_any_number_from_one_on_is_a_limit(value):
    assert Budget(max_nodes=value).max_nodes == value


def test_all_limits_must_hold():
    budget = Budget(max_estimators=2, max_nodes=30, max_bytes=800)
    assert budget.allows((2, 30, 800))
    assert not budget.allows((3, 30, 800))
    assert not budget.allows((2, 31, 800))
    assert not budget.allows((2, 30, 801))
    assert Budget().allows((10**9, 10**9, 10**9))


def test_limits_are_named_as_they_were_given():
    assert str(Budget()) == "no budget"
    assert str(Budget(max_estimators=5, max_bytes=2000)) == "max_estimators=5 and max_bytes=2000"
    assert Budget(max_nodes=7).named() == [("max_nodes", 7)]


def test_members_within_the_limits_are_searched_by_their_price():
    assert Budget(max_estimators=2).price_for_search(PRICES) is None
    assert Budget(max_nodes=100).price_for_search(PRICES).tolist() == [10, 20, 30]
    assert Budget(max_bytes=1000).price_for_search(PRICES).tolist() == [500, 300, 400]
    assert Budget(max_nodes=20).price_for_search(PRICES).tolist() == [10, 20, np.inf]
    both = Budget(max_nodes=20, max_bytes=450).price_for_search(PRICES)
    assert both.tolist() == [np.inf, 300, np.inf]


def test_what_not_one_member_fits_into():
    Budget(max_nodes=10, max_bytes=500).check(PRICES)
    with pytest.raises(ValueError, match=r"max_nodes=9 is less than the smallest member has \(10"):
        Budget(max_nodes=9).check(PRICES)
    with pytest.raises(ValueError, match=r"max_bytes=299 is less than the smallest .*\(300\)"):
        Budget(max_bytes=299).check(PRICES)
    with pytest.raises(ValueError, match="no member is within max_nodes=10 and max_bytes=400"):
        Budget(max_nodes=10, max_bytes=400).check(PRICES)


def test_a_tree_costs_its_nodes_and_arrays():
    forest = RandomForestClassifier(5, random_state=0).fit(*IRIS)
    prices = member_prices(read_ensemble(forest))
    assert prices.nodes.tolist() == [tree.tree_.node_count for tree in forest.estimators_]
    for tree, size in zip(forest.estimators_, prices.bytes, strict=True):
        assert tree.tree_.value.nbytes < size < len(pickle.dumps(tree))
    some = np.array([1, 3])
    assert prices.of(some) == (2, prices.nodes[some].sum(), prices.bytes[some].sum())


def test_other_models_cost_their_pickle_and_have_no_nodes():
    bag = BaggingClassifier(GaussianNB(), n_estimators=3, random_state=0).fit(*IRIS)
    prices = member_prices(read_ensemble(bag))
    assert prices.nodes.tolist() == [0, 0, 0]
    assert prices.bytes.tolist() == [len(pickle.dumps(m, protocol=5)) for m in bag.estimators_]
    with pytest.raises(ValueError, match="max_nodes counts the nodes of trees, but no member is"):
        Budget(max_nodes=100).check(prices)
