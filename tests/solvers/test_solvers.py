"""Solvers × problems, judged on objective and gap; Newton steps at the end do no harm."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

import sparsebag as sb
from problems import LOSSES, evidence, objective, objective_on, streamed
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.objective.losses import Brier, LogLoss, SquaredError
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.auto import SOLVERS, resolve_solver, select_solver
from sparsebag.solvers.base import Status, check_compatible, drop_small_weights, judged
from sparsebag.solvers.mirror import Mirror
from sparsebag.solvers.newton import LARGEST_FACE
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.simplex import simplex_qp
from sparsebag.solvers.slsqp import SLSQP

PROBLEMS = list(itertools.product(sorted(LOSSES), (0.0, 0.02), (False, True), (False, True)))


def on_the_simplex(weights):
    return weights.min() >= 0 and weights.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", sorted(SOLVERS))
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: "-".join(map(str, p)))
def test_every_solver_solves_every_well_posed_problem(name, problem):
    loss, lam, weighted, holdout = problem
    f = objective(loss, lam=lam, weighted=weighted, holdout=holdout, n_rows=300)
    solution = SOLVERS[name]().solve(f)
    assert on_the_simplex(solution.weights)
    assert solution.status.success
    assert solution.objective == pytest.approx(f.value(solution.weights), abs=1e-12)
    assert solution.solver == name
    assert 0 <= solution.stationarity_gap <= (2e-2 if name == "slsqp" else 1e-5) * f.scale
    assert solution.objective <= f.value(f.uniform_weights())
    reference = SLSQP(tol=1e-12, max_iter=1000).solve(f)
    assert solution.objective <= reference.objective + (2e-4 if name == "slsqp" else 1e-6)


def test_solvers_give_exact_zeros():
    f = objective(n_members=60, n_rows=300)
    for name in ("active_set", "projected_gradient"):
        solution = SOLVERS[name]().solve(f)
        assert 1 < solution.n_active < 60
        assert np.array_equal(solution.active, np.flatnonzero(solution.weights))
        for tol in (None, 1e-5):  # weights that are all small are kept
            kept = drop_small_weights(solution, f, 1.0, tol=tol).weights
            assert np.array_equal(kept, solution.weights)
    values = [point.objective for point in ActiveSet().solve(f).trace]
    assert np.all(np.diff(values) <= 1e-12)


@pytest.mark.parametrize("name", ["active_set", "projected_gradient"])
def test_convex_problems_reach_the_same_minimum_from_anywhere(name):
    f = objective(lam=0.0, prior_mass=0.0, floor=0.0, holdout=True, n_members=40, n_rows=400)
    starts = [None, *(np.random.default_rng(s).dirichlet(np.ones(40)) for s in range(5))]
    assert np.ptp([SOLVERS[name](tol=1e-9).solve(f, start).objective for start in starts]) < 1e-8


def test_without_prior_mass_active_set_beats_slsqp_on_most_problems():
    """The paper's problem: 0/1 votes, no floor, rows that can lose their last voter.

    It has many local minima, so no solver wins them all.
    """
    wins = []
    for seed in range(20):
        e = evidence(n_members=25, n_rows=200, seed=seed)
        hard = replace(e, votes=(e.votes > 0.5) * 1.0)
        hard = objective_on(hard, floor=0.0, prior_mass=0.0)
        raw = [solver.solve(hard) for solver in (ActiveSet(), SLSQP())]
        assert raw[0].weights[raw[0].weights > 0].min() > 1e-5  # no dust
        ours, theirs = (drop_small_weights(solution, hard, 1e-5) for solution in raw)
        assert on_the_simplex(ours.weights)
        wins.append(ours.objective <= theirs.objective)
    assert np.mean(wins) >= 0.8


def test_same_start_same_weights_and_a_given_start_is_used():
    f = objective(n_members=30)
    for name in SOLVERS:
        first, again = SOLVERS[name]().solve(f), SOLVERS[name]().solve(f)
        assert np.array_equal(first.weights, again.weights)
    done = ProjectedGradient(tol=1e-8).solve(f)
    for name in ("active_set", "projected_gradient"):
        assert SOLVERS[name]().solve(f, done.weights).n_evaluations <= 3


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_iteration_limit_warns_with_the_gap_and_stays_on_the_simplex(name):
    f = objective(n_members=40, n_rows=300)
    solution = SOLVERS[name](max_iter=1).solve(f)
    assert solution.status is Status.MAX_ITERATIONS
    assert on_the_simplex(solution.weights)
    with pytest.warns(ConvergenceWarning, match=r"iteration limit.*stationarity gap \d"):
        judged(solution, f)


@pytest.mark.parametrize("name", sorted(SOLVERS))
@pytest.mark.parametrize("prior_mass", [0.0, 0.02])
def test_interrupt_anywhere_keeps_usable_weights(name, prior_mass, monkeypatch):
    f = objective(n_members=40, n_rows=300, prior_mass=prior_mass)
    centre = f.value(f.uniform_weights())
    original = Objective.value_and_gradient
    if prior_mass == 0.0 and name == "projected_gradient":
        pytest.skip("not meant for problems without prior mass; it stalls there for minutes")
    count = itertools.count()  # Hessians are passes too, but not interrupted here
    monkeypatch.setattr(Objective, "value_and_gradient", lambda *a: (next(count), original(*a))[1])
    SOLVERS[name]().solve(f)
    total = next(count)
    for when in np.unique(np.linspace(1, total - 2, 12).astype(int)):
        calls = itertools.count()

        def interrupted(self, weights, when=when, calls=calls):
            if next(calls) == when:
                raise KeyboardInterrupt
            return original(self, weights)

        monkeypatch.setattr(Objective, "value_and_gradient", interrupted)
        try:
            solution = SOLVERS[name]().solve(f)
        except KeyboardInterrupt:  # would end the whole test session
            pytest.fail(f"{name} let Ctrl-C at evaluation {when} escape")
        assert solution.status is Status.INTERRUPTED
        assert on_the_simplex(solution.weights)
        assert solution.objective <= centre + 1e-12


class FirstOrderOnly:
    """A user's loss without a second derivative."""

    name = "pseudo_huber"
    channel = "prediction"

    def value(self, p, target):
        return np.sqrt((p - target) ** 2 + 1.0)

    def gradient(self, p, target):
        return (p - target) / np.sqrt((p - target) ** 2 + 1.0)


