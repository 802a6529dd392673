"""Calibrators of a finished vote, known to files and exports by their kind.

To add one: a frozen dataclass with ``kind``, ``params`` and ``transform`` in
`sparsebag.calibration`, a line in `CALIBRATORS`, and its nodes in `CALIBRATOR_NODES` of
`sparsebag.deploy.export_onnx`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparsebag.calibration.calibrator import Calibrator, Params
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy.not_exportable import NotExportable

__all__ = [
    "CALIBRATORS",
    "Calibrator",
    "Params",
    "Temperature",
    "check_can_be_carried",
    "finish_in_kernel",
    "name_of",
    "rebuild_calibrator",
]


def _temperature(params: Params, n_classes: int) -> Calibrator:
    return Temperature(_number(params, "temperature"), _number(params, "share"))


def _array(params: Params, name: str) -> np.ndarray:
    if name not in params:
        raise ValueError(f"the calibrator's parameter {name} is missing.")
    return params[name]


def _number(params: Params, name: str) -> float:
    values = _array(params, name)
    if values.shape != (1,):
        raise ValueError(f"the calibrator's parameter {name} is one number.")
    return float(values[0])


CALIBRATORS: dict[str, Callable[[Params, int], Calibrator]] = {
    "temperature": _temperature,
}
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
    >>> params = {"temperature": np.array([2.0]), "share": np.array([0.0])}
    >>> rebuild_calibrator("temperature", params, 2)
    Temperature(temperature=2.0, share=0.0)
    """
    if kind not in CALIBRATORS:
        known = ", ".join(sorted(CALIBRATORS))
        raise ValueError(f"calibrator {kind!r} is not known to this version; it knows {known}.")
    if not all(np.all(np.isfinite(values)) for values in params.values()):
        raise ValueError(f"the {kind} calibrator has parameters that are not finite.")
    return CALIBRATORS[kind](params, n_classes)


def check_can_be_carried(calibrator: Calibrator) -> None:
    """One sentence for a calibrator that files cannot hold.

    Parameters
    ----------
    calibrator : Calibrator

    Examples
    --------
    >>> check_can_be_carried(Temperature(2.0))
    """
    if calibrator.kind not in CALIBRATORS:
        raise NotExportable(
            f"a calibrator of your own ({name_of(calibrator)}) cannot be stored in a file; use one "
            f"of {', '.join(sorted(CALIBRATORS))}, or pickle the estimator."
        )


def name_of(calibrator: Calibrator) -> str:
    """What the user calls it: its kind, or the class of an object of the user's.

    Parameters
    ----------
    calibrator : Calibrator

    Returns
    -------
    str

    Examples
    --------
    >>> name_of(Temperature(2.0))
    'temperature'
    """
    models = getattr(calibrator, "models", ())
    return type(models[0]).__name__ if models else calibrator.kind


def finish_in_kernel(calibrator: Calibrator | None) -> tuple[float, float]:
    """Inverse temperature and share of the uniform distribution that the kernel applies.

    Parameters
    ----------
    calibrator : Calibrator or None

    Returns
    -------
    tuple of float

    Examples
    --------
    >>> finish_in_kernel(Temperature(2.0))
    (0.5, 0.0)
    """
    if isinstance(calibrator, Temperature):
        return 1.0 / calibrator.temperature, calibrator.share
    return 1.0, 0.0
