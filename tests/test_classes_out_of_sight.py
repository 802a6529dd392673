"""Weights of classes and rows say what probabilities are for; small models keep to them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import recall_score
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb


@pytest.fixture(scope="module")
def rare():
    X, y = make_classification(
        6000, 8, n_informative=4, weights=[0.95], flip_y=0.005, class_sep=1.0, random_state=0
    )
    return X[:2000], y[:2000], X[2000:], y[2000:]


def in_every_bag(forest, y):
    seen = np.array([np.isin(np.arange(len(y)), rows) for rows in forest.estimators_samples_])
    return seen[:, y == 1].all()


def balanced_bag(X, y, tree):
    """A list of trees, each on as many rows of one class as of the other."""
    rng, few = np.random.default_rng(0), np.count_nonzero(y == 1)
    rows = [
        np.concatenate([rng.choice(np.flatnonzero(y == c), few) for c in (0, 1)]) for _ in range(40)
    ]
    return [tree(seed).fit(X[r], y[r]) for seed, r in enumerate(rows)], rows


ENSEMBLES = {
    "balanced forest": lambda: RandomForestClassifier(40, class_weight="balanced", random_state=0),
    "balanced shallow forest": lambda: RandomForestClassifier(
        40, class_weight="balanced_subsample", max_depth=5, random_state=0
    ),
    "bag of balanced trees": lambda: BaggingClassifier(
        DecisionTreeClassifier(class_weight="balanced", max_depth=6), 40, random_state=0
    ),
    "bag of balanced lines": lambda: BaggingClassifier(
        LogisticRegression(class_weight="balanced"), 20, random_state=0
    ),
}


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("how", [{}, {"max_nodes": 0.2}], ids=str)
@pytest.mark.parametrize("name", ENSEMBLES)
def test_each_class_is_found_as_often(rare, name, how):
    X, y, X_test, y_test = rare
    ensemble = ENSEMBLES[name]().fit(X, y)
    small = sb.compress(ensemble, X, y, **how)
    before, after = (
        recall_score(y_test, model.predict(X_test), average=None) for model in (ensemble, small)
    )
    assert np.abs(after - before).max() <= 0.05, (before, after)


def test_row_weights_count_as_class_weights_do(rare):
    X, y, X_test, y_test = rare
    weight = np.where(y == 1, 20.0, 1.0)
    forest = RandomForestClassifier(40, max_depth=6, random_state=0).fit(X, y, weight)
    small = sb.compress(forest, X, y, sample_weight=weight, max_nodes=0.2)
    before, after = (
        recall_score(y_test, model.predict(X_test), average=None) for model in (forest, small)
    )
    assert np.abs(after - before).max() <= 0.05, (before, after)


def test_bags_drawn_to_be_balanced(rare):
    X, y, X_test, y_test = rare
    trees, rows = balanced_bag(X, y, lambda s: DecisionTreeClassifier(max_depth=6, random_state=s))
    small = sb.compress(trees, X, y, estimators_samples=rows, max_estimators=10)
    vote = np.mean([tree.predict_proba(X_test) for tree in trees], axis=0).argmax(axis=1)
    before, after = (
        recall_score(y_test, said, average=None) for said in (vote, small.predict(X_test))
    )
    assert np.abs(after - before).max() <= 0.05, (before, after)


def test_a_class_that_is_in_every_bag(rare):
    X, y, X_test, _ = rare
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:20]])
    X, y = X[keep], y[keep]
    forest = RandomForestClassifier(40, class_weight="balanced", random_state=0).fit(X, y)
    if not in_every_bag(forest, y):
        pytest.skip("this scikit-learn does not draw bags by class weight")
    small = sb.compress(forest, X, y)
    found, before = (np.count_nonzero(m.predict(X_test)) for m in (small, forest))
    assert found >= 0.8 * before > 0