def test_a_solver_that_needs_what_the_objective_lacks_and_the_rule_of_auto():
    e = objective("squared_error").evidence
    f = objective_on(e, FirstOrderOnly(), lam=0.01, floor=0.0)
    with pytest.raises(ValueError, match=r"'active_set' needs .* hessian.*'pseudo_huber'"):
        check_compatible(ActiveSet(), f)
    assert select_solver(f).name == "projected_gradient"
    solution = resolve_solver("auto", f).solve(f)
    assert solution.status.success
    assert solution.stationarity_gap <= 1e-5 * f.scale
    assert select_solver(objective()).name == "projected_gradient"
    assert select_solver(objective(prior_mass=0.0)).name == "active_set"
    assert select_solver(objective(holdout=True)).name == "active_set"
    for f in (objective(), objective(prior_mass=0.0)):
        choice = select_solver(f)
        assert choice.reason
        assert resolve_solver("auto", f).name == choice.name
    few, many = (objective_of(*rows_of(40, LARGEST_FACE + more, 0)) for more in (0, 1))
    assert [select_solver(g).name for g in (few, many)] == ["active_set", "projected_gradient"]
    solve = lambda objective, start=None: ProjectedGradient(max_iter=1).solve(objective)  # noqa: E731
    own = SimpleNamespace(name="stay", requires=frozenset(), solve=solve)  # a user's object
    assert resolve_solver(own, f).solve(f).n_iterations == 1


@pytest.mark.parametrize("name", ["active_set", "projected_gradient"])
@pytest.mark.parametrize("unit", [1e-9, 1e-4, 1e5, 1e9])
def test_the_targets_unit_does_not_matter(name, unit):
    e = evidence("squared_error", n_members=30, n_rows=300)
    scaled = replace(e, votes=unit * e.votes, target=unit * e.target)
    left, right = (
        SOLVERS[name]().solve(objective_on(x, "squared_error", lam=0.0, floor=0.0))
        for x in (e, scaled)
    )
    assert left.status is right.status is Status.CONVERGED
    assert np.array_equal(left.active, right.active)
    assert right.n_evaluations <= 2 * left.n_evaluations


