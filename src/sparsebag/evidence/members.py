"""A fitted ensemble as a flat pool of members, whatever library object it came from."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier
from sklearn.tree import BaseDecisionTree
from sklearn.utils import check_array

InputKind = Literal["tree", "array", "as_given"]
Task = Literal["classification", "regression"]


KEPT_BYTES = 1 << 26
"""Draws are kept, a byte a row, up to this much memory, and drawn again beyond: drawing costs as
much as a tree's vote, and both the votes and the refitted leaves ask for them."""


class InBagRows(Protocol):
    """Rows each member was trained on, with repeats: a list of arrays, or `RedrawnBags`."""

    def __len__(self) -> int: ...

    def __getitem__(self, j: int, /) -> np.ndarray: ...


class RedrawnBags:
    """Rows each member of a scikit-learn ensemble was trained on, drawn when asked for.

    scikit-learn keeps seeds, and its ``estimators_samples_`` draws every member's rows at once:
    M×N indices, more memory than the evidence itself. A copy of the ensemble with one seed draws
    one member's. Rows come in any order.

    Parameters
    ----------
    ensemble : fitted forest or bag
    seeded : str
        The attribute that holds one seed a member (a forest's trees know their own).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> forest = RandomForestClassifier(3, random_state=0).fit(*load_iris(return_X_y=True))
    >>> bags = RedrawnBags(forest, "estimators_")
    >>> np.array_equal(bags[1], forest.estimators_samples_[1])
    True
    """

    def __init__(self, ensemble: Any, seeded: str) -> None:
        self._ensemble = ensemble
        self._seeded = seeded
        self._kept: dict[int, np.ndarray] = {}
        self._kept_bytes = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}, "_kept_bytes": 0}

    def __len__(self) -> int:
        return len(getattr(self._ensemble, self._seeded))

    def __getitem__(self, j: int, /) -> np.ndarray:
        if j in self._kept:
            draws = self._kept[j]
            return np.repeat(np.arange(len(draws)), draws)
        one = copy.copy(self._ensemble)
        setattr(one, self._seeded, getattr(self._ensemble, self._seeded)[j : j + 1])
        try:
            (rows,) = one.estimators_samples_
        except AttributeError as error:
            raise ValueError(
                f"the bootstrap of this {type(self._ensemble).__name__} cannot be redrawn, "
                f"because it was fitted by another version of scikit-learn ({error}); refit it, "
                "or pass held-out rows with evidence='holdout'."
            ) from error
        draws = np.bincount(rows)
        draws = draws.astype(np.min_scalar_type(draws.max(initial=0)))
        if self._kept_bytes + draws.nbytes <= KEPT_BYTES:
            self._kept[j] = draws
            self._kept_bytes += draws.nbytes
        return np.asarray(rows)


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
        if out.ndim == 2 and out.shape[1] != 1:
            raise multi_output()
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
            labels = np.asarray(self._call("predict", X)).reshape(-1, 1)
            # Inside a bag the labels *are* columns, and a model may not list its classes_.
            known = np.asarray(getattr(self.estimator, "classes_", self.class_columns))
            proba = (labels == known[None, :]).astype(float)
        if proba.shape[1] != len(self.class_columns):
            raise ValueError(
                f"predict_proba has {proba.shape[1]} columns but the model's classes_ has "
                f"{len(self.class_columns)}; refit the member on rows that hold all its classes."
            )
        out = np.zeros((proba.shape[0], n_classes))
        out[:, self.class_columns] = proba
        return out

    def apply(self, X: Any) -> np.ndarray:
        """The leaf each row falls into (trees only)."""
        return np.asarray(self._call("apply", self._slice(X)))

    @property
    def is_tree(self) -> bool:
        """Whether the member is one scikit-learn decision tree."""
        return isinstance(self.estimator, BaseDecisionTree)

    def _slice(self, X: Any) -> Any:
        if self.features is None:
            return X
        return X.iloc[:, self.features] if hasattr(X, "iloc") else X[:, self.features]

    def _call(self, method: str, X: Any) -> Any:
        if self.is_tree and _is_kernel_input(X) and X.shape[1] == self.estimator.n_features_in_:
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
    no_in_bag : str
        Why the in-bag rows are unknown, where they are; ends a sentence.
    own_weights : ndarray of shape (N,) or None
        What the ensemble itself weighs its members' votes by, on the simplex; None: equally.
    can_be_refitted : bool
        Whether ``clone(source)`` can be fitted to other rows, by ``fit`` and ``n_estimators``.
    leaves_are_shares : bool
        Whether trees' values are shares of their training rows' classes.
    wrapping : Wrapping or None
        The user's rows and the transformers before the ensemble, where it is part of a pipeline.
    is_calibrated : bool
        Whether the user's model calibrates the votes.
    """

    members: tuple[Member, ...]
    task: Task
    classes: np.ndarray | None
    in_bag: InBagRows | None
    input_kind: InputKind
    n_features: int | None
    n_rows: int | None
    source: Any
    no_in_bag: str = ""
    own_weights: np.ndarray | None = None
    can_be_refitted: bool = False
    leaves_are_shares: bool = True
    wrapping: Any = None
    is_calibrated: bool = False

    def prepare(self, X: Any) -> Any:
        """X in the form the members read, converted once for all of them.

        Forests and bags validate X before their members see it, so the same conversions are
        made here; other models get X as the caller has it.
        """
        if self.input_kind == "tree":
            return _for_trees(X)
        if self.input_kind == "array":
            return check_array(
                X, accept_sparse="csr", dtype=None, ensure_all_finite=False, input_name="X"
            )
        if sp.issparse(X):
            return X.tocsr()  # other formats cannot be sliced by row
        return X if hasattr(X, "shape") else np.asarray(X)

    def keep(self, members: np.ndarray) -> MemberPool:
        """Only some members, without the in-bag rows (they are of no use after fitting)."""
        kept = tuple(self.members[j] for j in members)
        without: dict[str, Any] = {"source": None, "own_weights": None, "wrapping": None}
        return replace(self, members=kept, in_bag=None, no_in_bag="", **without)


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


@dataclass(frozen=True)
class FoldForests:
    """Forests of cross-validation folds, as one ensemble.

    Attributes
    ----------
    forests : tuple of fitted forests
    rows : tuple of ndarray, or None
        Rows that each was trained on; None where they are unknown.
    """

    forests: tuple[Any, ...]
    rows: tuple[np.ndarray, ...] | None = None

    @property
    def classes_(self) -> np.ndarray:
        """Class labels."""
        return np.asarray(self.forests[0].classes_)


def with_bags(
    ensemble: Any,
    estimators_samples: Sequence[Any] | None,
    estimators_features: Sequence[Any] | None,
) -> Any:
    """A list of models with the rows and columns of each; an ensemble as it is.

    Parameters
    ----------
    ensemble : ensemble, or list or tuple of models
    estimators_samples, estimators_features : sequence of index arrays, optional
        Of a list alone.

    Returns
    -------
    object

    Examples
    --------
    >>> with_bags([], None, None)
    FittedMembers(0 models)
    """
    if isinstance(ensemble, (list, tuple)):
        return FittedMembers(ensemble, estimators_samples, estimators_features)
    if estimators_samples is not None or estimators_features is not None:
        raise ValueError(
            "estimators_samples and estimators_features are for a plain list of models; a "
            f"{type(ensemble).__name__} has its own."
        )
    return ensemble


def check_present(y: Any) -> None:
    """One sentence where a target is missing or infinite.

    Parameters
    ----------
    y : array-like

    Examples
    --------
    >>> check_present(["a", None])
    Traceback (most recent call last):
    ...
    ValueError: y holds NaN or infinity; drop those rows before fitting the ensemble.
    """
    values = np.asarray(y)
    none: Any = None
    missing: Any = values.dtype == object and ((values != values) | (values == none))
    if np.issubdtype(values.dtype, np.floating):
        missing = ~np.isfinite(values)
    if np.any(missing):
        raise ValueError("y holds NaN or infinity; drop those rows before fitting the ensemble.")


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


def does_classification(model: Any) -> bool:
    """Whether a model is a classifier: by scikit-learn's word, or because it has ``classes_``.

    Parameters
    ----------
    model : object
        Of scikit-learn, or of another library and with its ``predict``.

    Returns
    -------
    bool

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression, Ridge
    >>> does_classification(LogisticRegression()), does_classification(Ridge())
    (True, False)
    """
    try:
        return bool(is_classifier(model)) or hasattr(model, "classes_")
    except (AttributeError, TypeError):  # not a scikit-learn estimator, but it quacks
        return hasattr(model, "classes_")


def multi_output() -> ValueError:
    """The error for more than one target a row."""
    return ValueError(
        "multi-output ensembles are not supported; fit and compress one ensemble per output."
    )


def _is_kernel_input(X: Any) -> bool:
    """Whether scikit-learn's tree kernel reads X as it is."""
    if getattr(X, "dtype", None) != np.float32:
        return False
    if isinstance(X, np.ndarray):
        return X.ndim == 2
    return bool(
        sp.issparse(X) and X.format == "csr" and X.indices.dtype == X.indptr.dtype == np.int32
    )


def _for_trees(X: Any) -> Any:
    if isinstance(X, np.ndarray) and _is_kernel_input(X) and X.flags.c_contiguous:
        return X
    X = check_array(
        X,
        accept_sparse="csr",
        dtype=np.float32,
        order="C",
        ensure_all_finite="allow-nan",
        input_name="X",
    )
    if sp.issparse(X) and X.nnz <= np.iinfo(np.int32).max:
        # A new matrix around the same data: assigning indices would change the caller's.
        data, narrow = X.data, (X.indices.astype(np.int32), X.indptr.astype(np.int32))
        X = type(X)((data, *narrow), shape=X.shape)
    return X


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
