"""Reading fitted bags: what scikit-learn's BaggingClassifier and BaggingRegressor leave behind."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from evidence.votes import classes, evidence_of, numbers
from sparsebag.evidence.from_ensemble import read_ensemble


def rare_class(n_rare=1):
    """Three classes, the last so rare that most bootstraps miss it."""
    X, y = classes(2)
    y = y.copy()
    y[:n_rare] = 2
    return X, y


def test_in_bag_rows_are_redrawn_one_member_at_a_time():
    X, y = classes()
    for settings in ({}, {"max_samples": 0.5}, {"bootstrap": False, "max_samples": 60}):
        bag = BaggingClassifier(None, 6, random_state=0, **settings).fit(X, y)
        in_bag = read_ensemble(bag).in_bag
        assert len(in_bag) == 6
        for j, rows in enumerate(bag.estimators_samples_):
            np.testing.assert_array_equal(in_bag[j], rows)


def test_mask_is_the_complement_of_the_bags():
    X, y = numbers()
    bag = BaggingRegressor(None, 8, random_state=0).fit(X, y)
    mask = evidence_of(bag, X, y).oob_mask
    for j, rows in enumerate(bag.estimators_samples_):
        assert np.array_equal(np.flatnonzero(~mask[:, j]), np.unique(rows))


@pytest.mark.parametrize("base", [DecisionTreeClassifier(), LogisticRegression()])
def test_pasting_leaves_rows_out_of_bag(base):
    X, y = classes()
    bag = BaggingClassifier(base, 10, bootstrap=False, max_samples=0.6, random_state=0).fit(X, y)
    evidence = evidence_of(bag, X, y)
    assert np.all(evidence.oob_mask.sum(axis=0) == len(y) - int(0.6 * len(y)))


def test_pasting_every_row_leaves_none():
    X, y = classes()
    bag = BaggingClassifier(None, 5, bootstrap=False, max_features=0.5).fit(X, y)
    for class_votes in (False, True):
        evidence = evidence_of(bag, X, y, class_votes=class_votes)
        assert not evidence.oob_mask.any()
        assert not evidence.covered().any()


def test_columns_of_each_member():
    X, y = classes()
    bag = BaggingClassifier(
        DecisionTreeClassifier(), 5, max_features=3, bootstrap_features=True, random_state=3
    ).fit(X, y)
    evidence = evidence_of(bag, X, y, dtype=np.float64)
    for j, (tree, columns) in enumerate(
        zip(bag.estimators_, bag.estimators_features_, strict=True)
    ):
        rows = evidence.oob_mask[:, j]
        proba = tree.predict_proba(X[rows][:, columns])
        np.testing.assert_array_equal(
            evidence.votes[rows, j], proba[np.arange(rows.sum()), y[rows]]
        )


def test_a_class_missing_from_a_bootstrap_gets_no_vote():
    X, y = rare_class()
    bag = BaggingClassifier(KNeighborsClassifier(3), 12, random_state=0).fit(X, y)
    missing = [j for j, member in enumerate(bag.estimators_) if len(member.classes_) == 2]
    assert 0 < len(missing) < 12
    evidence = evidence_of(bag, X, y, class_votes=True)
    for j in missing:
        assert not evidence.class_votes[2][:, [j]].toarray().any()
        assert np.all(evidence.votes[y == 2, j] == 0)
    total = sum(plane.toarray() for plane in evidence.class_votes)
    np.testing.assert_allclose(total[evidence.oob_mask], 1.0, rtol=1e-6)


@pytest.mark.parametrize("base", [SVC(), DecisionTreeClassifier(), LogisticRegression()])
def test_a_class_drawn_with_no_weight(base):
    """Models that take sample_weight see every class, some of them with weight zero only."""
    X, y = rare_class()
    bag = BaggingClassifier(base, 8, random_state=0).fit(X, y)
    evidence = evidence_of(bag, X, y, class_votes=True)
    assert evidence.n_classes == 3
    assert np.all(evidence.votes[evidence.oob_mask] <= 1)


class NoClasses(ClassifierMixin, BaseEstimator):
    """A voter without classes_; a bag can use it, so can we."""

    def fit(self, X, y):
        self.most_ = np.bincount(y).argmax()
        return self

    def predict(self, X):
        return np.full(len(X), self.most_)


def test_a_voter_without_classes():
    X, y = classes()
    bag = BaggingClassifier(NoClasses(), 4, random_state=0).fit(X, y)
    evidence = evidence_of(bag, X, y)
    assert np.array_equal(evidence.votes[:, 0] == 1, evidence.oob_mask[:, 0] & (y == 2))


def test_warm_start_forgets_bags_but_not_members():
    X, y = classes()
    bag = BaggingClassifier(None, 3, warm_start=True, random_state=0).fit(X, y)
    bag.set_params(n_estimators=5).fit(X, y)
    with pytest.raises(ValueError, match=r"5 members and remembers the bootstrap of the last 2"):
        evidence_of(bag, X, y)
    other_X, other_y = classes(seed=1)
    assert evidence_of(bag, other_X, other_y, source="holdout").n_members == 5


def test_pickled_and_copied_bags_give_the_same_evidence():
    X, y = classes()
    bag = BaggingClassifier(None, 5, random_state=0).fit(X, y)
    votes = evidence_of(bag, X, y).votes
    for again in (pickle.loads(pickle.dumps(bag)), copy.deepcopy(bag)):
        np.testing.assert_array_equal(evidence_of(again, X, y).votes, votes)


def test_reading_leaves_the_bag_as_it_was():
    X, y = classes()
    bag = BaggingClassifier(LogisticRegression(), 5, random_state=0).fit(X, y)
    before = pickle.dumps(bag)
    evidence_of(bag, X, y)
    assert pickle.dumps(bag) == before
