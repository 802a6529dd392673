"""Calibrators of a gated vote of all members, read off a global one and few votes out of bag."""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from sparsebag.refine.calibrator import softmax_rows
from sparsebag.refine.carried_over import carried_over, change_of_temperature
from sparsebag.refine.local_weights import LocalEvidence


class Unweighted:
    """A calibrator that knows of no row weights."""

    def fit(self, X, y):
        self.model_ = LogisticRegression().fit(X[:, None], y)
        return self

    def predict(self, X):
        return self.model_.predict_proba(X[:, None])[:, 1]


def given(n_classes=2, power=0.5, n=6000, seed=0):
    """Votes that are timid: what they mean is their power 1 / ``power``."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, 1.5, size=(n, n_classes))
    truth = softmax_rows(logits)
    target = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    votes = softmax_rows(power * logits)
    return {"votes": votes, "target": target, "row": np.arange(n), "sample_weight": None}, truth


@pytest.mark.parametrize("change", [-0.7, 0.0, 0.3])
@pytest.mark.parametrize(
    ("kind", "n_classes"),
    [
        ("vector_scaling", 2),
        ("beta", 2),
        ("isotonic", 2),
        ("isotonic", 3),
        ("vector_scaling", 3),
        (IsotonicRegression(out_of_bounds="clip"), 2),
        (Unweighted(), 2),
    ],
)
def test_every_kind_is_as_sure_as_the_gated_vote_needs(kind, n_classes, change):
    """The gated vote's best temperature is exp(change) times the global one's."""
    global_votes, _ = given(n_classes)
    found = carried_over(global_votes, kind, change)
    fresh, truth = given(n_classes, power=0.5 * np.exp(change), seed=1)
    off = np.abs(found.transform(fresh["votes"]) - truth).mean()
    assert off < 0.05
    assert np.abs(fresh["votes"] - truth).mean() > off


def test_rows_of_no_weight_have_no_say():
    votes, _ = given()
    wrong = {**votes, "target": 1 - votes["target"]}
    both = {k: np.concatenate([votes[k], wrong[k]]) for k in ("votes", "target", "row")}
    both["sample_weight"] = np.repeat([1.0, 0.0], len(votes["row"]))
    one, two = (carried_over(g, "vector_scaling", -0.3) for g in (votes, both))
    np.testing.assert_allclose(one.scale, two.scale)


def few_voters(n=4000, k=6, seed=0):
    """Members that are sure of all they say, those of one half without use."""
    rng = np.random.default_rng(seed)
    target = rng.integers(2, size=n)
    right = rng.random((n, k)) < np.where(np.arange(k) % 2 == 0, 0.8, 0.5)
    second = (right == (target[:, None] == 1)).astype(float)
    mask = rng.random((n, k)) < 0.4
    mask[~mask.any(axis=1), 0] = True
    votes = np.stack([1 - second, second], axis=2)
    uniform = np.full(n, 1 / n)
    rows = LocalEvidence(np.zeros((n, 1)), votes, mask, target, uniform, np.full(k, 1 / k), True)
    return rows, np.tile(np.where(np.arange(k) % 2 == 0, 0.33, 0.003), (n, 1))


def test_sure_and_wrong_voters_flatten_no_vote_of_all():
    """Beside a floor of 2 %, the gated temperature would be ten times the global one."""
    rows, gated = few_voters()
    own = np.tile(rows.base, (rows.n_rows, 1))
    assert change_of_temperature(rows, own) == 0.0
    assert abs(change_of_temperature(rows, gated)) < 0.5
