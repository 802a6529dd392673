"""Readers of other libraries' forests: one file a library, by the name it is imported by.

A file has ``read(model) -> MemberPool`` and imports its library, if at all, inside it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any


def library_reader(model: Any) -> Callable[[Any], Any] | None:
    """The reader of the library that a model's class, or one of its parents, is from.

    Parameters
    ----------
    model : object

    Returns
    -------
    function or None
        None for scikit-learn's models, and where there is no file.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> library_reader(RandomForestClassifier()) is None
    True
    """
    for kind in type(model).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in ("sklearn", "builtins"):
            return None
        name = f"{__name__}.{library}"
        if importlib.util.find_spec(name) is not None:
            reader: Callable[[Any], Any] = importlib.import_module(name).read
            return reader
    return None


def optional_import(module: str, extra: str, what: str) -> Any:
    """A module of an optional library; one sentence where it is missing.

    Parameters
    ----------
    module : str
    extra : str
        Of sparsebag, that installs it.
    what : str
        Needs it.

    Returns
    -------
    module
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        told = f"{what} needs {module.partition('.')[0]}; pip install 'sparsebag[{extra}]'."
        raise ImportError(told) from error
