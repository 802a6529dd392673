"""Rows on a Dask cluster: the same weights as in memory, whatever happens to the workers."""

import os
import signal
import threading
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import sparsebag as sb
from problems import LOSSES, evidence
from sparsebag.cluster_compress import SampledRowsWarning
from sparsebag.evidence import cluster_rows, from_cluster
from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_cluster import whole_groups
from sparsebag.objective.cluster_objective import ClusterObjective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.auto import SOLVERS
from sparsebag.solvers.mirror import Mirror, ProjectedSGD

dask = pytest.importorskip("dask", reason="dask is not installed (pip install 'sparsebag[dask]')")
da = pytest.importorskip("dask.array", reason="dask.array is not installed")

SAME = 1e-6
KEEP = {"oob_score": True, "random_state": 0}


@pytest.fixture(autouse=True)
def _no_cluster():
    with dask.config.set(scheduler="sync"):
        yield


def cut(e, size=256):
    """Evidence in blocks, as a cluster would hold it."""
    parts = [e.take(slice(i, i + size)) for i in range(0, e.n_rows, size)]
    return ClusterBlocks(lambda: [dask.delayed(part, traverse=False) for part in parts])


def both(loss="log_loss", *, prior_mass=0.02, **kind):
    e = evidence(loss, n_rows=700, n_members=25, weighted=True, **kind)
    how = {"floor": 0.0 if loss == "squared_error" else 1e-3, "prior_mass": prior_mass}
    penalty = ConcaveQuadratic(0.01)
    cluster = ClusterObjective(cut(e), LOSSES[loss], penalty, **how)
    return cluster, SimplexObjective(e, LOSSES[loss], penalty, **how)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("holdout", [False, True])
def test_objective_and_derivatives_equal_those_in_memory(loss, holdout):
    cluster, memory = both(loss, holdout=holdout)
    w = np.random.default_rng(0).dirichlet(np.ones(25))
    assert cluster.value(w) == pytest.approx(memory.value(w), rel=1e-12)
    np.testing.assert_allclose(cluster.value_and_gradient(w)[1], memory.gradient(w), rtol=1e-10)
    np.testing.assert_allclose(cluster.rows_won(), memory.rows_won())
    for name in ("scale", "rounding", "is_convex", "is_well_posed", "n_rows", "n_members"):
        assert getattr(cluster, name) == pytest.approx(getattr(memory, name))
    face = np.array([3, 7, 20])
    ours, theirs = cluster.restrict(face), memory.restrict(face)
    v = np.array([0.2, 0.3, 0.5])
    np.testing.assert_allclose(ours.hessian(v), theirs.hessian(v), rtol=1e-8)


def well_conditioned(n_rows=2000, n_members=40):
    """Rows of unequal difficulty. On others hundreds of steps make 1e-4 of a double's rounding."""
    rng = np.random.default_rng(0)
    logit = rng.normal(1.0, 0.3, n_members) + 1.5 * rng.normal(size=(n_rows, 1))
    votes = 1.0 / (1.0 + np.exp(-logit - 1.5 * rng.normal(size=(n_rows, n_members))))
    mask = rng.random((n_rows, n_members)) < 0.37
    return (votes * mask).astype(np.float32), mask, np.arange(n_rows) % 2


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_finds_the_same_weights(solver):
    votes, mask, y = well_conditioned()
    theirs = sb.fit_weights(votes, mask, y, lam=0.01, solver=solver)
    cut_anyhow = da.from_array(votes, chunks=(300, 40)), da.from_array(mask, chunks=(700, 9)), y
    ours = sb.fit_weights(*cut_anyhow, lam=0.01, solver=solver)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=SAME)
    assert ours.status is theirs.status
    # The way is the same. Not its length: sums cut elsewhere differ in their sixteenth digit, which
    # steps as long as the last ones' curvature says double every time.
    begun = slice(8)
    for name in ("objective", "gap"):
        here, there = ([getattr(p, name) for p in s.trace[begun]] for s in (ours, theirs))
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-12)


