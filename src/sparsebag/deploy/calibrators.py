"""Calibrators of a finished vote, known to files and exports by their kind.

To add one: a frozen dataclass with ``kind``, ``params`` and ``transform``, and a line in
`CALIBRATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

Params = Mapping[str, np.ndarray]


class Calibrator(Protocol):
    """A map from class probabilities to better ones, with its parameters as arrays."""

    @property
    def kind(self) -> str:
        """Name under which files and exports know it."""

    @property
    def params(self) -> Params:
        """Everything it has learned."""

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """Calibrated probabilities, rows on the simplex."""


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
        if not (np.isfinite(self.temperature) and self.temperature > 0.0):
            raise ValueError(f"a temperature must be above 0 and finite, not {self.temperature}.")

    @property
    def params(self) -> Params:
        """The temperature, as an array of one."""
        return {"temperature": np.array([self.temperature])}

    def transform(self, proba: np.ndarray) -> np.ndarray:
        """softmax(log(p) / temperature)."""
        with np.errstate(divide="ignore"):
            logits = np.log(proba) / self.temperature
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))


def _temperature(params: Params, n_classes: int) -> Calibrator:
    values = params.get("temperature")
    if values is None or values.shape != (1,):
        raise ValueError("the temperature calibrator has one parameter, temperature.")
    return Temperature(float(values[0]))


CALIBRATORS: dict[str, Callable[[Params, int], Calibrator]] = {"temperature": _temperature}
"""Kind to a function of (params, n_classes) that rebuilds the calibrator, or raises ValueError."""


def rebuild_calibrator(kind: str, params: Params, n_classes: int) -> Calibrator:
    """A calibrator from its kind and parameters, as files hold them.

    Parameters
    ----------
    kind : str
    params : mapping of str to ndarray
    n_classes : int

    Returns
    -------
    Calibrator

    Examples
    --------
    >>> rebuild_calibrator("temperature", {"temperature": np.array([2.0])}, 2)
    Temperature(temperature=2.0)
    """
    if kind not in CALIBRATORS:
        known = ", ".join(sorted(CALIBRATORS))
        raise ValueError(f"calibrator {kind!r} is not known to this version; it knows {known}.")
    if not all(np.all(np.isfinite(values)) for values in params.values()):
        raise ValueError(f"the {kind} calibrator has parameters that are not finite.")
    return CALIBRATORS[kind](params, n_classes)
