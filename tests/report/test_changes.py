"""Paired bootstrap intervals: right scores, right coverage, narrower than unpaired ones."""

import numpy as np
import pytest

from sparsebag.report import changes as module
from sparsebag.report import metrics
from sparsebag.report.changes import score_changes


def votes(rng, n, n_classes, sharpness):
    logits = rng.normal(size=(n, n_classes)) * sharpness
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scores_are_those_of_the_table(n_classes):
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=200)
    before, after = votes(rng, 200, n_classes, 1.0), votes(rng, 200, n_classes, 2.0)
    found = {c.name: c for c in score_changes(y, before, after)}
    labels = np.arange(n_classes)
    for name, score in (
        ("log-loss", metrics.log_loss),
        ("Brier", metrics.brier_score),
        ("ECE", metrics.expected_calibration_error),
    ):
        assert found[name].before == pytest.approx(score(y, before, labels=labels), rel=1e-12)
        assert found[name].after == pytest.approx(score(y, after, labels=labels), rel=1e-12)
    assert found["accuracy"].after == np.mean(after.argmax(axis=1) == y)


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
        ece = [
            metrics.expected_calibration_error(y[rows], p[rows], labels=[0, 1, 2])
            for p in (before, after)
        ]
        differences.append(ece[1] - ece[0])
    low, high = np.quantile(differences, [0.025, 0.975])
    assert found["ECE"].low == pytest.approx(low)
    assert found["ECE"].high == pytest.approx(high)


def test_the_interval_covers_the_truth_as_often_as_it_says(monkeypatch):
    """Two models of known squared error: 95 % of intervals hold the true difference."""
    monkeypatch.setattr(module, "DRAWS", 300)
    rng = np.random.default_rng(2)
    covered = 0
    for trial in range(100):
        y = rng.normal(size=150)
        shared = rng.normal(size=150)
        mse, _ = score_changes(y, y + shared, y + 0.8 * shared, seed=trial)
        covered += mse.low <= 0.8**2 - 1.0 <= mse.high
    assert 88 <= covered <= 100


def test_pairing_narrows_the_interval():
    rng = np.random.default_rng(3)
    y, shared = rng.normal(size=400), rng.normal(size=400)
    paired, _ = score_changes(y, y + shared, y + shared * 0.99)
    other, _ = score_changes(y, y + shared, y + rng.permutation(shared) * 0.99)
    assert paired.high - paired.low < 0.2 * (other.high - other.low)
    assert paired.verdict == "better"
    assert other.verdict == "no clear change"
