"""Readers of other libraries: missing values, categories, class names and bags are theirs."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_diabetes

import sparsebag as sb
from models import KINDS, RF, XGB, of, rare
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.readers import optional_import
from sparsebag.evidence.readers.from_arrays import Leaf, built_tree, category_split
from sparsebag.evidence.training_rows import prove_training_rows

RNG = np.random.default_rng(0)


def with_gaps(categories=False):
    X, y = load_diabetes(return_X_y=True)
    X = X.astype(np.float32)
    X[RNG.uniform(size=X.shape) < 0.1] = np.nan
    if categories:
        X[:, 1] = RNG.integers(0, 12, len(X))
        y = y + 60.0 * np.isin(X[:, 1], [2, 3, 7, 11])
    return X, y


def mean_vote(pool, X):
    return np.mean([member.predict(pool.prepare(X)) for member in pool.members], axis=0)


@pytest.mark.parametrize("categories", [False, True], ids=["numbers", "categories"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_regression_forests_are_read_exactly(library, categories):
    X, y = with_gaps(categories)
    if library == "xgboost":
        kinds = ["c" if j == 1 and categories else "q" for j in range(X.shape[1])]
        how = {"feature_types": kinds, "enable_categorical": True, "max_cat_to_onehot": 4}
        model = of(library, "XGBRFRegressor", **XGB, **how)().fit(X, y)
    else:
        how = {"categorical_feature": [1]} if categories else {}
        model = of(library, "LGBMRegressor", **RF)().fit(X, y, **how)
    pool = read_ensemble(model)
    assert_allclose(mean_vote(pool, X), model.predict(X), rtol=1e-4)
    assert pool.in_bag is None


def test_class_names_are_the_librarys():
    X, y = rare()
    names = np.array(["common", "rare"])[y]
    model = of("lightgbm", "LGBMClassifier", **RF)().fit(X[:500], names[:500])
    small = sb.compress(model, X[500:], names[500:], evidence="holdout")
    assert_array_equal(small.classes_, ["common", "rare"])
    assert set(small.predict(X)) == {"common", "rare"}


@pytest.mark.parametrize(
    ("library", "name"), [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier")]
)
def test_boosting_is_refused(library, name):
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    model = of(library, name, n_estimators=3, n_jobs=1, **quiet)().fit(*rare())
    with pytest.raises(
        TypeError, match="correct each other and are no votes; pass a random forest"
    ):
        sb.compress(model, *rare())


@pytest.mark.parametrize("how", [{}, {"bootstrap": True, "replacement": False}])
def test_balanced_bags_are_known(how):
    X, y = rare()
    kind = "BalancedRandomForestClassifier"
    model = of("imblearn.ensemble", kind, n_estimators=10, random_state=0, **how)().fit(X, y)
    pool = read_ensemble(model)
    assert prove_training_rows(pool, pool.prepare(X), y) == "leaf counts"
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        sb.compress(model, X[::-1], y[::-1])


def test_balanced_decisions_stay():
    """The rare class keeps its recall: its weight in the bags is not calibrated away."""
    one = KINDS["`BalancedRandomForestClassifier`"]
    X, y = one.data()
    model = one.make().fit(X[:1000], y[:1000])
    small = sb.compress(model, X[:1000], y[:1000])
    found = y[1000:] == 1
    before, after = (m.predict(X[1000:])[found].mean() for m in (model, small))
    assert after > before - 0.1


def test_a_set_of_categories_becomes_splits_on_numbers():
    inside, outside = Leaf(np.array([1.0]), 1.0), Leaf(np.array([0.0]), 1.0)
    codes = [0, 1, 4, 9]
    tree = built_tree(
        category_split(0, codes, inside, outside, missing_inside=True), lambda k: k, 1, None
    )
    rows = np.append(np.arange(12.0), np.nan)[:, None]
    assert_array_equal(tree.predict(rows), [*np.isin(np.arange(12), codes), 1.0])


def test_a_library_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(ImportError, match=r"needs skops; pip install 'sparsebag\[cli\]'"):
        optional_import("skops.io", "cli", "saving a Pipeline")
