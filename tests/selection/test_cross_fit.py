"""A path's risk as judged on rows its weights were not fitted on."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.objective.full_vote_risk import Exchangeable, FullVoteRisk
from sparsebag.objective.pair_shrinkage import Shrinkage, effects_of
from sparsebag.selection.cross_fit import (
    LEAST_SLOPE,
    MOST_SLOPE,
    cross_fit,
    slope_on_made_up_rows,
)
from sparsebag.selection.disagreement import left_over
from sparsebag.selection.path import budget_path
from sparsebag.selection.row_risks import RowRisks

N, M = 60, 300


def members(skill, seed, n_rows=M, holdout=False):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=n_rows)
    votes = target[:, None] + skill * rng.normal(size=(n_rows, N))
    votes += 0.5 * rng.normal(size=(n_rows, 1))
    mask = None if holdout else rng.random(votes.shape) < 0.37
    votes = votes if mask is None else votes * mask
    return FullVoteRisk(OOBEvidence(votes, mask, target, "regression"))


def in_sample_gain(risk, k):
    """What a path fitted to the matrix as measured seems to gain, judged by the same matrix."""
    moments = risk.moments()
    deviation = Shrinkage.none().deviation_matrix(effects_of(moments))
    mean = moments.exchangeable()
    matrix = deviation + mean.pair
    np.fill_diagonal(matrix, np.diag(deviation) + mean.own)
    w = budget_path(matrix, k)[k - 1].spread(N)
    return w @ deviation @ w


def test_members_that_differ_by_luck_alone_gain_nothing():
    seeming, reported, uncertain = [], [], []
    for seed in range(6):
        risk = members(np.ones(N), seed)
        path = cross_fit(risk, 10)
        seeming.append(in_sample_gain(risk, 10))
        reported.append(path.gain[9])
        uncertain.append(path.gain_error[9])
    assert np.mean(seeming) < -0.1  # a seventh of the risk, and all of it luck
    assert abs(np.mean(reported)) < 0.12 * abs(np.mean(seeming))
    assert abs(np.mean(reported)) < 2 * np.mean(uncertain) + 0.005


def test_differences_that_are_real_are_reported_and_true():
    skill = np.linspace(0.4, 2.5, N)
    path = cross_fit(members(skill, 0), 10)
    for k in (3, 5, 10):
        w = path.points[k - 1].spread(N)
        truth = 0.25 + np.sum((w * skill) ** 2)  # of the population the votes were drawn from
        assert path.gain[k - 1] < -0.05
        assert path.expected()[k - 1] == pytest.approx(truth, rel=0.15)
        assert abs(path.expected()[k - 1] - truth) < 3 * path.error_of()[k - 1]


def test_the_result_does_not_depend_on_when_it_is_asked_for():
    risk = members(np.linspace(0.5, 1.5, N), 1)
    one, two, other = cross_fit(risk, 8), cross_fit(risk, 8), cross_fit(risk, 8, seed=1)
    assert_array_equal(one.expected(), two.expected())
    assert_array_equal(one.error_of(), two.error_of())
    for a, b in zip(one.points, two.points, strict=True):
        assert_array_equal(a.weights, b.weights)
    assert not np.array_equal(one.expected(), other.expected())  # other folds


def test_the_whole_ensembles_risk_is_the_random_ks():
    path = cross_fit(members(np.ones(N), 2, holdout=True), 5)
    assert path.full_risk == pytest.approx(path.random.random_k(N))
    assert path.full_error > 0
    assert path.full_risk == pytest.approx(0.25 + 1 / N, abs=4 * path.full_error)


def test_its_error_falls_with_the_number_of_rows():
    few, many = (cross_fit(members(np.ones(N), 3, n_rows=m), 5) for m in (150, 2400))
    assert few.full_error / many.full_error == pytest.approx(4, rel=0.3)
    assert few.error_of()[4] > many.error_of()[4]


def test_the_error_of_a_difference_is_less_than_that_of_either():
    path = cross_fit(members(np.ones(N), 4), 30)
    assert path.error_of(1.0)[-1] < 0.5 * path.error_of()[-1]  # the same rows are in both


def test_row_covariance_is_that_of_the_weighted_means():
    rng = np.random.default_rng(0)
    own, pair = rng.normal(size=(2, 50))
    covariance = RowRisks(own, pair, np.full(50, 1 / 50)).covariance()
    assert covariance[0, 0] == pytest.approx(np.var(own, ddof=1) / 50)
    assert covariance[0, 1] == pytest.approx(np.cov(own, pair)[0, 1] / 50)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 5])
def test_a_handful_of_rows_is_judged_without_breaking(n_rows):
    path = cross_fit(members(np.ones(N), 0, n_rows=n_rows, holdout=True), 5)
    assert len(path.points) == 5
    assert np.isfinite(path.expected()).all()
    assert np.isfinite(path.error_of()).all()


def test_one_fold_that_says_it_all_is_not_trusted():
    """Members that differ on two rows only: the other folds predict nothing."""
    target = np.zeros(40)
    votes = np.zeros((40, 6))
    votes[:2, 0] = 5.0
    path = cross_fit(FullVoteRisk(OOBEvidence(votes, None, target, "regression")), 6)
    assert np.isfinite([path.slope, path.slope_error]).all()
    assert np.isfinite(path.error_of()).all()


def test_long_paths_are_thinned_and_keep_their_ends():
    rng = np.random.default_rng(0)
    votes = rng.normal(size=(100, 150))
    risk = FullVoteRisk(OOBEvidence(votes, None, np.zeros(100), "regression"))
    sizes = [len(point.members) for point in cross_fit(risk, 140, n_folds=2).points]
    assert sizes[:64] == list(range(1, 65))
    assert sizes[-1] == 140
    assert len(sizes) < 95


def test_less_of_the_promised_gain_is_kept_where_noise_rules():
    noisy = [slope_on_made_up_rows(Exchangeable(own=0.2 + a, pair=0.2)) for a in (0.1, 0.2, 0.3)]
    assert LEAST_SLOPE == noisy[0] < noisy[1] < noisy[2] < MOST_SLOPE
    assert slope_on_made_up_rows(Exchangeable(own=1.0, pair=0.1)) == MOST_SLOPE
    assert slope_on_made_up_rows(Exchangeable(own=1.0, pair=0.0)) == MOST_SLOPE
    assert slope_on_made_up_rows(Exchangeable(own=0.2, pair=0.2)) == LEAST_SLOPE
    assert slope_on_made_up_rows(Exchangeable(own=2e-9, pair=1e-9)) == pytest.approx(
        slope_on_made_up_rows(Exchangeable(own=2e9, pair=1e9))
    )


def test_trees_that_stop_early_keep_most_of_their_gain():
    noisy = Exchangeable(own=0.24, pair=0.2)
    assert slope_on_made_up_rows(noisy) == LEAST_SLOPE
    half, blunt = (slope_on_made_up_rows(noisy, left) for left in (0.1, 0.5))
    assert LEAST_SLOPE < half < blunt == pytest.approx(0.75)
    clean = Exchangeable(own=0.3, pair=0.1)
    assert slope_on_made_up_rows(clean, 0.5) == slope_on_made_up_rows(clean)


def test_what_leaves_leave_over():
    X, y = load_breast_cancer(return_X_y=True)
    shares = []
    for depth in (1, 3, None):
        forest = RandomForestClassifier(10, max_depth=depth, random_state=0).fit(X, y)
        shares.append(left_over(read_ensemble(forest)))
    assert shares[0] > shares[1] > 0.05
    assert shares[2] == 0.0