def chunked(*arrays, rows=512):
    return [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in arrays]


ROW_WEIGHTS = {
    "few": lambda rng, n: (rng.permutation(n) < 60) * 1.0,
    "heavy": lambda rng, n: np.where(rng.random(n) < 2e-2, 1e3, 1.0),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 3.0, n),
}


@pytest.mark.filterwarnings("ignore")  # that a few rows decide is meant here
@pytest.mark.parametrize("solver", [Mirror, ProjectedSGD])
@pytest.mark.parametrize("kind", sorted(ROW_WEIGHTS))
def test_a_sample_between_passes_is_drawn_by_the_rows_weights(kind, solver):
    votes, mask, y = well_conditioned(6000)
    weight = ROW_WEIGHTS[kind](np.random.default_rng(900), len(y))
    how = {"solver": solver(sample_bytes=200_000)}  # a sixth of the rows
    here = sb.fit_weights(votes, mask, y, sample_weight=weight, **how)
    there = sb.fit_weights(*chunked(votes, mask, y), sample_weight=chunked(weight)[0], **how)
    assert there.status.success
    assert there.n_evaluations == here.n_evaluations
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sample_has_the_rows_it_would_have_in_memory(weighted):
    e = evidence("brier", n_rows=700, n_members=25, weighted=weighted)
    mask = e.oob_mask.copy()
    mask[256:512] = False  # a block that says nothing
    mask[:256, 0] = True
    mask[512:, 0] = True
    e = replace(e, oob_mask=mask, votes=e.votes * mask, sample_weight=e.sample_weight)
    how = {"floor": 1e-3, "prior_mass": 0.02}
    cluster = ClusterObjective(cut(e), LOSSES["log_loss"], ConcaveQuadratic(0.01), **how)
    memory = SimplexObjective(e, LOSSES["log_loss"], ConcaveQuadratic(0.01), **how)
    w = np.random.default_rng(0).dirichlet(np.ones(25))
    assert cluster.row_sample(700, 0).value(w) == pytest.approx(memory.value(w), rel=1e-12)
    ours, theirs = cluster.row_sample(200, 0), memory.row_sample(200, 0)
    if not weighted:
        assert ours.value(w) == pytest.approx(theirs.value(w), rel=1e-12)
    assert ours.value(w) == pytest.approx(memory.value(w), rel=0.2)
    face = np.array([3, 7, 20])  # whose rows keep the whole ensemble's vote as a prior
    v = np.array([0.2, 0.3, 0.5])
    ours, theirs = cluster.restrict(face).row_sample(700, 0), memory.restrict(face)
    assert ours.value(v) == pytest.approx(theirs.value(v), rel=1e-12)


@pytest.mark.parametrize("n_rows", [2000, 1900, 1800, 1700])
def test_a_sample_of_all_rows_weighs_them_to_the_last_bit_as_memory(n_rows):
    votes, mask, _ = well_conditioned(n_rows)
    e = OOBEvidence(votes, mask, np.arange(n_rows) % 2, "classification", None, np.arange(2))
    cluster = ClusterObjective(cut(e), LOSSES["log_loss"], ConcaveQuadratic(0.01))
    memory = SimplexObjective(e, LOSSES["log_loss"], ConcaveQuadratic(0.01))
    ours, theirs = (f.row_sample(n_rows, 0).facts.row_weight for f in (cluster, memory))
    np.testing.assert_array_equal(ours, theirs)


