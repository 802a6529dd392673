from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import sparsebag as sb
from problems import evidence, interior_point, objective
from sparsebag.evidence import arrays
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective import passes
from sparsebag.objective.losses import LOSSES, Brier, LogLoss, resolve_loss
from sparsebag.objective.objective import Objective
from sparsebag.objective.passes import make_passes
from sparsebag.objective.penalties import ConcaveQuadratic


def naive_value(e, w, lam, floor, tau):
    """The definition, row by row, for the true class's log-loss."""
    losses, weights = [], []
    for i in range(e.n_rows):
        oob = np.ones(e.n_members) if e.oob_mask is None else e.oob_mask[i].astype(float)
        if oob.sum() == 0:
            continue
        uniform = (oob * e.votes[i]).sum() / oob.sum()
        q = ((w * oob * e.votes[i]).sum() + tau * uniform) / ((w * oob).sum() + tau)
        losses.append(-np.log((1 - floor) * q + floor / len(e.classes)))
        weights.append(1.0 if e.sample_weight is None else e.sample_weight[i])
    return np.average(losses, weights=weights) - lam * (w**2).sum()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("holdout", [False, True])
def test_value_is_the_definition(weighted, holdout):
    e = evidence(weighted=weighted, holdout=holdout, n_members=5)  # few members: empty rows too
    w = interior_point(5)
    f = Objective(e, LogLoss(), ConcaveQuadratic(0.05), floor=0.01, prior_mass=0.02)
    assert f.value(w) == pytest.approx(naive_value(e, w, 0.05, 0.01, 0.02), rel=1e-12)


def test_flooring_the_ratio_is_flooring_each_member():
    e = evidence(n_classes=4)
    floored = OOBEvidence(
        (0.9 * e.votes + 0.1 / 4) * e.oob_mask, e.oob_mask, e.target, e.task, classes=e.classes
    )
    w = interior_point(e.n_members)
    ours = Objective(e, LogLoss(), ConcaveQuadratic(0.0), floor=0.1, prior_mass=0.02)
    theirs = Objective(floored, LogLoss(), ConcaveQuadratic(0.0), prior_mass=0.02)
    assert ours.value(w) == pytest.approx(theirs.value(w), rel=1e-12)


@given(scale=st.floats(0.01, 100.0), seed=st.integers(0, 50))
def test_loss_does_not_depend_on_the_weights_scale(scale, seed):
    f = objective(lam=0.0, floor=0.0, prior_mass=0.0, n_rows=40)
    w = interior_point(f.n_members, seed)
    assert f.value(scale * w) == pytest.approx(f.value(w), rel=1e-9)


def test_rows_without_a_vote_are_left_out():
    e = evidence(n_members=4)
    empty = ~e.covered()
    assert empty.any(), "the problem must have rows no member has out of bag"
    w = interior_point(4)
    f = Objective(e, LogLoss(), ConcaveQuadratic(0.05), prior_mass=0.02)
    kept = Objective(e.take(~empty), LogLoss(), ConcaveQuadratic(0.05), prior_mass=0.02)
    assert f.value(w) == pytest.approx(kept.value(w), rel=1e-12)
    np.testing.assert_allclose(f.gradient(w), kept.gradient(w), rtol=1e-10)


def test_zero_sample_weight_is_leaving_the_row_out():
    e = evidence(weighted=True)
    weight = e.sample_weight.copy()
    weight[::3] = 0.0
    zeroed = OOBEvidence(e.votes, e.oob_mask, e.target, e.task, weight, e.classes)
    keep = weight > 0
    w = interior_point(e.n_members)
    left, right = (
        Objective(x, LogLoss(), ConcaveQuadratic(0.05), prior_mass=0.02)
        for x in (zeroed, zeroed.take(keep))
    )
    assert left.value(w) == pytest.approx(right.value(w), rel=1e-12)


def test_huge_sample_weights_do_not_overflow():
    e = evidence()
    w = interior_point(e.n_members)
    plain, huge = (
        Objective(replace(e, sample_weight=s), LogLoss(), ConcaveQuadratic(0.05))
        for s in (None, np.full(e.n_rows, 1e308))
    )
    assert huge.value(w) == pytest.approx(plain.value(w), rel=1e-12)


def test_integer_sample_weight_is_repeating_rows():
    e = evidence()
    counts = np.random.default_rng(3).integers(0, 4, e.n_rows)
    weighted = OOBEvidence(
        e.votes, e.oob_mask, e.target, e.task, counts.astype(float), classes=e.classes
    )
    repeated = e.take(np.repeat(np.arange(e.n_rows), counts))
    w = interior_point(e.n_members)
    left, right = (
        Objective(x, LogLoss(), ConcaveQuadratic(0.05), prior_mass=0.02)
        for x in (weighted, repeated)
    )
    assert left.value(w) == pytest.approx(right.value(w), rel=1e-12)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
