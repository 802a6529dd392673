"""A scale and a shift for every class: beta calibration where there are two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sparsebag.refine.calibrator import Params, logarithm, softmax_rows
from sparsebag.refine.temperature import (
    LARGEST_SHARE,
    SHARPEST,
    SOFTEST,
    check_share,
    fit_tempered_floor,
)

RIDGE = 1.0
"""Rows' worth of a squared difference between the scales of classes, or of a squared shift."""

SMALLEST = np.finfo(np.float64).tiny
SMALLEST_PROGRESS, MOST_ITERATIONS = 1e-7, 50
"""Relative, in log-loss: what comes after is less than the rows can tell."""


# eq=False: comparing arrays has no single truth value.
@dataclass(frozen=True, eq=False)
class VectorScaling:
    """Log-probabilities scaled and shifted class by class, then a share of the uniform [1]_.

    For two classes this is beta calibration [2]_, with a floor. Equal scales and no shifts are a
    `TemperedFloor`. It can change the order of classes.

    Attributes
    ----------
    scale : ndarray of shape (C,)
        Not negative.
    shift : ndarray of shape (C,)
    share : float
        Of the uniform distribution in the result.

    References
    ----------
    .. [1] Guo et al., "On calibration of modern neural networks", ICML 2017.
    .. [2] Kull, Silva Filho and Flach, "Beta calibration", AISTATS 2017.

    Examples
    --------
    >>> shifted = VectorScaling(np.ones(2), np.log([1.0, 3.0]), 0.0)
    >>> shifted.transform(np.array([[0.5, 0.5]])).round(6).tolist()
    [[0.25, 0.75]]
    """

    scale: np.ndarray
    shift: np.ndarray
    share: float
    kind: ClassVar[str] = "vector_scaling"

    def __post_init__(self) -> None:
        check_share(self.share)
        if self.scale.ndim != 1 or self.scale.shape != self.shift.shape:
            raise ValueError("vector scaling has one scale and one shift a class.")
        if not np.all(self.scale >= 0.0):
            raise ValueError("a scale of vector scaling is negative, or not a number.")

    @property
    def params(self) -> Params:
        """Scales, shifts, and the share as an array of one."""
        return {"scale": self.scale, "shift": self.shift, "share": np.array([self.share])}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """(1 - share) softmax(scale * log(p) + shift) + share / C."""
        with np.errstate(invalid="ignore"):
            logits = logarithm(proba) * self.scale
        logits = np.where(np.isnan(logits), 0.0, logits) + self.shift  # 0 * -inf: p ** 0
        scaled = softmax_rows(logits)
        return np.asarray((1.0 - self.share) * scaled + self.share / proba.shape[1])


def fit_vector_scaling(
    proba: np.ndarray, target: np.ndarray, weight: np.ndarray, n_rows: int | None = None
) -> VectorScaling:
    """Scales, shifts and share of least log-loss, held back towards one temperature.

    Parameters
    ----------
    proba : ndarray of shape (votes, C)
        Votes as they will be deployed, none of them zero.
    target : int ndarray of shape (votes,)
        Column of each vote's true class.
    weight : ndarray of shape (votes,)
    n_rows : int, optional
        Rows behind the votes, where there are several votes a row.

    Returns
    -------
    VectorScaling

    Examples
    --------
    >>> votes = np.array([[0.5, 0.5]] * 400)
    >>> fitted = fit_vector_scaling(votes, np.repeat([0, 1], [100, 300]), np.ones(400))
    >>> fitted.transform(votes)[0].round(1).tolist()
    [0.3, 0.7]
    """
    from scipy.optimize import minimize

    n_classes = proba.shape[1]
    logits = np.log(proba)
    hot = target[:, None] == np.arange(n_classes)
    weight = weight / weight.sum()
    ridge = RIDGE / (len(proba) if n_rows is None else n_rows)
    start = fit_tempered_floor(proba, target, weight, n_rows)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        scale, shift, share = theta[:n_classes], theta[n_classes:-1], theta[-1]
        scaled = softmax_rows(logits * scale + shift)
        of_true = np.einsum("ic,ic->i", scaled, hot)
        q = np.maximum((1.0 - share) * of_true + share / n_classes, SMALLEST)  # a step too long
        apart = scale - scale.mean()
        value = -float(weight @ np.log(q)) + ridge * float(apart @ apart + shift @ shift)
        # dq/dz_c = (1 - share) p_true ([c is true] - p_c)
        by_logit = (-weight * (1.0 - share) * of_true / q)[:, None] * (hot - scaled)
        slope = np.concatenate(
            [
                np.einsum("ic,ic->c", by_logit, logits) + 2.0 * ridge * apart,
                by_logit.sum(axis=0) + 2.0 * ridge * shift,
                [-float(weight @ ((1.0 / n_classes - of_true) / q))],
            ]
        )
        return value, slope

    first = np.concatenate(
        [np.full(n_classes, 1.0 / start.temperature), np.zeros(n_classes), [start.share]]
    )
    scales, shifts = (1.0 / SOFTEST, 1.0 / SHARPEST), (-np.inf, np.inf)
    bounds = [scales] * n_classes + [shifts] * n_classes + [(0.0, LARGEST_SHARE)]
    stop = {"ftol": SMALLEST_PROGRESS, "maxiter": MOST_ITERATIONS}
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options=stop).x
    return VectorScaling(found[:n_classes], found[n_classes:-1], float(found[-1]))
