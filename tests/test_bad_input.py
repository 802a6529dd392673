"""Bad input gets one clear sentence: every mistake once, through the names a user calls."""

import copy
import pickle
import re
import warnings
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from sparsebag.objective.losses import SquaredError
from sparsebag.settings import check_params
from sparsebag.solvers.mirror import Mirror

N = 200
X, Y = (part[:N] for part in load_breast_cancer(return_X_y=True))
X_NUMBERS, Y_NUMBERS = (part[:N] for part in load_diabetes(return_X_y=True))
FRAME = pd.DataFrame(X).add_prefix("f")
ORDER = np.random.default_rng(0).permutation(N)
FOREST = RandomForestClassifier(10, random_state=0).fit(X, Y)
NUMBERS = RandomForestRegressor(10, random_state=0).fit(X_NUMBERS, Y_NUMBERS)
NAMED = RandomForestClassifier(10, random_state=0).fit(FRAME, Y)
EXTRA = ExtraTreesClassifier(3).fit(X, Y)
TREES = [DecisionTreeClassifier(random_state=j).fit(X, Y) for j in range(2)]
ROWS = [np.arange(10)] * 2
VOTER = VotingClassifier([("tree", TREES[0]), ("line", LogisticRegression(C=1e-6))]).fit(X, Y)
PIPE = make_pipeline(StandardScaler(), FOREST)
OTHER_VERSION = copy.deepcopy(FOREST)
del OTHER_VERSION._n_samples_bootstrap
LINE = BaggingRegressor(Ridge(), 3, random_state=0).fit(X_NUMBERS, Y_NUMBERS)


def warm_bag():
    bag = BaggingClassifier(None, 3, warm_start=True, random_state=0).fit(X, Y)
    return bag.set_params(n_estimators=5).fit(X, Y)


def warm_forest():
    forest = RandomForestClassifier(3, warm_start=True, random_state=0).fit(X[ORDER], Y[ORDER])
    return forest.set_params(n_estimators=8).fit(X, Y)


