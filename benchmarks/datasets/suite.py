"""The suite: more data sets than the paper's; rows shuffled with a seed, cut to a number."""

import numpy as np

from benchmarks.datasets import PAPER, Dataset, bundled, openml

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
