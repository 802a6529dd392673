"""What is real of the members' differences, and how sure that is."""

from __future__ import annotations

import numpy as np
import problems
import pytest
from numpy.testing import assert_allclose

from sparsebag.objective.full_vote_risk import FullVoteRisk
from sparsebag.objective.pair_shrinkage import Effects, Shrinkage, effects_of, measure_shrinkage

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


def test_noise_has_no_reliability():
    rng = np.random.default_rng(0)
    repeats = [measure_shrinkage([noise(rng) for _ in range(10)]) for _ in range(20)]
    assert np.abs(np.mean([r.of_member for r in repeats], axis=0)).max() < 0.15
    assert np.mean([r.of_pair for r in repeats]) < 0.02  # thousands of pairs tell


def test_what_every_fold_repeats_is_exact():
    shrinkage = measure_shrinkage([noise(np.random.default_rng(1))] * 10)
    assert_allclose(shrinkage.of_member, np.eye(2), atol=1e-10)
    assert shrinkage.of_pair == pytest.approx(1)
    assert_allclose(shrinkage.member_variance, 0.0, atol=1e-10)
    assert shrinkage.pair_variance == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_reliability_is_real_variance_over_total(scale):
    rng = np.random.default_rng(2)
    real = noise(rng)
    shrinkage = measure_shrinkage([plus(real, noise(rng), scale) for _ in range(10)])
    wanted = 1.0 / (1.0 + scale**2 / 10)
    assert_allclose(shrinkage.of_member, wanted * np.eye(2), atol=0.2)
    assert shrinkage.of_pair == pytest.approx(wanted, abs=0.03)
    of_company, of_pair, of_alone = (np.mean(kind**2) for kind in kinds(real))
    left = np.diag(shrinkage.member_variance) / [of_company, of_alone]
    assert_allclose(left, 1 - wanted, rtol=0.6)
    assert shrinkage.pair_variance == pytest.approx(of_pair * (1 - wanted), rel=0.1)


def test_who_does_well_alone_is_known_to_do_well_in_company():
    rng = np.random.default_rng(3)
    skill = rng.normal(size=N)

    def fold():  # in company it hardly shows, alone it does
        return Effects(skill + 9 * rng.normal(size=N), np.zeros((N, N)), skill)

    shrinkage = measure_shrinkage([fold() for _ in range(10)])
    estimate = shrinkage.of_member @ np.stack([fold().company, skill])
    assert np.corrcoef(estimate[0], skill)[0, 1] > 0.95


def test_one_fold_cannot_tell():
    shrinkage = measure_shrinkage([noise(np.random.default_rng(0))])
    assert not shrinkage.of_member.any()
    assert shrinkage.of_pair == 0


def test_the_variance_is_that_of_a_simulation():
    rng, n = np.random.default_rng(4), 30
    unsure = Shrinkage(np.eye(2), 1.0, np.array([[1.0, 0.5], [0.5, 2.0]]), 0.7)
    w = np.array([0.5, 0.3, 0.2])
    spread = np.zeros(n)
    spread[:3] = w
    collected = []
    for _ in range(1500):
        company, alone = rng.multivariate_normal([0, 0], unsure.member_variance, n).T
        pair = np.sqrt(0.7) * np.triu(rng.normal(size=(n, n)), 1)
        raw = Effects(company - company.mean(), pair + pair.T, alone - alone.mean())
        collected.append(spread @ Shrinkage.none().deviation_matrix(raw) @ spread)
    assert unsure.variance_at(w, n) == pytest.approx(np.var(collected), rel=0.15)


def test_equal_weights_of_all_members_are_sure():
    unsure = Shrinkage(np.eye(2) / 2, 0.5, np.array([[1.0, 0.5], [0.5, 2.0]]), 3.0)
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
    none = measure_shrinkage([effects]).deviation_matrix(effects)
    assert_allclose(none, 0)
