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

from sparsebag.report.coverage import Coverage
from sparsebag.report.frontier import Frontier
from sparsebag.report.metrics import ReliabilityCurve
from sparsebag.report.prediction_changes import PredictionChanges
from sparsebag.report.trusted_members import TrustedMembers
from sparsebag.selection.selection import Selection

MOSTLY_SEEN = 0.5
"""Share of rows seen before from which a report is none on test rows; tables repeat some rows."""
FEW_TEST_ROWS = 200
"""Below this many rows the test figures themselves are little more than luck."""


@dataclass(frozen=True)
class Details:
    """The page's data.

    Attributes
    ----------
    weights : ndarray of shape (N,)
    noun : str
        What members are called.
    selection : Selection or None
    frontier : Frontier or None
    reliability : tuple of two ReliabilityCurve, or None
        Before and after.
    changed : PredictionChanges or None
    coverage : Coverage or None
    cautions : tuple of str
    settings, versions : dict of str to str
    file_bytes : int or None
        Of the ``.sbag`` file; None where members have no form but a pickle.
    trusted : TrustedMembers or None
        Where weights depend on the row.
    """

    weights: np.ndarray
    noun: str
    selection: Selection | None
    frontier: Frontier | None
    reliability: tuple[ReliabilityCurve, ReliabilityCurve] | None
    changed: PredictionChanges | None
    coverage: Coverage | None
    cautions: tuple[str, ...]
    settings: dict[str, str]
    versions: dict[str, str]
    file_bytes: int | None = None
    trusted: TrustedMembers | None = None


def cautions(
    selection: Selection | None,
    coverage: Coverage | None,
    verified_by: str | None,
    n_test_rows: int,
    share_seen: float = 0.0,
) -> tuple[str, ...]:
    """What a reader must know before believing the figures.

    Parameters
    ----------
    selection : Selection or None
    coverage : Coverage or None
    verified_by : str or None
        What proved that the rows are the training rows.
    n_test_rows : int
        Zero where there are none.
    share_seen : float
        Share of them that members were trained or chosen on.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> cautions(None, None, "leaf counts", 50)
    ('There are only 50 test rows: the figures on them are uncertain, as the intervals show.',)
    """
    found = []
    if selection is not None and not selection.meets_tolerance and selection.tolerance >= 0.0:
        found.append(
            f"The promise is not kept: the expected increase is {selection.increase:+.1%} (at most "
            f"{selection.bound:+.1%} with 95 % confidence), more than the "
            f"{selection.tolerance:.1%} accepted. The budget allows nothing better."
        )
    if coverage is not None:
        if coverage.source == "oob" and verified_by is None:
            found.append(
                "Nothing proved that the rows given were the ensemble's training rows, in order; "
                "fit the ensemble with oob_score=True to have it proved."
            )
        if coverage.n_uncovered:
            share = coverage.n_uncovered / coverage.n_rows
            found.append(
                f"{coverage.n_uncovered} of {coverage.n_rows} rows ({share:.1%}) are out of bag "
                "for no member and had no say."
            )
    if n_test_rows == 0:
        found.append(
            "No test rows were given, so nothing here is checked on unseen rows: pass some to "
            "report(X_test, y_test), or --test on the command line."
        )
    elif share_seen >= MOSTLY_SEEN:
        found.append(seen_before(share_seen, n_test_rows))
    elif n_test_rows < FEW_TEST_ROWS:
        found.append(
            f"There are only {n_test_rows} test rows: the figures on them are uncertain, as the "
            "intervals show."
        )
    return tuple(found)


def seen_before(share: float, n_rows: int) -> str:
    """What to say of a report on rows that were trained on.

    Parameters
    ----------
    share : float
    n_rows : int

    Returns
    -------
    str

    Examples
    --------
    >>> seen_before(1.0, 500)[:54]
    '100% of these 500 rows were trained or chosen on: ever'
    """
    return (
        f"{share:.0%} of these {n_rows:,} rows were trained or chosen on: every score here is too "
        "good, the full ensemble's most of all. Pass rows nobody has trained on."
    )


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
