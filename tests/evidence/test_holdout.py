"""Held-out rows judge the members of ensembles without a bootstrap."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    RandomForestClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from evidence.votes import classes, evidence_of, numbers, uniform_vote

CLASSIFIERS = [
    ("logistic", LogisticRegression()),
    ("tree", DecisionTreeClassifier(max_depth=3, random_state=0)),
    ("neighbours", KNeighborsClassifier()),
]


def halves(X, y):
    return (X[::2], y[::2]), (X[1::2], y[1::2])


def test_soft_voting():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    voter = VotingClassifier(CLASSIFIERS, voting="soft").fit(X, y)
    evidence = evidence_of(voter, X_new, y_new, source="holdout", dtype=np.float64)
    assert evidence.oob_mask is None
    assert evidence.source == "holdout"
    assert evidence.verified_by is None
    expected = voter.predict_proba(X_new)[np.arange(len(y_new)), y_new]
    np.testing.assert_allclose(uniform_vote(evidence), expected, rtol=1e-12)


def test_hard_voting_of_models_without_probabilities():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    members = [(f"{c}", LinearSVC(C=c)) for c in (0.01, 0.1, 1.0)]
    voter = VotingClassifier(members).fit(X, y)
    evidence = evidence_of(voter, X_new, y_new, source="holdout")
    expected = np.stack([m.predict(X_new) == y_new for m in voter.estimators_], axis=1)
    np.testing.assert_array_equal(evidence.votes, expected)


def test_hard_voting_reads_probabilities_where_there_are_some():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    soft = VotingClassifier(CLASSIFIERS, voting="soft").fit(X, y)
    hard = VotingClassifier(CLASSIFIERS, voting="hard").fit(X, y)
    np.testing.assert_array_equal(
        evidence_of(hard, X_new, y_new, source="holdout").votes,
        evidence_of(soft, X_new, y_new, source="holdout").votes,
    )


@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_string_labels_and_a_dropped_member(voting):
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    names = np.array(["wolf", "ape", "cat"])
    dropped = [*CLASSIFIERS, ("gone", "drop")]
    voter = VotingClassifier(dropped, voting=voting).fit(X, names[y])
    evidence = evidence_of(voter, X_new, names[y_new], source="holdout", dtype=np.float64)
    assert evidence.n_members == 3
    assert evidence.classes.tolist() == ["ape", "cat", "wolf"]
    column = np.searchsorted(evidence.classes, names[y_new])
    for j, member in enumerate(voter.estimators_):
        expected = member.predict_proba(X_new)[np.arange(len(y_new)), column]
        np.testing.assert_array_equal(evidence.votes[:, j], expected)


def test_voting_regressors():
    (X, y), (X_new, y_new) = halves(*numbers(300))
    members = [("tree", DecisionTreeRegressor()), ("ridge", Ridge()), ("gone", "drop")]
    voter = VotingRegressor([*members, ("line", LinearRegression())]).fit(X, y)
    evidence = evidence_of(voter, X_new, y_new, source="holdout", dtype=np.float64)
    assert evidence.n_members == 3
    np.testing.assert_allclose(uniform_vote(evidence), voter.predict(X_new), rtol=1e-12)


def test_extra_trees_without_bootstrap():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    forest = ExtraTreesClassifier(5, random_state=0).fit(X, y)
    evidence = evidence_of(forest, X_new, y_new, source="holdout", dtype=np.float64)
    expected = forest.predict_proba(X_new)[np.arange(len(y_new)), y_new]
    np.testing.assert_allclose(uniform_vote(evidence), expected, rtol=1e-12)
    regressor = ExtraTreesRegressor(5, random_state=0).fit(X, y)
    evidence = evidence_of(regressor, X_new, y_new, source="holdout", dtype=np.float64)
    np.testing.assert_allclose(uniform_vote(evidence), regressor.predict(X_new), rtol=1e-12)


def test_a_bootstrapped_forest_may_be_judged_by_held_out_rows():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=301))
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    evidence = evidence_of(forest, X_new, y_new, source="holdout")
    assert evidence.oob_mask is None
    assert evidence.n_rows == 150


def test_held_out_rows_need_not_show_every_class():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    forest = ExtraTreesClassifier(3, random_state=0).fit(X, y)
    rows = y_new != 1
    evidence = evidence_of(forest, X_new[rows], y_new[rows], source="holdout", class_votes=True)
    assert set(evidence.target) == {0, 2}
    assert len(evidence.class_votes) == 3


def test_a_list_of_models():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    models = [model.fit(X, y) for _, model in CLASSIFIERS]
    evidence = evidence_of(models, X_new, y_new, source="holdout", dtype=np.float64)
    for j, model in enumerate(models):
        expected = model.predict_proba(X_new)[np.arange(len(y_new)), y_new]
        np.testing.assert_array_equal(evidence.votes[:, j], expected)


def table(X):
    """A DataFrame with a text column, and columns by name."""
    kinds = np.where(X[:, 0] > 0, "high", "low")
    return pd.DataFrame({"kind": kinds, "a": X[:, 1], "b": X[:, 2]})


def pipelines():
    def columns():
        return make_column_transformer((OneHotEncoder(), ["kind"]), (StandardScaler(), ["a", "b"]))

    return [
        ("logistic", make_pipeline(columns(), LogisticRegression())),
        ("tree", make_pipeline(columns(), DecisionTreeClassifier(max_depth=3))),
    ]


@pytest.mark.parametrize("kind", ["voter", "list"])
def test_data_frame_with_strings_for_pipelines(kind):
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    voter = VotingClassifier(pipelines(), voting="soft").fit(table(X), y)
    ensemble = voter if kind == "voter" else list(voter.estimators_)
    evidence = evidence_of(ensemble, table(X_new), y_new, source="holdout", block_rows=40)
    expected = voter.predict_proba(table(X_new))[np.arange(len(y_new)), y_new]
    np.testing.assert_allclose(uniform_vote(evidence), expected, rtol=1e-5)


def test_columns_picked_by_name_may_come_in_any_order():
    (X, y), (X_new, y_new) = halves(*classes(n_rows=300))
    voter = VotingClassifier(pipelines(), voting="soft").fit(table(X), y)
    frame = table(X_new)
    votes = evidence_of(voter, frame, y_new, source="holdout").votes
    shuffled = frame[["b", "kind", "a"]].assign(more=1)
    np.testing.assert_array_equal(
        evidence_of(voter, shuffled, y_new, source="holdout").votes, votes
    )


def test_text_for_pipelines():
    texts = ["good dog", "bad cat", "good cat", "bad dog"] * 10
    y = np.array([1, 0, 1, 0] * 10)
    members = [
        (f"{c}", make_pipeline(TfidfVectorizer(), LogisticRegression(C=c))) for c in (0.1, 10.0)
    ]
    voter = VotingClassifier(members, voting="soft").fit(texts, y)
    for given in (texts, np.array(texts), pd.Series(texts)):
        evidence = evidence_of(voter, given, y, source="holdout")
        expected = voter.predict_proba(texts)[np.arange(len(y)), y]
        np.testing.assert_allclose(uniform_vote(evidence), expected, rtol=1e-6)


def test_training_rows_are_not_held_out():
    X, y = classes(3)
    forest = RandomForestClassifier(6, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="these are its training rows"):
        evidence_of(forest, X, y, source="holdout")
    assert evidence_of(forest, X[::-1], y[::-1], source="holdout").oob_mask is None
