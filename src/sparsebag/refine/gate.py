"""What a gate is: weights of the members that depend on the row; and the smooth one.

With survivors j and classes c, a gated vote is ``p_c(x) = sum_j w_j(x) p_jc(x)`` with w(x) on the
simplex; refined leaves are clipped and the floor mixed in as in a vote with global weights. A
local temperature T(x) then takes the place of the calibrator's own (of a `TemperedFloor` the share
stays); calibrators without a temperature act after the vote, and do not go with a local one. A
regression is ``sum_j w_j(x) f_j(x)``, without a temperature.

Numpy only: a deployed model has its gate without scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from sparsebag.refine.calibrator import softmax_rows
from sparsebag.refine.temperature import SHARPEST, SOFTEST

CLIP = 5.0
"""Standard deviations from the mean at which a feature has all the say it can have."""
BLOCK_ELEMENTS = 2**21
"""Numbers of X that are dense at a time."""
LARGEST_LOGIT = 1e100
"""Far from where float64 ends; a fitted gate is below a hundred."""


class Gate(Protocol):
    """Weights of the members that depend on the row."""

    @property
    def kind(self) -> str:
        """Name under which files know it."""

    @property
    def n_members(self) -> int:
        """How many members share the weight."""

    @property
    def n_features(self) -> int:
        """Columns of X."""

    @property
    def has_temperature(self) -> bool:
        """Whether there is a temperature that depends on the row."""

    def weights(self, X: Any) -> np.ndarray:
        """Weights of shape (rows, n_members), rows on the simplex."""

    def temperatures(self, X: Any) -> np.ndarray | None:
        """Temperatures of shape (rows,), or None."""

    def take(self, members: np.ndarray) -> Gate:
        """The same gate with its members in another order."""

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""


@dataclass(frozen=True, eq=False)
class LinearGate:
    """Softmax or sparsemax of a low-rank linear map of the standardised features.

    ``z = clip((x - mean) / scale, -clip, clip)`` of x rounded to float32, as trees read it, so that
    the precision rows come in makes no difference; NaN and infinities are read as the mean;
    ``h = down @ z``; ``w = activation(base + up @ h)``; ``log T = log_temperature @ (1, h)``, kept
    between the least and the largest temperature a calibrator may have. With an ``offset`` the
    weights read ``g = (h + offset) / sqrt(1 + (h + offset)^2)`` in place of h, which stays between
    -1 and 1: however steep the change from one side of a plane to the other, far away from it no
    member takes all the weight.

    Attributes
    ----------
    mean, scale : float64 ndarrays of shape (n_features,)
        Scales are above zero.
    down : float64 ndarray of shape (rank, n_features)
    up : float64 ndarray of shape (n_members, rank)
        Zero: the weights are the global ones, whatever the row.
    base : float64 ndarray of shape (n_members,)
        Logarithms of the global weights for "softmax"; the weights themselves for "sparsemax".
    activation : {"softmax", "sparsemax"}
    log_temperature : float64 ndarray of shape (1 + rank,), optional
        Of the temperature at the mean, then its slopes.
    clip : float
    offset : float64 ndarray of shape (rank,), optional
        Where the weights read bounded features.

    Examples
    --------
    >>> gate = LinearGate(np.zeros(1), np.ones(1), np.ones((1, 1)), np.array([[1.0], [0.0]]),
    ...                   np.log([0.5, 0.5]))
    >>> gate.weights(np.array([[0.0], [np.log(3.0)], [np.nan]])).round(6).tolist()
    [[0.5, 0.5], [0.75, 0.25], [0.5, 0.5]]
    """

    mean: np.ndarray
    scale: np.ndarray
    down: np.ndarray
    up: np.ndarray
    base: np.ndarray
    activation: str = "softmax"
    log_temperature: np.ndarray | None = None
    clip: float = CLIP
    offset: np.ndarray | None = None
    kind: ClassVar[str] = "linear"

    def __post_init__(self) -> None:
        names = ["mean", "scale", "down", "up", "base"]
        names += [name for name in ("log_temperature", "offset") if getattr(self, name) is not None]
        for name in names:
            object.__setattr__(self, name, finite_array(name, getattr(self, name)))
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"the gate's activation is {str(self.activation)[:20]!r}, not softmax or sparsemax."
            )
        if self.down.ndim != 2 or self.base.ndim != 1 or len(self.base) == 0:
            raise _misfit()
        rank, d = self.down.shape
        found = (self.mean.shape, self.scale.shape, self.up.shape)
        if d == 0 or rank == 0 or found != ((d,), (d,), (len(self.base), rank)):
            raise _misfit()
        if self.log_temperature is not None and self.log_temperature.shape != (1 + rank,):
            raise _misfit()
        if self.offset is not None and self.offset.shape != (rank,):
            raise _misfit()
        if not np.all(self.scale >= np.finfo(np.float64).tiny):  # one over less is infinite
            raise ValueError("a scale of the gate is not above zero.")
        if not (np.isfinite(self.clip) and self.clip > 0.0):
            raise ValueError("the gate's clip is not a number above zero.")
        self._check_logits()

    def _check_logits(self) -> None:
        """No row can make a logit overflow."""
        with np.errstate(over="ignore", invalid="ignore"):
            h = np.abs(self.down).sum(axis=1) * self.clip
            read = h if self.offset is None else np.ones(len(h))
            largest = [float(np.max(np.abs(self.base) + np.abs(self.up) @ read)), float(np.max(h))]
            if self.offset is not None:
                largest.append(float(np.max(h + np.abs(self.offset))))
            if self.log_temperature is not None:
                largest.append(float(np.abs(self.log_temperature[1:]) @ h))
        if not all(value <= LARGEST_LOGIT for value in largest):
            raise ValueError("the gate's coefficients are too large.")

    @property
    def has_temperature(self) -> bool:
        """Whether there is a temperature that depends on the row."""
        return self.log_temperature is not None

    @property
    def n_members(self) -> int:
        """How many members share the weight."""
        return len(self.base)

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return len(self.mean)

    def hidden(self, X: Any) -> np.ndarray:
        """The low-rank features ``h`` that weights and temperature read.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, rank)
        """
        return in_dense_blocks(X, self.n_features, self._hidden)

    def _hidden(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.standardised(X) @ self.down.T)

    def standardised(self, X: np.ndarray) -> np.ndarray:
        """The features ``z`` that the map is linear in.

        Parameters
        ----------
        X : ndarray of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_features)
        """
        return standardised(X, self.mean, self.scale, self.clip)

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        """What the activation makes weights of.

        Parameters
        ----------
        hidden : ndarray of shape (rows, rank)
            ``h``.

        Returns
        -------
        ndarray of shape (rows, n_members)
        """
        read = hidden if self.offset is None else bounded(hidden + self.offset)
        return np.asarray(self.base + read @ self.up.T)

    def weights(self, X: Any) -> np.ndarray:
        """Weights of the members.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_members)
        """
        return ACTIVATIONS[self.activation](self.logits(self.hidden(X)))

    def temperatures(self, X: Any) -> np.ndarray | None:
        """Temperatures of the vote, or None where the gate has none.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,) or None
        """
        if self.log_temperature is None:
            return None
        log_t = self.log_temperature[0] + self.hidden(X) @ self.log_temperature[1:]
        return np.asarray(np.exp(np.clip(log_t, np.log(SHARPEST), np.log(SOFTEST))))

    def take(self, members: np.ndarray) -> Self:
        """The same gate with its members in another order.

        Parameters
        ----------
        members : int ndarray of shape (n_members,)
            A permutation.

        Returns
        -------
        LinearGate
        """
        return replace(self, up=self.up[members], base=self.base[members])

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        named = {n: getattr(self, n) for n in ("mean", "scale", "down", "up", "base")}
        extra = {"log_temperature": self.log_temperature, "offset": self.offset}
        return named | {name: array for name, array in extra.items() if array is not None}

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""
        return {"activation": self.activation, "clip": self.clip}

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError or KeyError where it cannot be."""
        return cls(
            **{n: arrays[n] for n in ("mean", "scale", "down", "up", "base")},
            activation=settings["activation"],
            log_temperature=arrays.get("log_temperature"),
            clip=settings["clip"],
            offset=arrays.get("offset"),
        )


