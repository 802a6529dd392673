"""explain_weights: which members a row trusts, and which features decide that."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from gated_ensembles import IRIS
from made_up_gates import linear_gate
from sparsebag.deploy.explained_weights import explained_weights
from sparsebag.deploy.from_members import compile_members


@cache
def fitted():
    X, y = IRIS
    forest = RandomForestClassifier(30, random_state=0).fit(X, y)
    return sb.compress(forest, X, y, max_estimators=6, refine=None, calibration=None)


def gated(gate_of):
    """A fitted estimator with a gate put in, whatever a fit would have chosen."""
    small = sb.SparseBaggingClassifier()
    vars(small).update(vars(fitted()))  # a copy would leave out the full ensemble, as a pickle does
    gate = gate_of(small.n_active_)
    vote = replace(small._vote, weights=np.full(small.n_active_, 1 / small.n_active_))
    small._vote = replace(vote, gate=gate)
    small._compiled = compile_members(vote.pool, vote.weights, vote.floor, None, gate)
    return small


def half_spaces(k):
    """The first member for large petals, the second for small ones; nothing else matters."""
    up = np.zeros((k, 1))
    up[:2, 0] = 3.0, -3.0
    down, X = np.array([[0.0, 0.0, 1.0, 0.0]]), IRIS[0]
    where = {"mean": X.mean(axis=0), "scale": X.std(axis=0), "down": down, "offset": np.zeros(1)}
    return replace(linear_gate(k, 4, rank=1), **where, up=up, base=np.full(k, -np.log(k)))


def test_without_a_gate_every_row_has_the_global_weights():
    small, X = fitted(), IRIS[0]
    found = small.explain_weights(X)
    np.testing.assert_array_equal(found.weights, np.tile(small.weights_[small.active_], (150, 1)))
    assert str(found) == "150 rows: every one has the global weights."
    assert found.moved.max() == 0.0


@pytest.mark.parametrize("gate_of", [half_spaces, lambda k: linear_gate(k, 4, 2)])
def test_weights_are_those_the_vote_uses(gate_of):
    small, X = gated(gate_of), IRIS[0]
    found = small.explain_weights(X)
    np.testing.assert_allclose(found.weights, small._vote.gate.weights(X), rtol=1e-11)
    np.testing.assert_array_equal(found.members, small.active_)
    np.testing.assert_allclose(
        found.weights, small.explain_weights(sp.csr_matrix(X)).weights, rtol=1e-12
    )
    with pytest.raises(ValueError, match="X has 3 features, but 4 were fitted"):
        small.explain_weights(X[:, :3])


@pytest.mark.parametrize("gate_of", [half_spaces, lambda k: linear_gate(k, 4, 2)])
def test_no_rows_are_nothing_to_explain(gate_of):
    found = gated(gate_of).explain_weights(IRIS[0][:0])
    assert found.weights.shape[0] == 0
    assert str(found) == "0 rows: there is nothing to explain."


def test_one_row_is_told_what_to_be():
    with pytest.raises(
        ValueError, match=r"has shape \(4,\); of one row pass row.reshape\(1, -1\)\.$"
    ):
        fitted().explain_weights(IRIS[0][0])


def test_a_feature_that_moves_next_to_nothing_is_not_told():
    def faint(k):
        gate = half_spaces(k)
        return replace(gate, down=gate.down + np.array([[1e-4, 0.0, 0.0, 0.0]]))

    said = str(gated(faint).explain_weights(IRIS[0]))
    assert "x2 (" in said
    assert "(0 %)" not in said


def test_the_feature_that_decides_is_told():
    found = gated(half_spaces).explain_weights(IRIS[0])
    strength = found.feature_effects.mean(axis=0)
    assert strength[2] > 0.2
    np.testing.assert_array_equal(strength[[0, 1, 3]], 0.0)
    assert ": x2 (" in str(found)


def test_an_effect_is_that_of_a_missing_value():
    gate = linear_gate(6, 4)
    X, own = IRIS[0], np.full(6, 1 / 6)
    found = explained_weights(gate, X, np.arange(6), own)
    for f in range(4):
        holes = X.copy()
        holes[:, f] = np.nan
        expected = 0.5 * np.abs(gate.weights(holes) - gate.weights(X)).sum(axis=1)
        np.testing.assert_allclose(found.feature_effects[:, f], expected, atol=1e-12)
