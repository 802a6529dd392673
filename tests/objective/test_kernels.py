"""The compiled passes and logarithms give what the general way gives."""

from dataclasses import replace

import numpy as np
import pytest

from problems import evidence, general, interior_point, is_native, objective_on
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective import _passes
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.passes import NativePasses

CASES = [("log_loss", 3), ("squared_error", 3), ("brier", 2)]


def plain(e, clip=1e-15):
    return objective_on(e, LogLoss(clip=clip), lam=0.0, floor=0.0, prior_mass=0.0)


def both(e, loss, weights):
    f = objective_on(e, loss)
    assert is_native(f)
    return f.value_and_gradient(weights), general(f).value_and_gradient(weights)


def agree(found, expected):
    """To what single precision leaves of votes of size 1, and of a vote less its target."""
    (value, gradient), (general, slow) = found, expected
    assert value == pytest.approx(general, rel=1e-5, abs=1e-6)
    assert gradient == pytest.approx(slow, rel=1e-4, abs=1e-5 * max(np.abs(slow).max(), 0.1))


@pytest.mark.parametrize(("loss", "n_classes"), CASES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_members", [1, 8, 9, 15, 16, 17, 33, 63, 64, 65, 131, 4101])
@pytest.mark.parametrize("n_rows", [1, 7, 8, 75])
def test_as_the_general_way(kernel, loss, n_classes, weighted, n_members, n_rows):
    shape = {"n_rows": n_rows, "n_members": n_members, "n_classes": n_classes}
    how = {**shape, "weighted": weighted, "dtype": np.float32, "seed": n_members}
    weights = interior_point(n_members)
    e = evidence(loss, **how)
    e.oob_mask[:, 0] = True  # no row without a voter: one row alone must have weight
    agree(*both(e, loss, weights))
    if loss == "squared_error":
        return
    e = evidence(loss, holdout=True, **how)
    found, _ = both(e, loss, weights)
    # In doubles: of thousands of members both ways' single precision shows.
    wide = replace(e, votes=e.votes.astype(np.float64))
    f = objective_on(wide, loss)
    assert not is_native(f)
    agree(found, f.value_and_gradient(weights))
    # Nothing else than a mask that is set everywhere, whose bytes are not read.
    masked, _ = both(replace(e, oob_mask=np.ones(e.votes.shape, bool)), loss, weights)
    assert found[0] == pytest.approx(masked[0], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("n_members", [2000, 10_000])
def test_equal_weights_of_thousands_are_summed_as_in_doubles(kernel, n_members):
    """Adding one number to itself rounds the same way again and again."""
    rng = np.random.default_rng(n_members)
    e = evidence(n_rows=128, n_members=n_members, dtype=np.float32)
    e = replace(e, votes=((rng.random(e.votes.shape) < 0.8) & e.oob_mask).astype(np.float32))
    narrow = objective_on(e, lam=0.0)
    wide = objective_on(replace(e, votes=e.votes.astype(np.float64)), lam=0.0)
    assert is_native(narrow)
    assert not is_native(wide)
    value, gradient = narrow.value_and_gradient(narrow.uniform_weights())
    exact, slope = wide.value_and_gradient(wide.uniform_weights())
    assert value == pytest.approx(exact, rel=1e-6)
    assert gradient == pytest.approx(slope, rel=0, abs=2e-6 * np.abs(slope).max())


@pytest.mark.parametrize("clip", [0.0, 1e-320, 1e-300, 1e-15])
def test_rows_without_a_voter_change_nothing(kernel, clip):
    e = evidence(n_rows=40, n_members=9, dtype=np.float32)
    mask = e.oob_mask.copy()
    mask[::7] = False
    e = replace(e, oob_mask=mask, votes=np.where(mask, e.votes, np.float32(0)))
    covered = np.flatnonzero(mask.any(axis=1))
    (value, gradient), (without, slope) = (
        plain(rows, clip).value_and_gradient(interior_point(9)) for rows in (e, e.take(covered))
    )
    assert np.isfinite(value)
    assert value == pytest.approx(without, rel=1e-12)
    assert gradient == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_what_is_in_the_bag_is_never_read(kernel, loss):
    e = evidence(loss, n_members=37, dtype=np.float32)
    clean, _ = both(e, loss, interior_point(37))
    for junk in (np.nan, np.inf, -1e30):
        dirty = replace(e, votes=np.where(e.oob_mask, e.votes, np.float32(junk)), is_zeroed=False)
        found, _ = both(dirty, loss, interior_point(37))
        assert found[0] == clean[0]
        assert np.array_equal(found[1], clean[1])


N_MEMBERS = 9
ONE_ALONE = np.eye(N_MEMBERS)[0]
"""All weight on one member: its votes are the ensemble's, without any rounding."""


def log_loss(votes, row_weight=None, clip=1e-15):
    rng = np.random.default_rng(0)
    matrix = rng.random((len(votes), N_MEMBERS), dtype=np.float32)
    matrix[:, 0] = votes
    mask, y = np.ones(matrix.shape, bool), np.zeros(len(votes), int)
    e = OOBEvidence(matrix, mask, y, "classification", row_weight, classes=np.array([0, 1]))
    f = plain(e, clip)
    assert is_native(f)
    return f.value_and_gradient(ONE_ALONE)[0]


@pytest.mark.parametrize("n_rows", [1, 3, 5, 8, 15, 16, 17, 64, 127, 300, 1000])
@pytest.mark.parametrize("least", [1e-14, 1e-3, 0.05, 0.999])
@pytest.mark.parametrize("kind", ["none", "uneven", "some zero", "blocks of two"])
def test_the_loss_is_the_mean_of_every_rows_logarithm(kernel, n_rows, least, kind):
    row, votes = np.arange(n_rows), np.geomspace(least, 1.0, n_rows).astype(np.float32)
    weight = {
        "none": None,
        "uneven": np.random.default_rng(n_rows).lognormal(0.0, 5.0, n_rows),
        "some zero": 1.0 * (row % 7 > 0) + (n_rows == 1),
        "blocks of two": 1.0 + (row // 40) % 2,
    }[kind]
    expected = -np.average(np.log(votes.astype(np.float64)), weights=weight)
    close = {"rel": 1e-14 if weight is None else 1e-13, "abs": 1e-14}
    assert log_loss(votes, weight) == pytest.approx(expected, **close)


@pytest.mark.parametrize("clip", [1e-45, 1e-15])
def test_votes_whose_product_no_double_holds(kernel, clip):
    votes = np.full(200, 1e-38, dtype=np.float32)
    votes[::3] = 0.7
    expected = -np.log(np.maximum(votes.astype(np.float64), clip)).mean()
    assert log_loss(votes, clip=clip) == pytest.approx(expected, rel=1e-14)


def test_without_a_clip_a_vote_of_zero_costs_everything(kernel):
    votes = np.linspace(0.0, 1.0, 50, dtype=np.float32)
    assert log_loss(votes, clip=0.0) == np.inf
    assert np.isfinite(log_loss(votes[1:], clip=0.0))


def test_a_true_may_be_any_byte():
    mask = np.ones((3, 4), bool)
    for oob in (mask, (mask.astype(np.uint8) * 255).view(bool)):
        passes = NativePasses(np.ones((3, 4)), oob)
        assert np.array_equal(passes.forward(np.full(4, 0.25))[1], [1.0, 1.0, 1.0])


def test_shapes_are_checked_before_the_kernel_runs():
    votes, mask = np.ones((3, 4)), np.ones((3, 4), np.uint8)
    with pytest.raises(ValueError, match="array shapes disagree"):
        _passes.forward(votes, mask, np.ones(5), np.empty(3), np.empty(3))
    with pytest.raises(ValueError, match="array shapes disagree"):
        _passes.transposed(votes, mask[:2], np.ones(3), np.ones(3), np.zeros(4))
    on = np.ones(3, np.float32)
    with pytest.raises(TypeError):
        _passes.transposed(np.ones((3, 4), np.float32), mask, on, on, np.zeros(4))


@pytest.mark.parametrize("shape", [(1, 9), (119, 9), (120, 8), (0, 8)])
def test_masks_of_another_shape_are_refused(shape):
    f = plain(evidence(n_members=9, dtype=np.float32))
    votes, _, *rest = f._parts.block._native
    f._parts.block._native = (votes, np.ones(shape, np.uint8), *rest)
    with pytest.raises(ValueError, match="shapes disagree"):
        f.value_and_gradient(interior_point(9))
