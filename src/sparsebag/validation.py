"""What a caller gives: the ensemble, frozen or not and of which kind, and the targets."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import InputTags, get_tags
from sklearn.utils.multiclass import check_classification_targets

from sparsebag.evidence.from_ensemble import READERS, unfrozen
from sparsebag.evidence.members import (
    FittedMembers,
    Task,
    check_present,
    does_classification,
)
from sparsebag.evidence.readable import check_no_path, check_readable, is_dask
from sparsebag.evidence.readers import library_reader
from sparsebag.evidence.wrappers import wrapper_of
from sparsebag.sources.dask import as_column, computed

LARGEST_TARGET = 1e36
"""Votes are kept in single precision, which ends at 3e38."""


class LeftOutOfPickle(BaseEstimator):  # type: ignore[misc]
    """Stands for the full ensemble in a pickle, or copy, of its compressed version."""


def is_classification(ensemble: Any) -> bool:
    """Whether the ensemble, or the first model of a list, is a classifier.

    Parameters
    ----------
    ensemble : ensemble or FittedMembers

    Returns
    -------
    bool
    """
    models = _models(ensemble)
    return len(models) > 0 and does_classification(models[0])


def check_ensemble(ensemble: Any, task: Task | None = None) -> None:
    """One sentence for what cannot be compressed, said before hours are spent on fitting it.

    Parameters
    ----------
    ensemble : object
        Fitted or not, frozen or not.
    task : {"classification", "regression"}, optional
        What the ensemble should do.
    """
    ensemble = unfrozen(ensemble)
    if isinstance(ensemble, LeftOutOfPickle):
        raise NotFittedError(
            "the full ensemble was left out of this pickle or copy, so it cannot be compressed "
            "again; compress the original."
        )
    if wrapper_of(ensemble) is not None:
        name = type(ensemble).__name__
        raise TypeError(
            f"a {name} must be fitted first, then passed to sparsebag.compress(model, X, y); or "
            f"put a SparseBaggingClassifier/Regressor inside it and fit that."
        )
    is_known = isinstance(ensemble, tuple(kind for kinds, _ in READERS for kind in kinds))
    if not is_known and library_reader(ensemble) is not None:
        return
    if not is_known:
        name = ensemble.__name__ if isinstance(ensemble, type) else type(ensemble).__name__
        got = f"the class {name}" if isinstance(ensemble, type) else f"a {name}"
        raise TypeError(
            f"cannot compress {got}; pass a BaggingClassifier/Regressor, RandomForest*, "
            "ExtraTrees* or Voting*, a forest of XGBoost, LightGBM or imbalanced-learn, a Pipeline "
            "or search around one, or a list of fitted models to sparsebag.compress."
        )
    if task is not None and is_classification(ensemble) != (task == "classification"):
        own = "regression" if task == "classification" else "classification"
        raise ValueError(
            f"the ensemble does {own}; use SparseBagging"
            f"{'Regressor' if own == 'regression' else 'Classifier'} for it."
        )


def given_rows(X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Any]:
    """Rows and targets for an ensemble, targets of a cluster brought here.

    Parameters
    ----------
    X, y : object
    sample_weight : object, optional
        Looked at alone: masked arrays are refused, as of the others.

    Returns
    -------
    tuple
        X as it is.

    Examples
    --------
    >>> given_rows([[1.0]], [0])
    ([[1.0]], [0])
    """
    for values, name in ((X, "X"), (y, "y")):
        check_no_path(values, name)
        check_readable(values, name)
    check_readable(sample_weight, "sample_weight")
    if is_dask(y) or (is_dask(X) and y is not None):
        y = np.asarray(computed(as_column(y, "y")))
    return X, y


def check_targets(y: Any, task: Task) -> None:
    """One sentence for targets no weights can be fitted to, said before the ensemble is fitted.

    Parameters
    ----------
    y : array-like
    task : {"classification", "regression"}
    """
    if y is None:
        raise ValueError(
            "requires y to be passed, but the target y is None: members are judged by it."
        )
    values = np.asarray(y)
    shape = values.shape
    if np.iscomplexobj(values):
        raise ValueError("Complex data not supported: y must hold real numbers or labels.")
    if len(shape) != 1 and shape[1:] != (1,):
        raise ValueError(
            f"y has shape {shape}; multi-output problems are not supported, fit one estimator "
            f"per output."
        )
    if shape[0] == 0:
        raise ValueError("there are no rows: y is empty; pass rows to judge the members by.")
    if shape[0] == 1:
        raise ValueError("there is only one sample; members are judged on rows they have not seen.")
    check_present(values)
    if task == "classification":
        check_classification_targets(y)
    elif np.abs(values.astype(np.float64)).max(initial=0.0) > LARGEST_TARGET:
        raise ValueError(
            f"y holds numbers above {LARGEST_TARGET:.0e}, more than single precision holds; "
            "scale the targets before fitting the ensemble."
        )


def accepts(ensemble: Any) -> InputTags:
    """Whether every member takes sparse matrices, and NaN.

    Parameters
    ----------
    ensemble : ensemble or FittedMembers, frozen or not

    Returns
    -------
    InputTags
    """
    # Models of other libraries have no tags; they speak up themselves when they predict.
    models = [m for m in _models(unfrozen(ensemble)) if hasattr(m, "__sklearn_tags__")]
    tags = [get_tags(model).input_tags for model in models]
    return InputTags(sparse=all(t.sparse for t in tags), allow_nan=all(t.allow_nan for t in tags))


def _models(ensemble: Any) -> Any:
    return ensemble.models if isinstance(ensemble, FittedMembers) else [ensemble]
