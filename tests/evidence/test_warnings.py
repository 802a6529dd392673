"""What evidence warns of: at the user's line, once, of rows uncovered and of weights too uneven."""

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import sparsebag as sb
from sparsebag.evidence import callers_warning
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.sources.sampling import Reservoir


@pytest.fixture
def rows():
    return load_iris(return_X_y=True)


def test_the_line_is_the_callers(rows):
    forest = RandomForestClassifier(3, random_state=0).fit(*rows)
    bag = BaggingClassifier(LogisticRegression(max_iter=2000), 5, random_state=0).fit(*rows)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sb.compress(forest, *rows, max_estimators=2, refine=None)
        sb.compress(bag, *rows)
    assert {w.filename for w in caught} == {__file__}
    assert {w.category for w in caught} == {sb.UncoveredRowsWarning, sb.UnverifiedRowsWarning}


def test_a_grid_search_says_it_once(rows, monkeypatch):
    monkeypatch.setattr(callers_warning, "_said_in_a_search", set())
    forest = RandomForestClassifier(6, random_state=0)
    clf = sb.SparseBaggingClassifier(forest, refine=None, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GridSearchCV(clf, {"max_estimators": [1, 2]}, cv=3).fit(*rows)
    assert [w.category for w in caught] == [sb.UncoveredRowsWarning]


def test_weights_that_let_few_rows_decide_are_named():
    rng = np.random.default_rng(0)
    votes, y = rng.random((2000, 5), dtype=np.float32), rng.integers(0, 2, 2000)
    mask = rng.random(votes.shape) < 0.9
    weight = np.where(np.arange(2000) % 100 == 7, 1e9, 1.0)
    rows = [votes, mask, y, weight]

    def blocks():
        for s in range(0, 2000, 250):
            yield tuple(a[s : s + 250] for a in rows)

    words = "2000 rows count for no more than 20 of equal weight"
    with pytest.warns(UserWarning, match=words):
        sb.fit_weights(votes, mask, y, sample_weight=weight)
    for stream in (
        sb.stream_rows(votes, mask, y, sample_weight=weight, block_rows=300),
        sb.stream_rows(blocks, labels=[0, 1]),
    ):
        with pytest.warns(UserWarning, match=words):
            sb.fit_weights(stream)
    rows[3] = np.linspace(0.1, 3.0, 2000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
    rng = np.random.default_rng(0)
    votes, y = rng.random((2000, 5), dtype=np.float32), rng.integers(0, 2, 2000)
    mask, weight = rng.random(votes.shape) < 0.9, np.full(2000, size)
    alike = sb.fit_weights(votes, mask, y)
    same = sb.fit_weights(votes, mask, y, sample_weight=weight)
    assert np.allclose(same.weights, alike.weights, atol=1e-6)
    words = "too small or too large to be added up over a stream; divide sample_weight by its mean"
    with pytest.raises(ValueError, match=words):
        sb.fit_weights(sb.stream_rows(votes, mask, y, sample_weight=weight))
    light = np.full(2000, 1e-310)  # their sum is none too small
    stream = sb.stream_rows(votes, mask, y, sample_weight=light)
    assert np.allclose(sb.fit_weights(stream).weights, alike.weights, atol=1e-6)
    least = OOBEvidence(votes, mask, y, "regression", sample_weight=np.full(2000, 5e-324))
    with pytest.raises(ValueError, match=words):
        Reservoir(5).add(least)
