"""A fitted ensemble as a flat pool of members, whatever library object it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.tree import BaseDecisionTree

from sparsebag.evidence.evidence import Task

InputKind = Literal["tree", "array", "as_given"]


@dataclass(frozen=True)
class Member:
    """One fitted model of an ensemble.

    Attributes
    ----------
    estimator : object
        The fitted model.
    features : ndarray or None
        Columns of X it was trained on; None means all.
    class_columns : ndarray or None
        Position in the ensemble's classes of each column of its ``predict_proba``; None for
        regression.
    """

    estimator: Any
    features: np.ndarray | None = None
    class_columns: np.ndarray | None = None

    def predict(self, X: Any) -> np.ndarray:
        """Regression predictions, shape (rows,)."""
        out = np.asarray(self._call("predict", self._slice(X)))
        return out.reshape(len(out))

    def predict_proba(self, X: Any, n_classes: int) -> np.ndarray:
        """Probabilities in the ensemble's class order; zero for a class it never saw.

        A member without ``predict_proba`` votes: one for the class it predicts.
        """
        assert self.class_columns is not None
        X = self._slice(X)
        if hasattr(self.estimator, "predict_proba"):
            proba = np.asarray(self._call("predict_proba", X))
            if proba.shape[1] == n_classes and np.array_equal(
                self.class_columns, np.arange(n_classes)
            ):
                return proba
        else:
            labels = np.asarray(self._call("predict", X))
            proba = (labels[:, None] == np.asarray(self.estimator.classes_)[None, :]).astype(float)
        out = np.zeros((proba.shape[0], n_classes))
        out[:, self.class_columns] = proba
        return out

    @property
    def is_tree(self) -> bool:
        """Whether the member is one scikit-learn decision tree."""
        return isinstance(self.estimator, BaseDecisionTree)

    def _slice(self, X: Any) -> Any:
        return X if self.features is None else X[:, self.features]

    def _call(self, method: str, X: Any) -> Any:
        if self.is_tree and getattr(X, "dtype", None) == np.float32:
            # Already what the tree's kernel reads; checking it again costs more than routing.
            return getattr(self.estimator, method)(X, check_input=False)
        return getattr(self.estimator, method)(X)


@dataclass(frozen=True)
class MemberPool:
    """The members of one ensemble and how to feed them.

    Attributes
    ----------
    members : tuple of Member
    task : {"classification", "regression"}
    classes : ndarray or None
        Class labels in the order of ``predict_proba``.
    in_bag : sequence of ndarray, or None
        Rows each member was trained on, with repeats; None where they are unknown.
    input_kind : {"tree", "array", "as_given"}
        How X reaches the members: as the float32 trees read, as an array, or untouched.
    n_features : int or None
        Number of columns the ensemble was fitted on.
    n_rows : int or None
        Number of rows it was fitted on, where the object remembers.
    source : object
        The object the pool was read from.
    """

    members: tuple[Member, ...]
    task: Task
    classes: np.ndarray | None
    in_bag: Sequence[np.ndarray] | None
    input_kind: InputKind
    n_features: int | None
    n_rows: int | None
    source: Any

    def prepare(self, X: Any) -> Any:
        """X in the form the members read, converted once for all of them."""
        if self.input_kind == "as_given":
            return X
        if sp.issparse(X):
            X = sp.csr_array(X) if isinstance(X, sp.sparray) else sp.csr_matrix(X)
            if self.input_kind == "tree":
                X = X.astype(np.float32)
                X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
            return X
        if self.input_kind == "tree":
            return np.ascontiguousarray(np.asarray(X), dtype=np.float32)
        return np.asarray(X)

    def keep(self, members: np.ndarray) -> MemberPool:
        """Only some members, without the in-bag rows (they are of no use after fitting)."""
        return MemberPool(
            members=tuple(self.members[j] for j in members),
            task=self.task,
            classes=self.classes,
            in_bag=None,
            input_kind=self.input_kind,
            n_features=self.n_features,
            n_rows=self.n_rows,
            source=None,
        )


class FittedMembers:
    """A plain list of fitted models with what is known of their training.

    Parameters
    ----------
    models : sequence of fitted models
    estimators_samples : sequence of index arrays, optional
        Rows each model was trained on.
    estimators_features : sequence of index arrays, optional
        Columns each model was trained on.
    """

    def __init__(
        self,
        models: Sequence[Any],
        estimators_samples: Sequence[Any] | None = None,
        estimators_features: Sequence[Any] | None = None,
    ) -> None:
        self.models = models
        self.estimators_samples = estimators_samples
        self.estimators_features = estimators_features

    def __sklearn_clone__(self) -> FittedMembers:
        return self

    def __repr__(self) -> str:
        return f"FittedMembers({len(self.models)} models)"


def take_rows(X: Any, rows: Any) -> Any:
    """Rows of an array, sparse matrix, DataFrame or list.

    Parameters
    ----------
    X : array-like
    rows : slice or index array

    Returns
    -------
    Same kind as X

    Examples
    --------
    >>> take_rows(np.arange(4), [1, 3]).tolist()
    [1, 3]
    """
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "shape"):
        return X[rows]
    return np.asarray(X)[rows]
