"""X in every form scikit-learn takes gives the same evidence."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import (
    BaggingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from evidence.votes import classes, evidence_of

ENSEMBLES = {
    "forest": RandomForestClassifier(8, random_state=0),
    "bag of trees": BaggingClassifier(None, 8, max_features=0.6, random_state=0),
    "bag of linear models": BaggingClassifier(LogisticRegression(), 8, random_state=0),
    "bag of linear patches": BaggingClassifier(
        LinearSVC(), 8, max_features=0.6, bootstrap_features=True, random_state=0
    ),
    "bag of neighbours": BaggingClassifier(KNeighborsClassifier(), 8, random_state=0),
}


def many_zeros():
    """Integer features, mostly zero, exact in every dtype and storage."""
    X, y = classes()
    X = np.round(X).astype(np.float64)
    X[np.random.default_rng(0).random(X.shape) < 0.4] = 0
    return X, y


def int64_indices(X, kind):
    X = kind(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


DENSE = {
    "Fortran order": np.asfortranarray,
    "single precision": lambda X: X.astype(np.float32),
    "Fortran single": lambda X: np.asfortranarray(X.astype(np.float32)),
    "integers": lambda X: X.astype(np.int64),
    "small integers": lambda X: X.astype(np.int8),
    "strided": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "list": lambda X: X.tolist(),
    "DataFrame": lambda X: pd.DataFrame(X, columns=list("abcdef")),
    "DataFrame of integers": lambda X: pd.DataFrame(X.astype(int), columns=list("abcdef")),
    "DataFrame of nullable integers": lambda X: pd.DataFrame(X).astype("Int64"),
    "DataFrame with another index": lambda X: pd.DataFrame(X, index=range(len(X), 0, -1)),
}
SPARSE = {
    "csr_matrix": sp.csr_matrix,
    "csc_matrix": sp.csc_matrix,
    "csr_array": sp.csr_array,
    "csc_array": sp.csc_array,
    "coo_array": sp.coo_array,
    "single precision": lambda X: sp.csr_matrix(X.astype(np.float32)),
    "64-bit indices": lambda X: int64_indices(X, sp.csr_array),
}


@pytest.mark.parametrize("form", DENSE)
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_dense(ensemble, form):
    X, y = many_zeros()
    given = DENSE[form](X)
    model = ENSEMBLES[ensemble].fit(given, y)
    evidence = evidence_of(model, given, y)
    expected = evidence_of(ENSEMBLES[ensemble].fit(X, y), X, y)
    np.testing.assert_allclose(evidence.votes, expected.votes, atol=1e-3)
    if "tree" in ensemble or ensemble == "forest":
        np.testing.assert_array_equal(evidence.votes, expected.votes)


@pytest.mark.parametrize("form", SPARSE)
@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_sparse(ensemble, form):
    X, y = many_zeros()
    model = ENSEMBLES[ensemble].fit(sp.csr_matrix(X), y)
    given = SPARSE[form](X)
    before = given.copy()
    evidence = evidence_of(model, given, y, block_rows=32, class_votes=True)
    expected = evidence_of(model, sp.csr_matrix(X), y, class_votes=True)
    np.testing.assert_allclose(evidence.votes, expected.votes, atol=1e-6)
    assert type(given) is type(before)
    assert given.dtype == before.dtype
    if hasattr(given, "indices"):
        assert given.indices.dtype == before.indices.dtype


@pytest.mark.parametrize(
    "kind", [list, pd.Series, lambda y: y[:, None], lambda y: pd.Series(y, y[::-1]), pd.DataFrame]
)
def test_targets_and_row_weights_in_every_form(kind):
    X, y = classes()
    names, weight = np.array(["a", "b", "c"])[y], np.arange(len(y))
    forest = RandomForestClassifier(4, random_state=0).fit(X, names)
    assert evidence_of(forest, X, names).sample_weight is None
    evidence = evidence_of(forest, X, kind(names), sample_weight=kind(weight))
    np.testing.assert_array_equal(evidence.target, y)
    np.testing.assert_array_equal(evidence.sample_weight, weight)
    assert evidence.sample_weight.dtype == np.float64
    category = pd.Series(names).astype("category")
    np.testing.assert_array_equal(evidence_of(forest, X, category).target, y)
