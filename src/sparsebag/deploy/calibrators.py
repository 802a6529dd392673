"""Calibrators of a finished vote, known to files and exports by their kind.

To add one: a frozen dataclass with ``kind``, ``params`` and ``transform`` in `sparsebag.refine`,
a line in `CALIBRATORS`, and its nodes in `sparsebag.deploy.export_onnx.CALIBRATOR_NODES`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.refine.calibrator import Calibrator, Params
from sparsebag.refine.isotonic import Isotonic
from sparsebag.refine.temperature import Temperature, TemperedFloor
from sparsebag.refine.vector_scaling import VectorScaling

__all__ = [
    "CALIBRATORS",
    "Calibrator",
    "Isotonic",
    "Params",
    "Temperature",
    "TemperedFloor",
    "VectorScaling",
    "check_can_be_carried",
    "finish_in_kernel",
    "name_of",
    "rebuild_calibrator",
]


def _temperature(params: Params, n_classes: int) -> Calibrator:
    return Temperature(_number(params, "temperature"))


def _tempered_floor(params: Params, n_classes: int) -> Calibrator:
    return TemperedFloor(_number(params, "temperature"), _number(params, "share"))


def _vector_scaling(params: Params, n_classes: int) -> Calibrator:
    scale, shift = _array(params, "scale"), _array(params, "shift")
    if scale.shape != (n_classes,):
        raise ValueError("vector scaling has one scale a class.")
    return VectorScaling(scale, shift, _number(params, "share"))


def _isotonic(params: Params, n_classes: int) -> Calibrator:
    lengths = _array(params, "lengths")
    if lengths.shape != (1 if n_classes == 2 else n_classes,):
        raise ValueError("an isotonic calibrator has a map a class, or one for two classes.")
    return Isotonic(_array(params, "knots"), _array(params, "values"), lengths)


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
    "tempered_floor": _tempered_floor,
    "vector_scaling": _vector_scaling,
    "isotonic": _isotonic,
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
    >>> rebuild_calibrator("temperature", {"temperature": np.array([2.0])}, 2)
    Temperature(temperature=2.0)
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
    if type(calibrator) is Temperature:
        return 1.0 / calibrator.temperature, 0.0
    if type(calibrator) is TemperedFloor:
        return 1.0 / calibrator.temperature, calibrator.share
    return 1.0, 0.0
