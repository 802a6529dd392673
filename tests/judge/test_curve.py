"""The curve of sizes: ratios and their errors, and what is chosen from them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judge.curves import curve_of
from sparsebag.judge.choose import choose_size
from sparsebag.judge.curve import NO_RATIO, expected

seeds = st.integers(0, 10**6)


@settings(max_examples=40, deadline=None)
@given(seed=seeds)
def test_rows_without_a_loss_or_a_weight_are_left_out_of_the_comparison(seed):
    rng = np.random.default_rng(seed)
    whole, loss, weight = rng.random(40), rng.random(40), rng.random(40)
    gone = rng.random(40) < 0.4
    ratio, error = expected([np.where(gone, np.nan, loss), whole], whole, weight)
    left = expected([loss[~gone], whole[~gone]], whole[~gone], weight[~gone])
    assert ratio[0] == pytest.approx(left[0][0])
    assert error[0] == pytest.approx(left[1][0])
    unweighted = expected([loss, whole], whole, np.where(gone, 0.0, weight))
    assert unweighted[0][0] == pytest.approx(left[0][0])


def test_the_error_is_that_of_a_ratio_of_means():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(400):
        whole = rng.exponential(size=300)
        loss = 1.2 * whole + 0.3 * rng.normal(size=300)
        ratio, error = expected([loss, whole], whole, np.ones(300))
        found.append((ratio[0], error[0]))
    ratios, errors = np.transpose(found)
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.12)


def test_one_row_with_nearly_all_the_loss_makes_a_ratio_unsure():
    whole, loss = np.ones(400), np.full(400, 1e6)
    whole[7], loss[7] = 1e9, 9e8
    (ratio, _), (error, _) = expected([loss, whole], whole, np.ones(400))
    assert ratio < 1.5 < 1e3 < error  # of the other rows


def test_an_ensemble_without_a_mistake_is_matched_by_none_with_one():
    nothing, some = np.zeros(40), np.full(40, 0.1)
    ratio, error = expected([some, nothing, nothing], nothing, np.ones(40))
    assert ratio.tolist() == [NO_RATIO, 1.0, 1.0]
    assert np.all(np.isfinite(error))
    assert choose_size(curve_of(ratio, error), 0.99, None) == 1


def pairs(low, high):
    return st.tuples(st.floats(low, high), st.floats(low, high)).map(sorted)


@settings(max_examples=150, deadline=None)
@given(
    steps=st.lists(st.floats(0.0, 0.5), min_size=1, max_size=9),
    error=st.floats(0.0, 0.2),
    tolerances=pairs(0.0, 0.99),
    confidences=pairs(0.5, 0.999),
)
def test_more_tolerance_or_less_confidence_never_chooses_a_larger_size(
    steps, error, tolerances, confidences
):
    ratio = 0.95 + np.cumsum(steps)[::-1]
    curve = curve_of([*ratio, 1.0], [*np.full(len(steps), error), 0.0])
    for confidence in (None, *confidences):
        strict, loose = (choose_size(curve, t, confidence) for t in tolerances)
        assert loose <= strict
    for tolerance in (0.1, *tolerances):
        bold, sure = (choose_size(curve, tolerance, c) for c in confidences)
        assert bold <= sure


def test_a_little_is_allowed_for_having_picked():
    curve = curve_of([1.3, 1.05, 1.0], [0.1, 0.04, 0.0])
    assert choose_size(curve, 0.1, None) == 1
    assert choose_size(curve, 0.07, None) == 2  # 1.05 and 0.65 of 0.04 are above 1.07
    assert choose_size(curve, 0.055, 0.5) == 1  # at even odds the expected loss alone counts


def test_nothing_smaller_will_do():
    assert choose_size(curve_of([3.0, 2.0, 1.0]), 0.5, None) == 2


def test_tables():
    curve = curve_of([1.5, 1.1, 0.98, 1.0], [0.1, 0.05, 0.02, 0.0])
    frame = curve.to_frame()
    assert list(frame.columns[:5]) == ["share", "n_nodes", "n_members", "ratio", "error"]
    assert len(frame) == len(curve) == 4
    assert len(str(curve).splitlines()) == 6
    told = str(replace(curve, kept=1, tolerance=0.2, ratio_calibrated=curve.ratio + 0.1))
    assert [line.endswith(" *") for line in told.splitlines()] == [False, False, True] + [False] * 5
    for change in ("+50.0% ± 10.0%", "+10.0% ± 5.0%   ", "+20.0% ± 5.0% *"):
        assert change in told
    assert told.endswith("+20.0%: of the last column plus 0 of its error")
    assert "averaged" in str(replace(curve, ratio=np.array([1.5, 1.1, 1.1, 1.0])))
