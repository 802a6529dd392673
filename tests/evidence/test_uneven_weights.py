"""Evidence as such: what it warns of."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from sparsebag.evidence.evidence import OOBEvidence, warn_uncovered


def test_weights_that_let_one_row_decide_are_named():
    votes = np.random.default_rng(0).random((200, 5))
    weight = np.where(np.arange(200) == 7, 1e12, 1.0)

    def evidence(sample_weight):
        return OOBEvidence(
            votes, None, np.zeros(200), "regression", sample_weight=np.asarray(sample_weight)
        )

    with pytest.warns(UserWarning, match="200 rows count for no more than 1 of equal weight"):
        warn_uncovered(evidence(weight))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_uncovered(evidence(np.linspace(0.1, 3.0, 200)))
