"""A temperature and its share: what they keep, what they recover, and when they are left out."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad

from calibration.drawn_votes import drawn, log_loss, scaled
from sparsebag.calibration import temperature as module
from sparsebag.calibration.calibrator import finished_votes
from sparsebag.calibration.fit import fit_calibration
from sparsebag.calibration.temperature import Temperature, fit_temperature


@settings(max_examples=80, deadline=None)
@given(
    temperature=st.floats(0.05, 20.0),
    share=st.floats(0.0, 0.9),
    n_classes=st.integers(2, 6),
    seed=st.integers(0, 10**6),
)
def test_a_temperature_keeps_the_order_of_classes(temperature, share, n_classes, seed):
    proba = np.random.default_rng(seed).dirichlet(np.ones(n_classes), 20)
    for calibrator in (Temperature(temperature), Temperature(temperature, share)):
        out = calibrator.transform(proba)
        assert np.allclose(out.sum(axis=1), 1.0)
        ordered = np.take_along_axis(out, np.argsort(proba, axis=1), axis=1)
        assert np.all(np.diff(ordered, axis=1) >= 0.0)
        assert np.all(np.take_along_axis(out, proba.argmax(axis=1)[:, None], 1)[:, 0] == out.max(1))


def test_a_class_without_a_vote_gets_the_share_alone():
    out = Temperature(0.5, 0.1).transform(np.array([[1.0, 0.0]]))
    np.testing.assert_allclose(out, [[0.95, 0.05]])


@pytest.mark.parametrize("n_classes", [2, 3, 8])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_recovered(temperature, n_classes):
    truth, target = drawn(20_000, n_classes)
    votes = scaled(truth, temperature)  # at 1 / temperature they are the truth
    found = fit_temperature(votes, target, np.ones(len(target)))
    assert found.temperature == pytest.approx(temperature, rel=0.06)
    assert found.share < 0.02


def test_a_known_share_is_recovered():
    truth, target = drawn(40_000)
    rng = np.random.default_rng(1)
    wrong = rng.random(len(target)) < 0.15
    target = np.where(wrong, rng.integers(0, 3, len(target)), target)
    found = fit_temperature(scaled(truth, 0.5), target, np.ones(len(target)))
    assert found.share == pytest.approx(0.15, abs=0.02)
    assert found.temperature == pytest.approx(0.5, abs=0.05)


def test_a_start_from_a_neighbour_ends_at_the_same_place():
    truth, target = drawn(4000)
    votes, ones = scaled(truth, 0.5), np.ones(4000)
    alone = fit_temperature(votes, target, ones)
    warm = fit_temperature(votes, target, ones, Temperature(0.7, 0.01))
    assert warm.temperature == pytest.approx(alone.temperature, rel=0.01)
    assert warm.share == pytest.approx(alone.share, abs=2e-3)


@pytest.mark.parametrize("n_rows", [100, 1000, 10_000])
def test_sure_votes_without_a_mistake_keep_a_doubt_that_rows_dispel(n_rows):
    votes = np.full((n_rows, 2), [1 - 1e-6, 1e-6])
    found = fit_temperature(votes, np.zeros(n_rows, dtype=int), np.ones(n_rows))
    # minimises n·share/2 + 200·share - log(share): half of the share goes to the true class
    assert found.share == pytest.approx(1.0 / (n_rows / 2 + 200), rel=0.05)


def test_gradients(monkeypatch):
    """The penalised log-loss against finite differences, where scipy's minimize would see it."""
    truth, target = drawn(200)
    seen = []

    def minimize(loss, start, **_):
        theta = start + np.random.default_rng(0).uniform(0.01, 0.1, len(start))
        seen.append(check_grad(lambda t: loss(t)[0], lambda t: loss(t)[1], theta, epsilon=1e-6))
        return type("Result", (), {"x": start, "fun": 0.0})

    monkeypatch.setattr("scipy.optimize.minimize", minimize)
    fit_temperature(truth, target, np.random.default_rng(2).random(200))
    assert len(seen) == len(module.START_SHARES)
    assert max(seen) < 1e-5


