"""One temperature for the vote, with or without a fitted floor; both keep the order of classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sparsebag.refine.calibrator import Params, logarithm, softmax_rows

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
START_SHARES = (1e-3, 3e-2)
"""The log-loss is not convex in the share; the lower of two minima is taken."""


@dataclass(frozen=True)
class Temperature:
    """Probabilities raised to the power ``1/temperature`` and normalised.

    Attributes
    ----------
    temperature : float
        Below one sharpens, above one softens.

    Examples
    --------
    >>> Temperature(0.5).transform(np.array([[0.75, 0.25]])).round(6).tolist()
    [[0.9, 0.1]]
    """

    temperature: float
    kind: ClassVar[str] = "temperature"

    def __post_init__(self) -> None:
        check_temperature(self.temperature)

    @property
    def params(self) -> Params:
        """The temperature, as an array of one."""
        return {"temperature": np.array([self.temperature])}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """softmax(log(p) / temperature)."""
        return softmax_rows(logarithm(proba) / self.temperature)


@dataclass(frozen=True)
class TemperedFloor:
    """A temperature, then a share of the uniform class distribution: no vote is ever too sure.

    A few trees agree on rows they are wrong about. No temperature mends that without softening
    every other row; a share of the uniform distribution does.

    Attributes
    ----------
    temperature : float
        Below one sharpens, above one softens.
    share : float
        Of the uniform distribution in the result, from 0 up to but not 1.

    Examples
    --------
    >>> TemperedFloor(0.5, 0.5).transform(np.array([[0.75, 0.25]])).round(6).tolist()
    [[0.7, 0.3]]
    """

    temperature: float
    share: float
    kind: ClassVar[str] = "tempered_floor"

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_share(self.share)

    @property
    def params(self) -> Params:
        """Temperature and share, as arrays of one."""
        return {"temperature": np.array([self.temperature]), "share": np.array([self.share])}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """(1 - share) softmax(log(p) / temperature) + share / C."""
        tempered = softmax_rows(logarithm(proba) / self.temperature)
        return np.asarray((1.0 - self.share) * tempered + self.share / proba.shape[1])


Tempered = Temperature | TemperedFloor


def fit_temperature(
    proba: np.ndarray, target: np.ndarray, weight: np.ndarray, n_rows: int | None = None
) -> Temperature:
    """The temperature of least log-loss; few rows move it less far from one.

    Parameters
    ----------
    proba : ndarray of shape (rows, C)
        Votes as they will be deployed, none of them zero.
    target : int ndarray of shape (rows,)
        Column of each row's class.
    weight : ndarray of shape (rows,)
    n_rows : int, optional
        Rows behind the votes, where there are several votes a row.

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
    (log_beta, _), _ = _least_log_loss(proba, target, weight, n_rows, start=0.0, largest=0.0)
    return Temperature(float(np.exp(-log_beta)))


def fit_tempered_floor(
    proba: np.ndarray, target: np.ndarray, weight: np.ndarray, n_rows: int | None = None
) -> TemperedFloor:
    """The temperature and share of least log-loss; few rows move them less far from none.

    Parameters
    ----------
    proba : ndarray of shape (rows, C)
        Votes as they will be deployed, none of them zero.
    target : int ndarray of shape (rows,)
        Column of each row's class.
    weight : ndarray of shape (rows,)
    n_rows : int, optional
        Rows behind the votes, where there are several votes a row.

    Returns
    -------
    TemperedFloor

    Examples
    --------
    >>> votes = np.repeat([[0.999, 0.001], [0.6, 0.4]], 10_000, axis=0)
    >>> target = np.repeat([0, 1, 0, 1], [9_800, 200, 6_000, 4_000])  # too sure of the first
    >>> fitted = fit_tempered_floor(votes, target, np.ones(20_000))
    >>> float(fitted.transform(votes)[0, 1].round(2)), round(fitted.temperature, 1)
    (0.02, 1.0)
    """
    found = [_least_log_loss(proba, target, weight, n_rows, s, LARGEST_SHARE) for s in START_SHARES]
    (log_beta, share), _ = min(found, key=lambda result: result[1])
    return TemperedFloor(float(np.exp(-log_beta)), float(share))


