"""Reports of models around compressed ensembles."""

from __future__ import annotations

from typing import Any

from sparsebag.deploy.wrapped import compiled_in
from sparsebag.evidence.wrappers import innermost


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
        What was compressed, if ``model`` no longer has it (pickles and copies do not include it).

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
    parts = list(innermost(model, X, y))
    fulls: list[Any] = [None] * len(parts)
    if baseline is not None:
        fulls = [part.model for part, _ in innermost(baseline, X, y)]
    found = []
    for (part, around), full in zip(parts, fulls, strict=True):
        fold = around.fitted()
        back = fold.back if fold.targets else None
        compiled_in(part.model)
        if not hasattr(part.model, "_report"):
            raise TypeError(
                "a loaded file does not hold the full ensemble that a report compares with; make "
                "the report before saving, from what sparsebag.compress returned."
            )
        found.append(part.model._report(part.X, around.y, sample_weight, full, back))
    return found[0] if len(found) == 1 else found
