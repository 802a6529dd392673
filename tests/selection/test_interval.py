"""Intervals around a risk: positive, as often missed on either side."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

from sparsebag import compress
from sparsebag.selection.interval import degrees_of_freedom, risk_interval


def test_skewed_risks_are_covered_better_than_by_two_errors():
    rng = np.random.default_rng(0)
    truth, n, above, plain, missed = np.exp(0.5 * 1.4**2), 200, 0, 0, 0
    for _ in range(1000):
        rows = rng.lognormal(sigma=1.4, size=n)
        mean, error = rows.mean(), rows.std(ddof=1) / np.sqrt(n)
        low, high = risk_interval(mean, error, degrees_of_freedom(rows, np.ones(n)))
        plain += abs(mean - truth) > 1.96 * error
        missed += not low <= truth <= high
        above += truth > high
    assert missed < plain - 20
    assert missed < 100


def test_many_normal_rows_give_the_usual_interval():
    low, high = risk_interval(1.0, 0.001, 1e6)
    assert low == pytest.approx(1 - 0.00196, abs=1e-5)
    assert high == pytest.approx(1 + 0.00196, abs=1e-5)


def test_bounds_are_never_negative():
    assert risk_interval(0.0, 0.0, 10.0) == (0.0, 0.0)
    low, high = risk_interval(1e-9, 1.0, 10.0)
    assert 0 <= low < high < 10
    low, high = risk_interval(0.1, 0.2, 10.0)
    assert 0 < low < 0.1 < high


def test_weights_and_constant_rows():
    rows, weight = np.array([1.0, 1.0, 1.0, 5.0]), np.array([1.0, 1.0, 1.0, 0.0])
    assert degrees_of_freedom(rows, weight) == pytest.approx(3.0)
    rng = np.random.default_rng(0)
    normal = rng.normal(size=4000)
    half = degrees_of_freedom(normal, np.repeat([1.0, 0.0], 2000))
    assert half == pytest.approx(degrees_of_freedom(normal[:2000], np.ones(2000)))


def test_a_selection_states_its_interval():
    X, y = load_breast_cancer(return_X_y=True)
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    chosen = compress(forest, X, y, max_estimators=10, tolerance=None).selection_
    low, high = chosen.interval
    assert 0 < low < chosen.expected_risk < high
    assert high - chosen.expected_risk > chosen.expected_risk - low
    assert high - low > 3.9 * chosen.standard_error