def test_blocks_without_information_add_nothing():
    e = evidence(n_rows=768, n_classes=2)
    mask = e.oob_mask.copy()
    mask[256:512] = False
    e = replace(e, oob_mask=mask, votes=e.votes * mask)
    how = {"floor": 1e-3, "prior_mass": 0.02}
    cluster = ClusterObjective(cut(e), LOSSES["log_loss"], ConcaveQuadratic(0.0), **how)
    memory = SimplexObjective(e, LOSSES["log_loss"], ConcaveQuadratic(0.0), **how)
    w = memory.uniform_weights()
    assert cluster.value(w) == pytest.approx(memory.value(w), rel=1e-12)
    assert cluster.survey.n_covered == int(memory.evidence.covered().sum())


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_fit_weights_takes_dask_arrays_cut_anyhow(loss):
    rng = np.random.default_rng(0)
    mask = rng.random((900, 15)) < 0.6
    y = rng.normal(size=900) if loss == "squared_error" else rng.integers(0, 3, 900)
    predictions = rng.dirichlet(np.ones(3), (900, 15)).astype(np.float32)
    if loss == "squared_error":
        predictions = (y[:, None] + rng.normal(size=(900, 15))).astype(np.float32)
    weight = rng.random(900)
    expected = sb.fit_weights(predictions, mask, y, loss=loss, lam=0.01, sample_weight=weight)
    got = sb.fit_weights(
        da.from_array(predictions, chunks=200),
        da.from_array(mask, chunks=(333, 15)),
        da.from_array(y, chunks=450),
        loss=loss,
        lam=0.01,
        sample_weight=weight,
    )
    np.testing.assert_allclose(got.weights, expected.weights, atol=SAME)
    assert got.objective == pytest.approx(expected.objective, abs=float(np.finfo(np.float32).eps))


def forest_problem(n_rows=600, n_trees=20):
    X, y = make_classification(n_rows, 8, n_informative=5, n_classes=3, random_state=0)
    X = X.astype(np.float32)
    forest = RandomForestClassifier(n_trees, min_samples_leaf=3, random_state=0).fit(X, y)
    return forest, X, y, da.from_array(X, chunks=(150, 4)), da.from_array(y, chunks=200)


def bag_problem(kind="classifier"):
    if kind == "classifier":
        X, y = make_classification(600, 8, n_informative=5, n_classes=3, random_state=0)
        bag = BaggingClassifier(LogisticRegression(), 20, max_features=0.7, **KEEP).fit(X, y)
    else:
        X, y = make_regression(600, 8, noise=20.0, random_state=0)
        bag = BaggingRegressor(Ridge(), 20, max_features=0.7, **KEEP).fit(X, y)
    return bag, X, y, da.from_array(X, chunks=(150, 4)), da.from_array(y, chunks=200)


@pytest.mark.parametrize(
    ("how", "n_rows"),
    [
        ({"preset": "paper"}, 600),
        ({"lam": 0.01, "refine": None, "calibration": None}, 3000),
        ({"max_estimators": 8}, 600),
        ({"max_estimators": 8, "refine": None}, 600),
    ],
)
def test_compress_gives_the_same_ensemble(how, n_rows):
    forest, X, y, dX, dy = forest_problem(n_rows, 30)
    here, there = sb.compress(forest, X, y, **how), sb.compress(forest, dX, dy, **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-5)
    assert there.verified_by_ == "leaf counts"


def test_what_needs_rows_side_by_side_gets_a_stated_sample():
    forest, X, _, dX, dy = forest_problem()
    with (
        dask.config.set({"sparsebag.rows-in-memory": 300}),
        pytest.warns(SampledRowsWarning, match="random sample of 300 of 600 rows"),
    ):
        found = sb.compress(forest, dX, dy, max_estimators=8)
    assert found.n_active_ <= 8
    assert found.predict_proba(X).shape == (600, 3)