class ShortProbabilities(ClassifierMixin, BaseEstimator):
    """Knows the classes and answers for one more."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def predict_proba(self, X):
        return np.full((len(X), 3), 1 / 3)


class Overconfident(ShortProbabilities):
    def predict_proba(self, X):
        return np.tile([1.5, -0.5], (len(X), 1))


class NeverFitted(RandomForestClassifier):
    """Fails the test where an argument is found bad only after the ensemble was fitted."""

    def fit(self, *args, **kwargs):
        raise AssertionError("the ensemble was fitted before the arguments were checked")


def compress(ensemble=FOREST, X=X, y=Y, **how):
    return lambda: sb.compress(ensemble, X, y, **how)


@cache
def small():
    return sb.compress(FOREST, X, Y)


def unfitted(X=X, y=Y, **how):
    return lambda: sb.SparseBaggingClassifier(NeverFitted(), **how).fit(X, y)


def fitted_by(estimator, data=(X, Y), kind=sb.SparseBaggingClassifier, **how):
    return lambda: kind(estimator, **how).fit(*data)


def listed(*models, samples=None, features=None, X=X, y=Y):
    how = {"evidence": "holdout"} if samples is None else {"estimators_samples": samples}
    return compress(list(models), X, y, estimators_features=features, **how)


WEIGHTS = {"refine": None}
NOT_TRAINING = "X, y are not the ensemble's training rows in their original order: "
FRACTION = " must be a fraction, at least 0 and below 1"

# What is said of which calls of compress and the estimators; "..." stands for any words.
ENSEMBLES = {
    "its members all saw every training row ... evidence='holdout'": [compress(VOTER)],
    "no out-of-bag rows ... bootstrap=False ... evidence='holdout'": [
        compress(EXTRA, lam=0.0),
        fitted_by(ExtraTreesClassifier(10), **WEIGHTS),
    ],
    "a calibrator of your own cannot be saved; use max_nodes=": [
        compress(FOREST, max_bytes=1000, calibration=IsotonicRegression())
    ],
    "no row is out of bag": [fitted_by(BaggingClassifier(None, 5, bootstrap=False), lam=0.0)],
    "a list of models does not say which; pass estimators_samples=, the rows of each.": [
        compress(TREES)
    ],
    "5 members and remembers only the bootstrap of the last 2": [compress(warm_bag(), **WEIGHTS)],
    "RandomForestClassifier cannot be redrawn ... another version": [
        compress(OTHER_VERSION, **WEIGHTS)
    ],
    NOT_TRAINING: [
        *(compress(warm_forest(), *rows) for rows in ((X, Y), (X[ORDER], Y[ORDER]))),
        *(compress(FOREST, *rows) for rows in ((X, 1 - Y), (X[:, ::-1], Y))),
    ],
    NOT_TRAINING + "it has 199 rows and the ensemble was fitted": [
        compress(f, x[1:], y[1:]) for f, x, y in ((FOREST, X, Y), (LINE, X_NUMBERS, Y_NUMBERS))
    ],
    "X has 29 columns but the ensemble was fitted on 30; pass the": [compress(FOREST, X[:, 1:])],
    "column names differ ... ('f29' in place of 'f0')": [
        compress(NAMED, FRAME.iloc[:, ::-1]),
        listed(*[DecisionTreeClassifier().fit(FRAME, Y)] * 2, X=FRAME.iloc[:, ::-1]),
    ],
    "X must have two axes ... got shape (200,)": [compress(FOREST, X[:, 0])],
    "Input X contains infinity": [compress(FOREST, np.where(X > 900, np.inf, X))],
    "there are no rows: y is empty": [
        compress(FOREST, X[:0], Y[:0], evidence=source) for source in ("oob", "holdout")
    ],
    "these are its training rows": [compress(evidence="holdout")],
    "these are its training rows in another order": [
        compress(NUMBERS, X_NUMBERS[::-1], Y_NUMBERS[::-1], evidence="holdout")
    ],
    "pass 2 columns, one per output": [
        compress(RandomForestRegressor(3).fit(X, X[:, :2])),
        compress(RandomForestClassifier(3).fit(X, np.c_[Y, Y])),
    ],
    "multi-output ensembles are not supported; fit and compress one ensemble per output.": [
        compress(BaggingRegressor(LinearRegression(), 3).fit(X, X[:, :2])),
        listed(TREES[0], DecisionTreeClassifier().fit(X, np.c_[Y, Y])),
        listed(*[DecisionTreeRegressor().fit(X, X[:, :2])] * 2),
        listed(*[LinearRegression().fit(X, X[:, :2])] * 2),
    ],
    "only one class (0); classification needs": [
        compress(RandomForestClassifier(3).fit(X, 0 * Y)),
        compress(BaggingClassifier(None, 3).fit(X, 0 * Y)),
        fitted_by(RandomForestClassifier(3), (X, 0 * Y)),
    ],
    "only one member; there is nothing to choose from.": [
        compress(BaggingClassifier(GaussianNB(), 1).fit(X, Y)),
        compress(RandomForestClassifier(1).fit(X, Y), refine=None),
    ],
    "has 3 columns ... has 2": [compress(BaggingClassifier(ShortProbabilities(), 3).fit(X, Y))],
    "goes from -0.5 to 1.5; probabilities must lie": [listed(*[Overconfident().fit(X, Y)] * 2)],
    "y holds a class the ensemble was not trained on (": [
        compress(y=labels) for labels in (np.where(Y == 0, 5, Y), Y.astype(str))
    ],
    "y holds NaN or infinity": [
        compress(y=np.where(Y == 0, np.nan, Y)),
        compress(NUMBERS, X_NUMBERS, Y_NUMBERS * np.inf),
        unfitted(y=np.where(Y == 0, np.nan, Y)),
    ],
    "could not convert string to float": [compress(NUMBERS, X_NUMBERS, np.full(N, "a"))],
    "y holds numbers above 1e+36, ... scale the targets": [
        compress(RandomForestRegressor(3).fit(X, Y * 1e200), y=Y * 1e200)
    ],
    "y has shape (200, 2); multi-output problems are not supported": [
        call(y=np.c_[Y, Y]) for call in (compress, unfitted)
    ],
    "requires y to be passed, but the target y is None": [unfitted(y=None), compress(y=None)],
    "X has 200 rows but y has 199": [
        compress(y=Y[1:]),
        compress(VOTER, y=Y[1:], evidence="holdout"),
        lambda: small().report(X, Y[1:]),
    ],
    "are for a plain list of models; a Random": [
        compress(**{f"estimators_{what}": [ROWS[0]] * 10}) for what in ("samples", "features")
    ],
    "the list of models is empty": [listed()],
    "mixes classifiers and regressors": [listed(TREES[0], Ridge().fit(X, Y))],
    "string classes and some have numbers": [
        listed(TREES[0], DecisionTreeClassifier().fit(X, Y.astype(str)))
    ],
    "estimators_samples has 3 entries for 2 mod": [listed(*TREES, samples=[*ROWS, ROWS[0]])],
    "one array of row indices ... np.flatnonzero(mask)": [
        listed(*TREES, samples=[ROWS[0], rows])
        for rows in (Y > 0, np.ones(3), np.array([-1, 2]), np.ones((2, 2), int))
    ],
    "was trained on row 200 and X has 200 rows": [listed(*TREES, samples=[ROWS[0], [N]])],
    "estimators_features has 1 entries for 2 models": [listed(*TREES, features=[np.arange(30)])],
    "names 3 columns for model 0, which was fitted on 30": [
        listed(*TREES, features=[np.arange(3)] * 2)
    ],
    "member 0 was trained on column 32 and X has 30 columns": [
        listed(*TREES, samples=ROWS, features=[np.arange(3, 33)] * 2)
    ],
    "different numbers of columns (30, 4); pass estimators_features=": [
        listed(TREES[0], DecisionTreeClassifier().fit(X[:, :4], Y))
    ],
    # Single precision skips scikit-learn's checks, which would be a read out of bounds here.
    "X has 4 features, but DecisionTreeClassifier": [
        listed(TREES[0], LogisticRegression(C=1e-6).fit(X, Y), X=X[:, :4].astype("f4"))
    ],
    "The 'lam' parameter of SparseBaggingClassifier must be": [unfitted(lam=-0.1)],
    "The 'n_jobs' parameter of SparseBaggingRegressor must be": [
        fitted_by(None, kind=sb.SparseBaggingRegressor, n_jobs=0)
    ],
    "loss='hinge' is not known; use 'auto' or one of": [unfitted(loss="hinge")],
    "does not fit regression": [compress(NUMBERS, X_NUMBERS, Y_NUMBERS, loss="log_loss")],
    "loss='squared_error' does not fit classification; use one of": [
        unfitted(loss=loss) for loss in ("squared_error", SquaredError())
    ],
    "solver='simplex' is not known; use one of ['auto', 'active_set'": [unfitted(solver="simplex")],
    **{
        f"tolerance={value!r}{FRACTION}": [unfitted(tolerance=value)]
        for value in (-0.01, np.nan, 1.0, True, "1%")
    },
    "calibration='isotonic' is not known; use 'auto', 'temp": [unfitted(calibration="isotonic")],
    "calibration=3 cannot calibrate: it needs fit, and predict": [unfitted(calibration=3)],
    "max_estimators=5 sets the size and lam=0.1 the penalty; use one of the two": [
        unfitted(max_estimators=5, lam=0.1)
    ],
    "tolerance=0.1 sets the size and lam=0.1": [unfitted(tolerance=0.1, lam=0.1)],
    "confidence=0.95 and rehearsal=3 sets the size": [
        compress(FOREST, X, Y, confidence=0.95, rehearsal=3, preset="paper")
    ],
    "evidence='holdout' needs a fitted ensemble, because the rows": [unfitted(evidence="holdout")],
    "there is only one sample": [unfitted(X[:1], Y[:1])],
    "Unknown label type": [unfitted(y=Y + 0.5)],
    "does regression; use SparseBaggingRegressor for it": [
        fitted_by(RandomForestRegressor(3)),
        fitted_by(FrozenEstimator(NUMBERS), (X_NUMBERS, Y_NUMBERS)),
    ],
    "does classification; use SparseBaggingClassifier for it": [
        fitted_by(RandomForestClassifier(3), kind=sb.SparseBaggingRegressor)
    ],
    "fit got colour ... enable_metadata_routing=True": [
        lambda: sb.SparseBaggingClassifier(FOREST).fit(X, Y, colour="red")
    ],
    "expecting 30 features": [lambda: small().report(X[:, :2], Y)],
    "baseline is not the ensemble that was compressed": [
        lambda: small().report(X, Y, baseline=EXTRA)
    ],
}
RNG = np.random.default_rng(0)
PROBA = RNG.uniform(0.1, 0.9, (50, 4))
TENSOR = RNG.dirichlet(np.ones(3), size=(50, 4))
MASK = RNG.random((50, 4)) < 0.5
MASK[3, 2] = True
VOTES = RNG.normal(size=(50, 4))
BLOCK = (VOTES, MASK, VOTES[:, 0])
TWO, THREE = np.arange(50) % 2, np.arange(50) % 3


def fit(predictions=PROBA, oob_mask=MASK, y=TWO, **how):
    return lambda: sb.fit_weights(predictions, oob_mask, y, **how)


def with_entry(values, value, *place):
    changed = values.copy()
    changed[(3, 2, *place)] = value
    return changed


def stream(*given, solve=None, **how):
    """Of the rows; ``solve`` are settings of the fit."""
    return lambda: sb.fit_weights(sb.stream_rows(*given, **how), **(solve or {}))


def blocks(*given, **solve):
    return stream(list(given), task="regression", solve=solve)


REGRESSION = {"loss": "squared_error"}
NAN = "predictions hold NaN or infinity where the mask says out of bag, first in row 3 of member 2"
MULTI_OUTPUT = "multi-output problems are not supported."
ONE_VALUE = "must have one value per row, got shape "
NO_PROBABILITY = (
    "classification predictions must be probabilities between 0 and 1 (the first invalid one is "
    "{}, in row 3 of member 2); for regression pass loss='squared_error' (task='regression' "
    "of a stream)."
)
WRONG_CLASS = np.zeros((50, 4, 3))
WRONG_CLASS[np.arange(50), :, (THREE + 1) % 3] = 1.0

MATRICES = {
    "predictions are missing; pass what the members predict": [fit(None), stream(None, MASK, TWO)],
    "(rows, members) or ... classes), got (50,)": [fit(PROBA[:, 0], None)],
    "must have shape (rows, members), got (50, 4, 3)": [fit(TENSOR, **REGRESSION)],
    "predictions are empty": [fit(PROBA[:, :0], None), fit(PROBA[:0], None, TWO[:0], **REGRESSION)],
    "only one member": [fit(PROBA[:, :1], MASK[:, :1])],
    "predictions must be numbers": [fit(np.full((50, 4), "high"))],
    "oob_mask has shape (50, 3) but predictions have (50, 4) (rows, members)": [
        fit(oob_mask=MASK[:, 1:]),
        stream(PROBA, MASK[:, 1:], TWO),
    ],
    "oob_mask has shape (50, 4) but predictions have (4, 50) (rows, members": [fit(PROBA.T)],
    "oob_mask has shape (49, 4) but predictions have (50": [fit(TENSOR, MASK[1:], THREE)],
    "oob_mask has shape () but predictions have (50, 4)": [fit(oob_mask=np.ones(()))],
    "oob_mask has shape (0 ... or None if no member was": [
        fit(oob_mask=[]),
        fit(oob_mask=np.zeros((0, 4))),
    ],
    "no row is out of bag for any member, so members cannot be judged ... None": [
        fit(oob_mask=0 * MASK),
        fit(oob_mask=0 * MASK, **REGRESSION),
    ],
    "every out-of-bag row has sample_weight zero": [
        fit(sample_weight=np.where(MASK.any(axis=1), 0.0, 1.0))
    ],
    NAN: [
        *(fit(with_entry(PROBA, bad)) for bad in (np.nan, np.inf, -np.inf)),
        fit(with_entry(PROBA, np.nan), None),
        fit(with_entry(PROBA, np.nan), None, **REGRESSION),
        fit(with_entry(TENSOR, np.nan, 1), MASK, THREE),  # not even the true class
    ],
    **{
        NO_PROBABILITY.format(bad): [
            fit(with_entry(PROBA, bad), None, TWO),
            fit(with_entry(TENSOR, bad, 1), None, THREE),
        ]
        for bad in (-0.1, 1.1)
    },
    "must sum to 1 in every row (to within 0.0078125); some are off by 0.5": [
        fit(with_entry(TENSOR, TENSOR[3, 2] / 2).astype(dtype), MASK, THREE, loss=loss)
        for dtype in (np.float16, np.float32, np.float64)
        for loss in ("log_loss", "brier")
    ],
    "every member gives every row's true class probability zero": [fit(np.where(MASK, 0.0, 0.9))],
    "true class probability zero ... in the order of lab": [fit(WRONG_CLASS, None, THREE)],
    "reads every class; pass predictions of shape (rows": [fit(loss="brier", y=THREE)],
    "y has only one class ([1.0]); classification needs": [fit(y=np.ones(50))],
    f"y {ONE_VALUE}(50, 2); {MULTI_OUTPUT}": [
        fit(y=np.c_[TWO, TWO]),
        fit(y=np.c_[TWO, TWO], **REGRESSION),
    ],
    "y has 49 values for 50 rows; pass 50, one per row.": [
        fit(y=TWO[1:]),
        fit(y=TWO[1:], **REGRESSION),
    ],
    "y must hold one number per row": [fit(y=TWO.astype(str), **REGRESSION)],
    "y holds NaN or infinity; leave those": [
        fit(y=np.where(TWO, bad, 1), **REGRESSION) for bad in (np.nan, np.inf)
    ],
    "y does not hold classes ... loss='squared_error'": [
        fit(y=TWO + 0.5),
        fit(y=np.where(TWO, np.nan, 1)),
    ],
    "y mixes labels that cannot be sorted": [fit(y=np.array([1, "a"] * 25, dtype=object))],
    "a class that labels= does not name (2": [fit(y=THREE, labels=[0, 1])],
    "labels= does not name": [fit(labels=["0", "1"])],
    "labels= names a class twice": [fit(TENSOR, MASK, THREE, labels=[0, 1, 2, 2])],
    "predictions have 3 classes but y and labels have 4": [
        fit(TENSOR, MASK, THREE, labels=[0, 1, 2, 3])
    ],
    "predictions have 3 classes but y and labels have 2": [fit(TENSOR)],
    "lam='auto' needs an ensemble": [fit(lam="auto")],
    **{
        f"{name} is a SciPy sparse ... pass {name}.toarray()": [
            fit(**{name: kind(values)}) for kind in (sp.csr_array, sp.coo_matrix)
        ]
        for name, values in (("predictions", PROBA), ("oob_mask", MASK))
    },
    "do not pass them separately, nor block_rows": [
        stream(lambda: iter([BLOCK]), labels=[0, 1], block_rows=9)
    ],
    "task='regresion' is not known; use 'classification' or 'regression'.": [
        stream(*BLOCK, task="regresion")
    ],
    "labels must hold all classes, such as [0, 1], got 2.": [stream(*BLOCK, labels=2)],
    "labels= is needed": [stream([BLOCK])],
    "which can be read only once; pass the function that creates it.": [
        stream(iter([BLOCK]), task="regression")
    ],
    "the stream gave no rows": [stream(lambda: iter([]), task="regression")],
    "y is missing": [stream(VOTES, MASK)],
    "y must have one value per row, got shape (50, 2)": [stream(VOTES, MASK, VOTES[:, :2])],
    "is a folder, not a file": [stream(".", None, TWO)],
    "regression predictions must have shape (rows, members), got (4,)": [
        blocks((VOTES[0], MASK[0], VOTES[0, 0]))
    ],
    "block 1 has 3 members but the first had 4": [
        blocks(BLOCK, (VOTES[:, 1:], MASK[:, 1:], BLOCK[2]))
    ],
    "either every block carries an oob_mask or none does": [blocks(BLOCK, (VOTES, None, BLOCK[2]))],
    "block 0: sample_weight must not be negative": [blocks((*BLOCK, -np.ones(50)))],
    "block 1: predictions hold NaN": [blocks(BLOCK, (np.where(MASK, np.nan, VOTES), *BLOCK[1:]))],
    "got 2 entries": [blocks(BLOCK, (VOTES, BLOCK[2]))],
    "got ndarray": [blocks(BLOCK, VOTES)],
    "wrap it in sparsebag.stream_rows(...)": [fit(lambda: iter([BLOCK]), None, None)],
    "a stream already carries mask": [blocks(BLOCK, oob_mask=MASK, y=TWO)],
    "The 'memory_limit' parameter of fit_weights must be None or an int": [
        blocks(BLOCK, memory_limit=limit) for limit in (3, 2e9 + 0.5)
    ],
    "The 'verbose' parameter of fit_weights must be": [fit(verbose="yes")],
    "memory_limit and checkpoint are for streams": [fit(memory_limit=1 << 21)],
    **{
        f"max_passes must be a whole number, at least 1, got {n!r}.": [
            lambda n=n: Mirror(max_passes=n)
        ]
        for n in ("3", 0)
    },
    "loss='squared_error' does not fit classification": [
        stream(VOTES, MASK, TWO, solve=REGRESSION)
    ],
    "task='regression' of a stream": [stream(VOTES, MASK, TWO)],
}

BAGGING = "; pass a BaggingClassifier/Regressor, RandomForest*"
TYPE_ERRORS = {
    "cannot compress a LogisticRegression" + BAGGING: [
        compress(LogisticRegression()),
        compress(LogisticRegression(), evidence="holdout"),
    ],
    "cannot compress a StandardScaler; pass": [compress(make_pipeline(StandardScaler()).fit(X))],
    "this RandomForestClassifier is not compressed; pass what": [
        lambda call=call: call(FOREST)
        for call in (sb.to_onnx, sb.to_sklearn, lambda model: sb.report_on(model, X, Y))
    ],
    "kept no best estimator (refit=False); pass": [
        compress(GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2, refit=False).fit(X, Y))
    ],
    "cannot compress a ndarray" + BAGGING: [compress(X)],
    "cannot compress a object; pass": [compress(object())],  # of no library that has a reader
    "compress a SparseBaggingClassifier": [lambda: sb.compress(small(), X, Y)],
    "cannot compress a GradientBoostingClassifier; pass": [
        fitted_by(GradientBoostingClassifier()),
        fitted_by(FrozenEstimator(GradientBoostingClassifier())),
    ],
    "cannot compress the class RandomForestClassifier; pass": [fitted_by(RandomForestClassifier)],
    "cannot compress a str" + BAGGING: [fitted_by("forest")],
    "a Pipeline must be fitted first": [fitted_by(PIPE)],
    "loss must be a name or an object": [fit(loss=3)],
    "solver must be a name or an object": [fit(solver=3)],
    "solver is the class Mirror; pass an object of it, such as Mirror().": [
        blocks(BLOCK, solver=Mirror)
    ],
    "entry 1 of the list is a tuple, not a model": [listed(TREES[0], ("tree", TREES[0]))],
    "entry 0 of the list is a ABCMeta, not a model": [listed(DecisionTreeClassifier, TREES[0])],
    "call sparsebag.compress": [
        lambda call=call, given=given: call(given, X, Y)
        for call in (sb.fit_weights, sb.stream_rows)
        for given in (FOREST, TREES, LogisticRegression())
    ],
    "the function gave a function, not blocks of rows": [
        stream(lambda: lambda: 0, task="regression")
    ],
    "cannot read a GaussianNB": [lambda: small().report(X, Y, baseline=GaussianNB().fit(X, Y))],
}
NOT_FITTED = {
    "this RandomForestClassifier is not fitted; fit it first, or let "
    "SparseBaggingClassifier/Regressor fit it.": [
        compress(RandomForestClassifier()),
        lambda: sb.compress(pickle.loads(pickle.dumps(small())).estimator, X, Y),
    ],
    "this VotingClassifier is not fitted; fit": [
        compress(VotingClassifier([]), evidence="holdout")
    ],
    "RandomForestClassifier is not fitted": [fitted_by(FrozenEstimator(RandomForestClassifier()))],
    "is not fitted yet": [compress(PIPE)],
    "this GridSearchCV is not fitted": [compress(GridSearchCV(FOREST, {"max_depth": [2]}))],
    "this LogisticRegression is not fitted; fit it": [listed(TREES[0], LogisticRegression())],
    "is not fitted yet. Call 'fit'": [
        lambda: sb.SparseBaggingRegressor().predict(X),
        lambda: sb.SparseBaggingClassifier().report(X, Y),
        *(
            lambda m=m: getattr(sb.SparseBaggingClassifier(), m)(X)
            for m in ("predict", "predict_proba", "predict_log_proba")
        ),
    ],
}
MISSING = "missing.npy does not exist; pass the path of a file that numpy.save wrote."
TABLES = {
    ValueError: ENSEMBLES | MATRICES,
    TypeError: TYPE_ERRORS,
    NotFittedError: NOT_FITTED,
    FileNotFoundError: {MISSING: [stream("missing.npy", None, TWO)]},
}
CASES = [
    pytest.param(call, error, sentence, id=sentence[:40])
    for error, table in TABLES.items()
    for sentence, calls in table.items()
    for call in calls
]


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize(("call", "error", "sentence"), CASES)
def test_the_mistake_is_named(call, error, sentence):
    with pytest.raises(error, match=re.escape(sentence).replace(r"\ \.\.\.\ ", ".*")):
        call()


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        (np.full(N, -1.0), "must not be negative"),
        (np.zeros(N), "must not be zero everywhere"),
        (np.ones(N - 1), "sample_weight has 199 values for 200 rows"),
        (np.full(N, np.nan), "sample_weight holds NaN or infinity"),
        (np.full(N, np.inf), "sample_weight holds NaN or infinity"),
        (np.ones((N, 2)), rf"{re.escape(ONE_VALUE)}\(200, 2\); pass 200\."),
        (3.0, rf"sample_weight {re.escape(ONE_VALUE)}\(\); pass 200\."),
        (np.full(N, "heavy"), "sample_weight must hold one number per row"),
    ],
    ids=["negative", "zero", "short", "nan", "inf", "two a row", "scalar", "text"],
)
def test_row_weights_are_checked_before_any_member_predicts(weight, sentence, monkeypatch):
    def fail(*_, **__):
        pytest.fail("too late")

    monkeypatch.setattr(DecisionTreeClassifier, "predict_proba", fail)
    with pytest.raises(ValueError, match=sentence):
        sb.compress(FOREST, X, Y, sample_weight=weight, lam=0.0)
    with pytest.raises(ValueError, match=sentence):
        sb.fit_weights(np.full((N, 3), 0.5), None, Y, sample_weight=weight)


def test_weights_of_rows_that_are_forgotten_are_asked_for():
    weight = np.where(Y_NUMBERS > 200, 0.0, 1.0)
    forest = RandomForestRegressor(20, random_state=0).fit(X_NUMBERS, Y_NUMBERS, weight)
    if not hasattr(forest, "_sample_weight"):
        pytest.skip("this scikit-learn does not remember them")
    with pytest.raises(ValueError, match="was fitted with sample_weight; pass"):
        sb.compress(forest, X_NUMBERS, Y_NUMBERS)
    small = sb.compress(forest, X_NUMBERS, Y_NUMBERS, sample_weight=weight)
    assert small.predict(X_NUMBERS).max() < 210.0  # above are only rows of no weight


def test_a_members_own_error_names_the_member():
    other = X[:, :5]
    models = [LogisticRegression(C=1e-6).fit(X, Y) for _ in range(2)]
    with pytest.raises(ValueError, match="X has 5 features, but LogisticRegression") as caught:
        sb.compress(models, other, Y, evidence="holdout")
    assert caught.value.__notes__ == ["(raised by member 0, a LogisticRegression)"]
    gaps = np.where(X_NUMBERS > 0, X_NUMBERS, np.nan)
    with pytest.raises(ValueError, match="NaN") as caught:
        sb.compress(LINE, gaps, Y_NUMBERS, evidence="holdout")
    assert "(raised by member 0, a Ridge)" in caught.value.__notes__


@pytest.mark.parametrize("kind", ["compress", "fit_weights"])
def test_rows_no_member_has_out_of_bag_are_counted_and_warned_of_once(kind):
    def warned():
        if kind == "fit_weights":
            mask = MASK.copy()
            mask[:3] = False
            mask[3:, 0] = True
            return sb.fit_weights(PROBA, mask, TWO)
        bag = BaggingClassifier(LogisticRegression(C=1e-3), 5, random_state=0).fit(X[:, :3], Y)
        return sb.compress(bag, X[:, :3], Y)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warned()
    uncovered = [w for w in caught if issubclass(w.category, sb.UncoveredRowsWarning)]
    assert len(uncovered) == 1
    pattern = r"\d+ of (50|200) rows are in every member's bag and are ignored; use more members"
    assert re.match(pattern, str(uncovered[0].message))


NO_SIZES = [0, -1, 1.5, 2.0, 0.0, np.nan, np.inf, True, False, "10", [5]]
NO_STRENGTHS = [True, np.nan, -np.inf, -1e-9, "0.1", [], np.array([0.1])]
WRONG = {
    **dict.fromkeys(["max_estimators", "max_nodes", "max_bytes"], NO_SIZES),
    **dict.fromkeys(["lam", "floor", "prior_mass"], NO_STRENGTHS),
    "confidence": [0.4, 1, -1, np.nan, True, "0.9"],
    "rehearsal": [True, 1, 0, "yes", 2.5],
    "refine": ["leaves", True],
    "local": [False, "linear"],
    "preset": ["Paper"],
    "evidence": ["cv", None],
    "n_jobs": [0, "2", 1.5, True],
    "verbose": ["yes", None, -1],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in WRONG.items() for v in vs])
def test_what_a_parameter_cannot_be_is_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of compress must be .* Got "):
        check_params("compress", **{name: value})


@pytest.mark.parametrize(
    "fine",
    [
        {"max_nodes": 0.1, "max_bytes": np.int64(2000), "max_estimators": 1, "lam": "auto"},
        {"n_jobs": -1, "verbose": True, "rehearsal": False, "local": True, "confidence": 0.5},
        {"n_jobs": np.int64(2), "verbose": 2, "rehearsal": 2, "floor": 0, "prior_mass": "auto"},
    ],
)
def test_what_a_parameter_can_be(fine):
    check_params("compress", **fine)
