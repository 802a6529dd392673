"""Bad evidence gets one clear sentence, through the names a user calls."""

import re
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.ensemble import (
    BaggingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb

X, Y = (part[:200] for part in load_breast_cancer(return_X_y=True))
X_NUMBERS, Y_NUMBERS = (part[:200] for part in load_diabetes(return_X_y=True))
ORDER = np.random.default_rng(0).permutation(len(Y))
FOREST = RandomForestClassifier(10, random_state=0).fit(X, Y)
TREES = [DecisionTreeClassifier(random_state=j).fit(X, Y) for j in range(2)]

COMPRESS = {
    "not fitted": (
        (RandomForestClassifier(), X, Y),
        "this RandomForestClassifier is not fitted; fit it first, or let "
        "SparseBaggingClassifier/Regressor fit it.",
    ),
    "not bootstrapped": (
        (VotingClassifier([("a", TREES[0]), ("b", TREES[1])]).fit(X, Y), X, Y),
        "there are no out-of-bag rows to judge the members by: its members all saw "
        "every training row. Use a bootstrapped ensemble, or pass rows it has never seen with "
        "evidence='holdout'.",
    ),
    "a list without its bags": (
        (TREES, X, Y),
        "there are no out-of-bag rows to judge the members by: a list of models does not say; "
        "pass estimators_samples=, the rows of each.",
    ),
    "rows reordered": (
        (FOREST, X[ORDER], Y[ORDER]),
        "X, y are not the ensemble's training rows in their original order: for member 0, "
        "routing its bagged rows does not give its leaf counts. Pass the arrays it was fitted "
        "on, or rows it has never seen with evidence='holdout'.",
    ),
    "one row fewer": (
        (FOREST, X[1:], Y[1:]),
        "X, y are not the ensemble's training rows in their original order: it has 199 rows and "
        "the ensemble was fitted on 200.",
    ),
    "other columns": (
        (FOREST, X[:, 1:], Y),
        "X has 29 columns but the ensemble was fitted on 30; pass the data it was trained on.",
    ),
    "multi-output": (
        (RandomForestRegressor(3).fit(X_NUMBERS, X_NUMBERS[:, :2]), X_NUMBERS, Y_NUMBERS),
        "multi-output ensembles are not supported; fit and compress one ensemble an output.",
    ),
    "one class": (
        (RandomForestClassifier(3).fit(X, np.zeros(len(Y))), X, Y),
        "the ensemble knows one class only (0.0); classification needs two.",
    ),
    "one member": (
        (RandomForestClassifier(1).fit(X, Y), X, Y),
        "the ensemble has one member only; there is nothing to choose from.",
    ),
    "another class": (
        (FOREST, X, np.where(Y == 0, 5, Y)),
        "y holds a class the ensemble was not trained on (",
    ),
}


@pytest.mark.parametrize("case", COMPRESS)
def test_compress(case):
    arguments, sentence = COMPRESS[case]
    with pytest.raises((ValueError, NotFittedError), match=re.escape(sentence)):
        sb.compress(*arguments)


RNG = np.random.default_rng(0)
PROBA = RNG.uniform(0.1, 0.9, (50, 4))
MASK = RNG.random((50, 4)) < 0.5
TWO = np.arange(50) % 2
NAN = np.where(MASK & (np.arange(4) == 2), np.nan, PROBA)

FIT_WEIGHTS = {
    "mask of another shape": (
        (PROBA, MASK[:, 1:], TWO),
        "oob_mask has shape (50, 3) but predictions have (50, 4) (rows, members)",
    ),
    "transposed predictions": (
        (PROBA.T, MASK, TWO),
        "oob_mask has shape (50, 4) but predictions have (4, 50) (rows, members)",
    ),
    "NaN": ((NAN, MASK, TWO), "predictions hold NaN or infinity where the mask says out of bag"),
    "infinity": (
        (np.where(np.isnan(NAN), np.inf, NAN), None, TWO),
        "predictions hold NaN or infinity where the mask says out of bag",
    ),
    "all zero": (
        (np.zeros((50, 4)), MASK, TWO),
        "every member gives every row's true class probability zero",
    ),
    "not probabilities": (
        (np.where(np.arange(50)[:, None] == 7, 10 * PROBA, PROBA), None, TWO),
        "classification predictions must be probabilities between 0 and 1 (the first that is none "
        f"is {10 * PROBA[7, 0]:.9g}, in row 7 of member 0); for regression pass "
        "loss='squared_error'.",
    ),
    "no row out of bag": (
        (PROBA, np.zeros_like(MASK), TWO),
        "no row is out of bag for any member, so there is nothing to judge the members by",
    ),
    "one class": ((PROBA, MASK, np.ones(50)), "y has one class only ([1.0])"),
    "multi-output": (
        (PROBA, MASK, np.c_[TWO, TWO]),
        "y must have one value a row, got shape (50, 2); multi-output problems are not supported.",
    ),
    "one member": ((PROBA[:, :1], MASK[:, :1], TWO), "one member only"),
    "y too short": ((PROBA, MASK, TWO[1:]), "y has 49 values for 50 rows; pass 50, one a row."),
}


@pytest.mark.parametrize("case", FIT_WEIGHTS)
def test_fit_weights(case):
    arguments, sentence = FIT_WEIGHTS[case]
    with pytest.raises(ValueError, match=re.escape(sentence)):
        sb.fit_weights(*arguments)


def test_no_row_out_of_bag_in_regression():
    with pytest.raises(ValueError, match="no row is out of bag for any member"):
        sb.fit_weights(PROBA, np.zeros_like(MASK), TWO, loss="squared_error")


@pytest.mark.parametrize("kind", ["compress", "fit_weights"])
def test_rows_no_member_has_out_of_bag_are_counted_and_warned_of_once(kind):
    def fit():
        if kind == "fit_weights":
            mask = MASK.copy()
            mask[:3] = False
            mask[3:, 0] = True
            return sb.fit_weights(PROBA, mask, TWO)
        bag = BaggingClassifier(LogisticRegression(C=1e-3), 5, random_state=0).fit(X[:, :3], Y)
        return sb.compress(bag, X[:, :3], Y)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit()
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


@pytest.mark.parametrize("given", [FOREST, TREES, LogisticRegression()])
def test_an_ensemble_in_the_place_of_predictions_is_sent_to_what_takes_it(given):
    said = r"not what members predict; call sparsebag\.compress"
    with pytest.raises(TypeError, match=said):
        sb.fit_weights(given, X, Y)
    with pytest.raises(TypeError, match=said):
        sb.stream_rows(given, X, Y)
