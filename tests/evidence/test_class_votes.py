"""Every class's votes, for losses that read them: equal to the dense tensor, made without it."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from evidence.votes import classes, evidence_of

ENSEMBLES = {
    "forest": RandomForestClassifier(7, max_depth=4, random_state=0),
    "logistic": BaggingClassifier(LogisticRegression(), 7, random_state=0),
    "votes": BaggingClassifier(LinearSVC(), 7, max_features=0.6, random_state=0),
    "neighbours": BaggingClassifier(KNeighborsClassifier(), 7, max_samples=8, random_state=0),
}


def dense_tensor(model, X, y):
    """Member by member, row by row, as one would write it down."""
    tensor = np.zeros((len(y), len(model.estimators_), len(model.classes_)))
    columns = getattr(model, "estimators_features_", None)
    for j, member in enumerate(model.estimators_):
        block = X if columns is None else X[:, columns[j]]
        known = np.arange(len(model.classes_)) if columns is None else member.classes_
        votes = not hasattr(member, "predict_proba")
        answers = member.predict(block) if votes else member.predict_proba(block)
        for i in set(range(len(y))) - set(model.estimators_samples_[j].tolist()):
            if votes:
                tensor[i, j, answers[i]] = 1.0
            else:
                tensor[i, j, known] = answers[i]
    return tensor


@pytest.mark.parametrize("ensemble", ENSEMBLES)
def test_planes_are_the_dense_tensor(ensemble):
    X, y = classes(4, n_rows=80)
    model = ENSEMBLES[ensemble].fit(X, y)
    evidence = evidence_of(model, X, y, class_votes=True, dtype=np.float64, block_rows=11)
    tensor = dense_tensor(model, X, y)
    assert len(evidence.class_votes) == 4
    for c, plane in enumerate(evidence.class_votes):
        assert isinstance(plane, sp.csr_array)
        assert plane.has_canonical_format
        np.testing.assert_allclose(plane.toarray(), tensor[:, :, c], rtol=1e-13)
    true = np.take_along_axis(tensor, y[:, None, None], axis=2)[:, :, 0]
    np.testing.assert_allclose(evidence.votes, true, rtol=1e-13)


def test_two_classes_need_no_planes():
    X, y = classes(2)
    forest = RandomForestClassifier(4, random_state=0).fit(X, y)
    assert evidence_of(forest, X, y, class_votes=True).class_votes is None


def test_planes_are_kept_only_if_asked_for():
    X, y = classes(3)
    forest = RandomForestClassifier(4, random_state=0).fit(X, y)
    assert evidence_of(forest, X, y).class_votes is None


def test_planes_follow_the_votes_precision():
    X, y = classes(3)
    forest = RandomForestClassifier(4, random_state=0).fit(X, y)
    for dtype in (np.float32, np.float64):
        evidence = evidence_of(forest, X, y, class_votes=True, dtype=dtype)
        assert {plane.dtype for plane in evidence.class_votes} == {np.dtype(dtype)}


def test_a_pure_leafs_zeros_are_not_stored():
    X, y = classes(4)
    forest = RandomForestClassifier(6, random_state=0).fit(X, y)
    evidence = evidence_of(forest, X, y, class_votes=True)
    stored = sum(plane.nnz for plane in evidence.class_votes)
    assert stored == evidence.oob_mask.sum()  # fully grown: one class a leaf
