"""Models around an ensemble: each is opened into its parts and closed around others.

A kind of wrapper is a line in `WRAPPERS`: the classes, a function that opens a fitted one into
parts, and one that makes a copy of it around other parts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import Pipeline
from sklearn.tree._tree import Tree

from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.from_ensemble import FORESTS, check_fitted, unfrozen
from sparsebag.evidence.members import FoldForests, check_present, take_rows

Transformers = tuple[tuple[str, Any], ...]
"""Of ``"X"`` or of ``"y"``, outermost first."""


@dataclass(frozen=True)
class Wrapping:
    """A user's rows, and what stands between them and an ensemble.

    Attributes
    ----------
    X, y : array-like
        As the user has them; of several outputs, one.
    layers : tuple of (str, transformer)
        Fitted transformers of ``"X"`` or of ``"y"``, outermost first.
    """

    X: Any
    y: Any
    layers: Transformers = ()

    def refit(self, kept: np.ndarray, held: np.ndarray) -> Fold:
        """Clone the transformers and fit them to some rows, as the wrapper's own ``fit`` does.

        Where they cannot be refitted on part of the rows (a category that all others miss), the
        user's own are used, and a warning says so.

        Parameters
        ----------
        kept, held : ndarray of row numbers
            To fit, and to transform.

        Returns
        -------
        Fold
        """
        rows = take_rows(self.X, kept), take_rows(self.X, held)
        try:
            return self._fold(*rows, take_rows(self.y, kept), fit=True)
        except ValueError as error:
            first = str(error).partition("\n")[0]
            told = f"cannot be refitted on part of the rows ({first})"
            warn_caller(f"the preprocessing {told}; the rehearsal reuses yours.")
            return self._fold(*rows, take_rows(self.y, kept), fit=False)

    def transformed(self, X: Any) -> Any:
        """A user's rows as the ensemble sees them."""
        for axis, layer in self.layers:
            X = layer.transform(X) if axis == "X" else X
        return X

    def fitted(self) -> Fold:
        """No rows, and the user's own transformers of the targets."""
        targets = [layer for axis, layer in reversed(self.layers) if axis == "y"]
        return Fold(None, None, None, tuple(targets))

    def _fold(self, X: Any, X_held: Any, y: Any, *, fit: bool) -> Fold:
        targets: list[Any] = []
        for axis, own in self.layers:
            layer = clone(own) if fit else own
            if axis == "y":
                column = np.asarray(y, dtype=float).reshape(-1, 1)
                y = (layer.fit(column) if fit else layer).transform(column)[:, 0]
                targets.insert(0, layer)
            else:
                X = layer.fit_transform(X, y) if fit else layer.transform(X)
                X_held = layer.transform(X_held)
        return Fold(X, X_held, y, tuple(targets))


@dataclass(frozen=True)
class Fold:
    """Rows as an ensemble sees them: to train, held out, and how its predictions go back.

    Attributes
    ----------
    X, X_held, y : array-like
    targets : tuple of transformers
        Of the targets, innermost first.
    """

    X: Any
    X_held: Any
    y: Any
    targets: tuple[Any, ...]

    def back(self, predictions: np.ndarray) -> np.ndarray:
        """Predictions on the scale of the user's targets."""
        out = predictions.reshape(-1, 1)
        for transformer in self.targets:
            out = np.asarray(transformer.inverse_transform(out))
        return out.reshape(predictions.shape)

    def slope(self, target: np.ndarray, vote: np.ndarray) -> np.ndarray:
        """Errors on the user's scale over those of a vote on the transformed one."""
        step = 1e-3 * max(float(np.std(target)), 1e-12)
        near = np.abs(vote - target) < step
        vote = np.where(near, target + step, vote)
        return np.asarray((self.back(vote) - self.back(target)) / (vote - target))


@dataclass(frozen=True)
class Part:
    """A model inside another, with the rows it sees.

    Attributes
    ----------
    model : fitted model
    X, y : array-like or None
    layer : tuple of (str, transformer)
        What was between the outer rows and these.
    calibrated : CalibratedClassifierCV or None
        Around the model.
    """

    model: Any
    X: Any = None
    y: Any = None
    layer: Transformers = ()
    calibrated: Any = None


def wrapper_of(model: Any) -> Any:
    """How to open and close a model, or None where it holds no other.

    Parameters
    ----------
    model : object

    Returns
    -------
    tuple of function, or None

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> wrapper_of(Ridge()) is None
    True
    """
    if isinstance(model, FORESTS) and getattr(model, "n_outputs_", 1) > 1:
        return _open_outputs, _close_outputs
    return next((ways for kinds, *ways in WRAPPERS if isinstance(model, kinds)), None)


