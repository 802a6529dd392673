"""Honest votes of refitted leaves: nothing of a row's target may come back to it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor

from grown_trees import KINDS, parts
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.refine.honest_votes import WINDOW, honest_votes
from sparsebag.refine.leave_one_out import leave_one_out_votes
from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.strength import judged_weight, row_moments
from sparsebag.refine.targets import Targets

LAMS = np.array([0.0, 0.5, 8.0])


def votes_of(kind, rows=None, members=None):
    routed, targets, evidence = parts(kind)
    rows = np.arange(0, evidence.n_rows, 5) if rows is None else rows
    members = np.arange(evidence.n_members) if members is None else members
    honest = honest_votes(evidence, routed, targets, rows=rows, members=members, lams=LAMS)
    return honest, routed, targets, evidence


@pytest.mark.parametrize("kind", KINDS)
def test_without_predictions_it_is_the_leave_one_out_vote(kind):
    honest, routed, targets, _ = votes_of(kind)
    for t in (0, 7):
        seen = np.flatnonzero(honest.mask[:, t])
        for lam in LAMS:
            expected = leave_one_out_votes(routed, targets, t, honest.rows[seen], lam)
            assert_allclose(honest.votes(0.0, lam)[seen, t], expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["regression", "multiclass"])
def test_votes_are_linear_in_the_strength(kind):
    honest, *_ = votes_of(kind)
    at = [honest.votes(a, 0.5) for a in (0.0, 1.0, 0.3)]
    assert_allclose(at[2], 0.7 * at[0] + 0.3 * at[1], atol=1e-5)


@pytest.mark.parametrize("kind", ["noisy regression", "binary"])
def test_predictions_are_those_of_trees_that_have_both_rows_out_of_bag(kind):
    """One vote, the slow way: leaf mates, each predicted by the trees out of bag for both."""
    honest, routed, targets, evidence = votes_of(kind)
    checked = 0
    for r, i in enumerate(honest.rows[:30]):
        for t in np.flatnonzero(honest.mask[r])[:4]:
            leaf, weight = routed.leaf(t), routed.weight(t)
            mates = np.flatnonzero(leaf == leaf[i])
            mates = mates[mates != i]
            if not 0 < len(mates) < WINDOW:
                continue
            total = 0.0
            for m in mates:
                both = evidence.oob_mask[i] & evidence.oob_mask[m]
                said = evidence.votes[m, both]
                if kind == "binary":
                    said = said if evidence.target[m] == 1 else 1 - said
                else:
                    said = (said - targets.centre) / targets.scale
                total += weight[m] * (said.mean() if both.any() else targets.predicted[m, 0])
            expected = total / weight[mates].sum()
            assert honest.of_predictions[r, t, 0, 0] == pytest.approx(expected, abs=1e-4)
            checked += 1
    assert checked > 10


def test_a_rows_own_target_never_comes_back_to_it():
    """Change one target, and everything derived from it but the trees: its votes stay."""
    _, targets, evidence = parts("noisy regression")
    routed, _, _ = parts("noisy regression")
    row = np.array([17])
    everyone = np.arange(evidence.n_members)
    how = {"rows": row, "members": everyone, "lams": LAMS}
    before = honest_votes(evidence, routed, targets, **how)
    other = targets.observed.copy()
    other[17] += 100.0
    changed = Targets(other, targets.predicted, targets.centre, targets.scale, None)
    after = honest_votes(evidence, routed, changed, **how)
    assert_allclose(after.votes(1.0, 0.5), before.votes(1.0, 0.5), atol=1e-4)


def test_plain_out_of_bag_is_a_trap():
    """Leaves that have seen a row flatter themselves on it, though it is out of the tree's bag.

    Relative to the whole ensemble's risk, the honest estimate is what new rows show, at every
    strength; the plain out-of-bag estimate of the very same leaves is far too low, and the more
    so the less is averaged, so that it picks a strength that is the worst on new rows.
    """
    X, y = make_friedman1(3400, noise=10.0, random_state=0)
    train, test = np.arange(400), np.arange(400, 3400)
    forest = RandomForestRegressor(100, random_state=0).fit(X[train], y[train])
    pool = read_ensemble(forest)
    evidence = collect_evidence(pool, X[train], y[train])
    routed = RoutedRows(pool, pool.prepare(X[train]))
    targets = Targets.of(evidence)
    everyone = np.arange(100)
    lams = np.array([0.0])
    honest = honest_votes(evidence, routed, targets, rows=train, members=everyone, lams=lams)
    weight = judged_weight(honest, None)
    truth = targets.observed[:, None, :]

    def risk(votes):
        return row_moments(honest.mask, truth - votes, truth - votes).at(0.01, weight)

    def deployed(values):
        said = np.mean([v[leaf, 0] for v, leaf in zip(values, leaves, strict=True)], axis=0)
        return np.mean((y[test] - targets.centre - targets.scale * said) ** 2)

    leaves = [tree.apply(X[test].astype(np.float32)) for tree in forest.estimators_]
    whole_oob, whole_new = risk(honest.plain), np.mean((y[test] - forest.predict(X[test])) ** 2)
    strengths = (-0.75, -0.25, 0.25, 0.75)
    tables = {a: [targets.leaf_table(routed, t, a, 0.0) for t in everyone] for a in strengths}
    new = np.array([deployed(tables[a]) for a in strengths]) / whole_new
    fair = np.array([risk(honest.votes(a, 0.0)) for a in strengths]) / whole_oob
    trap = np.array(
        [
            risk(np.stack([v[routed.leaf(t)] for t, v in enumerate(tables[a])], axis=1))
            for a in strengths
        ]
    )
    trap = trap / whole_oob
    assert_allclose(fair, new, rtol=0.05)
    assert np.all(trap < 0.85 * new)
    assert np.argmin(fair) == np.argmin(new)
    assert np.argmin(trap) == np.argmax(new)


@pytest.mark.parametrize("kind", ["regression", "multiclass"])
def test_blocks_of_rows_do_not_change_the_votes(kind, monkeypatch):
    whole, *_ = votes_of(kind)
    monkeypatch.setattr("sparsebag.refine.honest_votes.BLOCK_ENTRIES", 3000)
    parts_, *_ = votes_of(kind)
    assert_allclose(parts_.votes(0.5, 0.5), whole.votes(0.5, 0.5), atol=1e-6)
