"""What members' votes alone tell of their risk, on rows that carry no label."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_wine, make_friedman1
from sklearn.ensemble import BaggingRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import Ridge

from sparsebag import compress
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import take_rows
from sparsebag.objective.full_vote_risk import FullVoteRisk
from sparsebag.objective.pair_shrinkage import Effects
from sparsebag.objective.vote_disagreement import VoteDisagreement, measure_disagreement
from sparsebag.selection.cross_fit import cross_fit
from sparsebag.selection.disagreement import rows_to_ask, vote_disagreement
from sparsebag.weighting import disagreement_of

N = 60


def forest_problem(seed=0, n_rows=300):
    X, y = make_friedman1(n_rows + 3000, noise=1.0, random_state=seed)
    forest = RandomForestRegressor(N, random_state=seed).fit(X[:n_rows], y[:n_rows])
    return forest, X[:n_rows], y[:n_rows], X[n_rows:], y[n_rows:]


def risk_matrix(pool, X, y):
    wrong = np.stack([y - member.predict(pool.prepare(X)) for member in pool.members])
    return wrong @ wrong.T / len(y)


def test_the_risk_matrix_is_disagreement_and_one_number_a_member():
    """G_jl − G_jj/2 − G_ll/2 has no u left in it: it is C's, exactly, on the same rows."""
    forest, _, _, X, y = forest_problem()
    pool = read_ensemble(forest)
    G = risk_matrix(pool, X, y)
    C = vote_disagreement(pool, [pool.prepare(X)]).matrix
    apart = np.diag(G)[:, None] + np.diag(G)[None, :] - 2 * G  # E (f_j − f_l)²
    found = np.diag(C)[:, None] + np.diag(C)[None, :] - 2 * C
    spread = np.trace(G) / N - (G.sum() - np.trace(G)) / (N * (N - 1))
    assert_allclose(spread * found, apart, rtol=1e-3, atol=1e-3 * apart.max())


def test_blocks_do_not_matter():
    forest, X, *_ = forest_problem()
    pool = read_ensemble(forest)
    rows = pool.prepare(X)
    whole, parts = (
        vote_disagreement(pool, blocks).matrix for blocks in ([rows], np.array_split(rows, 7))
    )
    assert_allclose(whole, parts, atol=1e-5)


def test_large_targets_are_not_blurred():
    forest, X, *_ = forest_problem()
    pool = read_ensemble(forest)

    def plus(shift):
        members = [
            replace(m, leaf_values=m.estimator.tree_.value[:, :, 0] + shift) for m in pool.members
        ]
        moved = replace(pool, members=tuple(members))
        return vote_disagreement(moved, [pool.prepare(X)]).matrix

    assert_allclose(plus(0.0), plus(1e9), atol=1e-4)


def test_many_classes_count_every_class():
    X, y = load_wine(return_X_y=True)
    forest = RandomForestClassifier(12, random_state=0).fit(X, y)
    pool = read_ensemble(forest)
    votes = np.stack([tree.predict_proba(X.astype(np.float32)) for tree in forest.estimators_])
    away = (votes - votes.mean(axis=0)).reshape(12, -1)
    wanted = VoteDisagreement.of(away @ away.T).matrix
    assert_allclose(vote_disagreement(pool, [pool.prepare(X)]).matrix, wanted, atol=1e-5)


def test_pair_effects_are_what_is_left_of_rows_and_columns():
    rng = np.random.default_rng(0)
    away = rng.normal(size=(40, 7))
    said = VoteDisagreement.of(away.T @ away)
    assert_allclose(said.matrix.sum(axis=0), 0, atol=1e-10)
    assert_allclose(said.pair.sum(axis=0), 0, atol=1e-10)
    assert_allclose(np.diag(said.pair), 0)
    off = said.matrix[~np.eye(7, dtype=bool)]
    assert np.diag(said.matrix).mean() - off.mean() == pytest.approx(1)


@pytest.mark.parametrize("products", [np.zeros((5, 5)), np.ones((2, 2))])
def test_members_that_all_say_the_same_tell_nothing(products):
    assert VoteDisagreement.of(products) is None


