"""What is real of the members' differences, and how sure that is."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import problems
from sparsebag.objective.full_vote_risk import FullVoteRisk
from sparsebag.objective.pair_shrinkage import (
    Effects,
    Reliability,
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


def test_noise_has_no_reliability():
    rng = np.random.default_rng(0)
    repeats = [measure_shrinkage([noise(rng) for _ in range(10)]) for _ in range(20)]
    assert np.mean([[r.company.share, r.alone.share] for r in repeats]) < 0.1
    assert np.mean([r.pair.share for r in repeats]) < 0.02  # thousands of pairs tell


def test_what_every_fold_repeats_is_exact():
    shrinkage = measure_shrinkage([noise(np.random.default_rng(1))] * 10)
    for kind in (shrinkage.company, shrinkage.pair, shrinkage.alone):
        assert kind.share == pytest.approx(1)
        assert kind.variance == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_reliability_is_real_variance_over_total(scale):
    rng = np.random.default_rng(2)
    real = noise(rng)
    shrinkage = measure_shrinkage([plus(real, noise(rng), scale) for _ in range(10)])
    wanted = 1.0 / (1.0 + scale**2 / 10)
    for kind, truth in zip(
        (shrinkage.company, shrinkage.pair, shrinkage.alone), kinds(real), strict=True
    ):
        assert kind.share == pytest.approx(wanted, abs=0.15)
        assert kind.variance == pytest.approx(np.mean(truth**2) * (1 - wanted), rel=0.4)
    assert shrinkage.pair.share == pytest.approx(wanted, abs=0.03)


def test_one_fold_cannot_tell():
    shrinkage = measure_shrinkage([noise(np.random.default_rng(0))])
    assert shrinkage.company.share == shrinkage.pair.share == shrinkage.alone.share == 0


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.3, 0.2], [0.1] * 10], ids=len)
def test_the_variance_is_that_of_a_simulation(weights):
    rng, n = np.random.default_rng(4), 30
    unsure = Shrinkage(Reliability(0.5, 1.0), Reliability(0.5, 0.7), Reliability(0.5, 2.0))
    spread = np.zeros(n)
    spread[: len(weights)] = weights
    collected = []
    for _ in range(2000):
        company, alone = rng.normal(size=n), np.sqrt(2.0) * rng.normal(size=n)
        pair = np.sqrt(0.7) * np.triu(rng.normal(size=(n, n)), 1)
        raw = Effects(company - company.mean(), pair + pair.T, alone - alone.mean())
        collected.append(spread @ Shrinkage.none().deviation_matrix(raw) @ spread)
    assert unsure.variance_at(np.array(weights), n) == pytest.approx(np.var(collected), rel=0.12)


def test_equal_weights_of_all_members_are_sure():
    unsure = Shrinkage(Reliability(0.5, 1.0), Reliability(0.5, 3.0), Reliability(0.5, 2.0))
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