@pytest.mark.parametrize("name", ["active_set", "projected_gradient"])
@pytest.mark.parametrize("lam", [0.0, 0.05, 0.5])
def test_members_that_cannot_be_told_apart_leave_one(name, lam):
    """The centre is stationary there, and with a concave penalty the worst point of all."""
    e = evidence(n_rows=50, n_members=10)
    same = replace(e, votes=np.full_like(e.votes, 0.7) * e.oob_mask)
    f = objective_on(same, lam=lam, floor=0.0)
    assert SOLVERS[name]().solve(f).n_active == 1


def test_solves_in_several_threads_give_the_blas_threads_back():
    def blas_threads():
        return [p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"]

    before = blas_threads()
    problems = [objective(n_members=30, n_rows=500, seed=seed) for seed in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ProjectedGradient().solve, problems))
    assert blas_threads() == before


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 25))
def test_simplex_qp_meets_its_optimality_conditions(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    hessian, linear = root @ root.T + 1e-3 * np.eye(n), rng.normal(size=n)
    x = simplex_qp(hessian, linear, rng.dirichlet(np.ones(n)))
    slope = linear + hessian @ x
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1.0, abs=1e-12)
    assert x @ (slope - slope.min()) < 1e-8


def rows_of(n_rows, n_members, seed, masked=True):
    rng = np.random.default_rng(seed)
    target = rng.normal(size=n_rows)
    noise = rng.normal(size=(n_rows, n_members)) * np.linspace(0.2, 3, n_members)
    mask = rng.random((n_rows, n_members)) < 0.37
    return (target[:, None] + noise).astype(np.float32), mask if masked else None, target


def objective_of(votes, mask, target, lam=0.02):
    evidence = from_predictions(votes, mask, target, task="regression")
    return objective_on(evidence, "squared_error", lam=lam, floor=0.0)


@pytest.mark.parametrize("lam", [0.0, 0.02])
@pytest.mark.parametrize("loss", [SquaredError(), Brier()])
def test_active_set_ends_at_the_minimum_without_a_mask(loss, lam):
    if loss.name == "brier":
        rng = np.random.default_rng(3)
        votes = (rng.random((2500, 40)) * np.linspace(0.5, 1, 40)).astype(np.float32)
        y, how = rng.integers(0, 2, 2500), {"task": "classification", "every_class": True}
        evidence = from_predictions(votes, None, y, **how)
        f = objective_on(evidence, loss, lam=lam)
    else:
        f = objective_of(*rows_of(2500, 40, 3, masked=False), lam=lam)
    ended = ActiveSet().solve(f)
    exact = ActiveSet(tol=1e-10).solve(f, ended.weights)
    assert ended.status.name == "CONVERGED"
    assert np.abs(ended.weights - exact.weights).max() < 1e-6


def fits_far_from_zero(offset, scale=1.0, dtype=np.float32):
    votes, mask, target = rows_of(3000, 20, 0)
    votes = (votes.astype(np.float64) * scale + offset).astype(dtype)
    target = target * scale + offset
    settings = {"lam": 0.0, "loss": "squared_error"}
    yield lambda: sb.fit_weights(votes, mask, target, **settings)
    yield lambda: sb.fit_weights(sb.stream_rows(votes, mask, target, task="regression"), **settings)


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize("offset", [1e5, 1e6, 1e8])
def test_a_minimum_that_rounding_hides_is_no_success(offset):
    for fit in fits_far_from_zero(offset):
        with pytest.warns(ConvergenceWarning, match="subtract the targets' mean"):
            found = fit()
        assert found.status.name == "STALLED"


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning")
@pytest.mark.parametrize(("offset", "dtype"), [(1e3, np.float32), (1e6, np.float64)])
def test_targets_at_a_bearable_distance_from_zero(offset, dtype):
    near = next(fits_far_from_zero(0.0, dtype=np.float64))()
    for fit in fits_far_from_zero(offset, dtype=dtype):
        found = fit()
        assert found.status.name == "CONVERGED"
        assert found.objective == pytest.approx(near.objective, rel=1e-4)


@pytest.mark.filterwarnings("ignore::sparsebag.UncoveredRowsWarning", "ignore::RuntimeWarning")
def test_huge_targets_are_solved_or_refused_in_a_sentence():
    near = next(fits_far_from_zero(0.0, dtype=np.float64))()
    for fit in fits_far_from_zero(0.0, scale=1e150, dtype=np.float64):
        found = fit()
        assert found.status.name == "CONVERGED"
        assert np.abs(found.weights - near.weights).max() < 1e-6
    for fit in fits_far_from_zero(0.0, scale=1e300, dtype=np.float64):
        with pytest.raises(
            FloatingPointError, match=r"divide targets and predictions|rescale them"
        ):
            fit()


