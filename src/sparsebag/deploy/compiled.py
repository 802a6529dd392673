"""The deployed model: a few groups of members, each reduced to arrays, and what finishes the vote.

Nothing but scoring imports scikit-learn: a model read from a file predicts without it.
"""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import Calibrator
from sparsebag.calibration.temperature import Temperature
from sparsebag.deploy._forest import finish_votes
from sparsebag.deploy.rows import Categories, as_numbers, by_name, encoded
from sparsebag.deploy.trees import RAW, Finish, FlatTrees, readable
from sparsebag.deploy.votes import LayeredVotes, OtherMembers
from sparsebag.local.gate import BLOCK_ELEMENTS, LinearGate

Group = FlatTrees | LayeredVotes | OtherMembers


def resolve_threads(n_jobs: int | None) -> int:
    """Threads that ``n_jobs`` asks for, counted as joblib does.

    Parameters
    ----------
    n_jobs : int or None
        None is one; -1 is one a processor, -2 one fewer.

    Returns
    -------
    int

    Examples
    --------
    >>> resolve_threads(None), resolve_threads(3)
    (1, 3)
    """
    if n_jobs is None:
        return 1
    try:
        n_jobs = operator.index(n_jobs)
    except TypeError:
        raise TypeError(
            f"n_jobs={n_jobs!r} is not an integer; use None for one thread, -1 for all."
        ) from None
    if n_jobs == 0:
        raise ValueError("n_jobs=0 is not valid; use None for one thread, -1 for all.")
    if n_jobs > 0:
        return min(n_jobs, 1024)  # the kernel starts no more than it has blocks of rows
    return max(1, (os.cpu_count() or 1) + 1 + n_jobs)


