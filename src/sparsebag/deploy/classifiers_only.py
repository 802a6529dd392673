"""A method that models of numbers do not have: `hasattr` says so, as of scikit-learn's estimators.

scikit-learn's ``available_if`` does the same, but a model read from a file predicts without it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class classifiers_only(Generic[P, R]):
    """Decorates a method that only models with classes have.

    Parameters
    ----------
    method : callable
        Of a class whose ``classes`` is None where there are none.

    Examples
    --------
    >>> class Model:
    ...     classes = None
    ...     @classifiers_only
    ...     def predict_proba(self, X):
    ...         return X
    >>> model = Model()
    >>> hasattr(model, "predict_proba")
    False
    >>> model.classes = [0, 1]
    >>> model.predict_proba([0.5])
    [0.5]
    """

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method: Any = method
        self.__doc__ = method.__doc__

    def __get__(self, model: Any, owner: type | None = None) -> Callable[P, R]:
        if model is None:
            return self._method  # type: ignore[no-any-return]
        if model.classes is None:
            raise AttributeError(
                f"a regression ensemble has no {self._method.__name__}; use predict."
            )
        return MethodType(self._method, model)
