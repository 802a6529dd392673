"""Members that are no trees: linear models and networks as arrays, others as themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from sparsebag.local.gate import BLOCK_ELEMENTS

if TYPE_CHECKING:  # files are read where scikit-learn is not installed
    from sparsebag.evidence.members import Member


def finite_numbers(X: Any) -> Any:
    """X as float64, dense or sparse; NaN and infinity raise, as in scikit-learn.

    Parameters
    ----------
    X : ndarray or sparse matrix

    Returns
    -------
    ndarray or sparse matrix

    Examples
    --------
    >>> finite_numbers(np.array([[1, 2]])).tolist()
    [[1.0, 2.0]]
    """
    X = X.astype(np.float64, copy=False)
    values = X.data if hasattr(X, "toarray") else X
    with np.errstate(invalid="ignore", over="ignore"):
        suspicious = not np.isfinite(values.sum())  # one pass, no array of booleans
    if suspicious and not np.all(np.isfinite(values)):
        what = "NaN" if np.any(np.isnan(values)) else "infinity"
        raise ValueError(f"Input X contains {what}.")
    return X


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), without overflow and to full relative precision.

    Parameters
    ----------
    z : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> sigmoid(np.array([0.0, 1000.0])).tolist()
    [0.5, 1.0]
    """
    e = np.exp(-np.abs(z))
    return np.asarray(np.where(z >= 0.0, 1.0, e) / (1.0 + e))


def _softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def _two(positive: np.ndarray) -> np.ndarray:
    return np.concatenate([1.0 - positive, positive], axis=-1)


def _one_vs_rest(z: np.ndarray) -> np.ndarray:
    # sigmoid(z), normalised; in logarithms, where scores far below zero do not become 0/0
    return _softmax(np.minimum(z, 0.0) - np.log1p(np.exp(-np.abs(z))))


def _largest(z: np.ndarray) -> np.ndarray:
    chosen = np.argmax(z, axis=-1)[..., None] == np.arange(z.shape[-1])
    return np.asarray(chosen, dtype=np.float64)


LINKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda z: z,
    "sigmoid": lambda z: _two(sigmoid(z)),
    "softmax": _softmax,
    "one_vs_rest": _one_vs_rest,
    "sign": lambda z: _two((z > 0.0).astype(np.float64)),
    "largest": _largest,
}
"""Scores of shape (..., q) to votes; "sigmoid" and "sign" make two columns of one."""
TWO_CLASS_LINKS = ("sigmoid", "sign")
ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda z: z,
    "logistic": sigmoid,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0.0),
}


def weighted_votes(
    votes: np.ndarray, weights: np.ndarray, class_columns: np.ndarray, n_outputs: int
) -> np.ndarray:
    """Sum of the members' votes, each in the classes it knows.

    Parameters
    ----------
    votes : ndarray of shape (members, rows, classes a member)
    weights : ndarray of shape (members,) or (rows, members)
    class_columns : int ndarray of shape (members, classes a member)
    n_outputs : int

    Returns
    -------
    ndarray of shape (rows, n_outputs)

    Examples
    --------
    >>> votes = np.array([[[1.0]], [[0.5]]])
    >>> weighted_votes(votes, np.array([0.5, 0.5]), np.array([[0], [2]]), 3).tolist()
    [[0.5, 0.0, 0.25]]
    """
    if class_columns.shape[1] == n_outputs and np.all(class_columns == np.arange(n_outputs)):
        if weights.ndim == 1:
            return np.asarray(np.tensordot(weights, votes, axes=1))
        return np.asarray(np.einsum("nm,mnc->nc", weights, votes))
    out = np.zeros((votes.shape[1], n_outputs))
    of_member = weights if weights.ndim == 1 else weights.T[:, :, None]
    for weight, vote, columns in zip(of_member, votes, class_columns, strict=True):
        out[:, columns] += weight * vote
    return out