def test_held_out_rows_and_members_that_are_no_trees():
    X, y = make_regression(500, 6, noise=20.0, random_state=0)
    bag = BaggingRegressor(Ridge(), 12, max_features=0.5, random_state=0).fit(X[:250], y[:250])
    how = {"lam": 0.0, "refine": None, "evidence": "holdout"}
    here = sb.compress(bag, X[250:], y[250:], **how)
    there = sb.compress(bag, da.from_array(X[250:], chunks=(90, 6)), y[250:], **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


@pytest.mark.parametrize("model", [forest_problem, bag_problem])
def test_training_rows_are_no_held_out_rows(model):
    ensemble, X, y, dX, dy = model()
    how = {"lam": 0.01, "refine": None, "calibration": None, "evidence": "holdout"}
    for rows, targets in ((X, y), (dX, dy)):
        with pytest.raises(ValueError, match="but these are its training rows"):
            sb.compress(ensemble, rows, targets, **how)
    here = sb.compress(ensemble, X[::-1].copy(), y[::-1], **how)  # as many rows, and others
    there = sb.compress(ensemble, dX[::-1], dy[::-1], **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


def test_held_out_rows_may_be_fewer_than_a_list_of_models_was_trained_on():
    forest, X, y, dX, dy = forest_problem()
    rows = [np.arange(j, 600 - j) for j in range(20)]
    how = {"lam": 0.01, "refine": None, "calibration": None, "evidence": "holdout"}
    models = list(forest.estimators_)
    here = sb.compress(models, X[:200], y[:200], estimators_samples=rows, **how)
    there = sb.compress(models, dX[:200], dy[:200], estimators_samples=rows, **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_members_that_are_no_trees_prove_their_rows_by_what_they_kept(kind):
    bag, X, y, dX, dy = bag_problem(kind)
    how = {"lam": 0.01, "refine": None, "calibration": None, "solver": "mirror"}
    here = sb.compress(bag, X, y, **how)
    there = sb.compress(bag, dX, dy, **how)
    assert there.verified_by_ == here.verified_by_ == "out-of-bag predictions"
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)
    assert sb.compress(bag, dX.astype(np.float32), dy, **how).verified_by_ is not None
    with pytest.raises(ValueError, match="out-of-bag predictions differ from those it kept"):
        sb.compress(bag, dX[::-1], dy[::-1], **how)
    with pytest.raises(ValueError, match="y does not give the out-of-bag score it kept"):
        sb.compress(bag, dX, dy[::-1], **how)


def test_empty_bags_prove_nothing():
    forest, X, y, dX, dy = forest_problem()
    given = {"estimators_samples": [[]] * 20, "lam": 0.01, "refine": None, "calibration": None}
    for rows, targets in ((X, y), (dX, dy)):
        with pytest.warns(sb.UnverifiedRowsWarning):
            found = sb.compress(list(forest.estimators_), rows, targets, **given)
        assert found.verified_by_ is None


def test_other_rows_than_the_training_rows_are_refused():
    forest, X, _, _, dy = forest_problem()
    shuffled = da.from_array(X[::-1].copy(), chunks=(150, 8))
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        sb.compress(forest, shuffled, dy, lam=0.01)


def test_bad_input_gets_one_sentence():
    forest, X, y, dX, dy = forest_problem()
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        sb.fit_weights(da.from_array(X)[da.from_array(y) > 0], None, y)
    with pytest.raises(ValueError, match="oob_mask has 10 rows and the others 600"):
        sb.fit_weights(dX, np.ones((10, 8), bool), y)
    with pytest.raises(ValueError, match="cannot fit an ensemble to a Dask array"):
        sb.SparseBaggingClassifier(forest).fit(dX, dy)
    with (
        dask.config.set({"sparsebag.rows-in-memory": "many"}),
        pytest.raises(ValueError, match="must be a whole number of rows"),
    ):
        sb.compress(forest, dX, dy)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (-np.ones(600), "must not be negative"),
        (np.full(600, np.nan), "sample_weight holds NaN"),
        (np.zeros(600), "must not be zero everywhere"),
        (np.ones(3), "sample_weight has 3"),
        (da.from_array(-np.ones(600), chunks=100), "finite numbers that are not negative"),
        (da.from_array(np.full(600, np.nan), chunks=100), "finite numbers that are not negative"),
        (
            da.from_array(np.where(np.arange(600) < 550, 1.0, np.nan), chunks=100),
            "rows 512 to 599: .* finite numbers that are not negative",
        ),
    ],
)
def test_row_weights_are_checked(weight, words):
    forest, _, y, dX, dy = forest_problem()
    with pytest.raises(ValueError, match=words):
        sb.compress(forest, dX, dy, lam=0.01, sample_weight=weight)
    votes = da.from_array(np.full((600, 5), 0.5), chunks=(150, 5))
    with pytest.raises(ValueError, match=words):
        sb.fit_weights(votes, None, y, labels=[0, 1, 2], sample_weight=weight)


