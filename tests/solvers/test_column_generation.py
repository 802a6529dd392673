"""SLSQP on working sets: thousands of members, here tens with the threshold lowered."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from problems import LOSSES, evidence, interior_point, objective
from sparsebag.evidence.array_rows import ArrayRows
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.objective.stream_objective import StreamObjective
from sparsebag.solvers import column_generation, slsqp
from sparsebag.solvers.base import Status, Watch
from sparsebag.solvers.column_generation import part_of_dense, working_set
from sparsebag.solvers.point import Point
from sparsebag.solvers.projected_gradient import ProjectedGradient
from sparsebag.solvers.slsqp import SLSQP

N_MEMBERS = 80


def on_the_simplex(weights):
    return weights.min() >= 0 and weights.sum() == pytest.approx(1.0, abs=1e-12)


def starts(n_members=N_MEMBERS):
    few = np.where(np.arange(n_members) < 8, 0.125, 0.0)
    return {
        "centre": None,
        "dense": interior_point(n_members, seed=900),
        "vertex": np.eye(n_members)[3],
        "few": few,
    }


@pytest.fixture
def sizes_seen(monkeypatch):
    """How many members SciPy saw in each round."""
    seen = []
    original = slsqp.scipy_slsqp

    def watched(part, *args, **settings):
        seen.append(part.n_members)
        return original(part, *args, **settings)

    monkeypatch.setattr(slsqp, "scipy_slsqp", watched)
    return seen


@pytest.fixture
def set_sizes(sizes_seen, monkeypatch):
    """Sets of ten from thirty members on; how many SciPy saw in each round."""
    monkeypatch.setattr(slsqp, "MOST_MEMBERS", 30)
    monkeypatch.setattr(column_generation, "WORKING_SET", 10)
    monkeypatch.setattr(column_generation, "LEAST_SET", 5)
    return sizes_seen


@pytest.mark.parametrize("start", starts())
@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_it_ends_where_other_solvers_do(loss, start, set_sizes):
    f = objective(loss, lam=0.0, n_members=N_MEMBERS, n_rows=400, seed=900)
    exact = ProjectedGradient(tol=1e-8).solve(f)
    solution = SLSQP(max_iter=1000).solve(f, starts()[start])
    assert len(set_sizes) > 1
    assert max(set_sizes) < N_MEMBERS
    assert solution.status is Status.OWN_TEST
    assert on_the_simplex(solution.weights)
    assert solution.objective <= exact.objective + 5e-6  # a few times ftol
    assert solution.stationarity_gap <= 5e-3
    assert solution.objective == pytest.approx(f.value(solution.weights), abs=1e-12)


def test_of_ten_thousand_members_scipy_sees_a_few_hundred(sizes_seen):
    f = objective(lam=0.0, n_rows=200, n_members=10_000, n_classes=2, seed=900)
    solution = SLSQP().solve(f)
    assert max(sizes_seen) <= 300
    assert solution.status is Status.OWN_TEST
    assert solution.objective <= ProjectedGradient().solve(f).objective + 5e-6
    assert solution.stationarity_gap <= 1e-3


def test_up_to_the_threshold_it_is_scipys_own(monkeypatch):
    assert slsqp.MOST_MEMBERS == 2000  # what others are measured against stays what it was
    monkeypatch.setattr(slsqp, "MOST_MEMBERS", 60)
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


@pytest.mark.parametrize("start", starts())
@pytest.mark.parametrize("prior_mass", [0.0, 0.02])
@pytest.mark.parametrize("lam", [0.05, 0.5, 5.0])
def test_concave_and_ill_posed_objectives_end_no_higher_than_they_start(
    lam, prior_mass, start, set_sizes
):
    """0/1 votes without a floor; without prior mass rows can lose their last voter too."""
    begin = starts()[start]
    for seed, n_rows in itertools.product(range(900, 904), (40, 300)):
        e = evidence(n_members=N_MEMBERS, n_rows=n_rows, seed=seed)
        hard = SimplexObjective(
            replace(e, votes=(e.votes > 0.5) * 1.0),
            LogLoss(),
            ConcaveQuadratic(lam),
            prior_mass=prior_mass,
        )
        solution = SLSQP().solve(hard, begin)
        before = hard.value(hard.uniform_weights() if begin is None else begin)
        assert on_the_simplex(solution.weights)
        assert solution.objective <= before
        assert solution.objective == pytest.approx(hard.value(solution.weights), rel=1e-9)
    assert max(set_sizes) < N_MEMBERS


def test_rows_that_only_newcomers_serve_do_not_stop_it(set_sizes):
    """From a vertex without prior mass: most rows have no vote, and slopes beyond 1e12."""
    f = objective(n_members=N_MEMBERS, n_rows=300, prior_mass=0.0, lam=0.0, seed=900)
    vertex = np.eye(N_MEMBERS)[3]
    solution = SLSQP(max_iter=1000).solve(f, vertex)
    assert solution.objective < f.value(f.uniform_weights()) < f.value(vertex)


def test_a_start_that_is_the_answer_is_left_alone(set_sizes, monkeypatch):
    monkeypatch.setattr(column_generation, "WORKING_SET", 20)  # all that have weight
    f = objective(n_members=N_MEMBERS, n_rows=400, lam=0.0, seed=900)
    done = ProjectedGradient(tol=1e-9).solve(f)
    solution = SLSQP().solve(f, done.weights)
    assert len(set_sizes) == 1
    assert solution.status is Status.OWN_TEST
    assert solution.objective <= done.objective


def test_the_iteration_limit_is_one_over_all_rounds(set_sizes):
    f = objective(n_members=N_MEMBERS, n_rows=400, seed=900)
    unlimited = SLSQP(max_iter=1000).solve(f)
    assert len(set_sizes) > 1
    for max_iter in range(1, unlimited.n_iterations):
        solution = SLSQP(max_iter=max_iter).solve(f)
        assert solution.status is Status.MAX_ITERATIONS
        assert solution.n_iterations == max_iter
        assert on_the_simplex(solution.weights)
        assert unlimited.objective <= solution.objective <= f.value(f.uniform_weights())


@pytest.mark.parametrize("prior_mass", [0.0, 0.02])
def test_an_interrupt_anywhere_keeps_what_was_gained(prior_mass, set_sizes, monkeypatch):
    f = objective(n_members=N_MEMBERS, n_rows=300, prior_mass=prior_mass, seed=900)
    original = SimplexObjective.value_and_gradient
    calls = []

    def watched(self, weights):
        value, gradient = original(self, weights)
        calls.append((self.n_members, value))
        return value, gradient

    monkeypatch.setattr(SimplexObjective, "value_and_gradient", watched)
    SLSQP().solve(f)
    passes = [number for number, (n, _) in enumerate(calls) if n == N_MEMBERS]
    assert len(passes) > 2
    values = [value for _, value in calls]
    some = np.linspace(1, len(values) - 1, 20).astype(int)
    for when in sorted({*some.tolist(), *passes[1:]}):
        count = itertools.count()

        def interrupted(self, weights, when=when, count=count):
            if next(count) == when:
                raise KeyboardInterrupt
            return original(self, weights)

        monkeypatch.setattr(SimplexObjective, "value_and_gradient", interrupted)
        try:
            solution = SLSQP().solve(f)
        except KeyboardInterrupt:  # would end the whole test session
            pytest.fail(f"Ctrl-C at evaluation {when} escapes")
        assert solution.status is Status.INTERRUPTED
        assert on_the_simplex(solution.weights)
        assert len(solution.weights) == N_MEMBERS
        seen_by_all = min(values[p] for p in passes if p < when)
        assert solution.objective <= seen_by_all + 1e-12
        if when in passes:  # the round's own gain is not lost with the pass that was to see it
            assert solution.objective == values[when]


@pytest.mark.parametrize(("memory_limit", "first"), [(1 << 30, 10), (100_000, 5), (1000, 10)])
def test_streamed_rows_end_where_rows_in_memory_do(memory_limit, first, set_sizes):
    """A set is held in memory, half of it where ten do not fit, and read where five do not."""
    f = objective(n_members=N_MEMBERS, n_rows=400, lam=0.0, seed=900)
    e = f.evidence
    rows = ArrayRows(
        e.votes, e.oob_mask, e.target, task="classification", labels=e.classes, block_rows=64
    )
    stream = StreamObjective(
        rows, LogLoss(), f.penalty, floor=1e-3, prior_mass=0.02, memory_limit=memory_limit
    )
    streamed = SLSQP(max_iter=1000).solve(stream)
    assert set_sizes[0] == first
    held = SLSQP(max_iter=1000).solve(f)
    assert streamed.status is Status.OWN_TEST
    assert on_the_simplex(streamed.weights)
    assert streamed.objective == pytest.approx(held.objective, abs=5e-6)


def test_progress_and_counts(set_sizes, capsys):
    f = objective(n_members=N_MEMBERS, n_rows=400, seed=900)
    solution = SLSQP(verbose=2).solve(f)
    assert "[slsqp] iteration" in capsys.readouterr().err
    assert solution.n_iterations < solution.n_evaluations
    assert solution.nbytes_read < solution.n_evaluations * f.nbytes_per_pass
    assert solution.trace


def test_members_that_ask_alike_are_let_in_all_the_same():
    weights = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    point = Point(weights, 0.0, np.array([1.0, 0.5, 0.5, 0.5, 2.0]))
    assert working_set(point, 3).tolist() == [0, 1, 2]
    assert working_set(point, 10).tolist() == [0, 1, 2, 3]


def test_a_dense_start_begins_with_its_heaviest_and_its_loudest():
    f = objective(n_members=6)
    weights = np.array([0.3, 0.3, 0.1, 0.1, 0.1, 0.1])
    slopes = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 6.0])
    part = part_of_dense(f, Point(weights, 0.0, slopes), 4)
    assert part.weights == pytest.approx(np.array([0.375, 0.375, 0.0, 0.125, 0.125, 0.0]))
    centre = Point.at(f, f.uniform_weights(), Watch("slsqp"))
    loudest = np.sort(np.argsort(centre.gradient)[:4])
    assert np.flatnonzero(part_of_dense(f, centre, 4).weights).tolist() == loudest.tolist()


@pytest.mark.parametrize("n_begun", [4, 7, 25])
def test_a_start_is_cut_to_the_set_that_memory_allows(set_sizes, n_begun, monkeypatch):
    monkeypatch.setattr(column_generation, "_set_size", lambda objective: 5)  # of ten
    begin = np.where(np.arange(N_MEMBERS) < n_begun, 1.0 / n_begun, 0.0)
    f = objective(lam=0.0, n_members=N_MEMBERS, n_rows=400, seed=900)
    found = SLSQP(max_iter=5).solve(f, begin)
    assert set_sizes[0] <= 5
    assert on_the_simplex(found.weights)


def test_progress_counts_forwards(set_sizes, capsys):
    found = SLSQP(verbose=2).solve(objective(lam=0.0, n_members=N_MEMBERS, n_rows=400, seed=900))
    lines = [line for line in capsys.readouterr().err.splitlines() if "iteration" in line]
    numbers = [int(line.split("iteration")[1].split()[0]) for line in lines]
    assert len(set_sizes) > 1
    assert numbers == list(range(1, len(numbers) + 1))
    assert 0 < found.n_iterations <= len(numbers)
