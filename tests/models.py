"""Every kind of model that people have, on toy data: a kind is a line in `KINDS`."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import (
    GridSearchCV,
    HalvingGridSearchCV,
    RandomizedSearchCV,
    train_test_split,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sparsebag as sb
from toy import CANCER, DIABETES, DIGITS, IRIS, halves


def forest(n=40):
    return RandomForestClassifier(n, min_samples_leaf=2, random_state=0)


def regressor():
    return RandomForestRegressor(40, min_samples_leaf=2, random_state=0)


def table(n=600):
    """Numbers with gaps, a category, and a target of text."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "age": rng.normal(size=n),
            "city": rng.choice(["Bonn", "Kiel", "Ulm"], n),
            "pay": rng.normal(size=n),
        }
    )
    y = np.where(X.age + X.pay + 2 * (X.city == "Kiel") + rng.normal(size=n) > 0.5, "yes", "no")
    X.loc[::9, "age"] = np.nan
    return X, y


def texts(n=1200):
    rng = np.random.default_rng(0)
    words = np.array(["good", "bad", "fine", "poor", "day", "night", "sun", "rain"])
    X = np.array([" ".join(rng.choice(words, 6)) for _ in range(n)])
    score = np.char.count(X, "good") + np.char.count(X, "fine")
    score = score - np.char.count(X, "bad") - np.char.count(X, "poor")
    return X, (score + rng.normal(size=n) > 0).astype(int)


def digits():
    X, y = DIGITS
    return X[y < 4], y[y < 4]


def rare():
    return make_classification(1500, weights=[0.85], class_sep=0.7, random_state=0)


def two_numbers():
    X, y = DIABETES
    return X, np.column_stack([y, X[:, 2] * 100.0])


def two_classes():
    X, y = CANCER
    return X, np.column_stack([y, X[:, 0] > np.median(X[:, 0])]).astype(int)


def head():
    return make_column_transformer(
        (SimpleImputer(), ["age", "pay"]), (OneHotEncoder(handle_unknown="ignore"), ["city"])
    )


def of(library: str, name: str, **params: Any) -> Callable[[], Any]:
    """A model of an optional library."""

    def make() -> Any:
        module = pytest.importorskip(library, reason=f"{library} is in the models extra")
        pytest.importorskip("treelite", reason="treelite reads XGBoost's and LightGBM's forests")
        return getattr(module, name)(**params)

    return make


class AsTreelite(BaseEstimator):
    """A forest that is handed over as a treelite model, as cuML's is."""

    def __init__(self, forest: Any) -> None:
        self.forest = forest

    def fit(self, X: Any, y: Any) -> Any:
        self.forest.fit(X, y)
        return self

    @property
    def given(self) -> Any:
        treelite = pytest.importorskip("treelite", reason="needs the treelite extra")
        model = treelite.sklearn.import_model(self.forest)
        return treelite.Model.deserialize_bytes(model.serialize_bytes())  # as from a file


class AsCuml(AsTreelite):
    """What a cuML forest offers, without a GPU."""

    @property
    def given(self) -> Any:
        forest, model = self.forest, super().given
        kind = type("RandomForestClassifier", (), {"__module__": "cuml.ensemble"})
        cuml = kind()
        cuml.as_treelite, cuml.classes_ = lambda: model, forest.classes_
        return cuml


def survival():
    datasets = pytest.importorskip("sksurv.datasets", reason="scikit-survival is optional")
    X, y = datasets.load_whas500()
    return X.astype(float), y


RF = {"boosting_type": "rf", "bagging_freq": 1, "bagging_fraction": 0.7, "n_jobs": 1}
RF |= {"n_estimators": 40, "verbose": -1, "random_state": 0}
XGB = {"n_estimators": 40, "n_jobs": 1, "random_state": 0}
GRID = {"max_depth": [4, 8]}


@dataclass(frozen=True)
class Kind:
    """A model to make, its data, and whether it must be judged by rows it has not seen."""

    make: Callable[[], Any]
    data: Callable[[], Any]
    holdout: bool = False


