"""Bad input gets one clear sentence: every mistake once, through the names a user calls."""

import copy
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
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
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from sparsebag.objective.losses import SquaredError
from sparsebag.settings import check_params

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


class NeverFitted(RandomForestClassifier):
    """Fails the test where an argument is found bad only after the ensemble was fitted."""

    def fit(self, *args, **kwargs):
        raise AssertionError("the ensemble was fitted before the arguments were checked")


def compress(ensemble=FOREST, X=X, y=Y, **how):
    return lambda: sb.compress(ensemble, X, y, **how)


def unfitted(X=X, y=Y, **how):
    return lambda: sb.SparseBaggingClassifier(NeverFitted(), **how).fit(X, y)


def fitted_by(estimator, data=(X, Y), kind=sb.SparseBaggingClassifier, **how):
    return lambda: kind(estimator, **how).fit(*data)


def listed(*models, samples=None, features=None, X=X, y=Y):
    how = {"evidence": "holdout"} if samples is None else {"estimators_samples": samples}
    return compress(list(models), X, y, estimators_features=features, **how)


WEIGHTS = {"refine": None}
NOT_TRAINING = "X, y are not the ensemble's training rows in their original order: "
NO_OOB = "no out-of-bag rows ... evidence='holdout'"
MULTI = "multi-output ensembles are not supported; fit and compress one ensemble an output."
ONE_INDEX = "one array of row indices ... np.flatnonzero(mask)"
FRACTION = " must be a fraction from 0 up to but not 1"

