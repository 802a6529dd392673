"""Scores of all members from those out of bag, stretched, and the share of a gain they leave."""

from dataclasses import replace

import numpy as np

from sparsebag.refine.deployed_size import at_deployed_size, deployed, out_of_bag
from sparsebag.refine.local_weights import LocalEvidence


def evidence(n_rows=20000, k=12, out_of_bag_share=0.37, seed=0):
    """Members that know one side each, all of them as noisy."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 1))
    target = rng.integers(2, size=n_rows)
    knows = (X > 0) == (np.arange(k) % 2 == 0)
    of_true = np.where(knows, rng.beta(4, 2, (n_rows, k)), rng.beta(2, 2, (n_rows, k)))
    second = np.where(target[:, None] == 1, of_true, 1 - of_true)
    mask = rng.random((n_rows, k)) < out_of_bag_share
    mask[~mask.any(axis=1), 0] = True
    uniform = np.full(n_rows, 1 / n_rows)
    votes = np.stack([1 - second, second], axis=2)
    rows = LocalEvidence(X, votes, mask, target, uniform, np.full(k, 1 / k), True)
    own = np.where(knows, 1.9 / k, 0.1 / k)
    return rows, own / own.sum(axis=1, keepdims=True)


def test_scores_of_all_members_are_those_of_their_vote():
    rows, gated = evidence()
    whole = replace(rows, mask=np.ones_like(rows.mask), mass=0.0)
    for weights in (gated, np.tile(rows.base, (rows.n_rows, 1))):
        guessed, heard = deployed(rows, weights)
        true = out_of_bag(whole, weights)
        share = heard / heard.sum()
        assert abs(guessed.best(share) / true.best(rows.weight) - 1.0) < 0.03
        apart = share @ guessed.at_best(share) - rows.weight @ true.at_best(rows.weight)
        assert abs(apart) < 0.006


def test_all_that_is_gained_is_left_where_all_are_heard():
    rows, gated = evidence(2000, out_of_bag_share=1.1)
    saved = np.random.default_rng(1).normal(0.1, 1.0, rows.n_rows)
    gain, error = at_deployed_size(rows, gated, saved)
    np.testing.assert_allclose(gain, saved.mean(), rtol=0.05)
    assert 0.5 < error / (saved.std() / np.sqrt(rows.n_rows)) < 2.0


def test_a_loss_is_not_made_less():
    rows, gated = evidence(2000)
    saved = np.full(rows.n_rows, -0.1)
    np.testing.assert_allclose(at_deployed_size(rows, gated, saved)[0], -0.1)