KINDS = {
    "`Pipeline`": Kind(lambda: make_pipeline(head(), forest()), table),
    "`Pipeline`, nested": Kind(
        lambda: make_pipeline(head(), make_pipeline(SelectKBest(k=3), forest())), table
    ),
    "`Pipeline` of texts": Kind(
        lambda: make_pipeline(TfidfVectorizer(lowercase=False), forest()), texts
    ),
    "`GridSearchCV`": Kind(lambda: GridSearchCV(forest(), GRID, cv=2), lambda: CANCER),
    "`RandomizedSearchCV`": Kind(
        lambda: RandomizedSearchCV(forest(), GRID, n_iter=1, cv=2, random_state=0), lambda: CANCER
    ),
    "`HalvingGridSearchCV`": Kind(
        lambda: HalvingGridSearchCV(forest(), GRID, cv=2, random_state=0), lambda: CANCER
    ),
    "`TransformedTargetRegressor`": Kind(
        lambda: TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp),
        lambda: DIABETES,
    ),
    "`CalibratedClassifierCV`": Kind(
        lambda: CalibratedClassifierCV(forest(), cv=3), lambda: CANCER
    ),
    "`FrozenEstimator`": Kind(lambda: FrozenEstimator(forest()), lambda: CANCER),
    "`MultiOutputRegressor`": Kind(lambda: MultiOutputRegressor(regressor()), two_numbers),
    "`MultiOutputClassifier`": Kind(lambda: MultiOutputClassifier(forest()), two_classes),
    "multi-output `RandomForestRegressor`": Kind(regressor, two_numbers),
    "multi-output `RandomForestClassifier`": Kind(forest, two_classes),
    "`OneVsRestClassifier`": Kind(lambda: OneVsRestClassifier(forest()), lambda: IRIS),
    "`XGBRFClassifier`": Kind(of("xgboost", "XGBRFClassifier", **XGB), digits, True),
    "`XGBRFRegressor`": Kind(of("xgboost", "XGBRFRegressor", **XGB), lambda: DIABETES, True),
    '`LGBMClassifier("rf")`': Kind(of("lightgbm", "LGBMClassifier", **RF), digits, True),
    '`LGBMRegressor("rf")`': Kind(of("lightgbm", "LGBMRegressor", **RF), lambda: DIABETES, True),
    "`BalancedRandomForestClassifier`": Kind(
        of("imblearn.ensemble", "BalancedRandomForestClassifier", n_estimators=40, random_state=0),
        rare,
    ),
    "`BalancedBaggingClassifier`": Kind(
        of("imblearn.ensemble", "BalancedBaggingClassifier", n_estimators=40, random_state=0), rare
    ),
    "`EasyEnsembleClassifier`": Kind(
        of("imblearn.ensemble", "EasyEnsembleClassifier", n_estimators=6, random_state=0),
        rare,
        True,
    ),
    "`RandomForestQuantileRegressor`": Kind(
        of("quantile_forest", "RandomForestQuantileRegressor", n_estimators=40, random_state=0),
        lambda: DIABETES,
    ),
    "`RandomSurvivalForest`": Kind(
        of("sksurv.ensemble", "RandomSurvivalForest", n_estimators=5, random_state=0), survival
    ),
    "cuML `RandomForestClassifier`": Kind(lambda: AsCuml(forest()), rare, True),
    "`treelite.Model`": Kind(lambda: AsTreelite(forest()), rare, True),
}


@dataclass(frozen=True)
class Made:
    """A model, what was given to `compress`, what came of it, and rows that none of it has seen."""

    model: Any
    given: Any
    small: Any
    train: Any
    rows: Any
    test: Any


def made(kind: Kind, split: int = 0) -> Made:
    """Fit and compress."""
    X, X_rest, y, y_rest = train_test_split(*kind.data(), random_state=split, test_size=0.5)
    X_new, X_test, y_new, y_test = halves((X_rest, y_rest), test_size=0.5)
    model = kind.make()
    (model.estimator if isinstance(model, FrozenEstimator) else model).fit(X, y)
    given = getattr(model, "given", model)
    model = getattr(model, "forest", model)
    rows = (X_new, y_new) if kind.holdout else (X, y)
    how = {"evidence": "holdout"} if kind.holdout else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the small model predicts the mean")
        small = sb.compress(given, *rows, **how)
    return Made(model, given, small, (X, y), rows, (X_test, y_test))


def says(model: Any, X: Any) -> Any:
    """Probabilities, or numbers."""
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)