@pytest.mark.parametrize("value", [np.nan, 1.5])
def test_an_error_names_the_row_of_all(value):
    """Blocks are cut anew at whole groups of rows: their numbers are nobody's."""
    votes, y = np.full((1100, 3), 0.5), np.arange(1100) % 2
    votes[777, 2] = value
    chunks = [da.from_array(votes[:450], chunks=(150, 3)), da.from_array(votes[450:])]
    for given in (da.from_array(votes, chunks=(300, 3)), chunks):
        with pytest.raises(ValueError, match=r"^rows \d+ to \d+: .*in row 777 of member 2[);]"):
            sb.fit_weights(given, None, y)
    parts = [dask.delayed((votes[s : s + 500], None, y[s : s + 500])) for s in (0, 500, 1000)]
    with pytest.raises(ValueError, match=r"^block 1: .*in row 277 of member 2[);]"):
        sb.fit_weights(parts)


def told(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sorted((w.category.__name__, str(w.message)) for w in caught)


def test_warnings_are_those_in_memory():
    votes, mask, y = well_conditioned(1500, 8)
    mask[:300] = False
    weight = np.where(np.arange(1500) % 500 == 499, 1e6, 1.0)
    here = told(lambda: sb.fit_weights(votes, mask, y, sample_weight=weight))
    there = told(lambda: sb.fit_weights(*chunked(votes, mask, y), sample_weight=weight))
    assert len(here) == 2
    assert there == here
    assert told(lambda: sb.fit_weights(*chunked(votes, mask | True, y))) == []


@pytest.mark.parametrize("rows", [512, 2000])
def test_rows_that_say_nothing_are_refused_in_the_words_of_memory(rows):
    votes, mask, y = well_conditioned(2000, 5)
    nobody = mask & False
    some = mask.copy()
    some[512:] = False  # most blocks have no row out of bag; that is not what is wrong
    idle = np.where(some.any(axis=1), 0.0, 1.0)
    cases = [
        (votes, nobody, None, "no row is out of bag for any member.*oob_mask is non-zero"),
        (0.0 * votes, mask, None, "every member gives every row's true class probability zero"),
        (0.0 * votes, some, None, "every member gives every row's true class probability zero"),
        (0.0 * votes, None, None, "every member gives every row's true class probability zero"),
        (votes, some, idle, "every row that some member has out of bag has sample_weight zero"),
    ]
    for v, m, weight, words in cases:
        with pytest.raises(ValueError, match=words) as here:
            sb.fit_weights(v, m, y, sample_weight=weight)
        cut_mask = None if m is None else chunked(m, rows=rows)[0]
        with pytest.raises(ValueError, match=words) as there:
            sb.fit_weights(chunked(v, rows=rows)[0], cut_mask, y, sample_weight=weight)
        assert str(there.value) == str(here.value)


@pytest.mark.filterwarnings("ignore:.*out of bag for no member")
def test_a_block_without_votes_may_be_among_others():
    votes, mask, y = well_conditioned(1024, 20)
    votes[:512] = 0.0
    here = sb.fit_weights(votes, mask, y)
    there = sb.fit_weights(*chunked(votes, mask, y))
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


def test_what_is_for_streams_is_refused(tmp_path):
    votes, mask, y = (da.from_array(a, chunks=300) for a in well_conditioned(600, 5))
    for setting in ({"memory_limit": 1 << 20}, {"checkpoint": tmp_path / "ckpt"}):
        with pytest.raises(ValueError, match=r"are for streams.*bound the memory of Dask workers"):
            sb.fit_weights(votes, mask, y, **setting)
    with pytest.raises(ValueError, match="y is missing"):
        sb.fit_weights(votes, mask)
    with pytest.raises(ValueError, match=r"row blocks of y have unknown sizes"):
        sb.fit_weights(votes, mask, y[y >= 0], labels=[0, 1])


def test_row_blocks_hold_whole_groups():
    assert whole_groups((1000,)) == (1000,)
    assert whole_groups((10, 10, 10)) == (30,)
    assert sum(whole_groups((777, 1, 3000, 50))) == 3828
    assert all(size % 256 == 0 for size in whole_groups((777, 1, 3000, 50))[:-1])


@pytest.mark.filterwarnings("ignore")
def test_a_killed_worker_costs_time_not_the_result(monkeypatch):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    forest, X, y, dX, dy = forest_problem(1500)
    how = {"lam": 0.01, "refine": None, "calibration": None}
    here = sb.compress(forest, X, y, **how)
    evaluate, calls = ClusterObjective.value_and_gradient, []

    def evaluate_or_kill(objective, weights):
        calls.append(weights)
        if len(calls) == 4:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return evaluate(objective, weights)

    monkeypatch.setattr(ClusterObjective, "value_and_gradient", evaluate_or_kill)
    settings = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
    with (
        dask.config.set(scheduler=None),
        distributed.LocalCluster(n_workers=2, silence_logs=50, **settings) as cluster,
        distributed.Client(cluster) as client,
        warnings.catch_warnings(),
    ):
        there = sb.compress(forest, dX, dy, **how)
    assert len(calls) > 4
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


def within(seconds, call):
    """What the call returns; a failed test, not one without end, where it does not."""
    found = []

    def run():
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"no answer in {seconds} s"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow)])
def test_a_worker_lost_as_the_members_are_sent_costs_time_not_the_result(monkeypatch, when):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    forest, X, y, dX, dy = forest_problem(1500)
    # Few passes: what is lost is lost before the first.
    how = {"lam": 0.01, "refine": None, "calibration": None, "solver": "mirror"}
    here = sb.compress(forest, X, y, **how)
    send, sent = from_cluster.on_every_worker, []

    def send_or_kill(pool):
        is_last = len(pool.members) == 20  # the trees that prove the rows go before them all
        kills = is_last and not sent
        sent.extend([pool] if is_last else [])
        if kills and when == "before":
            os.kill(victim, signal.SIGKILL)
        members = send(pool)
        if kills and when == "after":
            os.kill(victim, signal.SIGKILL)
        return members

    monkeypatch.setattr(from_cluster, "on_every_worker", send_or_kill)
    settings = {"processes": True, "threads_per_worker": 1, "dashboard_address": None}
    with (
        dask.config.set(scheduler=None),
        distributed.LocalCluster(n_workers=2, silence_logs=50, **settings) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(client.run(os.getpid).values()))
        there = within(240, lambda: sb.compress(forest, dX, dy, **how))
    assert sent
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_the_scheduler_that_is_set_goes_before_a_live_client(scheduler):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    forest, X, y, dX, dy = forest_problem()
    how = {"lam": 0.01, "refine": None, "calibration": None}
    here = sb.compress(forest, X, y, **how)
    client = distributed.Client(processes=False, n_workers=1, dashboard_address=":0")
    with client:
        with dask.config.set(scheduler=scheduler):
            assert cluster_rows.current_client() is None
            there = sb.compress(forest, dX, dy, **how)
        with dask.config.set(scheduler=None):
            assert cluster_rows.current_client() is client
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