def test_blocks_do_not_matter(loss, monkeypatch):
    whole = objective(loss)
    w = interior_point(whole.n_members)
    n_blocks = len(list(whole._parts.block._cut()))
    monkeypatch.setattr(arrays, "CPU_BLOCK_ENTRIES", 7 * whole.n_members)
    cut = objective(loss)
    assert len(list(cut._parts.block._cut())) > n_blocks
    assert cut.value(w) == pytest.approx(whole.value(w), rel=1e-13)
    np.testing.assert_allclose(cut.gradient(w), whole.gradient(w), rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
def test_restriction_is_the_same_function_on_a_face(loss):
    f = objective(loss)
    face = np.array([1, 4, 7])
    w = np.zeros(f.n_members)
    w[face] = interior_point(3)
    restricted = f.restrict(face)
    assert restricted.value(w[face]) == pytest.approx(f.value(w), rel=1e-12)
    np.testing.assert_allclose(restricted.gradient(w[face]), f.gradient(w)[face], rtol=1e-10)


def test_sparse_class_votes_equal_dense_ones():
    e = evidence("brier")
    sparse = OOBEvidence(
        e.votes,
        e.oob_mask,
        e.target,
        e.task,
        classes=e.classes,
        class_votes=tuple(sp.csr_array(v) for v in e.class_votes),
    )
    w = interior_point(e.n_members)
    dense_f, sparse_f = (
        Objective(x, Brier(), ConcaveQuadratic(0.05), floor=1e-3, prior_mass=0.02)
        for x in (e, sparse)
    )
    assert sparse_f.value(w) == pytest.approx(dense_f.value(w), rel=1e-12)
    np.testing.assert_allclose(sparse_f.gradient(w), dense_f.gradient(w), rtol=1e-10)
    np.testing.assert_allclose(sparse_f.hessian(w), dense_f.hessian(w), rtol=1e-9, atol=1e-12)


def test_binary_brier_needs_the_true_class_only():
    two = objective("brier", n_classes=2, floor=0.0, prior_mass=0.0, holdout=True, lam=0.0)
    w = interior_point(two.n_members)
    p = two.evidence.votes @ w
    assert two.value(w) == pytest.approx(np.mean(2 * (1 - p) ** 2), rel=1e-12)


def test_multiclass_brier_without_class_votes_says_what_to_do():
    e = evidence("log_loss", n_classes=3)
    with pytest.raises(ValueError, match=r"reads every class.*every_class=True"):
        Objective(e, Brier(), ConcaveQuadratic(0.0))


def test_no_row_with_weight_is_an_error():
    e = evidence(n_rows=20)
    nothing = OOBEvidence(e.votes, np.zeros_like(e.oob_mask), e.target, e.task, classes=e.classes)
    with pytest.raises(ValueError, match="out of bag for any member"):
        Objective(nothing, LogLoss(), ConcaveQuadratic(0.0))


@pytest.mark.parametrize("floor", [-0.1, 1.0])
def test_bad_floor(floor):
    with pytest.raises(ValueError, match="floor must be at least 0 and below 1"):
        objective(floor=floor)


@pytest.mark.parametrize("prior_mass", [-0.1, np.nan, np.inf])
def test_bad_prior_mass(prior_mass):
    with pytest.raises(ValueError, match="prior_mass must be a finite number"):
        objective(prior_mass=prior_mass)


@pytest.mark.parametrize("lam", [-1.0, np.nan, np.inf])
def test_bad_lam(lam):
    with pytest.raises(ValueError, match="lam must be a finite number that is not negative"):
        ConcaveQuadratic(lam)


def test_resolve_loss_errors():
    with pytest.raises(ValueError, match=r"loss='hinge' is not known; use 'auto' or one of"):
        resolve_loss("hinge", "classification")
    with pytest.raises(ValueError, match=r"'squared_error' does not fit classification"):
        resolve_loss("squared_error", "classification")
    with pytest.raises(ValueError, match=r"'log_loss' does not fit regression"):
        resolve_loss("log_loss", "regression")
    with pytest.raises(TypeError, match="loss must be a name or an object"):
        resolve_loss(3, "regression")
    assert resolve_loss("auto", "classification") is LOSSES["log_loss"]


@dataclass(frozen=True)
class Watched(LogLoss):
    """Log-loss that notes the precision of the matrices it is given."""

    seen: set = field(default_factory=set)

    def value(self, p, target):
        self.seen.add(p.dtype)
        assert target.dtype == p.dtype
        return super().value(p, target)


@pytest.mark.parametrize("holdout", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_matrices_stay_in_the_evidences_precision(dtype, holdout):
    e = evidence("log_loss", holdout=holdout)
    e = replace(e, votes=e.votes.astype(dtype))
    watched = Watched()
    ours = Objective(e, watched, ConcaveQuadratic(0.0))
    won = ours.rows_won()
    assert watched.seen == {np.dtype(dtype)}
    assert won.sum() == e.n_rows
    assert ours.restrict(np.array([0, 2])).evidence.votes.dtype == dtype
    assert ours.gradient(ours.uniform_weights()).dtype == np.float64  # one number a member


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("solver", ["active_set", "projected_gradient"])
def test_single_precision_reaches_the_products_as_it_came(masked, solver, monkeypatch):
    precisions = set()

    def watched(votes, mask, xp, dtype):
        precisions.update({np.dtype(dtype), *(v.dtype for v in votes)})
        return make_passes(votes, mask, xp, dtype)

    monkeypatch.setattr(passes, "make_passes", watched)
    rng = np.random.default_rng(0)
    votes, mask = rng.random((400, 9), dtype=np.float32), rng.random((400, 9)) < 0.6
    mask[:, 0] = True
    sb.fit_weights(votes, mask if masked else None, np.arange(400) % 2, solver=solver)
    assert precisions == {np.dtype(np.float32)}
