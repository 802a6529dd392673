"""What the authors' own tests ask of the paper's method, asked of ``preset="paper"``."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb

# SLSQP stops early on such problems, and says so.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PAGE = Path(__file__).parent.parent / "docs" / "howto" / "from_scsb.md"


def toy(task):
    """Their toy problem: a bag of 30 shallow trees, its training and its test rows."""
    if task == "classification":
        X, y = make_classification(500, 10, random_state=42)
        bag = BaggingClassifier(DecisionTreeClassifier(max_depth=3), 30, random_state=42)
    else:
        X, y = make_regression(500, 10, random_state=42)
        bag = BaggingRegressor(DecisionTreeRegressor(max_depth=3), 30, random_state=42)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=42)
    return bag.fit(X, y), X, y, X_test, y_test


def oob_loss(bag, X, y, weights):
    """Log-loss of the out-of-bag votes, as the paper defines it."""
    votes = np.stack([tree.predict_proba(X)[:, 1] for tree in bag.estimators_], axis=1)
    unseen = np.ones(votes.shape)
    for j, rows in enumerate(bag.estimators_samples_):
        unseen[rows, j] = 0.0
    return log_loss(y, (votes * unseen) @ weights / (unseen @ weights))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_weights_are_sparse_and_on_the_simplex_and_predictions_are_of_use(task):
    bag, X, y, X_test, y_test = toy(task)
    small = sb.compress(bag, X, y, preset="paper", lam=0.05 if task == "classification" else 0.1)
    weights = small.weights_
    assert weights.min() == 0.0  # exactly
    assert not np.any((weights > 0.0) & (weights <= 1e-5))
    assert weights.sum() == pytest.approx(1.0, abs=1e-10)
    assert small.n_active_ == np.count_nonzero(weights) == len(small.estimators_) < 30
    assert small.predict(X_test).shape == y_test.shape
    assert small.score(X_test, y_test) >= bag.score(X_test, y_test) - 0.05
    if task == "classification":
        np.testing.assert_allclose(small.predict_proba(X_test).sum(axis=1), 1.0, atol=1e-10)
        assert set(small.predict(X_test)) <= set(bag.classes_)


def test_without_penalty_the_out_of_bag_loss_is_lower_than_that_of_equal_weights():
    bag, X, y, *_ = toy("classification")
    small = sb.compress(bag, X, y, preset="paper", lam=0.0)
    equal = np.full(30, 1 / 30)
    assert oob_loss(bag, X, y, small.weights_) < oob_loss(bag, X, y, equal)


def test_a_bag_that_is_not_fitted_is_refused_and_fitted_by_the_estimator():
    bag = BaggingClassifier(DecisionTreeClassifier(max_depth=2), random_state=42)
    X, y = make_classification(200, 5, random_state=42)
    with pytest.raises((NotFittedError, ValueError), match="fitted"):
        sb.compress(bag, X, y, preset="paper")
    assert sb.SparseBaggingClassifier(bag, preset="paper").fit(X, y).n_active_ > 0


def test_the_page_maps_names_that_exist():
    text, scope = PAGE.read_text(encoding="utf-8"), {}
    exec(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0], scope)
    for name in re.findall(r"\b(weights_|n_active_|estimators_|solution_)`", text):
        assert hasattr(scope["small"], name), name
