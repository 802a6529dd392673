"""A plain list of fitted models, with the rows and columns each was trained on."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from evidence.votes import bootstrapped, classes, evidence_of, numbers
from sparsebag.evidence.members import FittedMembers


def assert_votes_by_hand(given, X, y, evidence):
    for j, model in enumerate(given.models):
        rows = np.setdiff1d(np.arange(len(y)), given.estimators_samples[j])
        block = X[rows]
        if given.estimators_features is not None:
            block = block[:, given.estimators_features[j]]
        if hasattr(model, "predict_proba"):
            position = np.searchsorted(model.classes_, y[rows])
            expected = model.predict_proba(block)[np.arange(len(rows)), position]
        elif hasattr(model, "classes_"):
            expected = model.predict(block) == y[rows]
        else:
            expected = model.predict(block)
        np.testing.assert_array_equal(evidence.votes[rows, j], expected)
        np.testing.assert_array_equal(np.flatnonzero(evidence.oob_mask[:, j]), rows)


@pytest.mark.parametrize("n_columns", [None, 4])
@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeClassifier(),
        LogisticRegression(),
        LinearSVC(),
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_classifiers(model, n_columns):
    X, y = classes()
    given = bootstrapped(model, X, y, n_columns=n_columns)
    evidence = evidence_of(given, X, y, dtype=np.float64)
    assert_votes_by_hand(given, X, y, evidence)


@pytest.mark.parametrize("n_columns", [None, 4])
@pytest.mark.parametrize("model", [DecisionTreeRegressor(max_depth=4), Ridge()])
def test_regressors(model, n_columns):
    X, y = numbers()
    given = bootstrapped(model, X, y, n_columns=n_columns)
    evidence = evidence_of(given, X, y, dtype=np.float64)
    assert_votes_by_hand(given, X, y, evidence)


def test_trees_beside_other_models():
    """Not all members are trees, so X stays as given; the trees' leaves are proof all the same."""
    X, y = classes()
    trees = bootstrapped(DecisionTreeClassifier(), X, y, 3)
    linear = bootstrapped(LogisticRegression(), X, y, 3, seed=1)
    given = FittedMembers(
        [*trees.models, *linear.models], [*trees.estimators_samples, *linear.estimators_samples]
    )
    for rows in (X, X.astype(np.float32)):
        evidence = evidence_of(given, rows, y, dtype=np.float64)
        assert evidence.verified_by == "leaf counts"
    assert_votes_by_hand(given, X, y, evidence_of(given, X, y, dtype=np.float64))
    shuffled = np.random.default_rng(0).permutation(len(y))
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        evidence_of(given, X[shuffled], y[shuffled])


def test_models_that_know_different_classes():
    X, y = classes()
    names = np.array(["c", "a", "b"])[y]
    first = LogisticRegression().fit(X[y != 2], names[y != 2])
    second = LogisticRegression().fit(X[y != 0], names[y != 0])
    evidence = evidence_of([first, second], X, names, source="holdout", class_votes=True)
    assert evidence.classes.tolist() == ["a", "b", "c"]
    assert np.all(evidence.votes[y == 2, 0] == 0)
    assert np.all(evidence.votes[y == 0, 1] == 0)
    np.testing.assert_allclose(
        evidence.votes[y == 1, 0], first.predict_proba(X[y == 1])[:, 0], rtol=1e-6
    )


def test_an_empty_bag_makes_every_row_unseen():
    X, y = classes()
    other_X, other_y = classes(seed=1)
    models = [DecisionTreeClassifier(random_state=j).fit(other_X, other_y) for j in range(3)]
    evidence = evidence_of(FittedMembers(models, [[], [], []]), X, y)
    assert evidence.oob_mask.all()
    assert evidence.verified_by is None


def test_columns_of_a_data_frame_keep_their_names():
    X, y = classes()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    columns = [np.array([0, 2, 3]), np.array([5, 1, 4])]
    for model in (LogisticRegression, DecisionTreeClassifier):
        models = [model().fit(frame.iloc[:, c], y) for c in columns]
        evidence = evidence_of(FittedMembers(models, None, columns), frame, y, source="holdout")
        for j, c in enumerate(columns):
            proba = models[j].predict_proba(frame.iloc[:, c])
            np.testing.assert_allclose(evidence.votes[:, j], proba[np.arange(len(y)), y], rtol=1e-6)


class Duck:
    """Not a scikit-learn estimator: it has classes_ and predict_proba, and that will do."""

    classes_ = np.array([0, 1])

    def __init__(self, share):
        self.share = share

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def predict_proba(self, X):
        return np.tile([1 - self.share, self.share], (len(X), 1))


class DuckRegressor:
    def predict(self, X):
        return X[:, 0]


def test_models_of_other_libraries():
    X, y = classes(2)
    evidence = evidence_of([Duck(0.25), Duck(0.5)], X, y, source="holdout")
    np.testing.assert_array_equal(evidence.votes[:, 0], np.where(y == 1, 0.25, 0.75))
    evidence = evidence_of([DuckRegressor(), DuckRegressor()], X, X[:, 1], source="holdout")
    assert evidence.task == "regression"