# Of compress and the estimators; "..." stands for any words.
ENSEMBLES = [
    (compress(VOTER), "its members all saw every training row ... evidence='holdout'"),
    (compress(EXTRA, **WEIGHTS), "no out-of-bag rows ... bootstrap=False ... evidence='holdout'"),
    (compress(EXTRA, lam=0.0), NO_OOB),
    (fitted_by(ExtraTreesClassifier(10), **WEIGHTS), NO_OOB),
    (fitted_by(BaggingClassifier(None, 5, bootstrap=False), lam=0.0), "no row is out of bag"),
    (compress(TREES), "a list of models does not say; pass estimators_samples=, the rows of each."),
    (compress(warm_bag(), **WEIGHTS), "5 members and remembers the bootstrap of the last 2"),
    (compress(warm_forest()), NOT_TRAINING),
    (compress(warm_forest(), X[ORDER], Y[ORDER]), NOT_TRAINING),
    (
        compress(OTHER_VERSION, **WEIGHTS),
        "RandomForestClassifier cannot be redrawn ... another version",
    ),
    (
        compress(FOREST, X[ORDER], Y[ORDER]),
        NOT_TRAINING + "for member 0, routing its bagged rows does not give its leaf counts. Pass "
        "the arrays it was fitted on, or rows it has never seen with evidence='holdout'.",
    ),
    (compress(FOREST, X, 1 - Y), NOT_TRAINING),
    (compress(FOREST, X[:, ::-1], Y), NOT_TRAINING),
    (compress(FOREST, X[1:], Y[1:]), NOT_TRAINING + "it has 199 rows and the ensemble was fitted"),
    (compress(LINE, X_NUMBERS[1:], Y_NUMBERS[1:]), NOT_TRAINING + "it has 199 rows and the"),
    (compress(FOREST, X[:, 1:]), "X has 29 columns but the ensemble was fitted on 30; pass the"),
    (compress(FOREST, np.c_[X, Y]), "X has 31 columns but the ensemble was fitted on 30; pass the"),
    (compress(NAMED, FRAME.add_prefix("g")), "column names differ ... ('gf0' in place of 'f0')"),
    (compress(NAMED, FRAME.iloc[:, ::-1]), "column names differ ... ('f29' in place of 'f0')"),
    (compress(FOREST, X[:, 0]), "X must have two axes ... got shape (200,)"),
    (compress(FOREST, np.where(X > 900, np.inf, X)), "Input X contains infinity"),
    (compress(FOREST, X[:0], Y[:0]), "there are no rows: y is empty"),
    (compress(FOREST, X[:0], Y[:0], evidence="holdout"), "there are no rows: y is empty"),
    (compress(evidence="holdout"), "these are its training rows"),
    (compress(RandomForestRegressor(3).fit(X, X[:, :2])), "pass 2 columns, one an output"),
    (compress(RandomForestClassifier(3).fit(X, np.c_[Y, Y])), "pass 2 columns, one an output"),
    (compress(BaggingRegressor(LinearRegression(), 3).fit(X, X[:, :2])), MULTI),
    (compress(RandomForestClassifier(3).fit(X, 0 * Y)), "one class only (0); classification needs"),
    (compress(BaggingClassifier(None, 3).fit(X, 0 * Y)), "one class only (0); classification need"),
    (fitted_by(RandomForestClassifier(1)), "one member only"),
    (
        compress(RandomForestClassifier(1).fit(X, Y)),
        "one member only; there is nothing to choose from.",
    ),
    (compress(BaggingClassifier(ShortProbabilities(), 3).fit(X, Y)), "has 3 columns ... has 2"),
    (compress(y=np.where(Y == 0, 5, Y)), "y holds a class the ensemble was not trained on ("),
    (compress(y=Y.astype(str)), "y holds a class the ensemble was not trained on ("),
    (compress(y=np.where(Y == 0, np.nan, Y)), "y holds NaN or infinity; drop those rows"),
    (compress(NUMBERS, X_NUMBERS, np.full(N, "a")), "could not convert string to float"),
    (compress(NUMBERS, X_NUMBERS, Y_NUMBERS * np.inf), "y holds NaN or infinity"),
    (
        compress(RandomForestRegressor(3).fit(X, Y * 1e200), y=Y * 1e200),
        "y holds numbers above 1e+36, ... scale the targets",
    ),
    (compress(y=np.c_[Y, Y]), "y has shape (200, 2); multi-output problems are not supported"),
    (compress(y=None), "requires y to be passed, but the target y is None: members are judged"),
    (compress(y=Y[1:]), "X has 200 rows but y has 199"),
    (compress(VOTER, y=Y[1:], evidence="holdout"), "X has 200 rows but y has 199; pass one target"),
    (compress(estimators_samples=[ROWS[0]] * 10), "belong to a plain list of models; Random"),
    (compress(estimators_features=[ROWS[0]] * 10), "belong to a plain list of models; Random"),
    # -- lists -----------------------------------------------------------------------------------
    (listed(), "the list of models is empty"),
    (listed(TREES[0]), "one member only"),
    (listed(TREES[0], Ridge().fit(X, Y)), "mixes classifiers and regressors"),
    (
        listed(TREES[0], DecisionTreeClassifier().fit(X, Y.astype(str))),
        "string classes and some have numbers",
    ),
    (listed(TREES[0], DecisionTreeClassifier().fit(X, np.c_[Y, Y])), MULTI),
    (listed(*[DecisionTreeRegressor().fit(X, X[:, :2])] * 2), MULTI),
    (listed(*[LinearRegression().fit(X, X[:, :2])] * 2), MULTI),
    (listed(*TREES, samples=[*ROWS, ROWS[0]]), "estimators_samples has 3 entries for 2 mod"),
    *[
        (listed(*TREES, samples=[ROWS[0], rows]), ONE_INDEX)
        for rows in (Y > 0, np.ones(3), np.array([-1, 2]), np.ones((2, 2), int))
    ],
    (listed(*TREES, samples=[ROWS[0], [N]]), "was trained on row 200 and X has 200 rows"),
    (listed(*TREES, features=[np.arange(30)]), "estimators_features has 1 entries for 2 models"),
    (
        listed(*TREES, features=[np.arange(3)] * 2),
        "names 3 columns for model 0, which was fitted on 30",
    ),
    (
        listed(*TREES, samples=ROWS, features=[np.arange(3, 33)] * 2),
        "member 0 was trained on column 32 and X has 30 columns",
    ),
    (
        listed(TREES[0], DecisionTreeClassifier().fit(X[:, :4], Y)),
        "different numbers of columns (30, 4); pass estimators_features=",
    ),
    (
        listed(*[DecisionTreeClassifier().fit(FRAME, Y)] * 2, X=FRAME.iloc[:, ::-1]),
        "column names differ ... 'f29' in place of 'f0'",
    ),
    # Single precision skips scikit-learn's checks, which would be a read out of bounds here.
    (
        listed(TREES[0], LogisticRegression(C=1e-6).fit(X, Y), X=X[:, :4].astype("f4")),
        "X has 4 features, but DecisionTreeClassifier",
    ),
    # -- settings, before the ensemble is fitted ---------------------------------------------------
    (unfitted(lam=-0.1), "The 'lam' parameter of SparseBaggingClassifier must be"),
    (unfitted(loss="hinge"), "loss='hinge' is not known; use 'auto' or one of"),
    (compress(NUMBERS, X_NUMBERS, Y_NUMBERS, loss="log_loss"), "does not fit regression"),
    (unfitted(loss="squared_error"), "loss='squared_error' does not fit classification; use one"),
    (unfitted(loss=SquaredError()), "loss='squared_error' does not fit classification; use one of"),
    (unfitted(solver="simplex"), "solver='simplex' is not known; use one of ['auto', 'active_set'"),
    (unfitted(tolerance=-0.01), "tolerance=-0.01" + FRACTION),
    (unfitted(tolerance=np.nan), "tolerance=nan" + FRACTION),
    (unfitted(tolerance=1.0), "tolerance=1.0" + FRACTION),
    (unfitted(tolerance=True), "tolerance=True" + FRACTION),
    (unfitted(tolerance="1%"), "tolerance='1%'" + FRACTION),
    (unfitted(calibration="isotonic"), "calibration='isotonic' is not known; use 'auto', 'temp"),
    (unfitted(calibration=3), "calibration=3 cannot calibrate: it needs fit, and predict"),
    (
        unfitted(max_estimators=5, lam=0.1),
        "max_estimators=5 sets the size and lam=0.1 the penalty; use one of the two",
    ),
    (
        unfitted(max_nodes=50, preset="paper"),
        "max_nodes=50 sets the size and lam=0.05 the penalty; use one of the two",
    ),
    (unfitted(evidence="holdout"), "evidence='holdout' needs a fitted ensemble, because the rows"),
    (unfitted(y=None), "requires y to be passed, but the target y is None"),
    (unfitted(y=np.c_[Y, Y]), "y has shape (200, 2); multi-output problems are not"),
    (unfitted(X[:1], Y[:1]), "there is one sample only"),
    (unfitted(y=np.where(Y == 0, np.nan, Y)), "y holds NaN or infinity"),
    (unfitted(y=Y + 0.5), "Unknown label type"),
    (fitted_by(RandomForestClassifier(3), (X, 0 * Y)), "one class only (0); classification needs"),
    (fitted_by(RandomForestRegressor(3)), "does regression; use SparseBaggingRegressor for it"),
    (fitted_by(FrozenEstimator(NUMBERS), (X_NUMBERS, Y_NUMBERS)), "does regression; use SparseBag"),
    (
        fitted_by(RandomForestClassifier(3), kind=sb.SparseBaggingRegressor),
        "does classification; use SparseBaggingClassifier for it",
    ),
]
RNG = np.random.default_rng(0)
PROBA = RNG.uniform(0.1, 0.9, (50, 4))
TENSOR = RNG.dirichlet(np.ones(3), size=(50, 4))
MASK = RNG.random((50, 4)) < 0.5
MASK[3, 2] = True
TWO, THREE = np.arange(50) % 2, np.arange(50) % 3


