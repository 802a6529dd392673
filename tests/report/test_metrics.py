"""Laws and hand-computed values of the probability scores."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sparsebag.report.metrics import (
    brier_score,
    expected_calibration_error,
    log_loss,
    paper_ece,
    reliability_curve,
)

KINDS = ["top-label", "classwise"]
BINNINGS = ["width", "mass"]
SCORES: list[Callable[..., float]] = [expected_calibration_error, brier_score, log_loss, paper_ece]
every_ece = pytest.mark.parametrize(
    "options",
    [
        {"kind": kind, "binning": binning, "debiased": debiased}
        for kind in KINDS
        for binning in BINNINGS
        for debiased in (False, True)
    ],
    ids=lambda o: "-".join(map(str, o.values())),
)
quick = settings(max_examples=40, deadline=None)


@st.composite
def problems(draw, n_classes=None):
    """Labels, probabilities and bins; coarse probabilities make ties and bin edges common."""
    n_classes = n_classes or draw(st.integers(2, 4))
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = rng.dirichlet(np.full(n_classes, 0.7), n)
    if draw(st.booleans()):
        votes = 10
        p = np.array([rng.multinomial(votes, row) for row in p]) / votes
    y = rng.integers(n_classes, size=n)
    return y, p, np.arange(n_classes), draw(st.integers(1, 12)), rng


# --- expected calibration error ---------------------------------------------------------------


@every_ece
@quick
@given(problem=problems())
def test_ece_lies_between_0_and_1(options, problem):
    y, p, labels, n_bins, _ = problem
    assert 0.0 <= expected_calibration_error(y, p, labels=labels, n_bins=n_bins, **options) <= 1.0


@every_ece
@quick
@given(problem=problems())
def test_ece_does_not_depend_on_row_order(options, problem):
    y, p, labels, n_bins, rng = problem
    order = rng.permutation(len(y))
    options = options | {"labels": labels, "n_bins": n_bins}
    assert_allclose(
        expected_calibration_error(y[order], p[order], **options),
        expected_calibration_error(y, p, **options),
        atol=1e-12,
    )


@every_ece
@quick
@given(problem=problems())
def test_ece_integer_weights_repeat_rows(options, problem):
    y, p, labels, n_bins, rng = problem
    weight = rng.integers(0, 4, size=len(y))
    weight[0] = 1
    options = options | {"labels": labels, "n_bins": n_bins}
    assert_allclose(
        expected_calibration_error(y, p, sample_weight=weight, **options),
        expected_calibration_error(np.repeat(y, weight), np.repeat(p, weight, axis=0), **options),
        atol=1e-12,
    )


@every_ece
@quick
@given(problem=problems(n_classes=2))
def test_ece_binary_vector_equals_two_columns(options, problem):
    y, p, labels, n_bins, _ = problem
    options = options | {"labels": labels, "n_bins": n_bins}
    p1 = p[:, 1]
    assert expected_calibration_error(y, p1, **options) == expected_calibration_error(
        y, np.column_stack([1 - p1, p1]), **options
    )


@quick
@given(problem=problems())
def test_debiasing_never_raises_the_error(problem):
    y, p, labels, n_bins, _ = problem
    for kind in KINDS:
        plain, debiased = (
            expected_calibration_error(y, p, kind=kind, labels=labels, n_bins=n_bins, debiased=d)
            for d in (False, True)
        )
        assert debiased <= plain + 1e-12


# Two equal-width bins of the confidence, (0, 0.5] and (0.5, 1]; three classes.
TINY_Y = np.array([0, 1, 2, 0])
TINY_P = np.array([[0.4, 0.3, 0.3], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.1, 0.9, 0.0]])


def test_top_label_equal_width_by_hand():
    # (0, 0.5]: confidence 0.45, accuracy 1; (0.5, 1]: confidence 0.85, accuracy 0.5.
    expected = 0.5 * abs(1 - 0.45) + 0.5 * abs(0.5 - 0.85)
    assert_allclose(expected_calibration_error(TINY_Y, TINY_P, n_bins=2), expected)


def test_top_label_equal_mass_by_hand():
    # Quartiles of 0.4, 0.5, 0.8, 0.9: one row a bin, gaps 0.6, 0.5, 0.2, 0.9.
    error = expected_calibration_error(TINY_Y, TINY_P, binning="mass", n_bins=4)
    assert_allclose(error, (0.6 + 0.5 + 0.2 + 0.9) / 4)


def test_classwise_by_hand():
    # One bin: each class's mean probability against its share, 0.5, 0.25, 0.25.
    means = [0.8 / 4, 1.8 / 4, 1.4 / 4]
    expected = (abs(means[0] - 0.5) + abs(means[1] - 0.25) + abs(means[2] - 0.25)) / 3
    error = expected_calibration_error(TINY_Y, TINY_P, kind="classwise", n_bins=1)
    assert_allclose(error, expected)


def test_debiased_by_hand():
    # One bin, 4 rows, accuracy 0.75, confidence 0.65: m = 0.1, s = sqrt(0.75 * 0.25 / 4).
    m, s = 0.1, math.sqrt(0.75 * 0.25 / 4)
    folded = s * math.sqrt(2 / math.pi) * math.exp(-(m**2) / (2 * s**2))
    folded += m * math.erf(m / (s * math.sqrt(2)))
    y, p = [1, 1, 1, 0], [0.65] * 4
    expected = max(0.0, m - (folded - m))
    assert_allclose(expected_calibration_error(y, p, n_bins=1, debiased=True), expected)


def test_debiasing_subtracts_the_bias_of_gaussian_resampling():
    rng = np.random.default_rng(0)
    p = rng.beta(2, 2, 2000)
    y = rng.random(2000) < p**2
    curve = reliability_curve(y, p, n_bins=10)
    sd = np.sqrt(curve.accuracy * (1 - curve.accuracy) / curve.count)
    resampled = np.abs(rng.normal(curve.accuracy, sd, (20_000, len(sd))) - curve.confidence)
    plain = expected_calibration_error(y, p, n_bins=10)
    expected = 2 * plain - np.average(resampled, axis=1, weights=curve.count).mean()
    debiased = expected_calibration_error(y, p, n_bins=10, debiased=True)
    assert_allclose(debiased, expected, atol=3e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("binning", BINNINGS)
def test_debiased_is_smaller_and_near_0_for_a_calibrated_predictor(kind, binning):
    rng = np.random.default_rng(1)
    options = {"kind": kind, "binning": binning, "n_bins": 10}
    plain, debiased = [], []
    for _ in range(40):
        p = rng.dirichlet(np.ones(3), 4000)
        y = (rng.random(4000)[:, None] > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
        plain.append(expected_calibration_error(y, p, **options))
        debiased.append(expected_calibration_error(y, p, debiased=True, **options))
    assert np.all(np.less(debiased, plain))
    assert np.mean(debiased) < 0.015
    # A calibrated bin has gap s|Z| and E|N(s|Z|, s^2)| = E|N(0, 2 s^2)|: 2 - sqrt 2 of it is left.
    assert_allclose(np.mean(debiased) / np.mean(plain), 2 - math.sqrt(2), atol=0.05)


def test_debiased_keeps_a_real_miscalibration():
    rng = np.random.default_rng(2)
    y = rng.random(5000) < 0.6
    error = expected_calibration_error(y, np.full(5000, 0.9), debiased=True)
    assert_allclose(error, abs(y.mean() - 0.9), atol=1e-6)


def test_equal_mass_bins_keep_ties_together():
    curve = reliability_curve([0, 1, 1, 0, 1], [0.7, 0.7, 0.7, 0.7, 0.9], binning="mass", n_bins=5)
    assert_array_equal(curve.count, [4, 1])
    assert_allclose(curve.edges, [[0.0, 0.7], [0.7, 1.0]])


# --- reliability curve ------------------------------------------------------------------------


def test_reliability_curve_by_hand():
    curve = reliability_curve(TINY_Y, TINY_P, n_bins=5)
    assert_allclose(curve.confidence, [0.4, 0.5, 0.8, 0.9])
    assert_array_equal(curve.accuracy, [1, 1, 1, 0])
    assert_array_equal(curve.count, [1, 1, 1, 1])
    assert_allclose(curve.edges, [[0.2, 0.4], [0.4, 0.6], [0.6, 0.8], [0.8, 1.0]])


@quick
@given(problem=problems())
def test_reliability_curve_averages_to_the_error(problem):
    y, p, labels, n_bins, _ = problem
    options = {"labels": labels, "n_bins": n_bins}
    for binning in BINNINGS:
        curve = reliability_curve(y, p, binning=binning, **options)
        gap = np.average(np.abs(curve.accuracy - curve.confidence), weights=curve.count)
        error = expected_calibration_error(y, p, binning=binning, **options)
        assert_allclose(gap, error, atol=1e-12)
        assert curve.count.sum() == len(y)
        assert np.all(curve.count > 0)
        tolerance = 1e-12
        assert np.all(curve.confidence >= curve.edges[:, 0] - tolerance)
        assert np.all(curve.confidence <= curve.edges[:, 1] + tolerance)
    pooled = reliability_curve(y, p, kind="classwise", **options)
    gap = np.average(np.abs(pooled.accuracy - pooled.confidence), weights=pooled.count)
    assert gap <= expected_calibration_error(y, p, kind="classwise", **options) + 1e-12
    assert pooled.count.sum() == p.size


# --- Brier score and log-loss -----------------------------------------------------------------


@quick
@given(problem=problems(n_classes=2))
def test_binary_brier_is_twice_scikit_learns(problem):
    y, p, _, _, rng = problem
    y, p1 = np.append(y, [0, 1]), np.append(p[:, 1], [0.2, 0.6])  # both classes are there
    weight = rng.random(len(y)) + 0.1
    theirs = sklearn.metrics.brier_score_loss(y, p1, sample_weight=weight)
    assert_allclose(brier_score(y, p1, sample_weight=weight), 2 * theirs)


def test_brier_runs_from_0_to_2():
    p = np.eye(3)
    assert brier_score([0, 1, 2], p) == 0.0
    assert brier_score([1, 2, 0], p) == 2.0


@quick
@given(problem=problems())
def test_log_loss_equals_scikit_learns_without_clipping(problem):
    y, p, labels, _, rng = problem
    p = 0.9 * p + 0.1 / p.shape[1]
    weight = rng.random(len(y)) + 0.1
    theirs = sklearn.metrics.log_loss(y, p, labels=labels, sample_weight=weight)
    assert_allclose(log_loss(y, p, labels=labels, sample_weight=weight), theirs)


def test_log_loss_clips_the_true_class_alone():
    p = [[0.0, 1.0], [1.0, 0.0]]
    assert_allclose(log_loss([0, 0], p, clip=1e-3, labels=[0, 1]), -math.log(1e-3) / 2)
    assert_allclose(log_loss([0, 1], p), -math.log(1e-15))
    assert log_loss([1, 0], p) == 0.0


@pytest.mark.parametrize("score", [brier_score, log_loss])
def test_integer_weights_repeat_rows(score):
    weight = [3, 0, 1, 2]
    options = {"labels": [0, 1, 2]}
    repeated = score(np.repeat(TINY_Y, weight), np.repeat(TINY_P, weight, axis=0), **options)
    assert_allclose(score(TINY_Y, TINY_P, sample_weight=weight, **options), repeated)


# --- the paper's quantity ---------------------------------------------------------------------


def test_paper_ece_of_a_perfect_predictor_is_the_share_of_the_first_class():
    y = np.array([0] * 7 + [1] * 3)
    assert_allclose(paper_ece(y, y.astype(float)), 0.7)
    assert expected_calibration_error(y, y.astype(float)) == 0.0


def test_paper_ece_tie_predicts_the_second_class():
    assert_allclose(paper_ece([1, 1], [0.5, 0.5], labels=[0, 1]), 0.5)
    assert_allclose(paper_ece([0, 0], [0.5, 0.5], labels=[0, 1]), 0.5)
    assert_allclose(paper_ece([1, 1, 0], [0.5, 0.5, 0.5]), abs(2 / 3 - 0.5))


def test_paper_ece_bins_hold_their_lower_edge_and_the_last_one_holds_1():
    # Two bins. 0.5 lies with 1.0: 2 rows, confidence 0.75, accuracy 0.5; alone, 0.1 is off by 0.9.
    expected = (0.9 + 2 * abs(0.5 - 0.75)) / 3
    assert_allclose(paper_ece([0, 1, 0], [0.1, 0.5, 1.0], n_bins=2), expected)


def test_paper_ece_multiclass_is_the_top_label_error():
    # Off the bin edges, where the two conventions agree.
    p = 0.97 * TINY_P + 0.01
    expected = expected_calibration_error(TINY_Y, p, n_bins=10)
    assert_allclose(paper_ece(TINY_Y, p), expected)


# --- labels and bad input ---------------------------------------------------------------------


@pytest.mark.parametrize("score", SCORES)
def test_string_labels_follow_labels_order(score):
    names = np.array(["ham", "egg", "spam"])
    expected = score(TINY_Y, TINY_P)
    assert score(names[TINY_Y], TINY_P, labels=names) == expected
    assert score(names[TINY_Y].astype(object), TINY_P, labels=list(names)) == expected
    by_name = np.argsort(names)
    assert_allclose(score(names[TINY_Y], TINY_P[:, by_name]), expected)


@pytest.mark.parametrize("score", SCORES)
def test_rounding_beyond_0_and_1_is_accepted(score):
    p = np.array([[1.0 + 1e-12, -1e-12], [0.0, 1.0]])
    assert_allclose(score([0, 1], p), score([0, 1], p.clip(0, 1)), atol=1e-9)


@pytest.mark.parametrize("score", [*SCORES, reliability_curve])
@pytest.mark.parametrize(
    ("y", "p", "options", "message"),
    [
        ([0, 1, 1], [0.5, 0.5], {}, r"y has shape \(3,\) and p has shape \(2,\); expected"),
        ([[0], [1]], [0.5, 0.5], {}, r"y has shape \(2, 1\) .* pass one label and one row"),
        ([], [], {}, r"the same n of at least 1"),
        ([0, 1], [0.5, 1.5], {}, r"NaN or outside \[0, 1\]; .* not scores or logits"),
        ([0, 1], [0.5, -0.1], {}, r"NaN or outside \[0, 1\]"),
        ([0, 1], [0.5, np.nan], {}, r"NaN or outside \[0, 1\]"),
        ([0, 1], [[0.5, 0.5], [0.5, 0.4]], {}, r"rows of p must sum to 1; one is off by 0\.1; div"),
        (
            [0, 2],
            np.full((2, 3), 1 / 3),
            {},
            r"y names 2 distinct classes but .* for 3; pass",
        ),
        ([1, 1], [0.5, 0.5], {}, r"y names 1 distinct classes but .* for 2; pass labels="),
        (
            [0, 1],
            [0.5, 0.5],
            {"labels": [0, 1, 2]},
            r"labels names 3 distinct classes but",
        ),
        ([0, 1], [0.5, 0.5], {"labels": [0, 0]}, r"labels names 1 distinct classes but .* for 2"),
        (["a", "c"], [0.5, 0.5], {"labels": ["a", "b"]}, r"labels does not name: \['c'\]; pass"),
        (["0", "1"], [0.5, 0.5], {"labels": [0, 1]}, r"labels does not name: \['0', '1'\]; pass"),
    ],
)
def test_bad_input_is_named(score, y, p, options, message):
    with pytest.raises(ValueError, match=message):
        score(y, p, **options)


@pytest.mark.parametrize("weight", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [1.0, np.inf]])
def test_bad_weights_are_named(weight):
    for score in (expected_calibration_error, reliability_curve, brier_score, log_loss):
        with pytest.raises(ValueError, match=r"sample_weight of shape .* expected 2 finite"):
            score([0, 1], [0.5, 0.5], sample_weight=weight)


@pytest.mark.parametrize("n_bins", [0, -1, 2.5])
@pytest.mark.parametrize("score", [expected_calibration_error, reliability_curve, paper_ece])
def test_bad_bins_are_named(score, n_bins):
    with pytest.raises(ValueError, match=r"n_bins must be an integer of at least 1; got"):
        score([0, 1], [0.5, 0.5], n_bins=n_bins)


@pytest.mark.parametrize("score", [expected_calibration_error, reliability_curve])
def test_bad_options_are_named(score):
    with pytest.raises(ValueError, match=r"kind must be 'top-label' or 'classwise'; got 'top'"):
        score([0, 1], [0.5, 0.5], kind="top")
    with pytest.raises(ValueError, match=r"binning must be 'width' or 'mass'; got 'equal'"):
        score([0, 1], [0.5, 0.5], binning="equal")


@pytest.mark.parametrize("clip", [0.0, 1.0, -1.0, math.nan])
def test_bad_clip_is_named(clip):
    with pytest.raises(ValueError, match=r"clip must lie strictly between 0 and 1; got"):
        log_loss([0, 1], [0.5, 0.5], clip=clip)
