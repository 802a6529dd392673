"""Weights of classes and rows say what probabilities are for; small models keep to them."""

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
    how = {"n_informative": 4, "weights": [0.95], "flip_y": 0.005, "class_sep": 1.0}
    X, y = make_classification(6000, 8, random_state=0, **how)
    return X[:2000], y[:2000], X[2000:], y[2000:]


def balanced_list(X, y):
    """Trees, each on as many rows of one class as of the other."""
    rng, few = np.random.default_rng(0), np.count_nonzero(y == 1)
    rows = [
        np.concatenate([rng.choice(np.flatnonzero(y == c), few) for c in (0, 1)]) for _ in range(40)
    ]
    trees = [DecisionTreeClassifier(max_depth=6, random_state=s) for s in range(40)]
    models = [tree.fit(X[r], y[r]) for tree, r in zip(trees, rows, strict=True)]
    return models, {"estimators_samples": rows}


def weighted_forest(X, y):
    weight = np.where(y == 1, 20.0, 1.0)
    forest = RandomForestClassifier(40, max_depth=6, random_state=0).fit(X, y, weight)
    return forest, {"sample_weight": weight}


def fitted(ensemble):
    return lambda X, y: (ensemble.fit(X, y), {})


ENSEMBLES = {
    "balanced forest": fitted(RandomForestClassifier(40, class_weight="balanced", random_state=0)),
    "balanced shallow forest": fitted(
        RandomForestClassifier(40, class_weight="balanced_subsample", max_depth=5, random_state=0)
    ),
    "bag of balanced trees": fitted(
        BaggingClassifier(
            DecisionTreeClassifier(class_weight="balanced", max_depth=6), 40, random_state=0
        )
    ),
    "bag of balanced lines": fitted(
        BaggingClassifier(LogisticRegression(class_weight="balanced"), 20, random_state=0)
    ),
    "weighted rows": weighted_forest,
    "balanced bags": balanced_list,
}


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("is_small", [False, True])
@pytest.mark.parametrize("name", ENSEMBLES)
def test_each_class_is_found_as_often(rare, name, is_small):
    X, y, X_test, y_test = rare
    ensemble, known = ENSEMBLES[name](X, y)
    by_members = name in ("bag of balanced lines", "balanced bags")
    size = {"max_estimators": 10} if by_members else {"max_nodes": 0.2}
    members = ensemble if isinstance(ensemble, list) else [ensemble]
    vote = np.mean([model.predict_proba(X_test) for model in members], axis=0).argmax(axis=1)
    small = sb.compress(ensemble, X, y, **known, **(size if is_small else {}))
    before, after = (
        recall_score(y_test, said, average=None) for said in (vote, small.predict(X_test))
    )
    assert np.abs(after - before).max() <= 0.05, (before, after)


def seen_by_all(X, y, n_rare):
    """A forest with ``n_rare`` rows of the rare class in every bag, and its rows."""
    keep = np.concatenate([np.flatnonzero(y == 0), np.flatnonzero(y == 1)[:n_rare]])
    X, y = X[keep], y[keep]
    forest = RandomForestClassifier(40, class_weight="balanced", random_state=0).fit(X, y)
    seen = np.array([np.isin(np.arange(len(y)), rows) for rows in forest.estimators_samples_])
    if not seen[:, y == 1].all():
        pytest.skip("this scikit-learn does not draw bags by class weight")
    return forest, X, y


def test_a_class_that_is_in_every_bag(rare):
    X, y, X_test, _ = rare
    forest, X, y = seen_by_all(X, y, 20)
    small = sb.compress(forest, X, y)
    found, before = (np.count_nonzero(m.predict(X_test)) for m in (small, forest))
    assert found >= 0.8 * before > 0


def test_members_as_they_are_find_each_class_as_often():
    """Bags drawn by class weight leave out one row in nine of the rare class, half of the other."""
    how = {"n_informative": 6, "weights": [0.85], "flip_y": 0.1, "class_sep": 0.6}
    X, y = make_classification(9000, 12, random_state=1, **how)
    forest = RandomForestClassifier(100, max_depth=6, class_weight="balanced", random_state=0)
    forest.fit(X[:4000], y[:4000])
    small = sb.compress(forest, X[:4000], y[:4000], refine=None)
    before, after = (
        recall_score(y[4000:], model.predict(X[4000:]), average=None) for model in (forest, small)
    )
    assert np.abs(after - before).max() <= 0.03, (before, after)


def test_a_class_in_nearly_every_bag_is_told_of(rare):
    known = seen_by_all(*rare[:2], 40)
    for how in ({"refine": None}, {"local": "auto"}):
        with pytest.raises(ValueError, match="use refine='auto'"):
            sb.compress(*known, **how)
