"""Newton steps end a descent: the same weights however rows come, no harm on hostile ones."""

import itertools

import numpy as np
import pytest

import sparsebag as sb
from problems import objective_on, streamed
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import Brier, LogLoss, SquaredError
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.solvers import newton
from sparsebag.solvers.base import Point, SolveLog
from sparsebag.solvers.mirror import Mirror
from sparsebag.solvers.projected_gradient import ProjectedGradient


def assert_on_the_simplex(weights):
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)


def flat_objective(order=slice(None), lam=0.01):
    """Members that differ little: a gap of 1e-5 leaves their weights' fifth digit open."""
    rng = np.random.default_rng(3)
    mask = rng.random((6000, 40)) < 0.37
    logit = 1.5 * rng.standard_normal((6000, 40)) + rng.normal(1.0, 0.3, 40)
    logit += 1.5 * rng.standard_normal((6000, 1))
    votes = np.where(mask, 1 / (1 + np.exp(-logit)), 0).astype(np.float32)
    target = np.arange(6000) % 2
    e = OOBEvidence(
        votes[order], mask[order], target[order], "classification", classes=np.arange(2)
    )
    return objective_on(e, lam=lam)


@pytest.mark.parametrize("lam", [0.0, 0.01])
def test_weights_do_not_depend_on_the_order_of_the_rows_nor_on_blocks(lam):
    order = np.random.default_rng(0).permutation(6000)
    given, shuffled = flat_objective(lam=lam), flat_objective(order, lam)
    one, other = (ProjectedGradient().solve(f) for f in (given, shuffled))
    assert np.array_equal(one.active, other.active)
    assert np.abs(one.weights - other.weights).max() < 1e-6
    loose = [ProjectedGradient(newton_end=False).solve(f) for f in (given, shuffled)]
    assert one.objective <= loose[0].objective + given.rounding
    assert one.stationarity_gap < loose[0].stationarity_gap
    f, e = given, given.evidence
    # A quarter of the memory holds half the columns: the sample is small, the polish exact.
    stream = streamed(f, memory=2 * e.nbytes, block_rows=500)
    found = Mirror(sample_bytes=e.nbytes // 4).solve(stream)
    assert found.status.success
    assert stream.n_passes <= 6
    assert np.abs(found.weights - one.weights).max() < 1e-6
    value, gradient = f.value_and_gradient(found.weights)
    assert found.objective == pytest.approx(value, abs=1e-6)
    # Whether a pass or the sample had the last word, the gap told is the true one.
    gap = float(found.weights @ gradient - gradient.min())
    assert gap <= f.goal(1e-5)


@pytest.mark.parametrize("solver", [ProjectedGradient(), Mirror()])
@pytest.mark.parametrize("lam", [0.0, 0.01])
def test_weights_are_those_in_memory_where_no_column_fits(lam, solver):
    f = flat_objective(lam=lam)
    e = f.evidence
    stream = streamed(f, memory=e.nbytes, block_rows=500)
    assert not stream.can_hold(12)  # some twenty keep weight
    found = solver.solve(stream)
    here = ProjectedGradient().solve(f)
    assert found.status.success
    assert np.abs(found.weights - here.weights).max() < 1e-6
    if lam > 0.0 and solver == ProjectedGradient():
        streams = [streamed(f, memory=e.nbytes, block_rows=500) for _ in range(2)]
        for stream, has_end in zip(streams, (False, True), strict=True):
            found = ProjectedGradient(newton_end=has_end).solve(stream)
            assert found.n_evaluations == stream.n_passes
        # The end takes a Hessian and two or three passes.
        assert 3 <= streams[1].n_passes - streams[0].n_passes <= 4


@pytest.mark.parametrize("seed", [900, 902, 905])
@pytest.mark.parametrize("loss", ["log_loss", "brier"])
def test_weights_in_single_precision_are_those_of_double_precision(loss, seed):
    """Long sums of float32 cost the sixth digit on PyTorch, and of sparse votes in memory."""
    torch = pytest.importorskip("torch", reason="torch is not installed (make test-all)")
    rng = np.random.default_rng(seed)
    mask, y = rng.random((3000, 40)) < 0.37, rng.integers(0, 3, 3000)
    votes = rng.dirichlet(np.ones(3), size=mask.shape) * np.linspace(0.2, 0.6, 40)[:, None]
    votes[np.arange(3000), :, y] += 1 - votes.sum(axis=2)
    if loss == "log_loss":
        votes = rng.beta(4 * np.linspace(0.5, 1.1, 40), 2, size=mask.shape)
    votes = votes.astype(np.float32)
    exact = sb.fit_weights(votes.astype(np.float64), mask, y, loss=loss).weights
    here = sb.fit_weights(votes, mask, y, loss=loss).weights
    tensors = (torch.asarray(values) for values in (votes, mask, y))
    there = sb.fit_weights(*tensors, loss=loss).weights.numpy()
    stream = sb.stream_rows(votes, mask, y, every_class=loss == "brier")
    streamed = sb.fit_weights(stream, loss=loss, memory_limit=1 << 21).weights
    for found in (here, there):
        assert np.abs(found - exact).max() < 3e-7
    assert np.abs(streamed - exact).max() < 1e-6  # a pass is not made for the seventh digit


FAMILIES = {
    "copies": lambda base, rng: np.repeat(base[:, :1], base.shape[1], axis=1),
    "copies to 1e-7": lambda base, rng: base[:, :1] * (1 + 1e-7 * rng.normal(size=base.shape[1])),
    "copies and one worse": lambda base, rng: np.concatenate(
        [np.repeat(base[:, :1], base.shape[1] - 1, axis=1), 0.5 * base[:, :1]], axis=1
    ),
    "two groups": lambda base, rng: base[:, np.arange(base.shape[1]) % 2 % base.shape[1]],
    "constant": lambda base, rng: np.full(base.shape, 0.7),
    "a constant each": lambda base, rng: np.zeros(base.shape) + np.linspace(0.3, 0.9, len(base.T)),
    "hard": lambda base, rng: np.where(base > 0.5, 1.0, 0.0),
    "perfect but for a row": lambda base, rng: np.where(base == base[0], 0.5, 1.0),
    "different": lambda base, rng: base,
}
LIKE_ONE = ("copies", "copies to 1e-7", "constant", "perfect but for a row")
"""Families whose members cannot be told apart, not even those alike to 1e-7, but in doubles."""


def hostile(family, seed, loss, dtype, n_members=None):
    """An objective of members of one family, without penalty."""
    rng = np.random.default_rng(seed)
    n_rows = int(rng.choice([30, 300, 1500]))
    n_members = n_members or int(rng.choice([1, 2, 3, 10, 40]))
    votes = FAMILIES[family](rng.beta(4, 2, (n_rows, n_members)), rng)
    is_regression = loss.channel == "prediction"
    target = rng.normal(size=n_rows) if is_regression else rng.integers(0, 2, n_rows)
    if is_regression:
        # Squares of float32 end at 1e38; half precision ends at 65504.
        unit = 1.0 if dtype == np.float16 else float(rng.choice([1e-12, 1.0, 1e12]))
        votes, target = unit * votes, unit * target
    mask = rng.random(votes.shape) < 0.37 if rng.random() < 0.7 else None
    if mask is not None:
        mask[0] = True  # a row of weight, whatever was drawn
        votes = np.where(mask, votes, 0.0)
    weight = None
    if rng.random() < 0.4:
        weight = rng.choice([0.0, 1e-12, 1.0, 1e12], n_rows)
        weight[0] = 1.0
    task, classes = ("regression", None) if is_regression else ("classification", np.arange(2))
    e = OOBEvidence(votes.astype(dtype), mask, target, task, weight, classes=classes)
    return objective_on(e, loss, lam=0.0, floor=0.0 if is_regression else 1e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("loss", [LogLoss(), Brier(), SquaredError()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_end_is_finite_no_worse_and_no_less_sparse(family, loss, dtype):
    for seed, lam in itertools.product(range(4), (0.0, 0.02)):
        f = hostile(family, seed, loss, dtype)
        f = f.with_penalty(ConcaveQuadratic(lam * f.scale))
        without = ProjectedGradient(newton_end=False).solve(f)
        found = ProjectedGradient().solve(f)
        weights = found.weights
        assert_on_the_simplex(weights)
        assert found.objective <= without.objective + f.rounding
        assert found.status is without.status
        if family in LIKE_ONE and (dtype != np.float64 or family != "copies to 1e-7"):
            assert found.n_active <= without.n_active
        small = weights[weights > 0]
        assert (small > 1e-12).all(), "a zero that is not exact"


@pytest.mark.parametrize(("rows", "prior_mass"), [(slice(None), 0.0), (slice(40), 0.02)])
def test_a_loss_that_jumps_and_members_too_many_are_left_as_they_are(rows, prior_mass, monkeypatch):
    monkeypatch.setattr(newton, "LARGEST_FACE", 300 if prior_mass == 0.0 else 5)
    f = flat_objective(rows).with_prior_mass(prior_mass)
    log = SolveLog("")
    point = Point.at(f, f.uniform_weights(), log)
    assert newton.newton_end(f, point, log, np.inf) is point
    assert log.n_evaluations == 1


class Bent:
    """An objective whose Hessian is whatever the test says."""

    def __init__(self, f, hessian):
        self.f, self.given = f, hessian

    def __getattr__(self, name):
        return getattr(self.f, name)

    def restrict(self, face):
        return Bent(self.f.restrict(face), self.given[np.ix_(face, face)])

    def hessian(self, weights):
        return self.given


@pytest.mark.parametrize("scale", [0.0, 1e-320, 1e-160, 1e150, 1e308, np.inf, np.nan])
@pytest.mark.parametrize("shape", ["zero rank", "rank one", "negative", "random"])
def test_any_hessian_leaves_a_point_that_is_no_worse(scale, shape):
    f = hostile("different", 3, LogLoss(), np.float32, n_members=6)
    a = np.random.default_rng(0).normal(size=(6, 6))
    unit = {"zero rank": 0 * a, "rank one": np.outer(a[0], a[0]), "negative": -a @ a.T}
    with np.errstate(all="ignore"):
        hessian = scale * unit.get(shape, a + a.T)
    start = Point.at(f, np.full(6, 1 / 6), SolveLog(""))
    ended = newton.newton_end(Bent(f, hessian), start, SolveLog(""), np.inf)
    assert_on_the_simplex(ended.weights)
    assert ended.value <= start.value + f.rounding


@pytest.mark.parametrize("seed", range(6))
def test_copies_end_as_one_member_by_every_solver(seed):
    for solver in (ProjectedGradient(), Mirror()):
        found = solver.solve(hostile("copies", seed, LogLoss(), np.float32, n_members=20))
        assert found.status.success
        assert found.n_active == 1