def fit(predictions=PROBA, oob_mask=MASK, y=TWO, **how):
    return lambda: sb.fit_weights(predictions, oob_mask, y, **how)


def with_entry(values, value, *place):
    changed = values.copy()
    changed[(3, 2, *place)] = value
    return changed


REGRESSION = {"loss": "squared_error"}
NAN = "predictions hold NaN or infinity where the mask says out of bag, first in row 3 of member 2"
ZERO = "every member gives every row's true class probability zero"
MULTI_OUTPUT = "multi-output problems are not supported."
ONE_VALUE = "must have one value a row, got shape "
WRONG_CLASS = np.zeros((50, 4, 3))
WRONG_CLASS[np.arange(50), :, (THREE + 1) % 3] = 1.0

MATRICES = [
    (fit(None), "predictions are missing; pass what the members predict"),
    (lambda: sb.stream_rows(None, MASK, TWO), "predictions are missing; pass what the members"),
    (fit(PROBA[:, 0], None), "(rows, members) or ... classes), got (50,)"),
    (fit(TENSOR, **REGRESSION), "must have shape (rows, members), got (50, 4, 3)"),
    (fit(PROBA[:, :0], None), "predictions are empty (shape (50, 0))"),
    (fit(PROBA[:0], None, TWO[:0], **REGRESSION), "predictions are empty"),
    (fit(PROBA[:, :1], MASK[:, :1]), "one member only"),
    (fit(np.full((50, 4), "high")), "predictions must be numbers"),
    (
        fit(oob_mask=MASK[:, 1:]),
        "oob_mask has shape (50, 3) but predictions have (50, 4) (rows, members)",
    ),
    (fit(PROBA.T), "oob_mask has shape (50, 4) but predictions have (4, 50) (rows, members"),
    (fit(TENSOR, MASK[1:], THREE), "oob_mask has shape (49, 4) but predictions have (50"),
    (fit(oob_mask=np.ones(())), "oob_mask has shape () but predictions have (50, 4)"),
    (fit(oob_mask=[]), "oob_mask has shape (0 ... or None if no member was"),
    (fit(oob_mask=np.zeros((0, 4))), "oob_mask has shape (0 ... or None if no member was"),
    (
        fit(oob_mask=0 * MASK),
        "no row is out of bag for any member, so there is nothing to judge the members by ... None",
    ),
    (fit(oob_mask=0 * MASK, **REGRESSION), "no row is out of bag for any member"),
    (
        fit(sample_weight=np.where(MASK.any(axis=1), 0.0, 1.0)),
        "every row that some member has out of bag has sample_weight zero",
    ),
    *[(fit(with_entry(PROBA, bad)), NAN) for bad in (np.nan, np.inf, -np.inf)],
    (fit(with_entry(PROBA, np.nan), None), NAN),
    (fit(with_entry(PROBA, np.nan), None, **REGRESSION), "NaN or infinity"),
    (fit(with_entry(TENSOR, np.nan, 1), MASK, THREE), NAN),  # not even the true class
    *[
        (
            fit(given, None, y),
            f"classification predictions must be probabilities between 0 and 1 (the first that is "
            f"none is {bad}, in row 3 of member 2); for regression pass loss='squared_error'.",
        )
        for bad in (-0.1, 1.1)
        for given, y in ((with_entry(PROBA, bad), TWO), (with_entry(TENSOR, bad, 1), THREE))
    ],
    *[
        (
            fit(with_entry(TENSOR, TENSOR[3, 2] / 2).astype(dtype), MASK, THREE, loss=loss),
            "must sum to 1 (to within 0.001); some are off by 0.5; divide them by their sum",
        )
        for dtype in (np.float16, np.float32, np.float64)
        for loss in ("log_loss", "brier")
    ],
    (fit(0 * PROBA), ZERO),
    (fit(np.where(MASK, 0.0, 0.9)), ZERO),
    (fit(WRONG_CLASS, None, THREE), "true class probability zero ... in the order of lab"),
    (fit(loss="brier", y=THREE), "reads every class; pass predictions of shape (rows"),
    (fit(y=np.ones(50)), "y has one class only ([1.0]); classification needs"),
    (fit(y=np.c_[TWO, TWO]), f"y {ONE_VALUE}(50, 2); {MULTI_OUTPUT}"),
    (fit(y=np.c_[TWO, TWO], **REGRESSION), f"y {ONE_VALUE}(50, 2); {MULTI_OUTPUT}"),
    (fit(y=TWO[1:]), "y has 49 values for 50 rows; pass 50, one a row."),
    (fit(y=TWO[1:], **REGRESSION), "y has 49 values for 50 rows; pass 50, one a row."),
    (fit(y=TWO.astype(str), **REGRESSION), "y must hold one number a row"),
    (fit(y=np.where(TWO, np.nan, 1), **REGRESSION), "y holds NaN or infinity; leave those"),
    (fit(y=np.where(TWO, np.inf, 1), **REGRESSION), "y holds NaN or infinity"),
    (fit(y=TWO + 0.5), "y is not made of classes ... loss='squared_error'"),
    (fit(y=np.where(TWO, np.nan, 1)), "y is not made of classes ... loss='squared_error'"),
    (fit(y=np.array([1, "a"] * 25, dtype=object)), "y mixes labels that cannot be sorted"),
    (fit(y=THREE, labels=[0, 1]), "a class that labels= does not name (2"),
    (fit(labels=["0", "1"]), "labels= does not name"),
    (fit(TENSOR, MASK, THREE, labels=[0, 1, 2, 2]), "labels= names a class twice"),
    (
        fit(TENSOR, MASK, THREE, labels=[0, 1, 2, 3]),
        "predictions have 3 classes but y and labels have 4",
    ),
    (fit(TENSOR), "predictions have 3 classes but y and labels have 2"),
    (fit(lam="auto"), "lam='auto' needs an ensemble"),
    *[
        (call, "is a SciPy sparse ... pass " + name + ".toarray()")
        for kind in (sp.csr_array, sp.coo_matrix)
        for call, name in (
            (fit(oob_mask=kind(MASK)), "oob_mask"),
            (fit(kind(PROBA)), "predictions"),
        )
    ],
]

