"""Which calibrator: fitted to held-out votes of the deployed size, kept where it helps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import Calibrator
from sparsebag.calibration.own import fit_own, is_calibrator
from sparsebag.calibration.temperature import Temperature, fit_temperature

FEWEST_ROWS = 50
"""Below, "auto" leaves the votes as they are."""
OWN_FOLDS = 3
"""Folds in which a user's calibrator is judged."""


@dataclass(frozen=True)
class Calibration:
    """A calibrator and what it is worth.

    Attributes
    ----------
    calibrator : Calibrator or None
        None: the votes are best left as they are.
    loss_before, loss_after : float
        Log-loss on the rows it was fitted on; an object of the user's is cross-fitted for it.
    n_rows : int
        How many these are.
    brier_ratio, brier_error : float
        Brier score after, over before, and its standard error over the rows.
    """

    calibrator: Calibrator | None
    loss_before: float
    loss_after: float
    n_rows: int
    brier_ratio: float = 1.0
    brier_error: float = 0.0

    @property
    def temperature(self) -> float | None:
        """The temperature, where the calibrator has one."""
        return getattr(self.calibrator, "temperature", None)

    @property
    def name(self) -> str:
        """The calibrator in a few words."""
        if self.calibrator is None:
            return "not calibrated: no gain on held-out rows"
        if self.temperature is None:
            return "calibrator of your own"
        share = getattr(self.calibrator, "share", 0.0)
        return f"temperature {self.temperature:.3g}" + f", {share:.0%} uniform" * (share >= 0.01)

    def __str__(self) -> str:
        if self.calibrator is None:
            return self.name
        return f"{self.name}; held-out log-loss {self.loss_before:.4g} → {self.loss_after:.4g}"


def check_calibration(calibration: Any, task: str) -> Any:
    """``calibration=`` once it is known to be usable; None for a regressor.

    Parameters
    ----------
    calibration : {"auto", "temperature"}, object or None
    task : {"classification", "regression"}

    Returns
    -------
    str, object or None

    Examples
    --------
    >>> check_calibration("auto", "classification"), check_calibration("auto", "regression")
    ('auto', None)
    """
    if isinstance(calibration, str) and calibration not in ("auto", "temperature"):
        raise ValueError(
            f"calibration={calibration!r} is not known; use 'auto', 'temperature', None, or an "
            "object with fit and predict (sklearn.isotonic.IsotonicRegression(), say)."
        )
    if not (calibration is None or isinstance(calibration, str) or is_calibrator(calibration)):
        raise ValueError(
            f"calibration={calibration!r} cannot calibrate: it needs fit, and predict, transform "
            "or predict_proba."
        )
    if task == "classification":
        return calibration
    if not (calibration is None or isinstance(calibration, str)):
        raise ValueError(
            f"calibration={calibration!r} corrects class probabilities, and a regressor has none; "
            "leave it at 'auto' or pass None."
        )
    return None


def fit_calibration(
    calibration: Any,
    proba: np.ndarray,
    target: np.ndarray,
    weight: np.ndarray,
    start: Temperature | None = None,
) -> Calibration:
    """Fit a calibrator to held-out votes.

    Parameters
    ----------
    calibration : {"auto", "temperature"}, object or None
        "auto" is a temperature where it lowers the log-loss, else nothing.
    proba : ndarray of shape (rows, C)
        Held-out votes as they will be deployed, none of them zero.
    target : int ndarray of shape (rows,)
        Column of each row's class.
    weight : ndarray of shape (rows,)
    start : Temperature, optional
        Where the fit starts.

    Returns
    -------
    Calibration

    Examples
    --------
    >>> votes = np.array([[0.6, 0.4]] * 1000)
    >>> target = np.repeat([0, 1], [900, 100])
    >>> fit_calibration("auto", votes, target, np.ones(1000)).temperature < 1.0
    True
    """
    before = log_loss(proba, target, weight)
    identity = Calibration(None, before, before, len(proba))
    is_auto = isinstance(calibration, str) and calibration == "auto"
    if calibration is None or (is_auto and len(proba) < FEWEST_ROWS):
        return identity
    if isinstance(calibration, str):
        found: Calibrator = fit_temperature(proba, target, weight, start)
    else:
        found = fit_own(calibration, proba, target, weight)
    calibrated = calibrated_votes(calibration, found, proba, target, weight)
    after = log_loss(calibrated, target, weight)
    if is_auto and after >= before:
        return identity
    hot = target[:, None] == np.arange(proba.shape[1])
    old, new = (weight * np.sum((p - hot) ** 2, axis=1) for p in (proba, calibrated))
    total = max(float(old.sum()), 1e-300)
    ratio = float(new.sum()) / total
    error = float(np.sqrt(np.sum((new - ratio * old) ** 2))) / total
    return Calibration(found, before, after, len(proba), ratio, error)


def calibrated_votes(
    calibration: Any, found: Calibrator, proba: np.ndarray, target: np.ndarray, weight: np.ndarray
) -> np.ndarray:
    """Votes as a calibrator that has not seen their rows would give them.

    A temperature has two numbers, which its own rows do not flatter. An object of the user's may
    have any number: it is cross-fitted, unless a class has too few rows for that.

    Parameters
    ----------
    calibration : {"auto", "temperature"} or object
    found : Calibrator
        What it is once fitted to all rows.
    proba : ndarray of shape (rows, C)
    target : int ndarray of shape (rows,)
    weight : ndarray of shape (rows,)

    Returns
    -------
    ndarray of shape (rows, C)
    """
    counts = np.bincount(target, minlength=proba.shape[1])
    if isinstance(calibration, str) or counts.min() < OWN_FOLDS:
        return found.transform(proba)
    from sklearn.model_selection import StratifiedKFold

    out = np.empty_like(proba)
    for fit, held in StratifiedKFold(OWN_FOLDS).split(proba, target):
        out[held] = fit_own(calibration, proba[fit], target[fit], weight[fit]).transform(
            proba[held]
        )
    return out


def log_loss(proba: np.ndarray, target: np.ndarray, weight: np.ndarray) -> float:
    """Weighted mean log-loss.

    Parameters
    ----------
    proba : ndarray of shape (rows, C)
    target : int ndarray of shape (rows,)
    weight : ndarray of shape (rows,)

    Returns
    -------
    float

    Examples
    --------
    >>> round(log_loss(np.array([[0.5, 0.5]]), np.array([0]), np.ones(1)), 3)
    0.693
    """
    of_true = np.take_along_axis(proba, target[:, None], axis=1)[:, 0]
    smallest = np.finfo(np.float64).tiny
    return -float(weight @ np.log(np.maximum(of_true, smallest)) / weight.sum())
