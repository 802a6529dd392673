"""`max_bytes` with `local=`: members and gate together."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import sparsebag as sb
from expert_bags import expert_models
from sparsebag.selection.budget import Budget, member_prices

PLENTY = 10**7


def rows(n_classes, n_features=4):
    rng = np.random.default_rng(90)
    X = rng.normal(size=(500, n_features))
    models, truth = expert_models(8, n_classes)
    noise = 0.1 * rng.normal(size=500)
    y = truth(X) + noise if n_classes is None else truth(X)
    return models, X, y


def compressed(problem, local, max_bytes, **how):
    models, X, y = problem
    how = {"evidence": "holdout", "tolerance": None, "calibration": None} | how
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sb.RegretWarning)
        return sb.compress(models, X, y, local=local, max_bytes=max_bytes, **how)


def bytes_of(small):
    gate = sum(a.nbytes for a in small.compile().gate.source.arrays().values())
    return int(member_prices(small._vote.pool).bytes.sum()) + gate


@pytest.mark.parametrize(
    ("n_classes", "local"),
    [
        *((n_classes, local) for n_classes in (None, 2) for local in ("linear", "regions")),
        (2, "auto"),  # chooses one of the two
        pytest.param(None, "auto", marks=pytest.mark.slow),
    ],
)
def test_members_and_gate_are_within_the_budget_together(local, n_classes):
    problem = rows(n_classes)
    free = compressed(problem, local, PLENTY)
    assert free.local_.used
    budget = bytes_of(free) - 50
    small = compressed(problem, local, budget)
    assert small.local_.used
    assert bytes_of(small) <= budget
    assert small.n_active_ < free.n_active_
    assert f"Its arrays take {small.local_.nbytes:,} bytes" in str(small.selection_)


def test_a_gate_that_leaves_no_room_is_dropped_and_that_is_said():
    problem = rows(2, n_features=200)
    _models, X, _y = problem
    free = compressed(problem, "linear", PLENTY)
    assert free.local_.used
    prices = member_prices(free._vote.pool).bytes
    budget = int(2.5 * prices.max())
    assert free.local_.nbytes > 0.7 * budget  # no room for two members beside it
    with pytest.warns(UserWarning, match=r"local='linear' was asked for.*bytes.*max_bytes="):
        named = compressed(problem, "linear", budget)
    assert not named.local_.used
    assert "are more than max_bytes=" in str(named.local_)
    assert named.local_.considered
    plain = compressed(problem, None, budget)
    np.testing.assert_array_equal(named.predict_proba(X), plain.predict_proba(X))
    auto = compressed(problem, "auto", budget)
    assert not auto.local_.used or bytes_of(auto) <= budget


def test_linear_regressors_that_would_fit_without_a_gate():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 40))
    side = X[:, 0] > 0
    y = np.where(side, X[:, 1], -X[:, 1]) + 0.1 * rng.normal(size=600)
    own = [np.flatnonzero(side == bool(j % 2))[j::3] for j in range(6)]
    problem = [Ridge().fit(X[i], y[i]) for i in own], X, y
    pool = int(member_prices(compressed(problem, "linear", PLENTY)._vote.pool).bytes.sum())
    small = compressed(problem, "linear", pool + 100)
    assert small.local_.used
    assert bytes_of(small) <= pool + 100
    assert small.n_active_ < 6


def nearly_alike_lines():
    """Forty lines of few rows each: one of them is nearly as good as all."""
    rng = np.random.default_rng(902)
    X = rng.normal(size=(500, 4))
    y = X @ rng.normal(size=4) + np.abs(X[:, 0]) + 0.5 * rng.normal(size=500)
    own = [rng.choice(500, 30, replace=False) for _ in range(40)]
    return [Ridge().fit(X[i], y[i]) for i in own], X, y


@pytest.mark.parametrize("budget", [{"max_bytes": 600}, {"max_estimators": 1}])
def test_one_line_within_the_budget_is_told_as_that(budget):
    models, X, y = nearly_alike_lines()
    how = {"evidence": "holdout", **budget}
    whole = sb.compress(models, X, y, **how)
    auto = sb.compress(models, X, y, local="auto", **how)
    named = r"local='regions' was asked for.*keeps one member, and a gate weighs two or more; a"
    with pytest.warns(UserWarning, match=named) as told:
        regions = sb.compress(models, X, y, local="regions", **how)
    assert len(told) == 1  # nothing is said of the one line, which is not deployed
    for small in (auto, regions):
        assert f"within {next(iter(budget))}=" in small.local_.reason
        assert "a budget of all 40" in small.local_.reason
        assert small.n_active_ == 40
        np.testing.assert_array_equal(small.predict(X), whole.predict(X))


def test_a_gate_over_lines_that_is_dropped_is_warned_of():
    models, X, y = nearly_alike_lines()
    how = {"evidence": "holdout", "max_bytes": 1000, "tolerance": None}
    with pytest.warns(UserWarning, match=r"local='regions' was asked for.*max_bytes=1000"):
        small = sb.compress(models, X, y, local="regions", **how)
    assert not small.local_.used
    assert small.n_active_ == 40


def test_a_budget_is_told_as_the_user_gave_it():
    budget = Budget(max_estimators=3, max_bytes=1320, of_gate=280)
    assert str(budget) == "max_estimators=3 and max_bytes=1600 (280 of them kept for a gate)"
    assert budget.allows((3, 0, 1320))
    assert not budget.allows((3, 0, 1321))


def test_a_warning_of_regret_names_the_users_budget():
    models, X, y = nearly_alike_lines()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        small = sb.compress(models, X, y, evidence="holdout", local="linear", max_bytes=1500)
    regret = [str(w.message) for w in told if w.category is sb.RegretWarning]
    assert small.local_.used
    assert bytes_of(small) <= 1500
    assert len(regret) == 1
    assert regret[0].startswith("within max_bytes=1500 (")