def standardised(X: np.ndarray, mean: np.ndarray, scale: np.ndarray, clip: float) -> np.ndarray:
    """Features in standard deviations from the mean, as gates read them.

    Parameters
    ----------
    X : ndarray of shape (rows, d)
    mean, scale : ndarrays of shape (d,)
    clip : float
        Standard deviations at most.

    Returns
    -------
    ndarray of shape (rows, d)

    Examples
    --------
    >>> standardised(np.array([[3.0, np.nan, 99.0]]), np.ones(3), np.ones(3), 5.0).tolist()
    [[2.0, 0.0, 5.0]]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        X = X.astype(np.float32, copy=False).astype(np.float64)
        z = (X - mean) * (1.0 / scale)
        return np.where(np.isfinite(X), np.clip(z, -clip, clip), 0.0)


def bounded(h: np.ndarray) -> np.ndarray:
    """``h / sqrt(1 + h^2)``: like h near zero, and between -1 and 1.

    Exactly rounded operations alone, which kernels and exports have too.

    Parameters
    ----------
    h : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> bounded(np.array([0.0, -0.75, 1e9])).tolist()
    [0.0, -0.6, 1.0]
    """
    return np.asarray(h / np.sqrt(1.0 + h * h))


def bounded_slope(h: np.ndarray) -> np.ndarray:
    """The derivative of `bounded`.

    Parameters
    ----------
    h : ndarray

    Returns
    -------
    ndarray

    Examples
    --------
    >>> bounded_slope(np.array([0.0, 0.75])).round(3).tolist()
    [1.0, 0.512]
    """
    return np.asarray((1.0 + h * h) ** -1.5)


def sparsemax_rows(logits: np.ndarray) -> np.ndarray:
    """The point of the simplex nearest to each row (Martins & Astudillo 2016).

    Parameters
    ----------
    logits : ndarray of shape (rows, k)

    Returns
    -------
    ndarray of shape (rows, k)

    Examples
    --------
    >>> sparsemax_rows(np.array([[0.5, 0.5, 0.0], [2.0, 0.0, 0.0]])).tolist()
    [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
    """
    # Only differences matter; without the largest, large logits lose no digits of their sum.
    logits = logits - logits.max(axis=1, keepdims=True)
    falling = -np.sort(-logits, axis=1)
    sums = np.cumsum(falling, axis=1) - 1.0
    counts = np.arange(1, logits.shape[1] + 1)
    support = np.count_nonzero(counts * falling > sums, axis=1)
    tau = sums[np.arange(len(logits)), support - 1] / support
    return np.asarray(np.maximum(logits - tau[:, None], 0.0))


ACTIVATIONS = {"softmax": softmax_rows, "sparsemax": sparsemax_rows}


def in_dense_blocks(
    X: Any, n_features: int, of_block: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """What ``of_block`` makes of a few dense rows at a time.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (rows, n_features)
    n_features : int
        Checked.
    of_block : callable
        Some rows, dense, to as many.

    Returns
    -------
    ndarray of shape (rows, ...)
    """
    sparse = hasattr(X, "toarray")
    X = X.tocsr() if sparse else np.asarray(X)
    if X.ndim != 2 or X.shape[1] != n_features:
        raise ValueError(f"X has shape {X.shape}, but the gate reads {n_features} features.")
    step = max(1, BLOCK_ELEMENTS // n_features)
    if X.shape[0] <= step:
        return np.asarray(of_block(X.toarray() if sparse else X))
    parts = []
    for start in range(0, X.shape[0], step):
        rows = X[start : start + step]
        parts.append(of_block(rows.toarray() if sparse else rows))
    return np.concatenate(parts)


def finite_array(name: str, values: Any) -> np.ndarray:
    """A float64 array, once every number of it is finite.

    Parameters
    ----------
    name : str
        For the error.
    values : array-like

    Returns
    -------
    ndarray
    """
    array = np.ascontiguousarray(values, dtype=np.float64)
    if not np.all(np.isfinite(array)):
        raise ValueError(f"the gate's {name} is not finite.")
    return array


def _misfit() -> ValueError:
    return ValueError("the arrays of the gate do not fit together.")
