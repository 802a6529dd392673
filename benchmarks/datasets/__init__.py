"""Data sets by name, from a local folder first, else from scikit-learn's loaders."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PAPER_SEED = 42
PAPER_ROWS = 5000


class Unavailable(RuntimeError):
    """A data set cannot be had here; the message says why."""


@dataclass(frozen=True)
class Dataset:
    name: str
    task: str
    load_from_sklearn: Callable[[], tuple[Any, Any]]
    subsample: bool = False

    def load(self, data_dir: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Rows in their original order, subsampled as the paper says where it does."""
        X, y = self._read(data_dir)
        if self.subsample and len(X) > PAPER_ROWS:
            rows = np.random.default_rng(PAPER_SEED).choice(len(X), PAPER_ROWS, replace=False)
            X, y = X[rows], y[rows]
        return X, y

    def _read(self, data_dir: str | None) -> tuple[np.ndarray, np.ndarray]:
        folder = data_dir or os.environ.get("SPARSEBAG_DATA")
        if folder:
            for path in sorted(Path(folder).glob(f"**/{self.name}.csv*")):
                table = _read_csv(path)
                return table[:, :-1], table[:, -1].astype(_target_type(self.task))
        try:
            with warnings.catch_warnings(action="ignore"):  # every retry of a missing network
                X, y = self.load_from_sklearn()
        except Exception as error:
            raise Unavailable(f"{self.name}: not under SPARSEBAG_DATA, and {error}") from error
        X, y = np.asarray(X, dtype=float), np.asarray(y)
        if self.task == "classification":
            y = np.unique(y, return_inverse=True)[1]
        return X, y.astype(_target_type(self.task))


def _read_csv(path: Path) -> np.ndarray:
    import pandas as pd

    return pd.read_csv(path).to_numpy(dtype=float)


def _target_type(task: str) -> type:
    return int if task == "classification" else float


def _bundled(name: str) -> Callable[[], tuple[Any, Any]]:
    def load() -> tuple[Any, Any]:
        import sklearn.datasets

        return getattr(sklearn.datasets, name)(return_X_y=True)

    return load


def _openml(name: str, version: int = 1) -> Callable[[], tuple[Any, Any]]:
    def load() -> tuple[Any, Any]:
        from sklearn.datasets import fetch_openml

        return fetch_openml(name, version=version, return_X_y=True, as_frame=False)

    return load


PAPER: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("breast_cancer", "classification", _bundled("load_breast_cancer")),
        Dataset("diabetes_clf", "classification", _openml("diabetes")),
        Dataset("spambase", "classification", _openml("spambase")),
        Dataset("segment", "classification", _openml("segment")),
        Dataset("diabetes_reg", "regression", _bundled("load_diabetes")),
        Dataset("california_housing", "regression", _bundled("fetch_california_housing"), True),
        Dataset("cpu_act", "regression", _openml("cpu_act"), True),
    )
}