def test_targets_may_be_a_dask_series():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
    votes, mask, y = well_conditioned(1500)
    names = np.array(["no", "yes"])[y]
    weight = np.random.default_rng(900).random(1500)
    frame = dd.from_pandas(pd.DataFrame({"y": names, "weight": weight}), npartitions=4)
    here = sb.fit_weights(votes, mask, names, sample_weight=weight)
    for there in (
        sb.fit_weights(*chunked(votes, mask), frame["y"], sample_weight=frame["weight"]),
        sb.fit_weights(*chunked(votes, mask), frame[["y"]], sample_weight=weight),
    ):
        np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


def test_an_ensembles_row_weights_may_be_a_dask_series():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
    forest, X, y, dX, dy = forest_problem()
    weight = pd.Series(np.random.default_rng(900).random(600))
    how = {"lam": 0.01, "refine": None, "calibration": None}
    here = sb.compress(forest, X, y, sample_weight=weight, **how)
    there = sb.compress(forest, dX, dy, sample_weight=dd.from_pandas(weight, npartitions=4), **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)


def row_blocks_of(*arrays, size=400):
    """Tuples of some rows of each, as a user's own tasks would return them."""
    return [
        tuple(None if a is None else a[i : i + size] for a in arrays)
        for i in range(0, len(arrays[0]), size)
    ]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_row_blocks_may_be_tasks(masked, weighted):
    votes, mask, y = well_conditioned()
    y[:800] = 0  # no block need show every class
    arrays = [votes, mask if masked else None, y]
    weight = np.random.default_rng(900).random(len(y)) if weighted else None
    here = sb.fit_weights(*arrays, sample_weight=weight, lam=0.01)
    blocks = row_blocks_of(*arrays, *([weight] if weighted else []))
    for labels in (None, [0, 1]):
        tasks = [dask.delayed(block, traverse=False) for block in blocks]
        there = sb.fit_weights(tasks, labels=labels, lam=0.01)
        np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


