"""The full-vote risk against a double loop, a known truth, and other precisions and libraries."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import problems
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective import full_vote_risk
from sparsebag.objective.full_vote_risk import pair_moments, pair_row_weight

CASES = {
    "regression": {"loss": "squared_error"},
    "two classes": {"loss": "brier", "n_classes": 2},
    "four classes": {"loss": "brier", "n_classes": 4},
}


def residuals(evidence, floor=0.0):
    """Target minus vote, shape (M, N, C)."""
    votes = problems.every_vote(evidence)
    if evidence.task == "regression":
        return evidence.target[:, None, None] - votes
    c = evidence.n_classes
    return np.eye(c)[evidence.target][:, None, :] - (1 - floor) * votes - floor / c


def moments_of(evidence, floor=0.0):
    return pair_moments(evidence, pair_row_weight(evidence), floor=floor)


def by_double_loop(evidence, floor=0.0):
    """G, each product relative to its row's mean product, as the module's docstring has it."""
    e, n = residuals(evidence, floor), evidence.n_members
    mask = np.ones(e.shape[:2], bool) if evidence.oob_mask is None else evidence.oob_mask
    weight = np.ones(len(e)) if evidence.sample_weight is None else evidence.sample_weight
    weight = np.where(mask.sum(axis=1) >= 2, weight, 0.0)
    weight = weight / weight.sum()
    own, pair = np.zeros(len(e)), np.zeros(len(e))
    for i in np.flatnonzero(weight):
        seen = np.flatnonzero(mask[i])
        own[i] = np.mean([e[i, j] @ e[i, j] for j in seen])
        pair[i] = np.mean([e[i, j] @ e[i, k] for j in seen for k in seen if j != k])
    matrix = np.zeros((n, n))
    for j in range(n):
        for k in range(n):
            level = own if j == k else pair
            both = mask[:, j] & mask[:, k]
            product = np.array([e[i, j] @ e[i, k] for i in range(len(e))])
            deviation = np.sum((weight * (product - level))[both]) / np.sum(weight[both])
            matrix[j, k] = weight @ level + deviation
    return matrix


@pytest.mark.parametrize("floor", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holdout", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_matrix_is_that_of_a_double_loop(case, holdout, weighted, floor, monkeypatch):
    how = CASES[case] | {"weighted": weighted, "holdout": holdout}
    evidence = problems.evidence(**how, n_rows=60, n_members=6)
    matrix = moments_of(evidence, floor).matrix()
    wanted = by_double_loop(evidence, 0.0 if evidence.task == "regression" else floor)
    assert_allclose(matrix, wanted, rtol=1e-10)
    assert_allclose(matrix, matrix.T, rtol=1e-10)
    monkeypatch.setattr(full_vote_risk, "BLOCK_VOTES", 7 * evidence.n_members)  # of few rows
    if evidence.class_votes is not None:
        planes = tuple(sp.csr_array(plane) for plane in evidence.class_votes)
        evidence = replace(evidence, class_votes=planes)
    assert_allclose(moments_of(evidence, floor).matrix(), wanted, rtol=1e-10)


def test_what_lies_in_a_bag_is_not_read():
    evidence = problems.evidence("squared_error", n_rows=80)
    spoilt = np.where(evidence.oob_mask, evidence.votes, np.nan)
    same = moments_of(replace(evidence, votes=spoilt, is_zeroed=False))
    assert_array_equal(same.matrix(), moments_of(evidence).matrix())


def test_a_pair_never_out_of_bag_together_gets_the_mean_of_the_others():
    evidence = problems.evidence("squared_error", n_rows=100, n_members=6)
    mask = evidence.oob_mask.copy()
    mask[:, 1] &= ~mask[:, 0]
    moments = moments_of(replace(evidence, oob_mask=mask, is_zeroed=False))
    assert moments.counts[0, 1] == 0
    _, pair = moments.mean()
    assert moments.matrix()[0, 1] == moments.matrix()[1, 0] == pair
    others = moments.matrix()[np.triu_indices(6, 1)][1:]
    assert np.abs(others - pair).min() > 1e-4  # and only that pair does


def test_members_that_share_no_row_say_nothing():
    lonely = OOBEvidence(np.eye(4), np.eye(4) > 0, np.ones(4), "regression")
    with pytest.raises(ValueError, match=r"no two members share an out-of-bag row.*holdout"):
        pair_row_weight(lonely)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 6])
def test_the_random_k_risk_is_the_mean_over_all_subsets(k):
    evidence = problems.evidence("brier", n_members=6, holdout=True)
    moments = moments_of(evidence)
    matrix = moments.matrix()
    risks = [matrix[np.ix_(s, s)].mean() for s in map(list, combinations(range(6), k))]
    own, pair = moments.mean()
    assert pair + (own - pair) / k == pytest.approx(np.mean(risks), rel=1e-12)


def test_it_is_unbiased_where_the_out_of_bag_ratio_is_not():
    rng = np.random.default_rng(0)
    n_rows, n_members = 300, 100
    truth = rng.normal(size=n_rows)
    skill = rng.uniform(0.5, 1.5, n_members)
    shared = 0.4 * rng.normal(size=(n_rows, 1))
    votes = truth[:, None] + shared + skill * rng.normal(size=(n_rows, n_members))
    w = np.zeros(n_members)
    w[:5] = problems.interior_point(5)
    deployed = np.mean((votes @ w - truth) ** 2)
    full_vote, ratio = [], []
    for _ in range(100):
        mask = rng.random(votes.shape) < 0.37
        evidence = OOBEvidence(votes * mask, mask, truth, "regression")
        full_vote.append(w @ moments_of(evidence).matrix() @ w)
        voting = mask @ w > 0
        vote = ((votes * mask) @ w)[voting] / (mask @ w)[voting]
        ratio.append(np.mean((vote - truth[voting]) ** 2))
    assert np.mean(full_vote) == pytest.approx(deployed, rel=0.01)
    assert np.mean(ratio) > 1.3 * deployed
