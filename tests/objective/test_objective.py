"""The objective is its definition, with any array library, and its derivatives are right."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import sparsebag as sb
from problems import LOSSES, evidence, interior_point, objective, objective_on
from sparsebag.evidence import arrays
from sparsebag.solvers.auto import SOLVERS


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
    f = objective_on(e, floor=0.01)
    assert f.value(w) == pytest.approx(naive_value(e, w, 0.05, 0.01, 0.02), rel=1e-12)


@given(scale=st.floats(0.01, 100.0), seed=st.integers(0, 50))
def test_loss_does_not_depend_on_the_weights_scale(scale, seed):
    f = objective(lam=0.0, floor=0.0, prior_mass=0.0, n_rows=40)
    w = interior_point(f.n_members, seed)
    assert f.value(scale * w) == pytest.approx(f.value(w), rel=1e-9)


@pytest.mark.parametrize("loss", ["log_loss", "squared_error", "brier"])
def test_blocks_do_not_matter_and_a_restriction_is_the_same_function(loss, monkeypatch):
    whole = objective(loss)
    w = interior_point(whole.n_members)
    n_blocks = len(list(whole._parts.block._cut()))
    monkeypatch.setattr(arrays, "CPU_BLOCK_ENTRIES", 7 * whole.n_members)
    cut = objective(loss)
    assert len(list(cut._parts.block._cut())) > n_blocks
    assert cut.value(w) == pytest.approx(whole.value(w), rel=1e-13)
    np.testing.assert_allclose(cut.gradient(w), whole.gradient(w), rtol=1e-11, atol=1e-14)
    f, face, w = objective(loss), np.array([1, 4, 7]), np.zeros(whole.n_members)
    w[face] = interior_point(3)
    restricted = f.restrict(face)
    assert restricted.value(w[face]) == pytest.approx(f.value(w), rel=1e-12)
    np.testing.assert_allclose(restricted.gradient(w[face]), f.gradient(w)[face], rtol=1e-10)


def test_sparse_class_votes_equal_dense_ones():
    e = evidence("brier")
    sparse = replace(e, class_votes=tuple(sp.csr_array(v) for v in e.class_votes))
    w = interior_point(e.n_members)
    dense_f, sparse_f = objective_on(e, "brier"), objective_on(sparse, "brier")
    assert sparse_f.value(w) == pytest.approx(dense_f.value(w), rel=1e-12)
    np.testing.assert_allclose(sparse_f.gradient(w), dense_f.gradient(w), rtol=1e-10)
    np.testing.assert_allclose(sparse_f.hessian(w), dense_f.hessian(w), rtol=1e-9, atol=1e-12)


def test_binary_brier_needs_the_true_class_only():
    two = objective("brier", n_classes=2, floor=0.0, prior_mass=0.0, holdout=True, lam=0.0)
    w = interior_point(two.n_members)
    p = two.evidence.votes @ w
    assert two.value(w) == pytest.approx(np.mean(2 * (1 - p) ** 2), rel=1e-12)


STEP = 1e-6


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("floor", [0.0, 1e-3, 0.2])
@pytest.mark.parametrize("prior_mass", [0.0, 0.02])
@pytest.mark.parametrize("holdout", [False, True])
def test_derivatives_are_those_of_finite_differences(
    loss, n_classes, weighted, floor, prior_mass, holdout
):
    how = {"n_classes": n_classes, "weighted": weighted, "holdout": holdout}
    how |= {"floor": floor, "prior_mass": prior_mass}
    f = objective(loss, n_rows=60, n_members=7, **how)
    w, v = interior_point(7), np.random.default_rng(1).normal(size=7)
    value, gradient = f.value_and_gradient(w)
    assert value == pytest.approx(f.value(w), rel=1e-14)
    numeric = [(f.value(w + STEP * e) - f.value(w - STEP * e)) / (2 * STEP) for e in np.eye(7)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-6, atol=1e-8)
    numeric = (f.gradient(w + STEP * v) - f.gradient(w - STEP * v)) / (2 * STEP)
    np.testing.assert_allclose(f.hessian(w) @ v, numeric, rtol=1e-5, atol=1e-6)


@pytest.fixture(params=["array_api_strict", "torch"])
def xp(request):
    return pytest.importorskip(
        request.param, reason=f"{request.param} is not installed (make test-all installs it)"
    )


def to(xp, values):
    return None if values is None else xp.asarray(np.asarray(values))


def moved(xp, e):
    names = ("votes", "oob_mask", "target", "sample_weight")
    planes = None if e.class_votes is None else tuple(to(xp, v) for v in e.class_votes)
    return replace(e, class_votes=planes, **{name: to(xp, getattr(e, name)) for name in names})


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("holdout", [False, True])
def test_objective_equals_numpys(xp, loss, holdout):
    e = evidence(loss, weighted=True, holdout=holdout)
    ours, numpys = objective_on(moved(xp, e), loss), objective_on(e, loss)
    w = interior_point(e.n_members)
    value, gradient = ours.value_and_gradient(to(xp, w))
    assert isinstance(gradient, type(to(xp, w)))
    assert value == pytest.approx(numpys.value(w), rel=1e-12)
    np.testing.assert_allclose(np.asarray(gradient), numpys.gradient(w), rtol=1e-10)
    np.testing.assert_allclose(np.asarray(ours.hessian(to(xp, w))), numpys.hessian(w), rtol=1e-9)


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_runs_on_torch(solver):
    torch = pytest.importorskip("torch", reason="torch is not installed (make test-all)")
    e = evidence(n_members=30, n_rows=300)
    ours, numpys = (SOLVERS[solver]().solve(objective_on(x)) for x in (moved(torch, e), e))
    assert isinstance(ours.weights, torch.Tensor)
    assert ours.objective == pytest.approx(numpys.objective, abs=1e-7)
    kept = [np.flatnonzero(np.asarray(s.weights) > 1e-5).tolist() for s in (ours, numpys)]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("loss", ["log_loss", "squared_error"])
def test_weights_are_fitted_to_tensors_that_carry_gradients(loss):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    numbers = rng.random((60, 5))
    mask = rng.random((60, 5)) < 0.6
    mask[:, 0] = True
    y = (np.arange(60) % 2).astype(float)
    sample_weight = rng.random(60) + 0.5
    start = np.full(5, 0.2)
    given = [torch.tensor(a, requires_grad=True) for a in (numbers, sample_weight, start)]
    target = torch.tensor(y, requires_grad=True)
    plain = sb.fit_weights(numbers, mask, y, loss=loss, sample_weight=sample_weight, start=start)
    how = {"loss": loss, "sample_weight": given[1], "start": given[2]}
    learnt = sb.fit_weights(given[0], torch.tensor(mask), target, **how)
    assert not learnt.weights.requires_grad
    assert given[0].grad is None
    np.testing.assert_allclose(learnt.weights.numpy(), plain.weights, atol=1e-6)


@pytest.mark.parametrize("kind", ["array", "generator"])
def test_streams_take_bfloat16_which_numpy_lacks(kind):
    torch = pytest.importorskip("torch", reason="torch is not installed (make test-all)")
    e = evidence("log_loss", n_rows=600, n_members=30, n_classes=2, dtype=np.float32)
    votes = torch.asarray(e.votes).bfloat16()
    given = (votes, torch.asarray(e.oob_mask), torch.asarray(e.target))
    weight = torch.ones(600).bfloat16()
    if kind == "array":
        got = sb.fit_weights(sb.stream_rows(*given, labels=[0, 1], sample_weight=weight))
    else:
        got = sb.fit_weights(sb.stream_rows(lambda: iter([(*given, weight)]), labels=[0, 1]))
    wide = votes.float().numpy()
    expected = sb.fit_weights(sb.stream_rows(wide, e.oob_mask, e.target, labels=[0, 1]))
    assert got.status.success
    assert got.objective == pytest.approx(expected.objective, abs=1e-6)


@pytest.mark.parametrize("loss", ["log_loss", "brier"])
@pytest.mark.parametrize("divided", [False, True])
def test_every_class_in_bfloat16(loss, divided):
    """Softmax in bfloat16 sums to 1 to within 0.003, divided by its sum in bfloat16 to 0.005."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(900)
    votes = torch.softmax(torch.asarray(rng.normal(size=(500, 10, 5))), -1).bfloat16()
    votes = votes / votes.sum(-1, keepdim=True) if divided else votes
    y = rng.integers(0, 5, 500)
    assert sb.fit_weights(votes, None, torch.asarray(y), loss=loss).status.success
    every_class = loss == "brier"
    stream = sb.stream_rows(votes, None, y, every_class=every_class)
    assert sb.fit_weights(stream, loss=loss).status.success
    with pytest.raises(ValueError, match=r"to within 0.0078125\); some are off by 0.0"):
        sb.fit_weights((1.02 * votes).bfloat16().clip(max=1), None, y, loss=loss)
    with pytest.raises(ValueError, match=r"to within 0.001\); some are off by 0.00"):
        sb.fit_weights(1.001 * votes.float().clip(max=0.999), None, y, loss=loss)
