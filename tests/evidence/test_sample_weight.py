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


def test_check_leaves_good_weights_alone():
    weight = np.array([0.0, 2.0])
    assert np.shares_memory(check_sample_weight(weight, np.zeros((2, 3))), weight)
