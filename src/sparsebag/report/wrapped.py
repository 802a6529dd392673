"""Reports of models around compressed ensembles."""

from __future__ import annotations

from typing import Any

from sparsebag.evidence.wrappers import innermost
from sparsebag.report.compare import compare


def report_on(
    model: Any, X: Any = None, y: Any = None, sample_weight: Any = None, *, baseline: Any = None
) -> Any:
    """Compare the full and the compressed model on test data.

    Parameters
    ----------
    model : what `sparsebag.compress` returned
        An ensemble, or a Pipeline, search or other model around one.
    X, y : array-like, optional
        Test rows, as the model takes them. Errors of a ``TransformedTargetRegressor`` are in the
        units of y.
    sample_weight : array-like of shape (rows,), optional
    baseline : fitted model, optional
        What was compressed, if ``model`` no longer has it (files, pickles and copies do not
        include it).

    Returns
    -------
    CompressionReport, or list of them
        One per output, or one per class of ``OneVsRestClassifier``.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_diabetes(return_X_y=True)
    >>> pipe = make_pipeline(StandardScaler(), RandomForestRegressor(20, random_state=0))
    >>> small = sb.compress(pipe.fit(X[:300], y[:300]), X[:300], y[:300])
    >>> sb.report_on(small, X[300:], y[300:]).n_rows
    142
    """
    parts = innermost(model, X, y)
    wholes = parts if baseline is None else innermost(baseline)
    found = [
        compare(part, around, whole, sample_weight)
        for (part, around), (whole, _) in zip(parts, wholes, strict=True)
    ]
    return found[0] if len(found) == 1 else found
