"""Calibrators: what they keep, what they recover, and when they are left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import check_grad
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from sparsebag.refine import temperature as temperature_module
from sparsebag.refine.calibrate import fit_calibrator
from sparsebag.refine.calibration_kinds import resolve_kind
from sparsebag.refine.isotonic import Isotonic
from sparsebag.refine.own_calibrator import OwnCalibrator
from sparsebag.refine.temperature import (
    Temperature,
    TemperedFloor,
    fit_temperature,
    fit_tempered_floor,
    prior_loss,
)
from sparsebag.refine.vector_scaling import VectorScaling, fit_vector_scaling

KINDS = ("temperature", "tempered_floor", "vector_scaling", "isotonic")


def drawn(n_rows=4000, n_classes=3, seed=0):
    """True probabilities of rows, and classes drawn from them."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(n_classes, 0.7), n_rows)
    truth = 0.998 * truth + 0.002 / n_classes
    target = (truth.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    return truth, np.minimum(target, n_classes - 1)


def scaled(proba, power, shift=0.0):
    odds = proba**power * np.exp(shift)
    return odds / odds.sum(axis=1, keepdims=True)


def log_loss(proba, target):
    return float(-np.log(proba[np.arange(len(target)), target]).mean())


@settings(max_examples=80, deadline=None)
@given(
    temperature=st.floats(0.05, 20.0),
    share=st.floats(0.0, 0.9),
    n_classes=st.integers(2, 6),
    seed=st.integers(0, 10**6),
)
def test_a_temperature_keeps_the_order_of_classes(temperature, share, n_classes, seed):
    proba = np.random.default_rng(seed).dirichlet(np.ones(n_classes), 20)
    for calibrator in (Temperature(temperature), TemperedFloor(temperature, share)):
        out = calibrator.transform(proba)
        assert np.allclose(out.sum(axis=1), 1.0)
        ordered = np.take_along_axis(out, np.argsort(proba, axis=1), axis=1)
        assert np.all(np.diff(ordered, axis=1) >= 0.0)
        assert np.all(np.take_along_axis(out, proba.argmax(axis=1)[:, None], 1)[:, 0] == out.max(1))


@pytest.mark.parametrize("n_classes", [2, 3, 8])
@pytest.mark.parametrize("temperature", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_recovered(temperature, n_classes):
    truth, target = drawn(20_000, n_classes)
    votes = scaled(truth, temperature)  # at 1 / temperature they are the truth
    ones = np.ones(len(target))
    assert fit_temperature(votes, target, ones).temperature == pytest.approx(temperature, rel=0.04)
    both = fit_tempered_floor(votes, target, ones)
    assert both.temperature == pytest.approx(temperature, rel=0.06)
    assert both.share < 0.02


def test_a_known_share_is_recovered():
    truth, target = drawn(40_000)
    rng = np.random.default_rng(1)
    wrong = rng.random(len(target)) < 0.15
    target = np.where(wrong, rng.integers(0, 3, len(target)), target)
    found = fit_tempered_floor(scaled(truth, 0.5), target, np.ones(len(target)))
    assert found.share == pytest.approx(0.15, abs=0.02)
    assert found.temperature == pytest.approx(0.5, abs=0.05)
    # which no temperature alone can mend
    alone = fit_temperature(scaled(truth, 0.5), target, np.ones(len(target)))
    votes = scaled(truth, 0.5)
    assert log_loss(found.transform(votes), target) < log_loss(alone.transform(votes), target)


@pytest.mark.parametrize("n_rows", [100, 1000, 10_000])
def test_sure_votes_without_a_mistake_keep_a_doubt_that_rows_dispel(n_rows):
    votes = np.full((n_rows, 2), [1 - 1e-6, 1e-6])
    found = fit_tempered_floor(votes, np.zeros(n_rows, dtype=int), np.ones(n_rows))
    # minimises n·share/2 + 200·share - log(share): half of the share goes to the true class
    assert found.share == pytest.approx(1.0 / (n_rows / 2 + 200), rel=0.05)


def test_the_prior_is_the_one_the_fit_uses():
    truth, target = drawn(300)
    votes = scaled(truth, 2.0)

    def criterion(temperature, share):
        proba = TemperedFloor(temperature, share).transform(votes)
        return log_loss(proba, target) + prior_loss(-np.log(temperature), share, len(target))

    found = fit_tempered_floor(votes, target, np.ones(len(target)))
    least = criterion(found.temperature, found.share)
    for factor in (0.9, 1.1):
        assert least < criterion(factor * found.temperature, found.share)
        assert least < criterion(found.temperature, factor * found.share)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_known_scales_and_shifts_are_recovered(n_classes):
    votes, _ = drawn(40_000, n_classes)
    power, shift = np.linspace(0.6, 1.4, n_classes), np.linspace(-0.5, 0.5, n_classes)
    truth = VectorScaling(power, shift, 0.0).transform(votes)
    drawn_at = np.random.default_rng(5).random((len(votes), 1))
    target = (truth.cumsum(axis=1)[:, :-1] < drawn_at).sum(axis=1)
    found = fit_vector_scaling(votes, target, np.ones(len(target)))
    assert np.abs(found.transform(votes) - truth).mean() < 0.15 * np.abs(votes - truth).mean()


def test_gradients(monkeypatch):
    """Both log-losses against finite differences, where scipy's minimize would see them."""
    truth, target = drawn(200)
    seen = []

    def minimize(loss, start, **_):
        theta = start + np.random.default_rng(0).uniform(0.01, 0.1, len(start))
        seen.append(check_grad(lambda t: loss(t)[0], lambda t: loss(t)[1], theta, epsilon=1e-6))
        return type("Result", (), {"x": start, "fun": 0.0})

    monkeypatch.setattr("scipy.optimize.minimize", minimize)
    weight = np.random.default_rng(2).random(200)
    fit_tempered_floor(truth, target, weight)
    fit_vector_scaling(truth, target, weight)
    assert len(seen) == 2 * len(temperature_module.START_SHARES) + 1
    assert max(seen) < 1e-5


@pytest.mark.parametrize("n_classes", [2, 4])
def test_calibrated_votes_are_left_as_they_are(n_classes):
    truth, target = drawn(20_000, n_classes)
    found = fit_calibrator(truth, target)
    moved = 0.0
    if found.calibrator is not None:
        moved = np.abs(found.calibrator.transform(truth) - truth).max()
    assert moved < 0.02


def test_identity_where_calibration_loses():
    # Sixty sure and right votes: any temperature above one is overfitting, one below a gamble.
    rng = np.random.default_rng(0)
    lost = []
    for seed in range(20):
        truth, target = drawn(60, 3, seed)
        found = fit_calibrator(truth, target, seed=int(rng.integers(100)))
        new, labels = drawn(20_000, 3, 1000 + seed)
        after = new if found.calibrator is None else found.calibrator.transform(new)
        lost.append(log_loss(after, labels) / log_loss(new, labels) - 1.0)
        assert found.gain >= -0.01 * found.loss_before
    assert np.mean(lost) < 0.03


def test_few_rows_move_a_temperature_less():
    truth, target = drawn(2000)
    votes, ones = scaled(truth, 0.3), np.ones(2000)
    whole = fit_tempered_floor(votes, target, ones)
    few = fit_tempered_floor(votes, target, ones, n_rows=20)  # a hundred votes about each
    assert whole.temperature < few.temperature < 1.0


def test_few_rows_are_not_calibrated():
    truth, target = drawn(40)
    assert fit_calibrator(scaled(truth, 0.3), target).kind == "identity"
    assert fit_calibrator(scaled(truth, 0.3), target, kind="temperature").kind == "temperature"


def test_auto_prefers_the_tempered_floor_and_gains():
    truth, target = drawn(4000)
    votes = scaled(truth, 0.4)
    found = fit_calibrator(votes, target)
    assert found.kind == "tempered_floor"
    assert found.gain > 5.0 * found.gain_error
    assert found.temperature == pytest.approx(0.4, rel=0.1)
    assert found.loss_after == pytest.approx(log_loss(truth, target), abs=0.01)
    assert set(found.considered) == {"tempered_floor", "vector_scaling"}
    assert f"a temperature of {found.temperature:.3g} sharpens its probabilities" in str(found)
    assert "tempered" not in str(found)


def test_the_richer_family_needs_a_clear_gain_and_enough_rows():
    truth, target = drawn(8000)
    votes = scaled(truth, 1.0, np.array([-1.5, 0.0, 1.5]))  # one class is systematically favoured
    assert fit_calibrator(votes, target).kind == "vector_scaling"
    assert fit_calibrator(votes[:1500], target[:1500]).kind != "vector_scaling"
    assert fit_calibrator(scaled(truth, 0.5), target).kind == "tempered_floor"


def test_draws_about_a_row_stay_in_one_fold():
    # Votes that carry their row's number: a fold that saw another draw of the row would know it.
    rng = np.random.default_rng(0)
    target = rng.integers(0, 2, 300)
    noise = rng.random((300, 1)) * 0.9 + 0.05
    votes = np.tile(np.concatenate([noise, 1.0 - noise], axis=1), (5, 1))
    row, labels = np.tile(np.arange(300), 5), np.tile(target, 5)
    together = fit_calibrator(votes, labels, row, kind="isotonic")
    apart = fit_calibrator(votes, labels, None, kind="isotonic")
    assert apart.loss_after < together.loss_after - 0.03
    assert together.n_rows == 300
    assert apart.n_rows == 1500


@pytest.mark.parametrize("kind", KINDS)
def test_weights_count_rows(kind):
    truth, target = drawn(400)
    votes = scaled(truth, 0.5)
    weight = np.random.default_rng(3).integers(0, 3, 400)
    twice = np.repeat(np.arange(400), weight)
    weighted = fit_calibrator(votes, target, kind=kind, sample_weight=weight).calibrator
    repeated = fit_calibrator(votes[twice], target[twice], twice, kind=kind).calibrator
    assert np.abs(weighted.transform(votes) - repeated.transform(votes)).max() < 5e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_kind_helps_where_help_is_needed(kind, n_classes):
    truth, target = drawn(6000, n_classes)
    found = fit_calibrator(scaled(truth, 0.3)[:3000], target[:3000], kind=kind)
    assert found.kind == kind
    votes, labels = scaled(truth, 0.3)[3000:], target[3000:]
    after = found.calibrator.transform(votes)
    assert np.allclose(after.sum(axis=1), 1.0)
    assert log_loss(after, labels) < log_loss(votes, labels) - 0.05
    assert found.gain > 0.05


def test_isotonic_never_says_never():
    truth, target = drawn(500, 2)
    target = (truth[:, 1] > 0.5).astype(int)  # separable: plain isotonic maps to 0 and 1
    found = fit_calibrator(truth, target, kind="isotonic")
    assert np.isfinite(found.loss_after)
    assert found.calibrator.transform(np.array([[1.0, 0.0]])).min() > 0.0


def test_objects_of_the_users_own():
    truth, target = drawn(3000, 2)
    votes = scaled(truth, 0.4)
    carried = fit_calibrator(votes, target, kind=IsotonicRegression(y_min=0.01, y_max=0.99))
    assert type(carried.calibrator) is Isotonic
    own = fit_calibrator(votes, target, kind=LogisticRegression())
    assert own.kind == "own"
    assert own.gain > 0.0
    assert type(own.calibrator) is OwnCalibrator
    assert own.calibrator.transform(votes).shape == votes.shape

    class Halves:  # one class at a time, as scikit-learn's own calibrators
        def fit(self, scores, y):
            assert scores.ndim == 1
            assert set(y) <= {0, 1}
            return self

        def transform(self, scores):
            return 0.5 * scores

    three, labels = drawn(500, 3)
    found = fit_calibrator(three, labels, kind=Halves())
    assert np.allclose(found.calibrator.transform(three), three)  # normalised again
    assert found.gain == pytest.approx(0.0, abs=1e-12)


def test_a_calibrator_that_returns_nonsense_is_told_so():
    class Wrong:
        def fit(self, X, y):
            return self

        def predict_proba(self, X):
            return np.ones((len(X), 7))

    truth, target = drawn(100)
    with pytest.raises(ValueError, match=r"the calibrator Wrong returned shape \(20, 7\)"):
        fit_calibrator(truth, target, kind=Wrong())


def test_clear_sentences():
    truth, target = drawn(100)
    with pytest.raises(ValueError, match="calibration='platt' is not known; use one of 'auto'"):
        fit_calibrator(truth, target, kind="platt")
    with pytest.raises(ValueError, match="'beta' is for two classes and there are 3"):
        fit_calibrator(truth, target, kind="beta")
    assert resolve_kind("beta", 2) == "vector_scaling"
    with pytest.raises(ValueError, match="is not known"):
        fit_calibrator(truth, target, kind=IsotonicRegression)  # the class, not an object
    with pytest.raises(ValueError, match="a vote is zero, negative or NaN"):
        fit_calibrator(np.eye(3)[target], target)
    with pytest.raises(ValueError, match=r"target has shape \(99,\), but there are 100 votes"):
        fit_calibrator(truth, target[:99])
    with pytest.raises(ValueError, match="every vote has sample_weight zero"):
        fit_calibrator(truth, target, sample_weight=np.zeros(100))
    with pytest.raises(ValueError, match=r"votes must have shape \(n, C\)"):
        fit_calibrator(truth[:, :1], target)
    with pytest.raises(ValueError, match="a share must be at least 0 and below 1"):
        TemperedFloor(1.0, 1.0)
    with pytest.raises(ValueError, match="one scale and one shift a class"):
        VectorScaling(np.ones(3), np.ones(2), 0.0)
    with pytest.raises(ValueError, match="does not ascend"):
        Isotonic(np.array([0.0, 1.0]), np.array([0.9, 0.1]), np.array([2.0]))


def test_none_is_no_calibration():
    truth, target = drawn(100)
    found = fit_calibrator(truth, target, kind=None)
    assert (found.calibrator, found.kind, found.gain) == (None, "identity", 0.0)