BAGGING = "; pass a BaggingClassifier/Regressor, RandomForest*"
TYPE_ERRORS = [
    (compress(LogisticRegression()), "cannot compress a LogisticRegression" + BAGGING),
    (compress(LogisticRegression(), evidence="holdout"), "cannot compress a LogisticRegression"),
    (compress(X), "cannot compress a ndarray" + BAGGING),
    (lambda: sb.compress(sb.compress(FOREST, X, Y), X, Y), "compress a SparseBaggingClassifier"),
    (fitted_by(GradientBoostingClassifier()), "cannot compress a GradientBoostingClassifier; pass"),
    (fitted_by(FrozenEstimator(GradientBoostingClassifier())), "a GradientBoostingClassifier; pa"),
    (fitted_by(RandomForestClassifier), "cannot compress the class RandomForestClassifier; pass"),
    (fitted_by("forest"), "cannot compress a str" + BAGGING),
    (fitted_by(PIPE), "a Pipeline is compressed when it is fitted"),
    (fit(loss=3), "loss must be a name or an object"),
    (fit(solver=3), "solver must be a name or an object"),
    (listed(TREES[0], ("tree", TREES[0])), "entry 1 of the list is a tuple, not a model"),
    (listed(DecisionTreeClassifier, TREES[0]), "entry 0 of the list is a ABCMeta, not a model"),
    *[
        (lambda call=call, given=given: call(given, X, Y), "call sparsebag.compress")
        for call in (sb.fit_weights, sb.stream_rows)
        for given in (FOREST, TREES, LogisticRegression())
    ],
]
NOT_FITTED = [
    (
        compress(RandomForestClassifier()),
        "this RandomForestClassifier is not fitted; fit it first, or let "
        "SparseBaggingClassifier/Regressor fit it.",
    ),
    (
        compress(VotingClassifier([]), evidence="holdout"),
        "this VotingClassifier is not fitted; fit",
    ),
    (fitted_by(FrozenEstimator(RandomForestClassifier())), "RandomForestClassifier is not fitted"),
    (compress(PIPE), "This Pipeline instance is not fitted yet"),
    (listed(TREES[0], LogisticRegression()), "this LogisticRegression is not fitted; fit it"),
    (
        lambda: sb.compress(pickle.loads(pickle.dumps(sb.compress(FOREST, X, Y))).estimator, X, Y),
        "this RandomForestClassifier is not fitted; fit it first",
    ),
    (lambda: sb.SparseBaggingRegressor().predict(X), "is not fitted yet. Call 'fit'"),
    (lambda: sb.SparseBaggingClassifier().report(X, Y), "is not fitted yet. Call 'fit'"),
    *[
        (lambda m=m: getattr(sb.SparseBaggingClassifier(), m)(X), "is not fitted yet. Call 'fit'")
        for m in ("predict", "predict_proba", "predict_log_proba")
    ],
]


