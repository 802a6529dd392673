"""Members predict the rows they have not seen, block by block; what is warned of, once."""

import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.compose import make_column_transformer
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import sparsebag as sb
from evidence.votes import classes, evidence_of, numbers
from sparsebag.evidence import callers_warning
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.sources.sampling import Reservoir
from toy import IRIS


class Spy(ClassifierMixin, BaseEstimator):
    """Writes down which rows (X's first column) each fit and each prediction saw."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.trained_ = set(X[:, 0])
        self.asked_ = []
        return self

    def predict(self, X):
        return self.classes_[np.argmax(self.predict_proba(X), axis=1)]

    def predict_proba(self, X):
        self.asked_.append(X[:, 0].tolist())
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_each_member_predicts_each_unseen_row_once(n_jobs):
    X, y = classes()
    X = np.c_[np.arange(len(y)), X]
    bag = BaggingClassifier(Spy(), 6, random_state=0).fit(X, y)
    evidence_of(bag, X, y, block_rows=16, n_jobs=n_jobs)
    for spy in bag.estimators_:
        asked = [row for block in spy.asked_ for row in block]
        assert len(asked) == len(set(asked))
        assert set(asked) == set(range(len(y))) - spy.trained_
        assert max(map(len, spy.asked_)) <= 16


ENSEMBLES = {
    "forest": RandomForestClassifier(9, random_state=0),
    "logistic": BaggingClassifier(LogisticRegression(), 9, random_state=0),
    "SVM": BaggingClassifier(SVC(), 9, random_state=0),
    "neural nets": BaggingClassifier(
        MLPClassifier((5,), solver="lbfgs", max_iter=300, max_fun=20), 9, random_state=0
    ),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_same_bits_whatever_n_jobs_and_block_size(ensemble):
    X, y = classes(n_rows=400)
    model = ENSEMBLES[ensemble].fit(X, y)
    expected = evidence_of(model, X, y, class_votes=True)
    for n_jobs, block_rows in ((2, 8192), (-1, 8192), (1, 1), (1, 7), (2, 33), (2, 200)):
        evidence = evidence_of(model, X, y, n_jobs=n_jobs, block_rows=block_rows, class_votes=True)
        np.testing.assert_array_equal(evidence.votes, expected.votes)
        np.testing.assert_array_equal(evidence.oob_mask, expected.oob_mask)
        for plane, same in zip(evidence.class_votes, expected.class_votes, strict=True):
            np.testing.assert_array_equal(plane.toarray(), same.toarray())
    one, two = (evidence_of(model, X, y, dtype=np.float64, n_jobs=n).votes for n in (1, 2))
    np.testing.assert_array_equal(one, two)
    other_blocks = evidence_of(model, X, y, dtype=np.float64, block_rows=13).votes
    np.testing.assert_allclose(other_blocks, one, rtol=1e-12)


class Unwell(RegressorMixin, BaseEstimator):
    """Fitted from the start; predicts what it is told to, or raises it."""

    def __init__(self, answer):
        self.answer = answer

    def predict(self, X):
        if isinstance(self.answer, type):
            raise self.answer("what it said")
        return np.full(len(X), self.answer)


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ZeroDivisionError, "what it said"),
        (KeyboardInterrupt, "what it said"),
        (np.nan, "a member predicts NaN or infinity"),
        (np.inf, "a member predicts NaN or infinity"),
        (-np.inf, "a member predicts NaN or infinity"),
    ],
)
def test_what_a_member_gets_wrong_surfaces_and_names_it(answer, said, n_jobs):
    X, y = numbers()
    lines = [LinearRegression().fit(X, y) for _ in range(2)]
    error = answer if isinstance(answer, type) else ValueError
    with pytest.raises(error, match=said) as caught:
        evidence_of([*lines, Unwell(answer)], X, y, source="holdout", n_jobs=n_jobs)
    if error is not KeyboardInterrupt:
        assert caught.value.__notes__ == ["(raised by member 2, a Unwell)"]


def test_members_in_threads_see_the_callers_configuration():
    """Pipelines fitted under transform_output="pandas" pick columns by name when they predict."""
    X, y = numbers()
    frame = pd.DataFrame(X, columns=list("abcdef"))
    with sklearn.config_context(transform_output="pandas"):
        by_name = make_column_transformer((StandardScaler(), ["a", "b"]))
        models = [
            make_pipeline(StandardScaler(), by_name, LinearRegression()).fit(frame, y)
            for _ in range(4)
        ]
        alone = evidence_of(models, frame, y, source="holdout", n_jobs=1)
        threads = evidence_of(models, frame, y, source="holdout", n_jobs=2)
    np.testing.assert_array_equal(alone.votes, threads.votes)


def test_the_line_is_the_callers():
    forest = RandomForestClassifier(3, random_state=0).fit(*IRIS)
    bag = BaggingClassifier(LogisticRegression(max_iter=2000), 5, random_state=0).fit(*IRIS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sb.compress(forest, *IRIS, max_estimators=2, refine=None)
        sb.compress(bag, *IRIS)
    assert {w.filename for w in caught} == {__file__}
    assert {w.category for w in caught} == {sb.UncoveredRowsWarning, sb.UnverifiedRowsWarning}


def test_a_grid_search_says_it_once(monkeypatch):
    monkeypatch.setattr(callers_warning, "_said_in_a_search", set())
    forest = RandomForestClassifier(6, random_state=0)
    clf = sb.SparseBaggingClassifier(forest, refine=None, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GridSearchCV(clf, {"max_estimators": [1, 2]}, cv=3).fit(*IRIS)
    assert [w.category for w in caught] == [sb.UncoveredRowsWarning]


def two_thousand_rows():
    rng = np.random.default_rng(0)
    votes, y = rng.random((2000, 5), dtype=np.float32), rng.integers(0, 2, 2000)
    return votes, rng.random(votes.shape) < 0.9, y


def test_weights_that_let_few_rows_decide_are_named():
    votes, mask, y = two_thousand_rows()
    weight = np.where(np.arange(2000) % 100 == 7, 1e9, 1.0)
    rows = [votes, mask, y, weight]

    def blocks():
        for s in range(0, 2000, 250):
            yield tuple(a[s : s + 250] for a in rows)

    words = "2000 rows count as about 20 of equal weight"
    with pytest.warns(UserWarning, match=words):
        sb.fit_weights(votes, mask, y, sample_weight=weight)
    for stream in (
        sb.stream_rows(votes, mask, y, sample_weight=weight, block_rows=300),
        sb.stream_rows(blocks, labels=[0, 1]),
    ):
        with pytest.warns(UserWarning, match=words):
            sb.fit_weights(stream)
    rows[3] = np.linspace(0.1, 3.0, 2000)
    sb.fit_weights(votes, mask, y, sample_weight=rows[3])
    sb.fit_weights(sb.stream_rows(blocks, labels=[0, 1]))
    rows[3] = np.where(np.arange(2000) < 1000, 1e-310, 1.0)  # as good as none beside others
    here = sb.fit_weights(votes, mask, y, sample_weight=rows[3])
    there = sb.fit_weights(sb.stream_rows(blocks, labels=[0, 1]))
    assert np.allclose(there.weights, here.weights, atol=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [5e-324, 1e308])
def test_weights_that_cannot_be_added_up_as_they_come(size):
    """In memory they are divided by the largest first."""
    votes, mask, y = two_thousand_rows()
    weight = np.full(2000, size)
    alike = sb.fit_weights(votes, mask, y)
    same = sb.fit_weights(votes, mask, y, sample_weight=weight)
    assert np.allclose(same.weights, alike.weights, atol=1e-6)
    words = "too small or too large to be summed over a stream; divide it by its mean"
    with pytest.raises(ValueError, match=words):
        sb.fit_weights(sb.stream_rows(votes, mask, y, sample_weight=weight))
    light = np.full(2000, 1e-310)  # their sum is none too small
    stream = sb.stream_rows(votes, mask, y, sample_weight=light)
    assert np.allclose(sb.fit_weights(stream).weights, alike.weights, atol=1e-6)
    least = OOBEvidence(votes, mask, y, "regression", sample_weight=np.full(2000, 5e-324))
    with pytest.raises(ValueError, match=words):
        Reservoir(5).add(least)