def clustered(rng, n=80):
    """Two camps; the smaller one is right where they differ."""
    camp = np.where(np.arange(n) < n // 4, 1.0, -1.0)
    away = camp[:, None] * rng.normal(size=500) + rng.normal(size=(n, 500))
    return VoteDisagreement.of(np.cov(away)), -camp


def test_members_that_vote_alike_lend_each_other_their_evidence():
    rng = np.random.default_rng(1)
    said, real = clustered(rng)
    real = 0.02 * (real - real.mean())
    nothing = np.zeros_like(said.matrix)
    folds = [
        Effects(real - said.own / (len(real) - 2) + 0.3 * rng.normal(size=len(real)), nothing, real)
        for _ in range(10)
    ]
    shrinkage = measure_disagreement(folds, 1.0, said, overlap=0.37)
    mean = Effects(np.mean([f.company for f in folds], axis=0), nothing, real)
    deviation = shrinkage.deviation_matrix(mean)
    found = (np.diag(deviation) - shrinkage.scale * said.own) / 2
    measured = mean.company + said.own / (len(real) - 2)
    assert np.corrcoef(found, real)[0, 1] > 0.9
    assert np.corrcoef(measured, real)[0, 1] < 0.5  # by itself nobody's evidence suffices


def test_equal_weights_collect_nothing_surely():
    said, _ = clustered(np.random.default_rng(2))
    n = len(said.matrix)
    rng = np.random.default_rng(3)
    folds = [Effects(0.1 * rng.normal(size=n), np.zeros((n, n)), np.zeros(n)) for _ in range(5)]
    shrinkage = measure_disagreement(folds, 1.0, said, overlap=0.37)
    everyone, equal = np.arange(n), np.full(n, 1 / n)
    assert shrinkage.variance_of(everyone, equal, n) == pytest.approx(0, abs=1e-8)
    few = shrinkage.variance_of(np.arange(5), np.full(5, 0.2), n)
    more = shrinkage.variance_of(np.arange(40), np.full(40, 1 / 40), n)
    assert few > more > 0


def test_chosen_trees_do_better_for_knowing_how_they_differ():
    """The point of it all, on rows nobody has seen: mean over a few forests."""
    ratios = []
    for seed in range(6):
        forest, X, y, X_new, y_new = forest_problem(seed)
        pool = read_ensemble(forest)
        evidence = collect_evidence(pool, X, y)
        G = risk_matrix(pool, X_new, y_new)
        asked = disagreement_of(pool, X, evidence)
        risks = []
        for disagreement in (None, asked):
            path = cross_fit(FullVoteRisk(evidence), 20, disagreement=disagreement)
            w = path.points[9].spread(N)
            risks.append(w @ G @ w)
        ratios.append(risks[1] / risks[0])
    assert np.mean(ratios) < 1.0


def test_the_result_is_the_same_every_time():
    forest, X, y, *_ = forest_problem()
    first, second = (
        compress(forest, X, y, max_estimators=7, tolerance=None, refine=None) for _ in range(2)
    )
    assert_allclose(first.weights_, second.weights_, atol=0)


def test_only_trees_with_known_bags_are_asked():
    X, y = make_friedman1(120, random_state=0)
    ridges = read_ensemble(BaggingRegressor(Ridge(), 5, random_state=0).fit(X, y))
    assert disagreement_of(ridges, X, collect_evidence(ridges, X, y)) is None
    forest, X, y, *_ = forest_problem()
    pool = read_ensemble(forest)
    held_out = collect_evidence(pool, X[::-1], y[::-1], source="holdout")
    assert disagreement_of(pool, X, held_out) is None


def test_wide_rows_are_made_in_blocks(monkeypatch):
    forest, X, y, *_ = forest_problem()
    pool = read_ensemble(forest)
    evidence = collect_evidence(pool, X, y)
    monkeypatch.setattr("sparsebag.weighting.MOST_DENSE_ENTRIES", 2000)
    asked = disagreement_of(pool, take_rows(X, slice(None)), evidence)
    assert asked is not None
    assert np.all(np.isfinite(asked.matrix))


def test_cost_is_bounded():
    for n, classes in ((100, None), (500, 2), (2000, 2), (500, 26), (20_000, 100)):
        rows = rows_to_ask(n, classes)
        planes = classes if classes and classes > 2 else 1
        assert rows == 1 or rows * n <= 4e6
        assert rows == 1 or rows * n**2 * planes <= 1e10
