"""Solvers × problems, judged on objective and gap, never on the minimiser."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from problems import evidence, interior_point, objective
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.active_set import ActiveSet
from sparsebag.solvers.auto import SOLVERS, resolve_solver, select_solver
from sparsebag.solvers.base import (
    Status,
    check_compatible,
    drop_small_weights,
    warn_unless_converged,
)
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.simplex_qp import simplex_qp
from sparsebag.solvers.slsqp import SLSQP

PROBLEMS = list(
    itertools.product(
        ("log_loss", "squared_error", "brier"), (0.0, 0.02), (False, True), (False, True)
    )
)


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


@pytest.mark.parametrize("name", ["active_set", "projected_gradient"])
def test_convex_problems_reach_the_same_minimum_from_anywhere(name):
    f = objective(lam=0.0, prior_mass=0.0, floor=0.0, holdout=True, n_members=40, n_rows=400)
    solver = SOLVERS[name](tol=1e-9)
    values = [solver.solve(f, interior_point(40, seed)).objective for seed in range(5)]
    values.append(solver.solve(f).objective)
    assert np.ptp(values) < 1e-8


def test_active_set_is_monotone():
    f = objective(n_members=40, n_rows=400)
    values = [point.objective for point in ActiveSet().solve(f).trace]
    assert np.all(np.diff(values) <= 1e-12)


def test_solvers_give_exact_zeros():
    f = objective(n_members=60, n_rows=300)
    for name in ("active_set", "projected_gradient"):
        solution = SOLVERS[name]().solve(f)
        assert 1 < solution.n_active < 60
        assert np.array_equal(solution.active, np.flatnonzero(solution.weights))


def test_without_prior_mass_active_set_beats_slsqp_on_most_problems():
    """The paper's problem: 0/1 votes, no floor, rows that can lose their last voter.

    It has many local minima, so no solver wins them all.
    """
    wins = []
    for seed in range(20):
        e = evidence(n_members=25, n_rows=200, seed=seed)
        hard = SimplexObjective(
            replace(e, votes=(e.votes > 0.5) * 1.0), LogLoss(), ConcaveQuadratic(0.05)
        )
        ours, theirs = ActiveSet().solve(hard), SLSQP().solve(hard)
        assert on_the_simplex(ours.weights)
        wins.append(ours.objective <= theirs.objective)
    assert np.mean(wins) >= 0.8


def test_same_start_same_weights():
    f = objective(n_members=30)
    for name in SOLVERS:
        first, again = SOLVERS[name]().solve(f), SOLVERS[name]().solve(f)
        assert np.array_equal(first.weights, again.weights)


def test_given_start_is_used():
    f = objective(n_members=30)
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
        warn_unless_converged(solution)


@pytest.mark.parametrize("name", sorted(SOLVERS))
def test_interrupt_keeps_the_best_weights(name, monkeypatch):
    f = objective(n_members=40, n_rows=300)
    original, calls = SimplexObjective.value_and_gradient, itertools.count()

    def interrupted(self, weights):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return original(self, weights)

    monkeypatch.setattr(SimplexObjective, "value_and_gradient", interrupted)
    solution = SOLVERS[name]().solve(f)
    assert solution.status is Status.INTERRUPTED
    assert on_the_simplex(solution.weights)
    assert solution.objective < f.value(f.uniform_weights())


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
        return np.sqrt((p - target) ** 2 + 0.1)

    def gradient(self, p, target):
        return (p - target) / np.sqrt((p - target) ** 2 + 0.1)


def test_a_solver_that_needs_what_the_objective_lacks():
    e = objective("squared_error").evidence
    f = SimplexObjective(e, FirstOrderOnly(), ConcaveQuadratic(0.01), prior_mass=0.02)
    with pytest.raises(ValueError, match=r"'active_set' needs .* hessian.*'pseudo_huber'"):
        check_compatible(ActiveSet(), f)
    assert select_solver(f).name == "projected_gradient"
    solution = resolve_solver("auto", f).solve(f)
    assert solution.status.success
    assert solution.stationarity_gap < 1e-5


def test_auto_follows_its_rule():
    assert select_solver(objective()).name == "projected_gradient"
    assert select_solver(objective(prior_mass=0.0)).name == "active_set"
    assert select_solver(objective(holdout=True)).name == "active_set"
    for f in (objective(), objective(prior_mass=0.0)):
        choice = select_solver(f)
        assert choice.reason
        assert resolve_solver("auto", f).name == choice.name


def test_unknown_solver():
    f = objective()
    with pytest.raises(ValueError, match=r"solver='adam' is not known; use one of"):
        resolve_solver("adam", f)
    with pytest.raises(TypeError, match="solver must be a name or an object"):
        resolve_solver(3, f)


def test_a_users_solver_object():
    class Stay:
        name = "stay"
        requires = frozenset()

        def solve(self, objective, start=None):
            return ProjectedGradient(max_iter=1).solve(objective, start)

    f = objective()
    assert resolve_solver(Stay(), f).solve(f).n_iterations == 1


def test_drop_small_weights():
    f = objective(n_members=30)
    solution = SLSQP().solve(f)
    dropped = drop_small_weights(solution, f, 1e-5)
    assert on_the_simplex(dropped.weights)
    kept = dropped.weights[dropped.weights > 0]
    assert kept.min() > 1e-5
    assert len(kept) == np.sum(solution.weights > 1e-5)
    assert dropped.objective == f.value(dropped.weights)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(2, 25))
def test_simplex_qp_meets_its_optimality_conditions(seed, n):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n))
    hessian, linear = root @ root.T + 1e-3 * np.eye(n), rng.normal(size=n)
    x = simplex_qp(hessian, linear, rng.dirichlet(np.ones(n)))
    slope = linear + hessian @ x
    assert on_the_simplex(x)
    assert x @ (slope - slope.min()) < 1e-8


def test_no_warning_when_all_is_well():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_converged(ProjectedGradient().solve(objective()))
