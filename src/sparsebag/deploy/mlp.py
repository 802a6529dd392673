"""scikit-learn's multi-layer perceptrons, networks of one shape stacked into batched products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from sparsebag.deploy.linear import LINKS, TWO_CLASS_LINKS
from sparsebag.deploy.votes import (
    check_class_columns,
    scores_in_blocks,
    sigmoid,
    weighted_votes,
)

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "identity": lambda z: z,
    "logistic": sigmoid,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0.0),
}


@dataclass(frozen=True, eq=False)
class StackedNetworks:
    """Networks with the same layers, activation and kind of output.

    Attributes
    ----------
    layers : tuple of float64 ndarrays of shape (members, inputs, outputs)
        Weights; the first reads every column of X, with zeros where a member does not.
    biases : tuple of float64 ndarrays of shape (members, 1, outputs)
    weights : float64 ndarray of shape (members,)
    class_columns : int32 ndarray of shape (members, classes a member)
    activation : str
        Key of `ACTIVATIONS`.
    link : {"identity", "sigmoid", "softmax"}
        Key of `LINKS`.
    n_outputs : int
    """

    layers: tuple[np.ndarray, ...]
    biases: tuple[np.ndarray, ...]
    weights: np.ndarray
    class_columns: np.ndarray
    activation: str
    link: str
    n_outputs: int
    kind: ClassVar[str] = "mlp"

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS or self.link not in LINKS:
            raise ValueError("the activation or link of a network is not known.")
        m = self.n_members
        if self.weights.ndim != 1 or self.class_columns.ndim != 2 or m == 0 or not self.layers:
            raise _misfit()
        inputs = self.layers[0].shape[1] if self.layers[0].ndim == 3 else 0
        for layer, bias in zip(self.layers, self.biases, strict=True):
            if layer.shape != (m, inputs, layer.shape[-1]) or bias.shape != (m, 1, layer.shape[-1]):
                raise _misfit()
            inputs = layer.shape[-1]
        votes = 2 if self.link in TWO_CLASS_LINKS and inputs == 1 else inputs
        if inputs == 0 or self.class_columns.shape != (m, votes):
            raise _misfit()
        if self.link in TWO_CLASS_LINKS and inputs != 1:
            raise _misfit()
        check_class_columns(self.class_columns, self.n_outputs)
        for array in (*self.layers, *self.biases, self.weights):
            if not np.all(np.isfinite(array)):
                raise ValueError("a network has a weight that is not finite.")

    @property
    def n_members(self) -> int:
        """How many networks there are."""
        return len(self.weights)

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return int(self.layers[0].shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(a.nbytes for a in self.arrays().values())

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by name, as files hold them."""
        named = {f"layer_{i}": layer for i, layer in enumerate(self.layers)}
        named |= {f"bias_{i}": bias for i, bias in enumerate(self.biases)}
        return {**named, "weights": self.weights, "class_columns": self.class_columns}

    def settings(self) -> dict[str, Any]:
        """The rest, as files hold it."""
        return {
            "n_layers": len(self.layers),
            "activation": self.activation,
            "link": self.link,
            "n_outputs": self.n_outputs,
        }

    @classmethod
    def rebuild(cls, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]) -> Self:
        """From what a file holds; raises ValueError where it cannot be."""
        depth = range(min(int(settings["n_layers"]), len(arrays)))
        return cls(
            layers=tuple(arrays[f"layer_{i}"] for i in depth),
            biases=tuple(arrays[f"bias_{i}"] for i in depth),
            weights=arrays["weights"],
            class_columns=arrays["class_columns"],
            activation=str(settings["activation"]),
            link=str(settings["link"]),
            n_outputs=int(settings["n_outputs"]),
        )

    def scores(self, X: Any, row_weights: np.ndarray | None = None) -> np.ndarray:
        """Weighted sum of the networks' votes.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (rows, n_features)
        row_weights : ndarray of shape (rows, members), optional
            A gate's, in place of the members' own.

        Returns
        -------
        ndarray of shape (rows, n_outputs)
        """

        def of_block(X: Any, rows: slice) -> np.ndarray:
            weights = self.weights if row_weights is None else row_weights[rows]
            return weighted_votes(self._votes(X), weights, self.class_columns, self.n_outputs)

        widest = max(layer.shape[2] for layer in self.layers) * self.n_members
        return scores_in_blocks(X, self.n_outputs, widest, of_block)

    def _votes(self, X: Any) -> np.ndarray:
        # One product for all first layers: X is read once, and may be sparse.
        m, inputs, width = self.layers[0].shape
        first = self.layers[0].transpose(1, 0, 2).reshape(inputs, m * width)
        z = np.asarray(X @ first).reshape(-1, m, width).transpose(1, 0, 2) + self.biases[0]
        for layer, bias in zip(self.layers[1:], self.biases[1:], strict=True):
            z = np.matmul(ACTIVATIONS[self.activation](z), layer) + bias
        return LINKS[self.link](z)


def _misfit() -> ValueError:
    return ValueError("the arrays of the networks do not fit together.")