def rewrapped(
    model: Any,
    change: Callable[[Part, Wrapping], Any],
    X: Any = None,
    y: Any = None,
    close: Callable[[Any, list[Any]], Any] | None = None,
) -> Any:
    """A copy of a model in which every innermost part is replaced.

    Parameters
    ----------
    model : fitted model
    change : function
        Of an innermost part and what is around it.
    X, y : array-like, optional
        Rows, which are handed down to the parts.
    close : function, optional
        Of a model and its new parts. Default: a copy of the model around them.

    Returns
    -------
    Same kind as ``model``

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> frozen = rewrapped(FrozenEstimator(Ridge()), lambda part, around: Ridge(alpha=2.0))
    >>> frozen.estimator.alpha
    2.0
    """
    return _walked(Part(model, X, y), Wrapping(X, y), change, close or closed)


def closed(model: Any, made: list[Any]) -> Any:
    """A copy of a model around other parts.

    Parameters
    ----------
    model : fitted model
    made : list of models
        As many as it holds.

    Returns
    -------
    Same kind as ``model``

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> closed(FrozenEstimator(Ridge()), [Ridge(alpha=2.0)])
    FrozenEstimator(estimator=Ridge(alpha=2.0))
    """
    return wrapper_of(model)[1](model, made)


def innermost(model: Any, X: Any = None, y: Any = None) -> list[tuple[Part, Wrapping]]:
    """Every model that holds no other, with the rows it sees and what is around it.

    Parameters
    ----------
    model : fitted model
    X, y : array-like, optional

    Returns
    -------
    list of (Part, Wrapping)

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> [part.model for part, _ in innermost(FrozenEstimator(Ridge()))]
    [Ridge()]
    """
    found: list[tuple[Part, Wrapping]] = []

    def noted(part: Part, around: Wrapping) -> None:
        found.append((part, around))

    rewrapped(model, noted, X, y, close=lambda model, made: None)
    return found


def _walked(part: Part, around: Wrapping, change: Any, close: Any) -> Any:
    ways = wrapper_of(part.model)
    if ways is None:
        return change(part, around)
    if not isinstance(part.model, FrozenEstimator):
        check_fitted(part.model)
    made = []
    for inner in ways[0](part):
        # Of several outputs a part's own targets are the user's.
        y = around.y if inner.layer or inner.y is part.y else inner.y
        inside = replace(around, y=y, layers=(*around.layers, *inner.layer))
        made.append(_walked(replace(inner, layer=()), inside, change, close))
    return close(part.model, made)


# -- each kind, opened and closed ---------------------------------------------------------------


def _open_pipeline(part: Part) -> list[Part]:
    pipe, X = part.model, part.X
    # imbalanced-learn's samplers change rows in training alone.
    steps = [step for step in pipe.steps[:-1] if hasattr(step[1], "transform")]
    if not steps:
        return [Part(pipe[-1], X, part.y)]
    head = _with(pipe, steps=steps)
    X = None if X is None else head.transform(X)
    return [Part(pipe[-1], X, part.y, (("X", head),))]


def _open_search(part: Part) -> list[Part]:
    if not hasattr(part.model, "best_estimator_"):
        raise TypeError(
            f"this {type(part.model).__name__} kept no best estimator (refit=False); pass the "
            "estimator that you fitted with its best_params_."
        )
    return [replace(part, model=part.model.best_estimator_)]


def _open_target(part: Part) -> list[Part]:
    transformer, y = part.model.transformer_, part.y
    if y is not None:
        check_present(y)
        if np.ndim(y) != 1:
            raise ValueError(
                "a TransformedTargetRegressor of several outputs cannot be compressed; fit one "
                "per output."
            )
        y = transformer.transform(np.asarray(y, dtype=float).reshape(-1, 1))[:, 0]
    return [Part(part.model.regressor_, part.X, y, (("y", transformer),))]


def _open_multi_output(part: Part) -> list[Part]:
    models = part.model.estimators_
    columns = _target_columns(part.y, len(models))
    return [Part(m, part.X, y) for m, y in zip(models, columns, strict=True)]


def _open_one_vs_rest(part: Part) -> list[Part]:
    model, y = part.model, part.y
    if y is not None:
        y = model.label_binarizer_.transform(y).toarray()
    columns = _target_columns(y, len(model.estimators_))
    pairs = zip(model.estimators_, columns, strict=True)
    return [Part(e, part.X, y) for e, y in pairs if not hasattr(e, "y_")]  # y_: one class only


