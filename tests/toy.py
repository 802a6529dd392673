"""Data that tests share."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris
from sklearn.model_selection import train_test_split

IRIS, CANCER, DIABETES, DIGITS = (
    load(return_X_y=True) for load in (load_iris, load_breast_cancer, load_diabetes, load_digits)
)


def with_missing(data, share=0.1):
    """The same rows with values missing."""
    X, y = data
    return np.where(np.random.default_rng(0).random(X.shape) < share, np.nan, X), y


def halves(data, **how):
    """Rows to fit and rows to test by: ``X, X_test, y, y_test``."""
    return train_test_split(*data, random_state=0, **how)
