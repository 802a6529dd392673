"""What a report holds beside its table: everything the page draws, as plain data."""

from __future__ import annotations

import datetime
import platform
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import scipy
import sklearn

from sparsebag.judge.selection import Selection
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.prediction_changes import PredictionChanges
from sparsebag.report.trusted_members import TrustedMembers

FEW_TEST_ROWS = 200
"""Below this many rows the test figures themselves are little more than luck."""
TRAINING_ROWS = (
    "These are the rows the ensemble was trained on: every score is too good, the full ensemble's "
    "most of all. Pass rows it has not seen."
)


@dataclass(frozen=True)
class Details:
    """The page's data.

    Attributes
    ----------
    selection : Selection
    cautions : tuple of str
    settings, versions : dict of str to str
    reliability : tuple of two ReliabilityCurve, or None
        Before and after.
    changed : PredictionChanges or None
    trusted : TrustedMembers or None
        Where weights depend on the row.
    """

    selection: Selection
    cautions: tuple[str, ...]
    settings: dict[str, str]
    versions: dict[str, str]
    reliability: tuple[ReliabilityCurve, ReliabilityCurve] | None = None
    changed: PredictionChanges | None = None
    trusted: TrustedMembers | None = None


def cautions(
    selection: Selection, *, is_unverified: bool, n_test_rows: int, trained_on: bool = False
) -> tuple[str, ...]:
    """What a reader must know before believing the figures.

    Parameters
    ----------
    selection : Selection
    is_unverified : bool
        Whether nothing proved that the out-of-bag rows are the training rows.
    n_test_rows : int
        Zero where there are none.
    trained_on : bool
        Whether they are the training rows.

    Returns
    -------
    tuple of str
    """
    found = []
    curve, tolerance = selection.curve, selection.tolerance
    ratio = 1.0 if curve is None else float(curve.ratio_calibrated[selection.position])
    if curve is not None and tolerance is not None and ratio > 1.0 + tolerance:
        found.append(
            f"The expected {curve.score} is more than {tolerance:.1%} above the whole ensemble's: "
            "the budget allows nothing within the tolerance."
        )
    if is_unverified:
        found.append(
            "Nothing proved that the rows given were the ensemble's training rows, in order; fit "
            "the ensemble with oob_score=True to have it proved."
        )
    if n_test_rows == 0:
        found.append(
            "No test rows were given, so nothing is checked on unseen rows: pass some to "
            "report(X_test, y_test), or --test on the command line."
        )
    elif trained_on:
        found.append(TRAINING_ROWS)
    elif n_test_rows < FEW_TEST_ROWS:
        found.append(
            f"There are only {n_test_rows} test rows: the figures on them are uncertain, as the "
            "intervals show."
        )
    return tuple(found)


def versions() -> dict[str, str]:
    """What made the report, and when.

    Returns
    -------
    dict of str to str
    """
    now = datetime.datetime.now(datetime.UTC)
    return {
        "made": now.strftime("%Y-%m-%d %H:%M UTC"),
        "sparsebag": metadata.version("sparsebag"),
        "scikit-learn": sklearn.__version__,
        "NumPy": np.__version__,
        "SciPy": scipy.__version__,
        "Python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


def shown_settings(params: dict[str, Any]) -> dict[str, str]:
    """An estimator's parameters in words; the ensemble by its kind only.

    Parameters
    ----------
    params : dict

    Returns
    -------
    dict of str to str

    Examples
    --------
    >>> shown_settings({"tolerance": 0.01, "loss": "auto"})
    {'tolerance': '0.01', 'loss': 'auto'}
    """
    return {name: _shown(value) for name, value in params.items()}


def _shown(value: Any) -> str:
    inner = getattr(value, "estimator", None)
    if inner is not None and type(value).__name__ == "FrozenEstimator":
        return f"{type(inner).__name__}, fitted beforehand"
    if value is None or isinstance(value, (str, int, float, bool)):
        return str(value)
    return type(value).__name__
