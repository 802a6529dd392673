"""Newton steps at the end of a descent, on evidence where they have nothing to go by."""

import itertools

import numpy as np
import pytest

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import Brier, LogLoss, SquaredError
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.solvers.base import Point, SolveLog
from sparsebag.solvers.mirror import Mirror
from sparsebag.solvers.newton import newton_end
from sparsebag.solvers.projected_gradient import ProjectedGradient

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
    kind = {"task": "regression"} if is_regression else {"task": "classification"}
    if not is_regression:
        kind["classes"] = np.arange(2)
    e = OOBEvidence(votes.astype(dtype), mask, target, sample_weight=weight, **kind)
    floor = 0.0 if is_regression else 1e-3
    return Objective(e, loss, ConcaveQuadratic(0.0), floor=floor, prior_mass=0.02)


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
        assert np.isfinite(weights).all()
        assert (weights >= 0).all()
        assert weights.sum() == pytest.approx(1.0, abs=1e-12)
        assert found.objective <= without.objective + f.rounding
        assert found.status is without.status
        if family in LIKE_ONE and (dtype != np.float64 or family != "copies to 1e-7"):
            assert found.n_active <= without.n_active
        small = weights[weights > 0]
        assert (small > 1e-12).all(), "a zero that is not exact"


@pytest.mark.parametrize("seed", range(6))
def test_copies_end_as_one_member_by_every_solver(seed):
    for solver in (ProjectedGradient(), Mirror()):
        found = solver.solve(hostile("copies", seed, LogLoss(), np.float32, n_members=20))
        assert found.status.success
        assert found.n_active == 1


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
    rng = np.random.default_rng(0)
    a = rng.normal(size=(6, 6))
    unit = {"zero rank": 0 * a, "rank one": np.outer(a[0], a[0]), "negative": -a @ a.T}
    with np.errstate(all="ignore"):
        hessian = scale * unit.get(shape, a + a.T)
    start = Point.at(f, np.full(6, 1 / 6), SolveLog(""))
    ended = newton_end(Bent(f, hessian), start, SolveLog(""), np.inf)
    assert np.isfinite(ended.weights).all()
    assert ended.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (ended.weights >= 0).all()
    assert ended.value <= start.value + f.rounding
