"""Votes of the deployed number of members: how many, whose, and what they are good for."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.refine.size_matched import (
    draw_voters,
    finished_votes,
    size_matched_evidence,
    size_matched_votes,
)
from sparsebag.refine.temperature import fit_temperature


def made_up(n_rows=60, n_members=30, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    votes = rng.dirichlet(np.ones(n_classes), (n_rows, n_members))
    return votes, rng.random((n_rows, n_members)) < 0.37


@settings(max_examples=60, deadline=None)
@given(
    size=st.floats(1.0, 20.0),
    n_members=st.integers(1, 12),
    survivors=st.integers(0, 15),
    seed=st.integers(0, 10**6),
)
def test_voters_are_distinct_out_of_bag_and_as_many_as_deployed(size, n_members, survivors, seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((25, n_members)) < 0.5
    mask[:, 0] |= ~mask.any(axis=1)
    weights = rng.dirichlet(np.ones(survivors)) + 1e-9 if survivors else None
    voters, share = draw_voters(mask, size, rng, weights)
    assert np.allclose(share.sum(axis=1), 1.0)
    for row in range(25):
        own = voters[row, share[row] > 0.0]
        assert mask[row, own].all()
        assert len(set(own)) == len(own)
        available = mask[row].sum()
        assert min(np.floor(size), available) <= len(own) <= min(np.ceil(size), available)


def test_a_fraction_is_drawn_by_chance():
    rng = np.random.default_rng(0)
    _, share = draw_voters(np.ones((4000, 9), bool), 2.4, rng)
    number = (share > 0.0).sum(axis=1)
    assert set(number) == {2, 3}
    assert abs(number.mean() - 2.4) < 0.03


def test_survivors_weights_are_all_given_out():
    weights = np.array([0.5, 0.3, 0.2])
    rng = np.random.default_rng(0)
    voters, share = draw_voters(np.ones((3000, 8), bool), 3, rng, weights)
    assert np.allclose(np.sort(share, axis=1), np.sort(weights))
    # in random order, to every member alike
    largest = np.bincount(voters[np.arange(3000), share.argmax(axis=1)], minlength=8)
    assert largest.min() > 0.75 * 3000 / 8


def test_the_mean_is_that_of_all_voters_and_the_spread_that_of_as_many():
    votes, mask = made_up(n_rows=3, n_members=40)
    mask[:] = True
    drawn = size_matched_votes(votes, mask, 10, draws=4000)
    for row in range(3):
        of_row = drawn.votes[drawn.row == row]
        assert np.abs(of_row.mean(axis=0) - votes[row].mean(axis=0)).max() < 0.01
        # without replacement: variance / size, less what the pool leaves out
        expected = votes[row].var(axis=0, ddof=1) * (1 / 10 - 1 / 40)
        assert np.allclose(of_row.var(axis=0), expected, rtol=0.15)


def test_a_seed_decides():
    votes, mask = made_up()
    first, same, other = (size_matched_votes(votes, mask, 5, seed=s) for s in (3, 3, 4))
    assert np.array_equal(first.votes, same.votes)
    assert not np.array_equal(first.votes, other.votes)


def test_rows_nobody_has_out_of_bag_are_left_out():
    votes, mask = made_up()
    mask[7] = False
    votes[~mask] = np.nan  # nothing in the bag is read
    drawn = size_matched_votes(votes, mask, 5, draws=2)
    assert 7 not in drawn.row
    assert len(drawn.votes) == 2 * 59
    assert np.isfinite(drawn.votes).all()


def test_fewer_voters_than_asked_for_all_vote():
    votes, mask = made_up()
    mask[0], mask[0, [3, 5]] = False, True
    drawn = size_matched_votes(votes, mask, 20, draws=1)
    assert np.allclose(drawn.votes[0], votes[0, [3, 5]].mean(axis=0))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_from_evidence_it_is_the_same(n_classes, monkeypatch):
    votes, mask = made_up(n_classes=n_classes)
    target = np.random.default_rng(1).integers(0, n_classes, 60)
    votes = np.where(mask[:, :, None], votes, 0.0)
    evidence = OOBEvidence(
        np.take_along_axis(votes, target[:, None, None], axis=2)[:, :, 0],
        mask,
        target,
        "classification",
        classes=np.arange(n_classes),
        class_votes=None if n_classes == 2 else tuple(votes[:, :, c] for c in range(n_classes)),
    )
    whole = size_matched_votes(votes, mask, 4, weights=np.array([0.4, 0.3, 0.2, 0.1]))
    streamed = size_matched_evidence(evidence, 4, weights=np.array([0.4, 0.3, 0.2, 0.1]))
    assert np.allclose(whole.votes, streamed.votes)
    assert np.array_equal(whole.row, streamed.row)
    monkeypatch.setattr("sparsebag.refine.size_matched.BLOCK_ELEMENTS", 7 * 30 * n_classes)
    in_blocks = size_matched_evidence(evidence, 30, draws=2)
    assert np.allclose(in_blocks.votes[:60], in_blocks.votes[60:])  # all voters: no chance
    assert np.array_equal(in_blocks.row, np.tile(np.arange(60), 2))
    some = size_matched_evidence(evidence, 4, most_rows=20, draws=1)
    assert len(set(some.row)) == len(some.votes) == 20


def test_clear_sentences():
    votes, mask = made_up()
    with pytest.raises(ValueError, match="size must be a number of members, at least 1, not 0"):
        size_matched_votes(votes, mask, 0)
    with pytest.raises(ValueError, match="draws must be at least 1"):
        size_matched_votes(votes, mask, 3, draws=0)
    with pytest.raises(ValueError, match="weights must be those of the survivors"):
        size_matched_votes(votes, mask, 3, weights=np.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"mask has shape \(60,\)"):
        size_matched_votes(votes, mask[:, 0], 3)
    with pytest.raises(ValueError, match=r"must have shape \(rows, members, C\)"):
        size_matched_votes(mask, mask, 3)
    with pytest.raises(ValueError, match="no row is out of bag for any member"):
        size_matched_votes(votes, np.zeros_like(mask), 3)
    regression = OOBEvidence(np.ones((4, 2)), None, np.ones(4), "regression")
    with pytest.raises(ValueError, match="only the votes of classifiers"):
        size_matched_evidence(regression, 2)
    three = OOBEvidence(np.ones((4, 2)), None, np.zeros(4, int), "classification", None, np.eye(3))
    with pytest.raises(ValueError, match="holds only the true class's votes"):
        size_matched_evidence(three, 2)


def test_votes_below_nothing_are_clipped():
    out = finished_votes(np.array([[1.2, -0.2, 0.0], [-1.0, -1.0, -1.0]]), 0.3)
    assert np.allclose(out, [[0.8, 0.1, 0.1], [1 / 3, 1 / 3, 1 / 3]])


# -- the trap ----------------------------------------------------------------------------------


@cache
def digits():
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))  # the file is sorted by writer
    X, y = X[rows], y[rows]
    forest = RandomForestClassifier(100, random_state=0).fit(X[:900], y[:900])
    pool = read_ensemble(forest)
    return pool, collect_evidence(pool, X[:900], y[:900], class_votes=True), X[900:], y[900:]


def at_temperature(votes, target, temperature):
    scaled = votes ** (1.0 / temperature)
    scaled /= scaled.sum(axis=1, keepdims=True)
    return float(-np.log(scaled[np.arange(len(target)), target]).mean())


@pytest.mark.parametrize("k", [10, 20])
def test_a_temperature_must_be_fitted_at_the_deployed_size(k):
    pool, evidence, X_test, y_test = digits()
    deployed = finished_votes(
        np.mean([m.predict_proba(pool.prepare(X_test), 10) for m in pool.members[:k]], axis=0), 1e-3
    )
    target = np.asarray(evidence.target)
    own = size_matched_evidence(evidence.take_members(np.arange(k)), k, draws=1)
    matched = size_matched_evidence(evidence, k)
    fitted = {
        name: fit_temperature(
            finished_votes(found.votes, 1e-3), target[found.row], np.ones(len(found.row))
        ).temperature
        for name, found in (("own", own), ("matched", matched))
    }
    best = fit_temperature(deployed, y_test, np.ones(len(y_test))).temperature
    # The survivors' own out-of-bag votes are 0.37 k and look too sure of themselves.
    assert abs(np.log(fitted["own"] / best)) > 2.0 * abs(np.log(fitted["matched"] / best))
    loss = {name: at_temperature(deployed, y_test, t) for name, t in fitted.items()}
    plain, least = at_temperature(deployed, y_test, 1.0), at_temperature(deployed, y_test, best)
    assert loss["matched"] < loss["own"]
    assert loss["matched"] < least + 0.1 * (plain - least)
