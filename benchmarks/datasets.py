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

    def load(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows in their original order, at most as many as the paper takes."""
        X, y = self.every_row()
        if len(X) > PAPER_ROWS:
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


def _source(name: str, version: str = "1") -> Callable[[], tuple[Any, Any]]:
    if hasattr(sklearn.datasets, name):
        return partial(getattr(sklearn.datasets, name), return_X_y=True)
    how = {"version": int(version), "return_X_y": True, "as_frame": False}
    return partial(sklearn.datasets.fetch_openml, name, **how)


def _table(task: str, lines: str) -> dict[str, Dataset]:
    """Data sets by name, of "name, scikit-learn's loader or OpenML's name and version; ..."."""
    words = [line.split() for line in lines.split(";")]
    return {name: Dataset(name, task, _source(*source)) for name, *source in words}


PAPER = _table(
    "classification",
    "breast_cancer load_breast_cancer; diabetes_clf diabetes; spambase spambase; segment segment",
) | _table(
    "regression",
    "diabetes_reg load_diabetes; california_housing fetch_california_housing; cpu_act cpu_act",
)
SUITE = _table(
    "classification",
    "digits load_digits; adult adult 2; australian Australian 4; churn churn;"
    "covertype_15k covertype; credit_g credit-g; electricity electricity; magic MagicTelescope;"
    "mammography mammography; optdigits optdigits; page_blocks page-blocks; phoneme phoneme;"
    "satimage satimage; vehicle vehicle; yeast yeast",
) | _table(
    "regression",
    "abalone abalone; airfoil airfoil_self_noise; bike_sharing Bike_Sharing_Demand 2;"
    "concrete Concrete_Data; elevators elevators; house_8l house_8L; kin8nm kin8nm; pol pol;"
    "power_plant Combined_Cycle_Power_Plant; wine_quality wine_quality",
)


def load(name: str, n_rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, str]:
    """Up to ``n_rows`` shuffled rows of a data set, and its task."""
    dataset = {**PAPER, **SUITE}[name]
    X, y = dataset.every_row()
    rows = np.random.RandomState(seed).permutation(len(X))[:n_rows]
    return X[rows], y[rows], dataset.task
