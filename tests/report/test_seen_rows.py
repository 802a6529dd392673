"""A report on training rows says so."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from sparsebag.report.seen_rows import KEPT_HASHES, seen_rows, share_seen


@pytest.fixture(scope="module")
def fitted():
    X, y = load_digits(return_X_y=True)
    forest = RandomForestClassifier(20, random_state=0).fit(X[::2], y[::2])
    return sb.compress(forest, X[::2], y[::2], max_estimators=5, tolerance=None), X, y


def test_training_rows_are_not_called_test_rows(fitted):
    small, X, y = fitted
    report = small.report(X[::2], y[::2])
    assert "(899 training rows)" in str(report)
    assert "test rows" not in report.sentence()
    assert "100% of these 899 rows were trained or chosen on" in str(report)
    assert "899 training rows" in report.to_html()


def test_a_part_of_them_is_known_too(fitted):
    small, X, y = fitted
    assert "training rows" in str(small.report(X[:200:2], y[:200:2]))


def test_unseen_rows_are_test_rows(fitted):
    small, X, y = fitted
    report = small.report(X[1::2], y[1::2])
    assert "(898 test rows)" in str(report)
    assert "trained or chosen on" not in report.to_html()


def test_shares_are_right_with_more_rows_than_hashes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 4))
    seen = seen_rows(X)
    assert len(seen) == KEPT_HASHES
    new = rng.normal(size=(20_000, 4))
    assert share_seen(seen, X[:20_000]) == 1.0
    assert share_seen(seen, pd.DataFrame(X[:20_000].astype(np.float32))) == 1.0
    assert share_seen(seen, new) == 0.0
    mixed = np.concatenate([X[:5000], new[:15_000]])
    assert share_seen(seen, mixed) == pytest.approx(0.25, abs=0.1)


def test_what_cannot_be_told_is_not_claimed():
    assert seen_rows(sparse.csr_matrix(np.eye(3))) is None
    assert seen_rows(np.array([["a", "b"]], dtype=object)) is None
    assert share_seen(None, np.eye(3)) == 0.0