def _close_one_vs_rest(model: Any, made: list[Any]) -> Any:
    left = iter(made)
    every = [e if hasattr(e, "y_") else next(left) for e in model.estimators_]
    return _with(model, estimators_=every, estimator=clone(made[0]))


def _open_calibrated(part: Part) -> list[Part]:
    """One ensemble of the forests of all folds; sparsebag calibrates it anew."""
    model = part.model
    inner = [unfrozen(each.estimator) for each in model.calibrated_classifiers_]
    if all(each is inner[0] for each in inner):
        return [replace(part, model=inner[0], calibrated=model)]
    if not all(isinstance(forest, FORESTS) for forest in inner):
        raise TypeError(
            f"this CalibratedClassifierCV holds one {type(inner[0]).__name__} per fold; compress "
            f"one fitted on all rows instead, sparsebag.compress(clone(model.estimator).fit(X, y), "
            "X, y), which is calibrated too."
        )
    rows: Any = None
    cv = check_cv(model.cv, part.y, classifier=True)
    is_random = getattr(cv, "shuffle", hasattr(cv, "random_state"))
    is_known = not is_random or isinstance(cv.random_state, int)
    if part.X is not None and is_known:
        rows = ()  # where there are too few for the folds
        with suppress(ValueError):
            rows = tuple(train for train, _ in cv.split(part.X, part.y))
    return [replace(part, model=FoldForests(tuple(inner), rows), calibrated=model)]


def _open_outputs(part: Part) -> list[Part]:
    columns = _target_columns(part.y, part.model.n_outputs_)
    return [Part(_one_output(part.model, j), part.X, y) for j, y in enumerate(columns)]


def _close_outputs(forest: Any, made: list[Any]) -> Any:
    is_vote = hasattr(forest, "classes_")
    out = (MultiOutputClassifier if is_vote else MultiOutputRegressor)(clone(made[0]))
    known = ("n_features_in_", "feature_names_in_", "classes_")
    found = {name: getattr(forest, name) for name in known if hasattr(forest, name)}
    return _with(out, estimators_=made, **found)


def _one_output(forest: Any, j: int) -> Any:
    """A forest of one output: the same trees, with that output's leaves."""
    is_vote = hasattr(forest, "classes_")
    n_classes = int(forest.n_classes_[j]) if is_vote else 1
    known: dict[str, Any] = {"n_outputs_": 1}
    if is_vote:
        known |= {"classes_": forest.classes_[j], "n_classes_": n_classes}
    trees = []
    for tree in forest.estimators_:
        state = tree.tree_.__getstate__()
        values = np.ascontiguousarray(state["values"][:, j : j + 1, :n_classes])
        one = Tree(tree.tree_.n_features, np.array([n_classes], dtype=np.intp), 1)
        one.__setstate__({**state, "values": values})
        own = {**known, "classes_": np.arange(n_classes, dtype=float)} if is_vote else known
        trees.append(_with(tree, tree_=one, **own))
    return _with(forest, estimators_=trees, **known)


def _target_columns(y: Any, n_outputs: int) -> list[Any]:
    if y is None:
        return [None] * n_outputs
    values = np.asarray(y)
    if values.ndim != 2 or values.shape[1] != n_outputs:
        raise ValueError(f"y has shape {values.shape}; pass {n_outputs} columns, one per output.")
    return list(values.T)


def _with(model: Any, **attributes: Any) -> Any:
    out = copy(model)
    vars(out).update(attributes)
    return out


WRAPPERS: tuple[tuple[tuple[type, ...], Callable[[Part], list[Part]], Callable[..., Any]], ...] = (
    (
        (Pipeline,),
        _open_pipeline,
        lambda m, made: _with(m, steps=[*deepcopy(m.steps[:-1]), (m.steps[-1][0], made[0])]),
    ),
    ((BaseSearchCV,), _open_search, lambda m, made: _with(m, best_estimator_=made[0])),
    (
        (TransformedTargetRegressor,),
        _open_target,
        lambda m, made: _with(m, regressor_=made[0], regressor=clone(made[0])),
    ),
    (
        (FrozenEstimator,),
        lambda part: [replace(part, model=part.model.estimator)],
        lambda m, made: FrozenEstimator(made[0]),
    ),
    (
        (MultiOutputClassifier, MultiOutputRegressor),
        _open_multi_output,
        lambda m, made: _with(m, estimators_=made, estimator=clone(made[0])),
    ),
    ((OneVsRestClassifier,), _open_one_vs_rest, _close_one_vs_rest),
    ((CalibratedClassifierCV,), _open_calibrated, lambda m, made: made[0]),
)
