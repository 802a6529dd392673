"""Larger data sets for timing: rows shuffled with a seed, cut to a number of rows."""

from __future__ import annotations

import numpy as np

from benchmarks.datasets import PAPER, Dataset, _bundled, _openml

SUITE: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("digits", "classification", _bundled("load_digits")),
        Dataset("adult", "classification", _openml("adult", 2)),
        Dataset("electricity", "classification", _openml("electricity")),
        Dataset("magic", "classification", _openml("MagicTelescope")),
        Dataset("satimage", "classification", _openml("satimage")),
        Dataset("house_8l", "regression", _openml("house_8L")),
        Dataset("bike_sharing", "regression", _openml("Bike_Sharing_Demand", 2)),
    )
}


def load(
    name: str, n_rows: int, data_dir: str | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, str]:
    """Up to ``n_rows`` shuffled rows of a data set, and its task."""
    dataset = {**PAPER, **SUITE}[name]
    X, y = dataset._read(data_dir)
    rows = np.random.RandomState(seed).permutation(len(X))[:n_rows]
    return X[rows], y[rows], dataset.task
