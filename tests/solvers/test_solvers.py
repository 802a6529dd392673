"""Solvers × problems, judged on objective and gap, never on the minimiser."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info

import sparsebag as sb
from problems import LOSSES, evidence, objective, objective_on
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.objective.losses import Brier, SquaredError
from sparsebag.objective.objective import Objective
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.auto import SOLVERS, resolve_solver, select_solver
from sparsebag.solvers.base import Status, check_compatible, drop_small_weights, judged
from sparsebag.solvers.newton import LARGEST_FACE
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.simplex import project_to_simplex, simplex_qp, stationarity_gap
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
    reference = SLSQP(ftol=1e-12, max_iter=1000).solve(f)
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


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_progress_goes_to_standard_error(name, capsys):
    f = objective()
    SOLVERS[name](verbose=2).solve(f)
    out, err = capsys.readouterr()
    assert out == ""
    assert f"[{name}]" in err
    assert "gap" in err


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


def test_slsqp_is_scipys_own():
    """What others are measured against stays what it was."""
    f = objective(n_members=60, n_rows=300)
    ones = np.ones(60)
    result = minimize(
        f.value_and_gradient,
        f.uniform_weights(),
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * 60,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1.0, "jac": lambda w: ones},
        options={"ftol": 1e-6, "maxiter": 100},
    )
    solution = SLSQP().solve(f)
    clipped = np.clip(result.x, 0.0, None)
    assert np.array_equal(solution.weights, clipped / clipped.sum())
    assert solution.n_iterations == result.nit
    assert solution.n_evaluations == result.nfev + 1


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


vectors = arrays(np.float64, st.integers(1, 40), elements=st.floats(-1e3, 1e3))


@given(vectors, st.integers(0, 100))
def test_projection_is_the_nearest_point_of_the_simplex(v, seed):
    """v - P(v) makes no acute angle with any feasible direction; points of the simplex stay."""
    w = project_to_simplex(v)
    assert w.min() >= 0
    assert w.sum() == pytest.approx(1.0, abs=1e-12)
    other = np.random.default_rng(seed).dirichlet(np.ones(len(v)))
    assert (v - w) @ (other - w) <= 1e-9 * (1 + np.abs(v).max())
    np.testing.assert_allclose(project_to_simplex(other), other, atol=1e-12)


@given(vectors, st.integers(0, 100))
def test_gap_is_the_best_vertex_and_never_negative(g, seed):
    w = np.random.default_rng(seed).dirichlet(np.ones(len(g)))
    best = max(g @ (w - vertex) for vertex in np.eye(len(g)))
    assert stationarity_gap(w, g) == pytest.approx(best, abs=1e-8)
    assert stationarity_gap(w, g) >= 0


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


@pytest.mark.parametrize(("n_rows", "n_members", "seed"), [(1295, 50, 7), (3199, 65, 0)])
def test_the_default_converges_in_memory_and_streamed(n_rows, n_members, seed):
    votes, mask, target = rows_of(n_rows, n_members, seed)
    settings = {"lam": 0.02, "loss": "squared_error"}
    here = sb.fit_weights(votes, mask, target, **settings)
    assert here.status.name == "CONVERGED"
    assert here.n_evaluations < 100
    streamed = sb.fit_weights(
        sb.stream_rows(votes, mask, target, task="regression"), memory_limit=1 << 20, **settings
    )
    assert streamed.status.name == "CONVERGED"
    assert streamed.objective == pytest.approx(here.objective, rel=1e-6)
    assert np.abs(streamed.weights - here.weights).max() < 1e-6


@pytest.mark.parametrize("lam", [0.0, 0.02])
@pytest.mark.parametrize("loss", [SquaredError(), Brier()])
def test_active_set_ends_at_the_minimum_without_a_mask(loss, lam):
    if loss.name == "brier":
        rng = np.random.default_rng(3)
        votes = (rng.random((2500, 40)) * np.linspace(0.5, 1, 40)).astype(np.float32)
        evidence = from_predictions(
            votes, None, rng.integers(0, 2, 2500), task="classification", every_class=True
        )
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