def test_few_rows_move_a_temperature_less():
    truth, target = drawn(2000)
    votes = scaled(truth, 0.3)
    whole = fit_temperature(votes, target, np.ones(2000))
    few = fit_temperature(votes[:20], target[:20], np.ones(20))
    assert whole.temperature < few.temperature < 1.0


def test_weights_count_rows():
    truth, target = drawn(2000)
    votes = scaled(truth, 0.5)
    weight = np.random.default_rng(3).integers(0, 3, 2000)
    twice = np.repeat(np.arange(2000), weight)
    weighted = fit_temperature(votes, target, weight.astype(float))
    repeated = fit_temperature(votes[twice], target[twice], np.ones(len(twice)))
    assert np.abs(weighted.transform(votes) - repeated.transform(votes)).max() < 5e-3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_it_helps_where_help_is_needed(n_classes):
    truth, target = drawn(6000, n_classes)
    votes = scaled(truth, 0.3)
    found = fit_calibration("auto", votes[:3000], target[:3000], np.ones(3000))
    after = found.calibrator.transform(votes[3000:])
    assert log_loss(after, target[3000:]) < log_loss(votes[3000:], target[3000:]) - 0.05
    assert found.loss_after < found.loss_before - 0.05
    assert "%" not in found.name
    told = replace(found, calibrator=Temperature(0.95, 0.19))
    assert str(told).startswith("temperature 0.95, 19% uniform; held-out log-loss")


@pytest.mark.parametrize("n_classes", [2, 4])
def test_calibrated_votes_are_left_nearly_as_they_are(n_classes):
    truth, target = drawn(20_000, n_classes)
    found = fit_calibration("auto", truth, target, np.ones(len(target)))
    moved = 0.0
    if found.calibrator is not None:
        moved = np.abs(found.calibrator.transform(truth) - truth).max()
    assert moved < 0.02


def test_auto_gambles_little_on_few_rows():
    lost = []
    for seed in range(20):
        truth, target = drawn(60, 3, seed)
        found = fit_calibration("auto", truth, target, np.ones(60))
        assert found.loss_after <= found.loss_before
        new, labels = drawn(20_000, 3, 1000 + seed)
        after = new if found.calibrator is None else found.calibrator.transform(new)
        lost.append(log_loss(after, labels) / log_loss(new, labels) - 1.0)
    assert np.mean(lost) < 0.03


def test_too_few_rows_are_not_calibrated_unless_a_temperature_is_named():
    truth, target = drawn(40)
    votes, ones = scaled(truth, 0.3), np.ones(40)
    assert fit_calibration("auto", votes, target, ones).calibrator is None
    assert fit_calibration("temperature", votes, target, ones).temperature < 1.0
    left = fit_calibration(None, votes, target, ones)
    assert left.calibrator is None
    assert left.loss_after == left.loss_before
    assert str(left) == "not calibrated: no gain on held-out rows"


@pytest.mark.parametrize(
    ("temperature", "share", "message"),
    [
        *((t, 0.0, "must be above 0 and finite") for t in (0.0, -1.0, np.inf, np.nan)),
        *((1.0, s, "a share must be at least 0 and below 1") for s in (-0.1, 1.0, np.nan)),
    ],
)
def test_numbers_that_make_no_temperature(temperature, share, message):
    with pytest.raises(ValueError, match=message):
        Temperature(temperature, share)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), floor=st.floats(0.0, 0.9), n_classes=st.integers(2, 5))
def test_finished_votes_are_on_the_simplex_whatever_the_leaves_say(seed, floor, n_classes):
    votes = np.random.default_rng(seed).normal(size=(30, n_classes))
    votes[0] = -1.0  # nothing for any class
    out = finished_votes(votes, floor)
    assert out.min() >= floor / n_classes - 1e-15
    np.testing.assert_allclose(out.sum(axis=1), 1.0)
    np.testing.assert_allclose(out[0], 1.0 / n_classes)