def test_row_blocks_may_be_dask_arrays():
    votes, mask, y = well_conditioned()
    here = sb.fit_weights(votes, mask, y)
    columns = [[da.from_array(part) for part in np.split(a, [300, 1100])] for a in (votes, mask, y)]
    np.testing.assert_allclose(sb.fit_weights(*columns).weights, here.weights, atol=SAME)
    there = sb.fit_weights(columns[0], mask, y).weights
    np.testing.assert_allclose(there, here.weights, atol=SAME)


def test_row_blocks_may_be_futures_that_stay_where_they_are():
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    votes, mask, y = well_conditioned()
    how = {"solver": "mirror"}  # of few passes
    here = sb.fit_weights(votes, mask, y, lam=0.01, **how)
    client = distributed.Client(processes=False, n_workers=2, dashboard_address=":0")
    with client, dask.config.set(scheduler=None):
        futures = [client.submit(tuple, block) for block in row_blocks_of(votes, mask, y)]
        there = sb.fit_weights(futures, lam=0.01, **how)
        labelled = sb.fit_weights(futures, lam=0.01, labels=[0, 1], **how)
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)
    np.testing.assert_allclose(labelled.weights, here.weights, atol=SAME)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("weighted", [False, True])
def test_row_blocks_may_be_empty(loss, weighted):
    votes, mask, y = well_conditioned(800)
    weight = [np.random.default_rng(900).random(len(y))] if weighted else []
    full = dask.delayed((votes, mask, y, *weight), traverse=False)
    empty = dask.delayed((votes[:0], mask[:0], np.array([]), *(w[:0] for w in weight)))
    beside = {"sample_weight": weight[0]} if weighted else {}
    here = sb.fit_weights(votes, mask, y, loss=loss, **beside)
    for labels in (None, [0, 1]):
        there = sb.fit_weights([empty, full, empty], loss=loss, labels=labels)
        np.testing.assert_allclose(there.weights, here.weights, atol=SAME)
        with pytest.raises(ValueError, match="the row blocks have no rows"):
            sb.fit_weights([empty, empty], loss=loss, labels=labels)


def test_row_blocks_may_be_tensors():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    votes, mask, y = well_conditioned(800)
    here = sb.fit_weights(votes, mask, y)
    blocks = row_blocks_of(votes, mask, y)
    tasks = [
        dask.delayed(tuple(torch.as_tensor(a) for a in block), traverse=False) for block in blocks
    ]
    np.testing.assert_allclose(sb.fit_weights(tasks).weights, here.weights, atol=SAME)