def needed_dust(n_rows=2000):
    """Two members, the second so wild that its best weight is 5e-6; no less will do."""
    rng = np.random.default_rng(0)
    errors = rng.normal(size=(n_rows, 2))
    errors = np.linalg.qr(errors)[0] * np.sqrt(n_rows)  # their products are 1 and 0 exactly
    return errors * [1.0, 447.2], np.zeros(n_rows)


def gap_of(votes, weights):
    vote = votes @ weights
    gradient = 2 * votes.T @ vote / len(votes)
    return weights @ gradient - gradient.min()


REGRESSION = {"loss": "squared_error", "prior_mass": 0.0}


@pytest.mark.parametrize("streamed", [False, True])
def test_a_converged_solve_keeps_the_small_weights_it_needs_and_the_papers_preset_none(streamed):
    votes, y = needed_dust()
    given = (sb.stream_rows(votes, None, y, task="regression"),) if streamed else (votes, None, y)
    solution = sb.fit_weights(*given, **REGRESSION)
    scale = np.mean(votes.mean(axis=1) ** 2)
    assert solution.status is Status.CONVERGED
    assert 1e-6 < solution.weights[1] < 1e-5
    assert solution.stationarity_gap <= 1e-5 * scale
    assert solution.stationarity_gap == pytest.approx(gap_of(votes, solution.weights), abs=1e-6)
    how = {"preset": "paper", "lam": 0.0, "solver": "active_set"}
    solution = sb.fit_weights(*given, **REGRESSION, **how)
    assert solution.weights.tolist() == [1.0, 0.0]
    assert solution.status is Status.OWN_TEST  # it says no more than is true
    assert solution.stationarity_gap == pytest.approx(gap_of(votes, solution.weights), rel=1e-6)


def test_harmless_dust_is_dropped():
    votes, y = needed_dust()
    votes = np.column_stack([votes[:, 0], 1.0 + votes[:, 0], votes[:, 0] + 1e-9])
    how = {"start": np.array([1.0 - 2e-6, 1e-6, 1e-6]), "solver": ActiveSet(tol=1e-2)}
    solution = sb.fit_weights(votes, None, y, **REGRESSION, **how)
    assert solution.status is Status.CONVERGED
    assert solution.weights[solution.weights > 0].min() > 1e-5


def flat_objective(order=slice(None), lam=0.01):
    """Members that differ little: a gap of 1e-5 leaves their weights' fifth digit open."""
    rng = np.random.default_rng(3)
    mask = rng.random((6000, 40)) < 0.37
    logit = 1.5 * rng.standard_normal((6000, 40)) + rng.normal(1.0, 0.3, 40)
    logit += 1.5 * rng.standard_normal((6000, 1))
    votes = np.where(mask, 1 / (1 + np.exp(-logit)), 0).astype(np.float32)
    target = np.arange(6000) % 2
    given, classes = (votes[order], mask[order], target[order]), np.arange(2)
    return objective_on(OOBEvidence(*given, "classification", classes=classes), lam=lam)


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
        unit = float(rng.choice([1e-12, 1.0, 1e12]))  # squares of float32 end at 1e38
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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", [LogLoss(), Brier(), SquaredError()], ids=lambda loss: loss.name)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_end_is_finite_no_worse_and_no_less_sparse(family, loss, dtype):
    for seed, lam in itertools.product(range(4), (0.0, 0.02)):
        f = hostile(family, seed, loss, dtype)
        f = f.with_penalty(ConcaveQuadratic(lam * f.scale))
        without = ProjectedGradient(newton_end=False).solve(f)
        found = ProjectedGradient().solve(f)
        weights = found.weights
        assert on_the_simplex(weights)
        assert found.objective <= without.objective + f.rounding
        assert found.status is without.status
        if family in LIKE_ONE and (dtype != np.float64 or family != "copies to 1e-7"):
            assert found.n_active <= without.n_active
        small = weights[weights > 0]
        assert (small > 1e-12).all(), "a zero that is not exact"