def at_deployed_size(few: Tempered, others_few: Tempered, others: Tempered) -> Tempered:
    """A calibrator of few votes, changed as that of others changes from as few votes to many.

    Parameters
    ----------
    few : Temperature or TemperedFloor
        Of the members that are deployed, where few of them vote on a row.
    others_few, others : Temperature or TemperedFloor
        Of other members: where as few vote, and where as many as are deployed.

    Returns
    -------
    Temperature or TemperedFloor

    Examples
    --------
    >>> at_deployed_size(Temperature(0.5), Temperature(0.5), Temperature(0.25))
    Temperature(temperature=0.25)
    """
    changed = few.temperature * (others.temperature / others_few.temperature)
    return replace(few, temperature=float(np.clip(changed, SHARPEST, SOFTEST)))


def prior_loss(log_beta: float, share: float, n_rows: int) -> float:
    """Minus the logarithm of the prior of (log inverse temperature, share), a row's part of it.

    Parameters
    ----------
    log_beta : float
    share : float
        Above 0.
    n_rows : int

    Returns
    -------
    float

    Examples
    --------
    >>> prior_loss(0.0, 0.005, 100) < prior_loss(1.0, 0.005, 100)
    True
    """
    of_temperature = 0.5 * (log_beta / SPREAD_OF_TEMPERATURES) ** 2
    of_share = share / USUAL_SHARE - SURPRISES * float(np.log(share))
    return float(of_temperature + of_share) / n_rows


def _least_log_loss(
    proba: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    n_rows: int | None,
    start: float,
    largest: float,
) -> tuple[np.ndarray, float]:
    """(log inverse temperature, share) of least penalised log-loss, and the loss there."""
    from scipy.optimize import minimize

    # Logits beside the true class's: p_true = 1 / Σ exp(β d_c), with d_true = 0.
    logits = np.log(proba)
    beside = logits - np.take_along_axis(logits, target[:, None], axis=1)
    weight = weight / weight.sum()
    n_classes = proba.shape[1]
    # Minus the logarithms of a normal prior and of an exponential one, as a row's share of nats.
    rows = len(proba) if n_rows is None else n_rows
    pull, cost = 0.5 / SPREAD_OF_TEMPERATURES**2 / rows, 1.0 / USUAL_SHARE / rows
    surprises = SURPRISES / rows if largest > 0.0 else 0.0

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        beta, share = np.exp(theta[0]), theta[1]
        z = beta * beside
        top = z.max(axis=1, keepdims=True)  # at least zero
        odds = np.exp(z - top)
        total = odds.sum(axis=1)
        tempered = np.exp(-top[:, 0]) / total
        q = (1.0 - share) * tempered + share / n_classes
        # dp/dβ = -p E[d], the mean under the tempered vote
        slope = -tempered * np.einsum("ic,ic->i", odds, beside) / total
        value = -float(weight @ np.log(q)) + pull * float(theta[0]) ** 2 + cost * float(share)
        d_beta = -float(weight @ ((1.0 - share) * slope / q)) * beta
        d_share = -float(weight @ ((1.0 / n_classes - tempered) / q)) + cost
        if surprises > 0.0:
            value -= surprises * float(np.log(share))
            d_share -= surprises / float(share)
        return value, np.array([d_beta + 2.0 * pull * theta[0], d_share])

    bounds = [(-np.log(SOFTEST), -np.log(SHARPEST)), (min(LEAST_SHARE, largest), largest)]
    found = minimize(loss, np.array([0.0, start]), jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x), float(found.fun)


def check_temperature(temperature: float) -> None:
    """One sentence for a temperature that is none.

    Parameters
    ----------
    temperature : float
    """
    if not (np.isfinite(temperature) and temperature > 0.0):
        raise ValueError(f"a temperature must be above 0 and finite, not {temperature}.")


def check_share(share: float) -> None:
    """One sentence for a share that is none.

    Parameters
    ----------
    share : float
    """
    if not 0.0 <= share < 1.0:
        raise ValueError(f"a share must be at least 0 and below 1, not {share}.")