def test_row_blocks_may_be_tuples_of_tasks():
    votes, mask, y = well_conditioned()
    for some in (mask, None):
        here = sb.fit_weights(votes, some, y)
        blocks = row_blocks_of(votes, some, y)
        tasks = [tuple(None if a is None else dask.delayed(a) for a in block) for block in blocks]
        np.testing.assert_allclose(sb.fit_weights(tasks).weights, here.weights, atol=SAME)


def test_an_ensembles_rows_may_be_lists_of_dask_arrays():
    forest, X, y, dX, dy = forest_problem()
    how = {"lam": 0.01, "refine": None, "calibration": None}
    weight = np.random.default_rng(900).random(600)
    here = sb.compress(forest, X, y, sample_weight=weight, **how)
    pieces = [[a[:400], a[400:]] for a in (dX, dy, da.from_array(weight, chunks=100))]
    there = sb.compress(forest, *pieces[:2], sample_weight=pieces[2], **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)
    with pytest.raises(TypeError, match="X is made of tasks; pass a Dask array"):
        sb.compress(forest, [dask.delayed(X)], dy, **how)
    with pytest.raises(TypeError, match="y is made of tasks; pass a Dask array"):
        sb.compress(forest, dX, dask.delayed(y), **how)
    with pytest.raises(TypeError, match="sample_weight is made of tasks; pass a Dask array"):
        sb.compress(forest, dX, dy, sample_weight=dask.delayed(weight), **how)


def test_row_blocks_that_cannot_be_read_get_one_sentence():
    votes, mask, y = well_conditioned(800, 5)
    blocks = row_blocks_of(votes, mask, y)
    task = dask.delayed(blocks[0], traverse=False)
    with pytest.raises(ValueError, match="carry their mask, targets and sample weights themselves"):
        sb.fit_weights([task], mask, y)
    with pytest.raises(ValueError, match=r"block 1: a row block must be .*got a ndarray\."):
        sb.fit_weights([task, dask.delayed(votes)])
    with pytest.raises(ValueError, match=r"block 1: a row block must be .*got a tuple of 2\."):
        sb.fit_weights([task, dask.delayed((votes, mask), traverse=False)])
    with pytest.raises(ValueError, match=r"block 1: oob_mask has shape \(400, 4\)"):
        sb.fit_weights([task, dask.delayed((votes[:400], mask[:400, :4], y[:400]))])
    with pytest.raises(ValueError, match="blocks differ in their members, mask, sample weights"):
        sb.fit_weights([task, dask.delayed((votes[:400], None, y[:400]))])
    with pytest.raises(TypeError, match="predictions is one task"):
        sb.fit_weights(task, mask, y)
    with pytest.raises(TypeError, match="y is made of tasks; pass a Dask array"):
        sb.fit_weights(*chunked(votes, mask), dask.delayed(y))


def test_targets_alone_may_be_on_the_cluster():
    X, y = make_classification(400, 8, random_state=0)
    forest = RandomForestClassifier(40, random_state=0).fit(X, y)
    here = sb.compress(forest, X, y, lam=0.01, refine=None, calibration=None)
    there = sb.compress(forest, X, da.from_array(y), lam=0.01, refine=None, calibration=None)
    np.testing.assert_array_equal(here.weights_, there.weights_)


def test_blocks_are_counted_as_they_are_made(capsys):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    client = distributed.Client(processes=False, n_workers=1, dashboard_address=":0")
    with client, dask.config.set(scheduler=None):
        blocks = ClusterBlocks(lambda: [dask.delayed(range)(n) for n in range(20)], verbose=1)
        assert blocks.sum(len) == 190
        counted = [line for line in capsys.readouterr().err.splitlines() if "block" in line]
        assert blocks.derived(len).sum(int) == 190
    assert counted == [f"[cluster] block {n} of 20" for n in range(2, 21, 2)]
    again = [line for line in capsys.readouterr().err.splitlines() if "block" in line]
    assert again == [f"{line} (what is derived from it)" for line in counted]
