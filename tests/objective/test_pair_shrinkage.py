"""What is real of the members' differences, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import problems
from sparsebag.objective.full_vote_risk import FullVoteRisk
from sparsebag.objective.pair_shrinkage import (
    PRIOR_COVARIANCE,
    Effects,
    Shrinkage,
    effects_of,
    measure_shrinkage,
)

N = 200


def noise(rng):
    pair = rng.normal(size=(N, N))
    pair = pair + pair.T
    np.fill_diagonal(pair, 0.0)
    return Effects(rng.normal(size=N), pair, rng.normal(size=N))


def kinds(effects):
    return effects.company, effects.pair, effects.alone


def plus(one, other, scale):
    return Effects(*(a + scale * b for a, b in zip(kinds(one), kinds(other), strict=True)))


def measured(folds):
    """Without the prior: what the folds alone say."""
    return measure_shrinkage(folds, 1.0, prior=np.zeros((2, 2)), prior_pair=0.0)


def test_noise_has_no_reliability():
    rng = np.random.default_rng(0)
    repeats = [measured([noise(rng) for _ in range(10)]) for _ in range(20)]
    assert np.mean([np.diag(r.of_member) for r in repeats]) < 0.1
    assert np.mean([r.of_pair for r in repeats]) < 0.02  # thousands of pairs tell


def test_what_every_fold_repeats_is_exact():
    shrinkage = measured([noise(np.random.default_rng(1))] * 10)
    assert_allclose(shrinkage.of_member, np.eye(2), atol=1e-8)
    assert_allclose(shrinkage.member_variance, 0, atol=1e-8)
    assert shrinkage.of_pair == pytest.approx(1)
    assert shrinkage.pair_variance == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_reliability_is_real_variance_over_total(scale):
    rng = np.random.default_rng(2)
    real = noise(rng)
    shrinkage = measured([plus(real, noise(rng), scale) for _ in range(10)])
    wanted = 1.0 / (1.0 + scale**2 / 10)
    assert_allclose(np.diag(shrinkage.of_member), wanted, atol=0.15)
    assert_allclose(np.diag(shrinkage.member_variance), 1 - wanted, rtol=0.4)
    assert shrinkage.of_pair == pytest.approx(wanted, abs=0.03)
    assert shrinkage.pair_variance == pytest.approx(2 * (1 - wanted), rel=0.2)


def test_who_does_well_alone_is_known_to_do_well_in_company():
    rng = np.random.default_rng(3)
    skill = rng.normal(size=N)
    nothing = np.zeros((N, N))
    folds = [
        Effects(0.2 * skill + rng.normal(size=N), nothing, skill + 0.1 * rng.normal(size=N))
        for _ in range(10)
    ]
    shrinkage = measured(folds)
    company = shrinkage.of_member[0] @ np.stack([np.zeros(N), skill])  # as measured alone
    assert np.corrcoef(company, skill)[0, 1] > 0.99
    assert np.std(company) == pytest.approx(0.2, abs=0.1)


@pytest.mark.parametrize("noisy", [True, False])
def test_the_prior_speaks_where_the_rows_cannot_tell(noisy):
    rng, spread = np.random.default_rng(5), 10.0
    real = 3.0 * rng.normal(size=(2, N))  # far more than the prior expects

    def fold():
        company, alone = real + (300.0 if noisy else 0.3) * rng.normal(size=(2, N))
        return Effects(company, np.zeros((N, N)), alone)

    repeats = [measure_shrinkage([fold() for _ in range(10)], spread) for _ in range(20)]
    share = np.mean([np.diag(r.of_member) for r in repeats], axis=0)
    unknown = np.mean([np.diag(r.member_variance) for r in repeats], axis=0)
    if noisy:
        assert np.all(share < 0.1)
        assert np.all(unknown >= 0.9 * np.diag(spread**2 * PRIOR_COVARIANCE))
    else:
        assert np.all(share > 0.95)
        assert_allclose(unknown, 0.3**2 / 10, rtol=0.1)


def test_one_fold_cannot_tell():
    shrinkage = measured([noise(np.random.default_rng(0))])
    assert not shrinkage.of_member.any()
    assert shrinkage.of_pair == 0


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.3, 0.2], [0.1] * 10], ids=len)
def test_the_variance_is_that_of_a_simulation(weights):
    rng, n = np.random.default_rng(4), 30
    covariance = np.array([[1.0, 0.8], [0.8, 2.0]])
    unsure = Shrinkage(0.5 * np.eye(2), 0.5, covariance, 0.7)
    spread = np.zeros(n)
    spread[: len(weights)] = weights
    collected = []
    for _ in range(2000):
        company, alone = np.linalg.cholesky(covariance) @ rng.normal(size=(2, n))
        pair = np.sqrt(0.7) * np.triu(rng.normal(size=(n, n)), 1)
        raw = Effects(company - company.mean(), pair + pair.T, alone - alone.mean())
        collected.append(spread @ Shrinkage.none().deviation_matrix(raw) @ spread)
    assert unsure.variance_at(np.array(weights), n) == pytest.approx(np.var(collected), rel=0.12)


def test_equal_weights_of_all_members_are_sure():
    unsure = Shrinkage(0.5 * np.eye(2), 0.5, np.array([[1.0, 0.8], [0.8, 2.0]]), 3.0)
    equal = np.full(N, 1 / N)
    assert unsure.variance_at(equal, N) == pytest.approx(0, abs=1e-12)
    at = [unsure.variance_at(np.full(k, 1 / k), N) for k in (2, 5, 20, 79, 199)]
    assert at == sorted(at, reverse=True)
    assert at[-1] > 0
    assert Shrinkage.none().variance_at(np.ones(1), N) == 0


def test_unshrunk_effects_are_the_deviations_less_their_means():
    moments = FullVoteRisk(problems.evidence("squared_error", weighted=True)).moments()
    effects = effects_of(moments)
    raw = Shrinkage.none().deviation_matrix(effects)
    deviations = moments.deviations()
    n = len(deviations)
    apart = ~np.eye(n, dtype=bool)
    assert_allclose(raw[apart], deviations[apart] - deviations[apart].mean(), atol=1e-12)
    assert_allclose(np.diag(raw), np.diag(deviations) - np.diag(deviations).mean(), atol=1e-12)
    for kind in kinds(effects):
        assert kind.mean() == pytest.approx(0, abs=1e-12)
    assert_allclose(effects.pair.sum(axis=0), 0, atol=1e-12)  # what company does not explain
    none = measured([effects]).deviation_matrix(effects)
    assert_allclose(none, 0)