@dataclass(frozen=True, eq=False)
class LayeredVotes:
    """Linear members of one link; or networks of one shape, of which they are the first layer.

    Attributes
    ----------
    coef : float64 ndarray of shape (n_features, members * q)
        One product for all members; zero where a member does not read a column.
    intercept : float64 ndarray of shape (members * q,)
    layers : tuple of float64 ndarrays of shape (members, inputs, outputs)
        Further layers of networks; none of linear models.
    biases : tuple of float64 ndarrays of shape (members, 1, outputs)
    weights : float64 ndarray of shape (members,)
    class_columns : int32 ndarray of shape (members, classes a member)
        Position of each vote in the ensemble's classes.
    activation : str
        Key of `ACTIVATIONS`: between the layers.
    link : str
        Key of `LINKS`: after the last layer.
    n_outputs : int
        Classes, or one for regression.
    n_members : int
        How many there were: linear regressors collapse into one.
    """

    coef: np.ndarray
    intercept: np.ndarray
    layers: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    weights: np.ndarray
    class_columns: np.ndarray
    activation: str
    link: str
    n_outputs: int
    n_members: int
    SETTINGS: ClassVar[dict[str, dict[str, type]]] = {
        "linear": {"link": str, "n_outputs": int, "n_members": int},
        "mlp": {"n_layers": int, "activation": str, "link": str, "n_outputs": int},
    }

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS or self.link not in LINKS:
            raise ValueError("the activation or link of a member is not known.")
        if self.weights.ndim != 1 or self.coef.ndim != 2:
            raise ValueError("the arrays of the members do not fit together.")
        m = len(self.weights)
        width = self.coef.shape[1] // m if m else 0
        fits = width > 0 and self.coef.shape[1:] == self.intercept.shape == (m * width,)
        for layer, bias in zip(self.layers, self.biases, strict=True):
            out = layer.shape[-1] if layer.ndim else 0
            fits = fits and layer.shape == (m, width, out) and bias.shape == (m, 1, out)
            width = out
        two = self.link in TWO_CLASS_LINKS
        votes = 2 if two else width
        fits = fits and self.class_columns.shape == (m, votes)
        if not fits or votes == 0 or (two and width != 1):
            raise ValueError("the arrays of the members do not fit together.")
        collapses = self.kind == "linear" and self.link == "identity"
        if self.n_members < m or (self.n_members > m and not collapses):
            raise ValueError("the number of members is wrong.")
        if self.class_columns.min() < 0 or self.class_columns.max() >= self.n_outputs:
            raise ValueError("a member votes for a class that does not exist.")
        if np.any(np.diff(np.sort(self.class_columns, axis=1), axis=1) == 0):
            raise ValueError("a member votes twice for one class.")
        if not all(np.all(np.isfinite(array)) for array in self.arrays().values()):
            raise ValueError("a member has a coefficient that is not finite.")

    @property
    def kind(self) -> str:
        """Of the members, as files and `paths` name it."""
        return "mlp" if self.layers else "linear"

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.coef.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        named = {"coef": self.coef, "intercept": self.intercept}
        if self.layers:
            m = len(self.weights)
            first = self.coef.reshape(self.n_features, m, -1).transpose(1, 0, 2)
            layers, biases = (first, *self.layers), (self.intercept.reshape(m, 1, -1), *self.biases)
            named = {f"layer_{i}": layer for i, layer in enumerate(layers)}
            named |= {f"bias_{i}": bias for i, bias in enumerate(biases)}
        return {**named, "weights": self.weights, "class_columns": self.class_columns}

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""
        known = {**vars(self), "n_layers": 1 + len(self.layers)}
        return {name: known[name] for name in self.SETTINGS[self.kind]}

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError where it cannot be."""
        if "n_layers" not in settings:
            named: dict[str, Any] = {**arrays, **settings}
            return cls(**named, layers=(), biases=(), activation="identity")
        depth = range(min(settings["n_layers"], len(arrays)))
        first, *layers = (arrays[f"layer_{i}"] for i in depth)
        bias, *biases = (arrays[f"bias_{i}"] for i in depth)
        weights = arrays["weights"]
        if first.ndim != 3 or bias.shape != (len(first), 1, first.shape[2]) or not layers:
            raise ValueError("the arrays of the members do not fit together.")
        return cls(
            coef=first.transpose(1, 0, 2).reshape(first.shape[1], -1),
            intercept=bias.reshape(-1),
            layers=tuple(layers),
            biases=tuple(biases),
            weights=weights,
            class_columns=arrays["class_columns"],
            n_members=weights.size,
            **{name: value for name, value in settings.items() if name != "n_layers"},
        )

    def scores(self, X: Any, row_weights: np.ndarray | None = None) -> np.ndarray:
        """Weighted sum of the members' votes, some rows at a time.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)
        row_weights : ndarray of shape (rows, members), optional
            A gate's, in place of the members' own.

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """
        X = finite_numbers(X)
        out = np.empty((X.shape[0], self.n_outputs))
        widest = max(bias.size for bias in (self.intercept, *self.biases))
        step = max(1, BLOCK_ELEMENTS // widest)
        for start in range(0, X.shape[0], step):
            rows = slice(start, start + step)
            weights = self.weights if row_weights is None else row_weights[rows]
            out[rows] = weighted_votes(
                self._votes(X[rows]), weights, self.class_columns, self.n_outputs
            )
        return out

    def _votes(self, X: Any) -> np.ndarray:
        """Of shape (members, rows, classes a member)."""
        z = np.asarray(X @ self.coef) + self.intercept
        z = z.reshape(len(z), len(self.weights), -1).transpose(1, 0, 2)
        for layer, bias in zip(self.layers, self.biases, strict=True):
            z = np.matmul(ACTIVATIONS[self.activation](z), layer) + bias
        return LINKS[self.link](z)


@dataclass(frozen=True, eq=False)
class OtherMembers:
    """Members of any other kind: their own ``predict_proba`` or ``predict``.

    Attributes
    ----------
    members : tuple of Member
        Without their feature subsets: X comes sliced.
    features : tuple of (ndarray or None)
        Columns each reads.
    weights : ndarray of shape (members,)
    n_outputs : int
        Classes, or one for regression.
    is_vote : bool
        Classification or regression.
    """

    members: tuple[Member, ...]
    features: tuple[np.ndarray | None, ...]
    weights: np.ndarray
    n_outputs: int
    is_vote: bool
    kind: ClassVar[str] = "other"

    @property
    def n_members(self) -> int:
        """How many members there are."""
        return len(self.members)

    @property
    def n_features(self) -> int:
        """Columns of X that are needed, where subsets say."""
        return max((int(f.max()) + 1 for f in self.features if f is not None), default=0)

    def scores(
        self, X: Any, row_weights: np.ndarray | None = None, *, n_threads: int = 1
    ) -> np.ndarray:
        """Weighted sum of the members' votes.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame
        row_weights : ndarray of shape (rows, members), optional
            A gate's, in place of the members' own.
        n_threads : int

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        threads = min(n_threads, self.n_members) if n_rows >= 500 else 1  # not worth a pool
        out = np.zeros((n_rows, self.n_outputs))
        weights = self.weights if row_weights is None else row_weights.T[:, :, None]
        for weight, vote in zip(weights, self._votes(X, threads), strict=True):
            out += weight * vote
        return out

    def _votes(self, X: Any, n_threads: int) -> Iterator[np.ndarray]:
        slices: dict[bytes, Any] = {}

        def sliced(features: np.ndarray | None) -> Any:
            if features is None:
                return X
            name = features.tobytes()
            if name not in slices:  # members of one subset share the copy
                slices[name] = X.iloc[:, features] if hasattr(X, "iloc") else X[:, features]
            return slices[name]

        def vote(member: Member, rows: Any) -> np.ndarray:
            if self.is_vote:
                return member.predict_proba(rows, self.n_outputs)
            return member.predict(rows)[:, None]

        rows = [sliced(features) for features in self.features]
        if n_threads == 1:
            yield from map(vote, self.members, rows)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield from pool.map(vote, self.members, rows)
