"""Linear regressors with `local=`: one model without a gate, as many as they are with one."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import LinearRegression, Ridge

import sparsebag as sb
from sparsebag.deploy.from_members import COLLAPSED


def experts(n_members=12):
    """Each knows one side of a plane, and its bag is of that side."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    side = X[:, 0] > 0
    slopes = rng.normal(size=(2, 3))
    y = np.where(side, X @ slopes[0], X @ slopes[1]) + 0.3 * rng.normal(size=1000)
    members, bags = [], []
    for j in range(n_members):
        own = np.flatnonzero(side == bool(j % 2))
        bags.append(own[rng.integers(len(own), size=len(own))])
        members.append(Ridge().fit(X[bags[-1]], y[bags[-1]]))
    return members, X, y, bags


@pytest.mark.parametrize("local", ["auto", "linear", "regions"])
@pytest.mark.parametrize("budget", [{"max_estimators": 4}, {"max_bytes": 2000}])
def test_a_budget_holds_under_a_gate(local, budget):
    members, X, y, bags = experts()
    small = sb.compress(
        members, X, y, estimators_samples=bags, local=local, tolerance=None, **budget
    )
    assert small.local_.used
    assert 2 <= small.n_active_ <= 4
    assert small.compile().n_models == small.n_active_
    assert COLLAPSED not in str(small.selection_)
    assert "nothing is saved" not in str(small.selection_)


def test_without_a_budget_all_are_kept_and_none_is_called_free():
    members, X, y, bags = experts()
    small = sb.compress(members, X, y, estimators_samples=bags, local="linear")
    assert small.n_active_ == small.compile().n_models == 12
    assert COLLAPSED not in str(small.selection_)
    assert "nothing is saved" not in str(small.selection_)
    assert "each of them is stored" in str(small.selection_)


def test_where_no_gate_is_sure_they_are_one_model_as_ever():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 5))
    y = X @ rng.normal(size=5) + rng.normal(size=400)
    bag = BaggingRegressor(LinearRegression(), 30, random_state=0, oob_score=True).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a budget that binds nobody is no reason to warn
        small = sb.compress(bag, X, y, max_estimators=2, local="auto")
    assert not small.local_.used
    assert small.local_.reason != "local is None"
    assert small.n_active_ == 30
    assert small.compile().n_models == 1
    assert COLLAPSED in str(small.selection_)
    np.testing.assert_allclose(small.predict(X), bag.predict(X), rtol=1e-10)
