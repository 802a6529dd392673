"""The suite: more data sets than the paper's; rows shuffled with a seed, cut to a number."""

import numpy as np

from benchmarks.datasets import PAPER, Dataset, _bundled, _openml

C, R = "classification", "regression"
SUITE: dict[str, Dataset] = {
    d.name: d
    for d in (
        Dataset("digits", C, _bundled("load_digits")),
        Dataset("adult", C, _openml("adult", 2)),
        Dataset("australian", C, _openml("Australian", 4)),
        Dataset("churn", C, _openml("churn")),
        Dataset("covertype_15k", C, _openml("covertype", 1)),
        Dataset("credit_g", C, _openml("credit-g")),
        Dataset("electricity", C, _openml("electricity")),
        Dataset("magic", C, _openml("MagicTelescope")),
        Dataset("mammography", C, _openml("mammography")),
        Dataset("optdigits", C, _openml("optdigits")),
        Dataset("page_blocks", C, _openml("page-blocks")),
        Dataset("phoneme", C, _openml("phoneme")),
        Dataset("satimage", C, _openml("satimage")),
        Dataset("vehicle", C, _openml("vehicle")),
        Dataset("yeast", C, _openml("yeast")),
        Dataset("abalone", R, _openml("abalone")),
        Dataset("airfoil", R, _openml("airfoil_self_noise")),
        Dataset("bike_sharing", R, _openml("Bike_Sharing_Demand", 2)),
        Dataset("concrete", R, _openml("Concrete_Data")),
        Dataset("elevators", R, _openml("elevators")),
        Dataset("house_8l", R, _openml("house_8L")),
        Dataset("kin8nm", R, _openml("kin8nm")),
        Dataset("pol", R, _openml("pol")),
        Dataset("power_plant", R, _openml("Combined_Cycle_Power_Plant")),
        Dataset("wine_quality", R, _openml("wine_quality")),
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
