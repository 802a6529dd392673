"""One temperature for the vote, with a fitted floor; the order of the classes stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsebag.calibration.calibrator import Params, logarithm, softmax_rows

SHARPEST, SOFTEST = 0.05, 20.0
"""Temperatures outside of these say that the votes rank badly, not that they are unsure."""
LARGEST_SHARE = 0.5
"""Of the uniform distribution in a tempered vote."""
SPREAD_OF_TEMPERATURES = 0.2
"""Prior standard deviation of the temperature's logarithm about zero."""
USUAL_SHARE = 0.005
SURPRISES = 1.0
"""Prior of the share: an exponential of this mean, as if one row had been seen besides of which
the vote knew nothing. Sure votes of n rows without a mistake do not show that the next one is
sure: the share then is about ``1 / (n + 200)``, as in Laplace's rule."""
LEAST_SHARE = 1e-9
"""Keeps the logarithm of the share finite."""
CONVERGED = 1e-7
"""Relative change of the log-loss at which the fit stops."""
START_SHARES = (1e-3, 3e-2)
"""The log-loss is not convex in the share; the lower of two minima is taken."""


@dataclass(frozen=True)
class Temperature:
    """Probabilities to the power ``1/temperature``, normalised, and mixed with the uniform ones.

    A few trees agree on rows they are wrong about. No temperature mends that without softening
    every other row; a share of the uniform distribution does.

    Attributes
    ----------
    temperature : float
        Below one sharpens, above one softens.
    share : float, default 0
        Of the uniform distribution in the result.
    scale : float, default 0
        Where the votes stand for scores: these are the votes times the scale, and no logarithms
        are taken.

    Examples
    --------
    >>> Temperature(0.5).transform(np.array([[0.75, 0.25]])).round(6).tolist()
    [[0.9, 0.1]]
    >>> Temperature(0.5, 0.5).transform(np.array([[0.75, 0.25]])).round(6).tolist()
    [[0.7, 0.3]]
    """

    temperature: float
    share: float = 0.0
    scale: float = 0.0
    kind: ClassVar[str] = "temperature"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.temperature) and self.temperature > 0.0):
            raise ValueError(f"a temperature must be above 0 and finite, not {self.temperature}.")
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"a share must be at least 0 and below 1, not {self.share}.")
        if not (np.isfinite(self.scale) and self.scale >= 0.0):
            raise ValueError(f"a scale must be at least 0 and finite, not {self.scale}.")

    @property
    def params(self) -> Params:
        """Temperature, share and scale, as arrays of one."""
        return {name: np.array([value]) for name, value in vars(self).items()}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """(1 - share) softmax(scores / temperature) + share / C."""
        scores = self.scale * proba if self.scale else logarithm(proba)
        tempered = softmax_rows(scores / self.temperature)
        if self.share == 0.0:
            return tempered
        return np.asarray((1.0 - self.share) * tempered + self.share / proba.shape[1])


def fit_temperature(
    proba: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    start: Temperature | None = None,
) -> Temperature:
    """Temperature and share of least log-loss; few rows move them less far from none.

    Parameters
    ----------
    proba : ndarray of shape (rows, C)
        Votes of rows that had no part in them, none of them zero.
    target : int ndarray of shape (rows,)
        Column of each row's class.
    weight : ndarray of shape (rows,)
    start : Temperature, optional
        Of votes that are much the same; saves time.

    Returns
    -------
    Temperature

    Examples
    --------
    >>> votes = np.array([[0.6, 0.4]] * 20_000)  # right nine times of ten
    >>> fitted = fit_temperature(votes, np.repeat([0, 1], [18_000, 2_000]), np.ones(20_000))
    >>> fitted.transform(votes)[0].round(2).tolist()
    [0.9, 0.1]
    """
    starts = [(0.0, share) for share in START_SHARES]
    if start is not None:
        starts = [(-float(np.log(start.temperature)), max(start.share, LEAST_SHARE))]
    found = [_least_log_loss(proba, target, weight, at) for at in starts]
    (beta, share), _ = min(found, key=lambda result: result[1])
    return Temperature(float(1.0 / beta), float(share))


def _least_log_loss(
    proba: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    start: tuple[float, float],
) -> tuple[np.ndarray, float]:
    """(inverse temperature, share) of least penalised log-loss, and the loss there."""
    from scipy.optimize import minimize

    # Logits beside the true class's: p_true = 1 / Σ exp(β d_c), with d_true = 0.
    logits = np.log(proba)
    beside = logits - np.take_along_axis(logits, target[:, None], axis=1)
    weight = weight / weight.sum()
    n_classes = proba.shape[1]
    # Minus the logarithms of a normal prior and of an exponential one, as a row's share of nats.
    rows = len(proba)
    pull, cost = 0.5 / SPREAD_OF_TEMPERATURES**2 / rows, 1.0 / USUAL_SHARE / rows
    surprises = SURPRISES / rows

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        beta, share = np.exp(theta)
        z = beta * beside
        top = z.max(axis=1, keepdims=True)  # at least zero
        odds = np.exp(z - top)
        total = odds.sum(axis=1)
        tempered = np.exp(-top[:, 0]) / total
        q = (1.0 - share) * tempered + share / n_classes
        # dp/dβ = -p E[d], the mean under the tempered vote
        slope = -tempered * np.einsum("ic,ic->i", odds, beside) / total
        prior = pull * theta[0] ** 2 + cost * share - surprises * theta[1]
        d_beta = -float(weight @ ((1.0 - share) * slope / q)) * beta
        d_share = -float(weight @ ((1.0 / n_classes - tempered) / q)) * share
        d_prior = np.array([2.0 * pull * theta[0], cost * share - surprises])
        return float(prior - weight @ np.log(q)), np.array([d_beta, d_share]) + d_prior

    bounds = [(-np.log(SOFTEST), -np.log(SHARPEST)), (np.log(LEAST_SHARE), np.log(LARGEST_SHARE))]
    first = np.array([start[0], np.log(start[1])])
    options = {"ftol": CONVERGED, "maxiter": 50}
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return np.exp(found.x), float(found.fun)
