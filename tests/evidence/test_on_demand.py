"""Class votes of members that are no trees are predicted again rather than stored."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

import sparsebag as sb
from evidence.votes import classes, evidence_of
from sparsebag.evidence import collect
from sparsebag.evidence.on_demand import OnDemandVotes
from sparsebag.judge.out_of_bag import row_risks
from sparsebag.objective.full_vote_risk import pair_moments, pair_row_weight


def bag(n_members=7):
    return BaggingClassifier(LogisticRegression(), n_members, max_features=0.7, random_state=0)


@pytest.fixture
def both(monkeypatch):
    """The same evidence, stored and on demand."""
    X, y = classes(4, n_rows=90)
    model = bag().fit(X, y)
    stored = evidence_of(model, X, y, class_votes=True, dtype=np.float64)
    monkeypatch.setattr(collect, "MOST_CLASS_VOTES", 0)
    demanded = evidence_of(model, X, y, class_votes="on_demand", dtype=np.float64, n_jobs=2)
    assert isinstance(demanded.class_votes, OnDemandVotes)
    return stored, demanded


def same(stored, demanded):
    assert len(stored.class_votes) == len(demanded.class_votes)
    for plane, again in zip(stored.class_votes, demanded.class_votes, strict=True):
        np.testing.assert_allclose(again.toarray(), plane.toarray(), rtol=1e-13)


def test_planes_are_those_that_would_be_stored(both):
    same(*both)


def test_rows_and_members_can_be_taken_in_any_order(both):
    rows, members = np.array([5, 3, 60, 4]), np.array([6, 0, 2])
    cut = [e.take(rows).take_members(members).take(slice(1, None)) for e in both]
    assert cut[1].class_votes.shape == (3, 3)
    same(*cut)


def test_the_risk_of_pairs_and_rows_is_the_same(both):
    stored, demanded = (pair_moments(e, pair_row_weight(e), floor=1e-3).matrix() for e in both)
    np.testing.assert_allclose(demanded, stored, rtol=1e-10)
    weights = [np.full(7, 1 / 7), np.arange(7) / 21]
    stored, demanded = (row_risks(e, weights, 1e-3) for e in both)
    np.testing.assert_allclose(demanded, stored, rtol=1e-10)


def test_a_block_is_predicted_once_for_all_classes(both, monkeypatch):
    votes, calls = both[1].class_votes, []
    member = type(votes._pool.members[0])
    own = member.predict_proba
    monkeypatch.setattr(
        member, "predict_proba", lambda self, *a: (calls.append(1), own(self, *a))[1]
    )
    rows = np.arange(90)
    for plane in votes:
        plane[rows]
    assert len(calls) == len(votes._pool.members)


def test_planes_are_stored_only_where_needed_and_small(monkeypatch):
    X, y = classes(4)
    forest = RandomForestClassifier(6, random_state=0).fit(X, y)
    assert evidence_of(forest, X, y).class_votes is None
    for dtype in (np.float32, np.float64):
        evidence = evidence_of(forest, X, y, class_votes=True, dtype=dtype)
        assert {plane.dtype for plane in evidence.class_votes} == {np.dtype(dtype)}
        stored = sum(plane.nnz for plane in evidence.class_votes)
        assert stored == evidence.oob_mask.sum()  # fully grown: one class a leaf
    small = evidence_of(bag().fit(X, y), X, y, class_votes="on_demand").class_votes
    monkeypatch.setattr(collect, "MOST_CLASS_VOTES", 0)
    of_trees = evidence_of(forest, X, y, class_votes="on_demand").class_votes
    assert all(sp.issparse(plane) for plane in (*small, *of_trees))
    two = RandomForestClassifier(4, random_state=0).fit(X, y > 1)
    assert evidence_of(two, X, y > 1, class_votes=True).class_votes is None


def test_compress_never_holds_the_tensor(monkeypatch):
    monkeypatch.setattr(collect, "MOST_CLASS_VOTES", 0)
    n_classes, n_members = 12, 60
    X, y = classes(n_classes, n_rows=20_000)
    model = BaggingClassifier(GaussianNB(), n_members, max_features=0.5, random_state=0).fit(X, y)
    tensor = len(y) * n_members * n_classes * 4
    tracemalloc.start()
    try:
        small = sb.compress(model, X, y, max_estimators=5, tolerance=None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert small.n_active_ <= 5
    assert peak < tensor, f"{peak / tensor:.2f} of the tensor"
