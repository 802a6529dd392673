"""Row weights: carried with the evidence, refused with a sentence."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from evidence.votes import classes, evidence_of
from sparsebag.evidence.from_predictions import check_sample_weight


@pytest.fixture(scope="module")
def forest():
    X, y = classes()
    return RandomForestClassifier(4, random_state=0).fit(X, y), X, y


def test_none_means_equal_weights(forest):
    model, X, y = forest
    assert evidence_of(model, X, y).sample_weight is None


@pytest.mark.parametrize("kind", [np.asarray, list, pd.Series, lambda w: np.asarray(w)[:, None]])
def test_weights_travel_in_double_precision(forest, kind):
    model, X, y = forest
    weight = np.arange(len(y))
    evidence = evidence_of(model, X, y, sample_weight=kind(weight))
    assert evidence.sample_weight.dtype == np.float64
    np.testing.assert_array_equal(evidence.sample_weight, weight)


@pytest.mark.parametrize(
    ("weight", "sentence"),
    [
        (np.full(150, -1.0), "must not be negative"),
        (np.zeros(150), "must not be zero everywhere"),
        (np.ones(149), "sample_weight has 149 values for 150 rows"),
        (np.full(150, np.nan), "sample_weight holds NaN or infinity"),
        (np.full(150, np.inf), "sample_weight holds NaN or infinity"),
        (np.ones((150, 2)), r"must have one value a row, got shape \(150, 2\); pass 150\."),
        (3.0, r"sample_weight must have one value a row, got shape \(\); pass 150\."),
        (np.full(150, "heavy"), "sample_weight must hold one number a row"),
    ],
    ids=["negative", "zero", "short", "nan", "inf", "two a row", "scalar", "text"],
)
def test_bad_weights_are_refused_before_any_member_predicts(forest, weight, sentence, monkeypatch):
    model, X, y = forest
    monkeypatch.setattr(
        type(model.estimators_[0]), "predict_proba", lambda *_, **__: pytest.fail("too late")
    )
    with pytest.raises(ValueError, match=sentence):
        evidence_of(model, X, y, sample_weight=weight)


def test_check_leaves_good_weights_alone():
    weight = np.array([0.0, 2.0])
    assert np.shares_memory(check_sample_weight(weight, np.zeros((2, 3))), weight)
