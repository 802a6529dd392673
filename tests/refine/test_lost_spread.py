"""What gates cannot see for reading single precision is said."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from sparsebag.refine.lost_spread import lost_spread


def rows(seed=0):
    return np.random.default_rng(seed).normal(size=(500, 1))


@pytest.mark.parametrize("offset", [0.0, 1e5, -1e6])
@pytest.mark.parametrize("unit", [1e-30, 1.0, 1e30])
def test_what_single_precision_keeps_is_not_named(offset, unit):
    assert lost_spread((rows() + offset) * unit).tolist() == []


@pytest.mark.parametrize(
    "column",
    [rows() + 1e8, rows() - 1e12, rows() * 1e-60, rows() * 1e300],
    ids=["offset", "large offset", "too small", "too large"],
)
def test_what_it_loses_is(column):
    assert lost_spread(column).tolist() == [0]
    column[::3] = np.nan
    column[1] = -1e8  # a code for missing
    assert lost_spread(np.hstack([rows(), column])).tolist() == [1]


def test_columns_that_have_no_spread_lose_none():
    nothing = np.full(500, np.nan)
    sums = np.where(np.arange(500) % 2, 0.1 + 0.2, 0.3)
    codes = np.where(np.arange(500) == 7, 1e300, rows()[:, 0])
    assert lost_spread(np.stack([np.full(500, 0.1), nothing, sums, codes], axis=1)).tolist() == []


def experts(offset):
    """Lines that are right on one side of the first feature, and rows neither has seen."""
    X = np.random.default_rng(0).normal(size=(1000, 3))
    y = np.where(X[:, 0] > 0.0, 3.0 * X[:, 1], -3.0 * X[:, 2])
    side = X[:500, 0] > 0.0
    X[:, 0] += offset
    models = [LinearRegression().fit(X[:500][s], y[:500][s]) for s in (side, ~side)]
    return models, X[500:], y[500:]


def gated(models, X, y, local="auto"):
    how = {"evidence": "holdout", "tolerance": None, "max_estimators": 2}
    return sb.compress(models, X, y, local=local, **how)


def test_a_column_lost_to_a_gate_is_named():
    assert gated(*experts(1e4)).local_.used  # and no warning, which here is an error
    models, X, y = experts(1e8)
    with pytest.warns(UserWarning, match="apart by x0; subtract a constant or choose another unit"):
        small = gated(models, X, y)
    assert not small.local_.used
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gated(models, X, y, local=None)


@pytest.mark.parametrize(
    ("kind", "local"),
    [
        pytest.param(np.asarray, "auto", id="dense-auto"),
        pytest.param(np.asarray, "regions", id="dense-regions"),
        pytest.param(sp.csc_array, "linear", id="sparse-linear"),
        pytest.param(np.asarray, "linear", id="dense-linear", marks=pytest.mark.slow),
        pytest.param(sp.csc_array, "auto", id="sparse-auto", marks=pytest.mark.slow),
        pytest.param(sp.csc_array, "regions", id="sparse-regions", marks=pytest.mark.slow),
    ],
)
def test_trees_are_given_rounded_rows_and_the_column_is_named_all_the_same(local, kind):
    _, X, y = experts(1e8)
    bag = BaggingClassifier(DecisionTreeClassifier(), 20, random_state=0)
    X, y = kind(X), y > 0.0
    with pytest.warns(UserWarning, match="apart by x0; subtract a constant or choose another unit"):
        sb.compress(bag.fit(X, y), X, y, local=local, max_estimators=8, tolerance=None)
    rounded = kind(experts(1e8)[1].astype(np.float32))
    with warnings.catch_warnings():  # what was never there is not lost
        warnings.simplefilter("error")
        sb.compress(bag.fit(rounded, y), rounded, y, local="auto", max_estimators=8, tolerance=None)


def test_by_its_name_where_it_has_one():
    pd = pytest.importorskip("pandas")
    models, X, y = experts(1e9)
    frame = pd.DataFrame(X, columns=["second", "a", "b"])
    models = [LinearRegression().fit(frame[j::2], y[j::2]) for j in range(2)]
    with pytest.warns(UserWarning, match="apart by 'second'; subtract"):
        gated(models, frame, y)
