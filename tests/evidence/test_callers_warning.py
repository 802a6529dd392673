"""Warnings point at the user's line, and a search says each once."""

from __future__ import annotations

import warnings

import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV

import sparsebag as sb
from sparsebag.evidence import callers_warning


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