@dataclass(frozen=True, eq=False, repr=False)
class CompiledEnsemble:
    """The kept members' weighted vote, ready to serve.

    The raw votes of the groups are summed; probabilities are then clipped at zero (refined leaves
    may be below), mixed with the uniform distribution (the floor), normalised, and calibrated.
    With a gate the members' weights depend on the row.

    Attributes
    ----------
    groups : tuple of FlatTrees, LayeredVotes or OtherMembers
    paths : tuple of str
        Which kind of group each member went to, in the members' order.
    classes : ndarray or None
        Labels, in the order of ``predict_proba``; None for regression.
    n_features : int or None
        Columns of X, where they are known.
    floor : float
        Share of the uniform class distribution in each vote.
    calibrator : Calibrator or None
    allow_nan : bool
        Whether NaN in X is routed (trees) or raises.
    feature_names : tuple of str or None
        Names of the columns, where the ensemble was fitted on named ones: a table whose columns
        have other names, or another order, is refused.
    categories : mapping of str to tuple of str, or None
        Texts of the columns that hold text, where the model was made of such a table
        (``sparsebag fit``); a text is read as its position, an unknown one as missing.
    gate : LinearGate or None
        Weights that depend on the row; its members are the groups' one after another, whose own
        weights are one.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> small = sb.compress(RandomForestClassifier(50, random_state=0).fit(X, y), X, y)
    >>> compiled = small.compile()
    >>> int(compiled.predict_one(X[0]))
    0
    """

    groups: tuple[Group, ...]
    paths: tuple[str, ...]
    classes: np.ndarray | None
    n_features: int | None
    floor: float = 0.0
    calibrator: Calibrator | None = None
    allow_nan: bool = False
    feature_names: tuple[str, ...] | None = None
    categories: Categories | None = None
    gate: LinearGate | None = None
    _trees: FlatTrees | None = field(init=False)
    """The trees, where there is nothing else."""
    _finish: Finish = field(init=False)
    """What the kernel does to the sums of the votes."""

    def __post_init__(self) -> None:
        # Once, for serving: looking it up took a tenth of a row's time.
        alone = self.groups[0] if len(self.groups) == 1 else None
        object.__setattr__(self, "_trees", alone if isinstance(alone, FlatTrees) else None)
        inverse, share, scale = 1.0, 0.0, 0.0
        if isinstance(self.calibrator, Temperature):
            inverse, share = 1.0 / self.calibrator.temperature, self.calibrator.share
            scale = self.calibrator.scale
        voted = (True, self.floor, inverse, share, scale)
        object.__setattr__(self, "_finish", RAW if self.classes is None else voted)
        if self.gate is not None:
            self._check_gate(self.gate)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self) if f.init)

    @property
    def n_outputs(self) -> int:
        """Classes, or one for regression."""
        return 1 if self.classes is None else len(self.classes)

    @property
    def n_models(self) -> int:
        """Models that are evaluated for a prediction: linear regressors have become one."""
        return sum(g.n_members if isinstance(g, FlatTrees) else len(g.weights) for g in self.groups)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that predict; members that predict for themselves not counted."""
        gate = 0 if self.gate is None else self.gate.nbytes
        return gate + sum(g.nbytes for g in self.groups if not isinstance(g, OtherMembers))

    @cached_property
    def file_bytes(self) -> int:
        """Bytes of the file that ``save`` writes; ``nbytes`` if members cannot be stored."""
        from sparsebag.deploy.artifact import dumps  # it needs this module

        try:
            return len(dumps(self, allow_pickle=True))
        except Exception:  # labels no file can hold; a pickle raises anything
            return self.nbytes

    @property
    def predict_proba(self) -> Callable[..., np.ndarray]:
        """Class probabilities, ``predict_proba(X, n_jobs=None)``; regression has no such method.

        X is an array-like, sparse matrix or DataFrame of shape (rows, n_features), ``n_jobs`` the
        number of threads (-1 is one a processor), and the result of shape (rows, C).
        """
        if self.classes is None:  # `hasattr` says so, as of scikit-learn's estimators
            raise AttributeError("a regression ensemble has no predict_proba; use predict.")
        return self._predict_proba

    def _predict_proba(self, X: Any, n_jobs: int | None = None) -> np.ndarray:
        return self._calibrated(self._scores(X, n_jobs))

    def predict(self, X: Any, n_jobs: int | None = None) -> np.ndarray:
        """Labels of the most probable classes, or numbers (regression).

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)
        n_jobs : int, optional
            Threads; -1 uses all processors.

        Returns
        -------
        ndarray of shape (rows,)
        """
        if self.classes is None:
            return self._scores(X, n_jobs)[:, 0]
        best = np.argmax(self.predict_proba(X, n_jobs), axis=1)
        return np.asarray(self.classes[best])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy of a classifier, R² of a regressor, as scikit-learn's estimators score.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)
        y : array-like of shape (rows,)
        sample_weight : array-like of shape (rows,), optional

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score, r2_score

        rule = r2_score if self.classes is None else accuracy_score
        return float(rule(y, self.predict(X), sample_weight=sample_weight))

    def save(self, path: Any, *, allow_pickle: bool = False) -> None:
        """Write it to one ``.sbag`` file, which `sparsebag.load` reads.

        Parameters
        ----------
        path, allow_pickle
            As `sparsebag.save` takes them.
        """
        from sparsebag.deploy.artifact import save  # it needs this module

        save(self, path, allow_pickle=allow_pickle)

    def predict_proba_one(self, row: Any) -> np.ndarray:
        """Class probabilities of one row, for serving: one call, no copy, few checks.

        Parameters
        ----------
        row : array-like of shape (n_features,), dict or Series
            Fastest as a float32 or float64 array; a dict or Series is read by names.

        Returns
        -------
        ndarray of shape (C,)
        """
        if self.classes is None:
            raise AttributeError("a regression ensemble has no predict_proba; use predict_one.")
        if self._trees is None or self.gate is not None:
            return np.asarray(self.predict_proba(self._one_row(row))[0])
        out = np.empty(len(self.classes))
        try:
            self._trees.kernel.predict_one(row, out, self.allow_nan, *self._finish)
        except TypeError:  # not an array the kernel reads
            return np.asarray(self.predict_proba(self._one_row(row))[0])
        if self.calibrator is None:  # a copy would take a tenth of a row's time
            return out
        return np.asarray(self._calibrated(out[None])[0])

    def predict_one(self, row: Any) -> Any:
        """The label of one row, or its number (regression), for serving.

        Parameters
        ----------
        row : array-like of shape (n_features,), dict or Series
            Fastest as a float32 or float64 array; a dict or Series is read by names.

        Returns
        -------
        label or float
        """
        if self.classes is not None:
            return self.classes[self.predict_proba_one(row).argmax()]
        if self._trees is None or self.gate is not None:
            return float(self.predict(self._one_row(row))[0])
        out = np.empty(1)
        try:
            self._trees.kernel.predict_one(row, out, self.allow_nan, *RAW)
        except TypeError:
            return float(self.predict(self._one_row(row))[0])
        return float(out[0])

    @property
    def classes_(self) -> np.ndarray | None:
        """``classes``, by scikit-learn's name."""
        return self.classes

    def __repr__(self) -> str:
        """Which path each member took, and what finishes the vote."""
        paths = ", ".join(f"{n} {kind}" for kind, n in Counter(self.paths).items())
        if self.n_models < len(self.paths):
            paths += f", collapsed into {self.n_models}"
        task = "regression" if self.classes is None else f"{len(self.classes)} classes"
        calibrator = "" if self.calibrator is None else f", {self.calibrator.kind}"
        floor = f", floor {self.floor:g}" if self.classes is not None and self.floor else ""
        gate = "" if self.gate is None else f", {self.gate}"
        size = f"{self.nbytes / 1000:,.1f} kB"
        if any(isinstance(group, OtherMembers) for group in self.groups):
            size = f"{size} plus the other members" if self.nbytes else "the size of its members"
        return f"CompiledEnsemble({paths}; {task}{floor}{calibrator}{gate}; {size})"

    # -- steps of a prediction ---------------------------------------------------------------

    def _check_gate(self, gate: LinearGate) -> None:
        if gate.n_members != self.n_models or gate.n_members != len(self.paths):
            raise ValueError("the gate has weights for a different number of members.")
        widths = {g.n_features for g in self.groups if not isinstance(g, OtherMembers)}
        widths |= set() if self.n_features is None else {self.n_features}
        if widths - {gate.n_features}:
            raise ValueError("the gate reads a different number of features.")

    def _calibrated(self, proba: np.ndarray) -> np.ndarray:
        """By calibrators that the kernel does not know."""
        if self.calibrator is None or isinstance(self.calibrator, Temperature):
            return proba
        return self.calibrator.transform(proba)

    def _table(self, X: Any) -> Any:
        """X as something with rows and columns, of the right width."""
        X = by_name(X if hasattr(X, "shape") else np.asarray(X), self.feature_names)
        if len(X.shape) != 2:
            raise ValueError(
                f"X must be two-dimensional but has shape {X.shape}; for one row pass "
                f"row.reshape(1, -1), or use predict_one."
            )
        if self.n_features is not None and X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but {self.n_features} were fitted"
                f"{self._missing(getattr(X, 'columns', None))}."
            )
        self._check_names(getattr(X, "columns", None))
        return encoded(X, self.categories, self.feature_names)

    def _missing(self, names: Any) -> str:
        """The columns that are not there, where columns have names."""
        found = set() if names is None else {str(name) for name in names}
        missing = [repr(name) for name in self.feature_names or () if name not in found]
        told = ", ".join(missing[:12]) + ", …" * (len(missing) > 12)
        verb = "is" if len(missing) == 1 else "are"
        return f"; {told} {verb} missing" if found and missing else ""

    def _check_names(self, names: Any) -> None:
        """Columns in another order would be read as if they were in the right one."""
        if self.feature_names is None or names is None:
            return
        for found, expected in zip(names, self.feature_names, strict=False):
            if isinstance(found, str) and found != expected:
                raise ValueError(
                    f"X has {found!r} where the model expects {expected!r}; pass the columns "
                    "it was fitted on (feature_names)."
                )

    def _one_row(self, row: Any) -> np.ndarray:
        """A table of one row, for what the kernel does not read as it is."""
        is_series = hasattr(row, "iloc") and len(row.shape) == 1
        names = row if isinstance(row, Mapping) else row.index if is_series else ()
        if self.feature_names is not None and not set(self.feature_names) - set(names):
            wanted = list(self.feature_names)
            # Objects, so that a number in a column of texts is told from its code.
            row = row[wanted] if is_series else np.array(list(map(row.get, wanted)), dtype=object)
        elif isinstance(row, Mapping):
            told = "the model has no column names; pass numbers in the order of the columns."
            told = (
                told
                if self.feature_names is None
                else f"the row is incomplete{self._missing(row)}."
            )
            raise TypeError(told)
        elif is_series:
            self._check_names(names)
        row = row.toarray() if hasattr(row, "toarray") else row
        shape = np.shape(row)
        if len(shape) != 1:
            raise ValueError(
                f"one row must be one-dimensional, not shape {shape}; use predict for many."
            )
        row = encoded(row, self.categories, self.feature_names)
        return readable(as_numbers(row, self.feature_names))[None]

    def _numbers(self, X: Any, group: Group | LinearGate) -> Any:
        """The columns a group of arrays reads, as numbers, dense or sparse."""
        if X.shape[1] < group.n_features:
            raise ValueError(f"X has {X.shape[1]} features, but {group.n_features} were fitted.")
        X = X.tocsr() if hasattr(X, "toarray") else as_numbers(X, self.feature_names)
        return X if X.shape[1] == group.n_features else X[:, : group.n_features]

    def _scores(self, X: Any, n_jobs: int | None) -> np.ndarray:
        """The vote of all members, finished but for calibrators that the kernel does not know."""
        X, n_threads = self._table(X), resolve_threads(n_jobs)
        if self.gate is None:
            return self._vote(X, n_threads, None)
        out = np.empty((X.shape[0], self.n_outputs))
        step = max(1, BLOCK_ELEMENTS // self.gate.n_members)
        X = X.tocsr() if hasattr(X, "toarray") else X
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            part = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
            weights = self.gate.weights(self._numbers(part, self.gate))
            out[rows] = self._vote(part, n_threads, weights)
        return out

    def _vote(self, X: Any, n_threads: int, weights: np.ndarray | None) -> np.ndarray:
        """The same of some rows, whose ``weights`` are a gate's."""
        if self._trees is not None:
            return self._trees.scores(
                self._numbers(X, self._trees),
                weights,
                n_threads=n_threads,
                allow_nan=self.allow_nan,
                finish=self._finish,
            )
        total, first = np.zeros((X.shape[0], self.n_outputs)), 0
        for group in self.groups:
            own = None if weights is None else weights[:, first : first + group.n_members]
            first += group.n_members
            if isinstance(group, OtherMembers):
                total += group.scores(X, own, n_threads=n_threads)
            elif isinstance(group, FlatTrees):
                numbers = self._numbers(X, group)
                total += group.scores(numbers, own, n_threads=n_threads, allow_nan=self.allow_nan)
            else:
                total += group.scores(self._numbers(X, group), own)
        if self.classes is not None:
            finish_votes(total, *self._finish[1:])
        return total
