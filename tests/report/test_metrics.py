"""Scores, calibration errors, reliability curves by hand and by scikit-learn; their intervals."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from sparsebag.report import changes as module
from sparsebag.report.changes import score_changes
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
quick = settings(max_examples=40, deadline=None)


@st.composite
def problems(draw):
    """Labels, probabilities and bins; coarse probabilities make ties and bin edges common."""
    n_classes, n = draw(st.integers(2, 4)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    p = rng.dirichlet(np.full(n_classes, 0.7), n)
    if draw(st.booleans()):
        votes = 10
        p = np.array([rng.multinomial(votes, row) for row in p]) / votes
    y = rng.integers(n_classes, size=n)
    return y, p, np.arange(n_classes), draw(st.integers(1, 12)), rng


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("binning", BINNINGS)
@pytest.mark.parametrize("debiased", [False, True])
@quick
@given(problem=problems())
def test_laws_of_the_calibration_error(kind, binning, debiased, problem):
    y, p, labels, n_bins, rng = problem
    options = {"kind": kind, "binning": binning, "debiased": debiased}
    options |= {"labels": labels, "n_bins": n_bins}
    error = expected_calibration_error(y, p, **options)
    assert 0.0 <= error <= 1.0
    if debiased:
        assert error <= expected_calibration_error(y, p, **options | {"debiased": False}) + 1e-12
    order = rng.permutation(len(y))
    shuffled = expected_calibration_error(y[order], p[order], **options)
    assert_allclose(shuffled, error, atol=1e-12)
    weight = rng.integers(0, 4, size=len(y))
    weight[0] = 1  # integer weights repeat rows
    assert_allclose(
        expected_calibration_error(y, p, sample_weight=weight, **options),
        expected_calibration_error(np.repeat(y, weight), np.repeat(p, weight, axis=0), **options),
        atol=1e-12,
    )
    if len(labels) == 2:  # a vector is the second of two columns
        two = np.column_stack([1 - p[:, 1], p[:, 1]])
        error = expected_calibration_error(y, two, **options)
        assert expected_calibration_error(y, p[:, 1], **options) == error


# Two equal-width bins of the confidence, (0, 0.5] and (0.5, 1]; three classes.
TINY_Y = np.array([0, 1, 2, 0])
TINY_P = np.array([[0.4, 0.3, 0.3], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.1, 0.9, 0.0]])
BY_HAND = [
    # (0, 0.5]: confidence 0.45, accuracy 1; (0.5, 1]: confidence 0.85, accuracy 0.5.
    ({"n_bins": 2}, 0.5 * abs(1 - 0.45) + 0.5 * abs(0.5 - 0.85)),
    # Quartiles of 0.4, 0.5, 0.8, 0.9: one row a bin, gaps 0.6, 0.5, 0.2, 0.9.
    ({"binning": "mass", "n_bins": 4}, (0.6 + 0.5 + 0.2 + 0.9) / 4),
    # One bin: each class's mean probability against its share, 0.5, 0.25, 0.25.
    ({"kind": "classwise", "n_bins": 1}, ((0.5 - 0.2) + (0.45 - 0.25) + (0.35 - 0.25)) / 3),
]


@pytest.mark.parametrize(("options", "expected"), BY_HAND)
def test_calibration_errors_by_hand(options, expected):
    assert_allclose(expected_calibration_error(TINY_Y, TINY_P, **options), expected)


def test_debiased_by_hand():
    # One bin, 4 rows, accuracy 0.75, confidence 0.65: m = 0.1, s = sqrt(0.75 * 0.25 / 4).
    m, s = 0.1, math.sqrt(0.75 * 0.25 / 4)
    folded = s * math.sqrt(2 / math.pi) * math.exp(-(m**2) / (2 * s**2))
    folded += m * math.erf(m / (s * math.sqrt(2)))
    y, p = [1, 1, 1, 0], [0.65] * 4
    expected = max(0.0, m - (folded - m))
    assert_allclose(expected_calibration_error(y, p, n_bins=1, debiased=True), expected)


def test_reliability_curve_by_hand():
    curve = reliability_curve(TINY_Y, TINY_P, n_bins=5)
    assert_allclose(curve.confidence, [0.4, 0.5, 0.8, 0.9])
    assert_array_equal(curve.accuracy, [1, 1, 1, 0])
    assert_array_equal(curve.count, [1, 1, 1, 1])
    assert_allclose(curve.edges, [[0.2, 0.4], [0.4, 0.6], [0.6, 0.8], [0.8, 1.0]])
    # Bins of equal mass keep ties together.
    curve = reliability_curve([0, 1, 1, 0, 1], [0.7, 0.7, 0.7, 0.7, 0.9], binning="mass", n_bins=5)
    assert_array_equal(curve.count, [4, 1])
    assert_allclose(curve.edges, [[0.0, 0.7], [0.7, 1.0]])


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
        assert np.all(curve.confidence >= curve.edges[:, 0] - 1e-12)
        assert np.all(curve.confidence <= curve.edges[:, 1] + 1e-12)
    pooled = reliability_curve(y, p, kind="classwise", **options)
    gap = np.average(np.abs(pooled.accuracy - pooled.confidence), weights=pooled.count)
    assert gap <= expected_calibration_error(y, p, kind="classwise", **options) + 1e-12
    assert pooled.count.sum() == p.size


@quick
@given(problem=problems())
def test_brier_and_log_loss_are_scikit_learns(problem):
    y, p, labels, _, rng = problem
    p = 0.9 * p + 0.1 / p.shape[1]  # nothing to clip
    weight = rng.random(len(y)) + 0.1
    theirs = sklearn.metrics.log_loss(y, p, labels=labels, sample_weight=weight)
    assert_allclose(log_loss(y, p, labels=labels, sample_weight=weight), theirs)
    squares = np.sum((p - np.eye(len(labels))[y]) ** 2, axis=1)
    found = brier_score(y, p, labels=labels, sample_weight=weight)
    assert_allclose(found, np.average(squares, weights=weight))
    if len(set(y)) == 2 == len(labels):
        theirs = sklearn.metrics.brier_score_loss(y, p[:, 1], sample_weight=weight)
        assert_allclose(found, 2 * theirs)


def test_log_loss_clips_the_true_class_alone():
    p = [[0.0, 1.0], [1.0, 0.0]]
    assert_allclose(log_loss([0, 0], p, clip=1e-3, labels=[0, 1]), -math.log(1e-3) / 2)
    assert_allclose(log_loss([0, 1], p), -math.log(1e-15))
    assert log_loss([1, 0], p) == 0.0


@pytest.mark.parametrize(
    ("y", "p", "options", "expected"),
    [
        # A perfect predictor is off by the share of the first class.
        ([0] * 7 + [1] * 3, [0.0] * 7 + [1.0] * 3, {}, 0.7),
        # A tie predicts the second class.
        ([1, 1], [0.5, 0.5], {"labels": [0, 1]}, 0.5),
        ([0, 0], [0.5, 0.5], {"labels": [0, 1]}, 0.5),
        ([1, 1, 0], [0.5, 0.5, 0.5], {}, abs(2 / 3 - 0.5)),
        # Bins hold their lower edge, the last one 1: 0.5 lies with 1.0, and 0.1 is off by 0.9.
        ([0, 1, 0], [0.1, 0.5, 1.0], {"n_bins": 2}, (0.9 + 2 * abs(0.5 - 0.75)) / 3),
    ],
)
def test_paper_ece_by_hand(y, p, options, expected):
    assert_allclose(paper_ece(y, p, **options), expected)
    p = 0.97 * TINY_P + 0.01  # off the bin edges, where the two conventions agree
    assert_allclose(paper_ece(TINY_Y, p), expected_calibration_error(TINY_Y, p, n_bins=10))


@pytest.mark.parametrize("score", SCORES)
def test_labels_and_rounding(score):
    names = np.array(["ham", "egg", "spam"])
    expected = score(TINY_Y, TINY_P)
    assert score(names[TINY_Y], TINY_P, labels=names) == expected
    assert score(names[TINY_Y].astype(object), TINY_P, labels=list(names)) == expected
    by_name = np.argsort(names)
    assert_allclose(score(names[TINY_Y], TINY_P[:, by_name]), expected)
    p = np.array([[1.0 + 1e-12, -1e-12], [0.0, 1.0]])
    assert_allclose(score([0, 1], p), score([0, 1], p.clip(0, 1)), atol=1e-9)


HALVES, BINNED = [0.5, 0.5], [expected_calibration_error, reliability_curve]
EVERY = [*SCORES, reliability_curve]
WEIGHTED, N_BINS = [*BINNED, brier_score, log_loss], [*BINNED, paper_ece]
BAD = [
    (EVERY, [0, 1, 1], HALVES, {}, r"y has shape \(3,\) and p has shape \(2,\); expected"),
    (EVERY, [[0], [1]], HALVES, {}, r"y has shape \(2, 1\) .* pass one label and one row"),
    (EVERY, [], [], {}, r"the same n of at least 1"),
    (EVERY, [0, 1], [0.5, 1.5], {}, r"NaN or outside \[0, 1\]; .* not scores or logits"),
    (EVERY, [0, 1], [0.5, -0.1], {}, r"NaN or outside \[0, 1\]"),
    (EVERY, [0, 1], [0.5, np.nan], {}, r"NaN or outside \[0, 1\]"),
    (EVERY, [0, 1], [HALVES, [0.5, 0.4]], {}, r"rows of p must sum to 1; one is off by 0\.1; div"),
    (EVERY, [0, 2], np.full((2, 3), 1 / 3), {}, r"y names 2 distinct classes but .* for 3; pass"),
    (EVERY, [1, 1], HALVES, {}, r"y names 1 distinct classes but .* for 2; pass labels="),
    (EVERY, [0, 1], HALVES, {"labels": [0, 1, 2]}, r"labels names 3 distinct classes but"),
    (EVERY, [0, 1], HALVES, {"labels": [0, 0]}, r"labels names 1 distinct classes but .* for 2"),
    (EVERY, ["a", "c"], HALVES, {"labels": ["a", "b"]}, r"labels does not name: \['c'\]; pass"),
    (EVERY, ["0", "1"], HALVES, {"labels": [0, 1]}, r"labels does not name: \['0', '1'\]; pass"),
    *(
        (WEIGHTED, [0, 1], HALVES, {"sample_weight": w}, "sample_weight of shape .* expected 2 fin")
        for w in ([1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan], [1.0, np.inf])
    ),
    *(
        (N_BINS, [0, 1], HALVES, {"n_bins": n}, r"n_bins must be an integer of at least 1; got")
        for n in (0, -1, 2.5)
    ),
    (BINNED, [0, 1], HALVES, {"kind": "top"}, "kind must be 'top-label' or 'classwise'; got 'top'"),
    (BINNED, [0, 1], HALVES, {"binning": "equal"}, "must be 'width' or 'mass'; got 'equal'"),
    *(
        ([log_loss], [0, 1], HALVES, {"clip": clip}, r"clip must lie strictly between 0 and 1; got")
        for clip in (0.0, 1.0, -1.0, math.nan)
    ),
]


@pytest.mark.parametrize(("scores", "y", "p", "options", "message"), BAD)
def test_bad_input_is_named(scores, y, p, options, message):
    for score in scores:
        with pytest.raises(ValueError, match=message):
            score(y, p, **options)


def votes(rng, n, n_classes, sharpness):
    logits = rng.normal(size=(n, n_classes)) * sharpness
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True)


def test_draws_are_those_of_a_plain_bootstrap():
    """The product of counts and columns is the score of the drawn rows, bin by bin."""
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=60)
    before, after = votes(rng, 60, 3, 1.0), votes(rng, 60, 3, 2.0)
    found = {c.name: c for c in score_changes(y, before, after, seed=5)}
    rng = np.random.default_rng(5)
    differences = []
    for _ in range(module.DRAWS):
        rows = rng.integers(60, size=60)
        old, new = (module.scores(y[rows], p[rows]) for p in (before, after))
        differences.append([new[name] - old[name] for name in found])
    low, high = np.quantile(differences, [0.025, 0.975], axis=0)
    for i, (name, change) in enumerate(found.items()):
        # The AUC and F1 of a draw are taken to first order.
        off = 0.02 if name in ("AUC", "F1") else 1e-9
        assert [change.low, change.high] == pytest.approx([low[i], high[i]], abs=off), name


def test_intervals_cover_the_truth_as_often_as_they_say_and_pairing_narrows_them(monkeypatch):
    """Two models of known squared error: 95% of intervals hold the true difference."""
    monkeypatch.setattr(module, "DRAWS", 300)
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(100):
        y = rng.normal(size=150)
        shared = rng.normal(size=150)
        mse, *_ = score_changes(y, y + shared, y + 0.8 * shared, seed=trial)
        covered += mse.low <= 0.8**2 - 1.0 <= mse.high
    assert 88 <= covered <= 100
    rng = np.random.default_rng(3)
    y, shared = rng.normal(size=400), rng.normal(size=400)
    paired, *_ = score_changes(y, y + shared, y + shared * 0.99)
    other, *_ = score_changes(y, y + shared, y + rng.permutation(shared) * 0.99)
    assert paired.high - paired.low < 0.2 * (other.high - other.low)
    assert paired.verdict == "better"
    assert other.verdict == "no clear change"