def cases():
    tables = {ValueError: ENSEMBLES + MATRICES, TypeError: TYPE_ERRORS, NotFittedError: NOT_FITTED}
    for error, table in tables.items():
        for call, sentence in table:
            yield pytest.param(call, error, sentence, id=sentence[:40])


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize(("call", "error", "sentence"), list(cases()))
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
        (np.full(N, "heavy"), "sample_weight must hold one number a row"),
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
    pattern = r"\d+ of (50|200) rows are out of bag for no member and are left out; more members"
    assert re.match(pattern, str(uncovered[0].message))


@pytest.mark.parametrize("members", [2, 3])
def test_few_members_are_not_told_of_class_weights(members):
    """They leave rows of every class uncovered, not those of one."""
    X, y = make_classification(600, 12, n_informative=6, flip_y=0.1, random_state=0)
    forest = RandomForestClassifier(members, random_state=0).fit(X, y)
    with pytest.warns(sb.UncoveredRowsWarning, match="more members, or a smaller max_samples"):
        sb.compress(forest, X, y, refine=None)


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


def test_every_face_names_itself():
    with pytest.raises(ValueError, match="'verbose' parameter of fit_weights must be"):
        sb.fit_weights(np.eye(2), None, [0, 1], verbose="yes")
    with pytest.raises(ValueError, match="'n_jobs' parameter of SparseBaggingRegressor must be"):
        sb.SparseBaggingRegressor(n_jobs=0).fit(np.eye(4), np.arange(4.0))
