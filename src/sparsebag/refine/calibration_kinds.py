"""What ``calibration=`` may be."""

from __future__ import annotations

from typing import Any

from sparsebag.refine.own_calibrator import is_calibrator

KINDS = ("auto", "temperature", "tempered_floor", "beta", "vector_scaling", "isotonic")
"""What ``calibration=`` may be called; None is no calibration."""


def is_auto(kind: Any) -> bool:
    """Whether the kind of calibrator is left to us.

    Parameters
    ----------
    kind : str, object or None

    Returns
    -------
    bool

    Examples
    --------
    >>> is_auto("auto"), is_auto("isotonic")
    (True, False)
    """
    return isinstance(kind, str) and kind == "auto"


def calibration_for(task: str, kind: Any) -> Any:
    """``calibration=`` of a task; none of a regressor, which must not be asked for another.

    Parameters
    ----------
    task : {"classification", "regression"}
    kind : str, object or None

    Returns
    -------
    str, object or None

    Examples
    --------
    >>> calibration_for("classification", "isotonic"), calibration_for("regression", "auto")
    ('isotonic', None)
    """
    if task == "classification":
        return kind
    if not (kind is None or is_auto(kind)):
        raise ValueError(
            f"calibration={kind!r} corrects class probabilities, and a regressor has none; leave "
            "it at 'auto' or pass None."
        )
    return None


def resolve_kind(kind: Any, n_classes: int) -> Any:
    """``calibration=`` as a key of `FAMILIES`, "auto", None, or an object that can calibrate.

    Parameters
    ----------
    kind : str, object or None
    n_classes : int

    Returns
    -------
    str, object or None

    Examples
    --------
    >>> resolve_kind("beta", 2)
    'vector_scaling'
    """
    if isinstance(kind, str):
        if kind == "beta" and n_classes != 2:
            raise ValueError(
                f"calibration='beta' is for two classes and there are {n_classes}; use "
                "'vector_scaling', its form for more."
            )
        if kind in KINDS:
            return "vector_scaling" if kind == "beta" else kind
    elif kind is None or is_calibrator(kind):
        return kind
    raise ValueError(
        f"calibration={kind!r} is not known; use one of {', '.join(map(repr, KINDS))}, None, or "
        "an object with fit and predict, transform or predict_proba."
    )
