"""Votes whose calibration is known."""

import numpy as np


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
