"""Ten of a hundred trees, with and without refitted leaves and calibration, on bundled data.

Run: python examples/ten_trees.py
"""

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_friedman1
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split

import sparsebag as sb

SPLITS = 5
WAYS = {
    "as they were": {"refine": None, "calibration": None},
    "calibrated": {"refine": None},
    "refitted": {"calibration": None},
    "refitted and calibrated": {},
}
DATA = {
    "digits": (load_digits, RandomForestClassifier),
    "breast cancer": (load_breast_cancer, RandomForestClassifier),
    "diabetes": (load_diabetes, RandomForestRegressor),
    "friedman1": (
        lambda return_X_y: make_friedman1(2000, noise=1.0, random_state=0),
        RandomForestRegressor,
    ),
}


def loss(model, X, y):
    """Log-loss, never infinite, or squared error."""
    if hasattr(model, "predict_proba"):
        proba = model.predict_proba(X)
        return log_loss(y, 0.999 * proba + 0.001 / proba.shape[1])
    return mean_squared_error(y, model.predict(X))


def main():
    """Print a line a data set."""
    warnings.simplefilter("ignore", sb.RegretWarning)
    print(f"Log-loss or squared error of 10 trees / all 100 trees, mean of {SPLITS} splits")
    for name, (load, forest_kind) in DATA.items():
        ratios = {way: [] for way in WAYS}
        refitted = []
        for seed in range(SPLITS):
            X, y = load(return_X_y=True)
            X, X_new, y, y_new = train_test_split(X, y, random_state=seed)
            forest = forest_kind(100, random_state=seed).fit(X, y)
            whole = loss(forest, X_new, y_new)
            for way, how in WAYS.items():
                small = sb.compress(forest, X, y, max_estimators=10, **how)
                ratios[way].append(loss(small, X_new, y_new) / whole)
            refitted.append(small.refinement_.used)
        figures = ", ".join(f"{way} {np.mean(found):.2f}" for way, found in ratios.items())
        print(f"{name}: {figures}; refitted on {sum(refitted)} of {SPLITS} splits")


if __name__ == "__main__":
    main()
