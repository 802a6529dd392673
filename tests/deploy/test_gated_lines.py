"""Linear regressors under a gate: the kernel's sum is the members', row by row."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import BaggingRegressor
from sklearn.linear_model import Ridge

from made_up_gates import linear_gate
from sparsebag.deploy import _forest, gated_lines
from sparsebag.deploy._forest import instruction_sets, use_instructions
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.gate import CompiledGate
from sparsebag.deploy.gated_lines import GatedLines
from sparsebag.deploy.linear import LinearVotes
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.local.gate import LinearGate

WIDTHS = (1, 3, 8, 16, 21, 40)
"""Less than the kernel reads at once, exactly as much, and more."""


def compiled(gate):
    k = gate.n_members
    return CompiledGate(gate, np.full(k, 1 / k), np.arange(k, dtype=np.int32))


def gated(d, k=7, n=200):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(n, d))
    bag = BaggingRegressor(Ridge(), k, random_state=0).fit(X, X[:, 0] + rng.normal(size=n))
    gate = linear_gate(k, d, 3)
    pool = read_ensemble(bag)
    return compile_members(pool, np.ones(k), gate=gate), pool, gate, X


@pytest.mark.parametrize("d", WIDTHS)
def test_the_sum_is_the_members_own(d):
    model, pool, gate, X = gated(d)
    votes = np.stack([member.predict(X) for member in pool.members], axis=1)
    expected = np.sum(gate.weights(X) * votes, axis=1)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12, atol=1e-13)
    whole = np.round(X * 3).astype(np.int64)
    votes = np.stack([member.predict(whole) for member in pool.members], axis=1)
    expected = np.sum(gate.weights(whole) * votes, axis=1)
    np.testing.assert_allclose(model.predict(whole), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_gets_the_same_bits_alone_and_among_others(dtype):
    model, _, _, X = gated(21)
    X = X.astype(dtype)
    together = model.predict(X)
    np.testing.assert_array_equal([model.predict_one(row) for row in X], together)
    for n in (1, 63, 64, 65, 129):
        np.testing.assert_array_equal(model.predict(X[:n]), together[:n])
    np.testing.assert_array_equal(model.predict(np.asfortranarray(X)), together)
    np.testing.assert_array_equal(model.predict(np.repeat(X, 2, 1)[:, ::2]), together)
    np.testing.assert_array_equal(model.predict(X[::-1])[::-1], together)
    assert model.predict(X[:0]).shape == (0,)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), together)


def by_instructions(model, X):
    """What each set of instructions of this machine says."""
    best, found = instruction_sets()[-1], {}
    try:
        for name in instruction_sets():
            use_instructions(name)
            found[name] = model.predict(X)
    finally:
        use_instructions(best)
    return found


def test_every_machines_instructions_give_the_same():
    model, _, _, X = gated(21)
    found = by_instructions(model, X)
    for other in found.values():  # the sums of smooth_lines.h are fused
        np.testing.assert_allclose(other, found["portable"], rtol=1e-13, atol=1e-14)


def smooth(k, d, rank, spread=1.0, silent=()):
    rng = np.random.default_rng(100 * k + d)
    down = rng.normal(size=(rank, d))
    down[:, list(silent)] = 0.0
    return LinearGate(
        mean=rng.normal(size=d),
        scale=rng.uniform(0.1, 10.0, size=d),
        down=down,
        up=spread * rng.normal(size=(k, rank)),
        base=np.log(rng.dirichlet(np.ones(k))),
        offset=rng.normal(size=rank),
    )


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("k", [1, 4, 5, 9, 13, 20, 24, 25, 61])
def test_any_number_of_members_and_directions(k, rank):
    rng = np.random.default_rng(k)
    for d in (1, 2, 7, 12):
        gate, X = smooth(k, d, rank), 30.0 * rng.normal(size=(37, d))
        coef, intercept = rng.normal(size=(d, k)), rng.normal(size=k)
        columns = np.zeros((k, 1), dtype=np.int32)
        members = LinearVotes(coef, intercept, np.ones(k), columns, "identity", 1, k)
        lines = GatedLines(members, compiled(gate))
        expected = np.sum(gate.weights(X) * (X @ coef + intercept), axis=1)
        for rows in (X, np.asfortranarray(X)):
            for found in by_instructions(lines, rows).values():
                np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
        exact = lines.predict(X)
        for n in range(1, 37):
            np.testing.assert_array_equal(lines.predict(X[:n]), exact[:n])


def lines_of(k, d, rank):
    rng = np.random.default_rng(k)
    columns = np.zeros((k, 1), dtype=np.int32)
    coef, intercept = rng.normal(size=(d, k)), rng.normal(size=k)
    members = LinearVotes(coef, intercept, np.ones(k), columns, "identity", 1, k)
    return GatedLines(members, compiled(smooth(k, d, rank)))


LAYOUTS = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "rows apart": lambda X: np.repeat(X, 2, axis=0)[::2],
    "columns apart": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "some columns": lambda X: np.hstack([X, X])[:, : X.shape[1]],
    "backwards": lambda X: X[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("k", "d", "rank"), [(1, 1, 1), (3, 8, 2), (20, 17, 3), (30, 9, 4)])
def test_a_row_gets_the_same_bits_in_any_block_and_layout(k, d, rank, dtype, layout):
    """Rows go by eight, by two or alone, and past the last one nothing is read or written."""
    lines = lines_of(k, d, rank)
    X = (30.0 * np.random.default_rng(d).normal(size=(19, d))).astype(dtype)
    X[5, d - 1] = np.finfo(dtype).max / 1e10  # beyond float32 in one of the two
    alone = np.array([lines.predict(row[None])[0] for row in X])
    best = instruction_sets()[-1]
    for n in range(1, len(X) + 1):
        rows = LAYOUTS[layout](X[:n])
        np.testing.assert_array_equal(lines.predict(rows), alone[:n])
        out = np.full(len(X) + 1, 7.0)
        assert lines._kernel.predict(rows, out[:n])
        np.testing.assert_array_equal(out[n:], 7.0)
    try:
        # Machines with fused products differ in the length of their registers alone.
        for name in set(instruction_sets()) & {"avx2", "avx512"}:
            use_instructions(name)
            np.testing.assert_array_equal(lines.predict(LAYOUTS[layout](X)), alone)
    finally:
        use_instructions(best)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_spoils_its_own_row_alone(value, layout):
    lines = lines_of(20, 17, 3)
    X = np.random.default_rng(0).normal(size=(13, 17))
    expected, out = lines.predict(X), np.empty(13)
    for row in (0, 7, 8, 12):
        rows = X.copy()
        rows[row, 16] = value
        assert not lines._kernel.predict(LAYOUTS[layout](rows), out)
        others = np.arange(13) != row
        assert not np.isfinite(out[row])
        np.testing.assert_array_equal(out[others], expected[others])


@pytest.mark.parametrize("spread", [0.0, 100.0, 1e3, 1e6, 1e90])
def test_steep_gates_and_columns_without_a_say(spread):
    rng = np.random.default_rng(0)
    gate, X = smooth(6, 9, 2, spread, silent=(0, 4, 8)), rng.normal(size=(50, 9))
    coef, columns = rng.normal(size=(9, 6)), np.zeros((6, 1), dtype=np.int32)
    members = LinearVotes(coef, np.ones(6), np.ones(6), columns, "identity", 1, 6)
    expected = np.sum(gate.weights(X) * (X @ coef + 1.0), axis=1)
    for found in by_instructions(GatedLines(members, compiled(gate)), X).values():
        # Logits of a million have ten digits behind the point.
        np.testing.assert_allclose(found, expected, rtol=1e-9 if spread > 1e5 else 1e-12)


@pytest.mark.parametrize(
    ("mean", "scale"),
    [
        *((scales, 1.0) for scales in (1e2, 1e4, 1e6, 1e8, 1e12, 1e16, 1e20)),
        *((mean, scale) for mean in (0.0, 1.0) for scale in (3e-308, 1e-300, 1e-100, 1e-40, 1e300)),
    ],
)
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_a_column_far_from_zero_or_of_no_spread_leaves_the_others_their_digits(mean, scale, rank):
    """One column of six: as the gate's own arithmetic, whatever the instructions."""
    rng, at = np.random.default_rng(rank), 2
    gate = smooth(5, 6, rank)
    gate = replace(
        gate,
        mean=np.where(np.arange(6) == at, mean, gate.mean),
        scale=np.where(np.arange(6) == at, scale, gate.scale),
    )
    X = rng.normal(size=(40, 6))
    X[:, at] = mean + scale * rng.normal(size=40)  # within its ends and, every fifth, beyond them
    X[::5, at] = mean + 50.0 * scale * rng.normal(size=8)
    coef, columns = rng.normal(size=(6, 5)), np.zeros((5, 1), dtype=np.int32)
    coef[at] = 0.0
    members = LinearVotes(coef, np.ones(5), np.ones(5), columns, "identity", 1, 5)
    lines = GatedLines(members, compiled(gate))
    expected = np.sum(gate.weights(X) * (X @ coef + 1.0), axis=1)
    for found in by_instructions(lines, X).values():
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12)
    alone = [lines.predict(row[None])[0] for row in X]
    np.testing.assert_array_equal(lines.predict(X), alone)


