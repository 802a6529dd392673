"""Data sets by name, from a local folder first, else from scikit-learn's loaders.

`PAPER` are the paper's, of which the suite has more: its rows are shuffled, and cut to a number.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import sklearn.datasets

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

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in their original order, subsampled as the paper says where it does."""
        X, y = self.every_row()
        if self.subsample and len(X) > PAPER_ROWS:
            rows = np.random.default_rng(PAPER_SEED).choice(len(X), PAPER_ROWS, replace=False)
            X, y = X[rows], y[rows]
        return X, y

    def every_row(self) -> tuple[np.ndarray, np.ndarray]:
        dtype = int if self.task == "classification" else float
        if folder := os.environ.get("SPARSEBAG_DATA"):
            for path in sorted(Path(folder).glob(f"**/{self.name}.csv*")):
                table = pd.read_csv(path).to_numpy(dtype=float)
                return table[:, :-1], table[:, -1].astype(dtype)
        try:
            with warnings.catch_warnings(action="ignore"):  # every retry of a missing network
                X, y = self.load_from_sklearn()
        except Exception as error:
            raise Unavailable(f"{self.name}: not under SPARSEBAG_DATA, and {error}") from error
        X, y = np.asarray(X, dtype=float), np.asarray(y)
        if self.task == "classification":
            y = np.unique(y, return_inverse=True)[1]
        return X, y.astype(dtype)


def bundled(name: str) -> Callable[[], tuple[Any, Any]]:
    return partial(getattr(sklearn.datasets, name), return_X_y=True)


def openml(name: str, version: int = 1) -> Callable[[], tuple[Any, Any]]:
    how = {"version": version, "return_X_y": True, "as_frame": False}
    return partial(sklearn.datasets.fetch_openml, name, **how)


PAPER: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("breast_cancer", "classification", bundled("load_breast_cancer")),
        Dataset("diabetes_clf", "classification", openml("diabetes")),
        Dataset("spambase", "classification", openml("spambase")),
        Dataset("segment", "classification", openml("segment")),
        Dataset("diabetes_reg", "regression", bundled("load_diabetes")),
        Dataset("california_housing", "regression", bundled("fetch_california_housing"), True),
        Dataset("cpu_act", "regression", openml("cpu_act"), True),
    )
}
C, R = "classification", "regression"
SUITE: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("digits", C, bundled("load_digits")),
        Dataset("adult", C, openml("adult", 2)),
        Dataset("australian", C, openml("Australian", 4)),
        Dataset("churn", C, openml("churn")),
        Dataset("covertype_15k", C, openml("covertype", 1)),
        Dataset("credit_g", C, openml("credit-g")),
        Dataset("electricity", C, openml("electricity")),
        Dataset("magic", C, openml("MagicTelescope")),
        Dataset("mammography", C, openml("mammography")),
        Dataset("optdigits", C, openml("optdigits")),
        Dataset("page_blocks", C, openml("page-blocks")),
        Dataset("phoneme", C, openml("phoneme")),
        Dataset("satimage", C, openml("satimage")),
        Dataset("vehicle", C, openml("vehicle")),
        Dataset("yeast", C, openml("yeast")),
        Dataset("abalone", R, openml("abalone")),
        Dataset("airfoil", R, openml("airfoil_self_noise")),
        Dataset("bike_sharing", R, openml("Bike_Sharing_Demand", 2)),
        Dataset("concrete", R, openml("Concrete_Data")),
        Dataset("elevators", R, openml("elevators")),
        Dataset("house_8l", R, openml("house_8L")),
        Dataset("kin8nm", R, openml("kin8nm")),
        Dataset("pol", R, openml("pol")),
        Dataset("power_plant", R, openml("Combined_Cycle_Power_Plant")),
        Dataset("wine_quality", R, openml("wine_quality")),
    )
}


def load(name: str, n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, str]:
    """Up to ``n_rows`` shuffled rows of a data set, and its task."""
    dataset = {**PAPER, **SUITE}[name]
    X, y = dataset.every_row()
    rows = np.random.RandomState(seed).permutation(len(X))[:n_rows]
    return X[rows], y[rows], dataset.task
