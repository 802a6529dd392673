"""Class labels as positions in an ensemble's list of classes."""

from __future__ import annotations

from typing import Any

import numpy as np


class UnknownLabelError(ValueError):
    """A label that is not among the classes."""


def shown(label: Any) -> str:
    """A label as its user wrote it: ``0``, not ``np.int64(0)``.

    Parameters
    ----------
    label : object

    Returns
    -------
    str

    Examples
    --------
    >>> shown(np.int64(0)), shown(np.str_("a"))
    ('0', "'a'")
    """
    return repr(label.item() if isinstance(label, np.generic) else label)


def check_labels(labels: Any) -> None:
    """One sentence where ``labels=`` is no list of classes.

    Parameters
    ----------
    labels : array of shape (C,) or None

    Examples
    --------
    >>> check_labels([0, 1])
    >>> check_labels(2)
    Traceback (most recent call last):
    ...
    ValueError: labels must hold all classes, such as [0, 1], got 2.
    """
    if labels is not None and np.ndim(labels) == 0:
        raise ValueError(f"labels must hold all classes, such as [0, 1], got {labels!r}.")


def class_positions(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Where each label stands in ``classes``, which need not be sorted.

    Parameters
    ----------
    labels : ndarray of shape (M,)
    classes : ndarray of shape (C,)
        Distinct.

    Returns
    -------
    ndarray of shape (M,)

    Examples
    --------
    >>> class_positions(np.array(["b", "a", "b"]), np.array(["b", "a"])).tolist()
    [0, 1, 0]
    """
    if {labels.dtype.kind, classes.dtype.kind} & set("OUS"):
        # As objects a number never equals a string; NumPy would turn one into the other.
        labels, classes = labels.astype(object), classes.astype(object)
    known = np.isin(labels, classes)
    if not known.all():
        raise UnknownLabelError(shown(labels[~known][0]))
    order = np.argsort(classes)
    return np.asarray(order[np.searchsorted(classes, labels, sorter=order)], dtype=np.intp)