@pytest.mark.parametrize("value", [4e38, -4e38, 1e300])
def test_a_number_beyond_float32_is_the_mean_to_a_gate(value):
    """Members read it as it is; the gate reads float32, and takes what that lacks for unknown."""
    for d in (3, 8, 21):
        model, pool, gate, X = gated(d)
        X[::2, d - 1], X[1::2, 0] = value, value
        votes = np.stack([member.predict(X) for member in pool.members], axis=1)
        expected = np.sum(gate.weights(X) * votes, axis=1)
        # Members of both signs cancel: the largest of them is what digits are counted from.
        close = 1e-12 * np.abs(votes).max()
        for found in by_instructions(model, X).values():
            np.testing.assert_allclose(found, expected, rtol=0.0, atol=close)
        np.testing.assert_array_equal([model.predict_one(row) for row in X], model.predict(X))


def test_many_coefficients_and_sparse_rows_go_by_the_matrix_product(monkeypatch):
    model, _, _, X = gated(21)
    expected = model.predict(X)
    monkeypatch.setattr(gated_lines, "MOST_IN_KERNEL", 0)
    model = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(model.predict(sp.csr_matrix(X)), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_raises(value):
    model, _, _, X = gated(21)
    # A column that no member reads hides nothing: zero times infinity is no number.
    model.groups[0].coef[3] = 0.0
    model = pickle.loads(pickle.dumps(model))
    for column in (0, 3, 20):
        rows = X.copy()
        rows[150, column] = value
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            model.predict(rows)
        with pytest.raises(ValueError, match=r"contains (NaN|infinity)"):
            model.predict_one(rows[150])


def test_a_sum_that_is_too_large_is_infinite_as_it_is_without_a_gate():
    model, *_ = gated(3)
    model.groups[0].coef[:] = 1e10
    model = pickle.loads(pickle.dumps(model))
    assert np.isinf(model.predict(np.full((1, 3), 1e300))).all()


def test_the_kernel_refuses_what_does_not_fit():
    gate = compiled(linear_gate(4, 3)).kernel
    X, out = np.zeros((5, 3)), np.empty(5)
    lines = _forest.GatedLines(gate, np.zeros((3, 4)), np.zeros(4))
    with pytest.raises(ValueError, match="wrong number of columns"):
        lines.predict(np.zeros((5, 2)), out)
    with pytest.raises(ValueError, match="wrong shape"):
        lines.predict(X, np.empty(4))
    for slopes, intercepts in (((3, 5), 5), ((2, 4), 4), ((3, 4), 5)):
        with pytest.raises(ValueError, match="weighs other members"):
            _forest.GatedLines(gate, np.zeros(slopes), np.zeros(intercepts))
