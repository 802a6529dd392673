"""Rows on a Dask cluster: the same weights as in memory, wherever blocks are cut."""

import os
import signal
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_regression
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge

import sparsebag as sb
from problems import LOSSES
from sparsebag.solvers.auto import SOLVERS
from sparsebag.solvers.mirror import Mirror

dask = pytest.importorskip("dask", reason="dask is not installed (pip install 'sparsebag[dask]')")
da = pytest.importorskip("dask.array", reason="dask.array is not installed")

SAME = 1e-6
KEEP = {"oob_score": True, "random_state": 0}
WEIGHTS_ALONE = {"lam": 0.01, "refine": None, "calibration": None}


@pytest.fixture(autouse=True)
def _no_cluster():
    with dask.config.set(scheduler="sync"):
        yield


def well_conditioned(n_rows=2000, n_members=40):
    """Rows of unequal difficulty. On others hundreds of steps make 1e-4 of a double's rounding."""
    rng = np.random.default_rng(0)
    logit = rng.normal(1.0, 0.3, n_members) + 1.5 * rng.normal(size=(n_rows, 1))
    votes = 1.0 / (1.0 + np.exp(-logit - 1.5 * rng.normal(size=(n_rows, n_members))))
    mask = rng.random((n_rows, n_members)) < 0.37
    return (votes * mask).astype(np.float32), mask, np.arange(n_rows) % 2


def chunked(*arrays, rows=512):
    return [da.from_array(a, chunks=(rows, *a.shape[1:])) for a in arrays]


@pytest.mark.parametrize("solver", sorted(SOLVERS))
def test_every_solver_finds_the_same_weights(solver):
    votes, mask, y = well_conditioned()
    theirs = sb.fit_weights(votes, mask, y, lam=0.01, solver=solver)
    cut_anyhow = da.from_array(votes, chunks=(300, 40)), da.from_array(mask, chunks=(700, 9)), y
    ours = sb.fit_weights(*cut_anyhow, lam=0.01, solver=solver)
    np.testing.assert_allclose(ours.weights, theirs.weights, atol=SAME)
    assert ours.status is theirs.status


ROW_WEIGHTS = {
    "few": lambda rng, n: (rng.permutation(n) < 60) * 1.0,
    "heavy": lambda rng, n: np.where(rng.random(n) < 2e-2, 1e3, 1.0),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 3.0, n),
}


@pytest.mark.filterwarnings("ignore")  # that a few rows decide is meant here
@pytest.mark.parametrize("kind", sorted(ROW_WEIGHTS))
def test_a_sample_between_passes_is_drawn_by_the_rows_weights(kind):
    votes, mask, y = well_conditioned(6000)
    weight = ROW_WEIGHTS[kind](np.random.default_rng(900), len(y))
    how = {"solver": Mirror(sample_bytes=200_000)}  # a sixth of the rows
    here = sb.fit_weights(votes, mask, y, sample_weight=weight, **how)
    there = sb.fit_weights(*chunked(votes, mask, y), sample_weight=chunked(weight)[0], **how)
    assert there.status.success
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_fit_weights_takes_dask_arrays_cut_anyhow(loss):
    rng = np.random.default_rng(0)
    mask = rng.random((900, 15)) < 0.6
    y = rng.normal(size=900) if LOSSES[loss].channel == "prediction" else rng.integers(0, 3, 900)
    predictions = rng.dirichlet(np.ones(3), (900, 15)).astype(np.float32)
    if LOSSES[loss].channel == "prediction":
        predictions = (y[:, None] + rng.normal(size=(900, 15))).astype(np.float32)
    weight = rng.random(900)
    expected = sb.fit_weights(predictions, mask, y, loss=loss, lam=0.01, sample_weight=weight)
    cut = zip((predictions, mask, y), (200, (333, 15), 450), strict=True)
    given = (da.from_array(array, chunks=chunks) for array, chunks in cut)
    got = sb.fit_weights(*given, loss=loss, lam=0.01, sample_weight=weight)
    np.testing.assert_allclose(got.weights, expected.weights, atol=SAME)


def test_targets_may_be_a_dask_series():
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
    votes, mask, y = well_conditioned(1500)
    names = np.array(["no", "yes"])[y]
    weight = np.random.default_rng(900).random(1500)
    frame = dd.from_pandas(pd.DataFrame({"y": names, "weight": weight}), npartitions=4)
    here = sb.fit_weights(votes, mask, names, sample_weight=weight)
    there = sb.fit_weights(*chunked(votes, mask), frame["y"], sample_weight=frame["weight"])
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


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
        (WEIGHTS_ALONE, 3000),
        ({"max_estimators": 8}, 600),
        ({"max_estimators": 8, "refine": None}, 600),
    ],
)
def test_compress_gives_the_same_ensemble(how, n_rows):
    forest, X, y, dX, dy = forest_problem(n_rows, 30)
    here, there = sb.compress(forest, X, y, **how), sb.compress(forest, dX, dy, **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)
    np.testing.assert_allclose(there.predict_proba(X), here.predict_proba(X), atol=1e-5)
    if how is WEIGHTS_ALONE:  # targets alone may be on the cluster
        assert np.array_equal(sb.compress(forest, X, dy, **how).weights_, here.weights_)
    assert there.verified_by_ == "leaf counts"


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_members_that_are_no_trees_and_weighted_rows(kind):
    bag, X, y, dX, dy = bag_problem(kind)
    weight = np.random.default_rng(900).random(600)
    here = sb.compress(bag, X, y, sample_weight=weight, **WEIGHTS_ALONE)
    there = sb.compress(bag, dX, dy, sample_weight=da.from_array(weight), **WEIGHTS_ALONE)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)
    with pytest.raises(ValueError, match="out-of-bag predictions differ from the stored ones"):
        sb.compress(bag, dX[::-1], dy[::-1], **WEIGHTS_ALONE)


def test_what_needs_rows_side_by_side_gets_a_stated_sample():
    forest, X, _, dX, dy = forest_problem()
    with (
        dask.config.set({"sparsebag.rows-in-memory": 300}),
        pytest.warns(sb.UnverifiedRowsWarning),
        pytest.warns(sb.SampledRowsWarning, match="random sample of 300 of 600 rows"),
    ):
        found = sb.compress(forest, dX, dy, max_estimators=8)
    assert found.n_active_ <= 8
    assert found.predict_proba(X).shape == (600, 3)


def test_held_out_rows():
    X, y = make_regression(500, 6, noise=20.0, random_state=0)
    bag = BaggingRegressor(Ridge(), 12, max_features=0.5, random_state=0).fit(X[:250], y[:250])
    how = {"lam": 0.0, "refine": None, "evidence": "holdout"}
    here = sb.compress(bag, X[250:], y[250:], **how)
    there = sb.compress(bag, da.from_array(X[250:], chunks=(90, 6)), y[250:], **how)
    np.testing.assert_allclose(there.weights_, here.weights_, atol=SAME)
    forest, _, _, dX, dy = forest_problem()
    with pytest.raises(ValueError, match="but these are its training rows"):
        sb.compress(forest, dX, dy, evidence="holdout", **WEIGHTS_ALONE)


def test_bad_input_gets_one_sentence():
    forest, X, y, dX, dy = forest_problem()
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        sb.fit_weights(da.from_array(X)[da.from_array(y) > 0], None, y)
    with pytest.raises(ValueError, match="oob_mask has 10 rows and the others 600"):
        sb.fit_weights(dX, np.ones((10, 8), bool), y)
    with pytest.raises(ValueError, match="predictions has no rows"):
        sb.fit_weights(dX[:0], None, y[:0])
    with pytest.raises(ValueError, match=r"array; pass it to sparsebag\.fit_weights directly"):
        sb.stream_rows(dX, None, y)
    with pytest.raises(TypeError, match=r"predictions is a Delayed.*; pass a Dask array"):
        sb.fit_weights(dask.delayed(X), None, y)
    with pytest.raises(TypeError, match="y is a task; pass a Dask array"):
        sb.compress(forest, dX, dask.delayed(y))
    with pytest.raises(ValueError, match="cannot fit an ensemble to a Dask array"):
        sb.SparseBaggingClassifier(forest).fit(dX, dy)
    with pytest.raises(ValueError, match="not the ensemble's training rows"):
        sb.compress(forest, dX[::-1], dy, lam=0.01)
    many = dask.config.set({"sparsebag.rows-in-memory": "many"})
    with many, pytest.raises(ValueError, match="must be a whole number of rows"):
        sb.compress(forest, dX, dy)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.full(600, np.nan), "sample_weight holds NaN"),
        (np.ones(3), "sample_weight has 3"),
        (da.from_array(-np.ones(600), chunks=100), "must not be negative"),
        (da.from_array(np.zeros(600), chunks=100), "sample_weight zero"),
    ],
)
def test_bad_weights(weight, words):
    votes, mask, y = well_conditioned(600, 5)
    with pytest.raises(ValueError, match=words):
        sb.fit_weights(*chunked(votes, mask), y, sample_weight=weight)


def solved(where):
    votes, mask, y = well_conditioned(4000)
    return sb.fit_weights(*(chunked(votes, mask, y) if where else (votes, mask, y))).weights


@contextmanager
def cluster_of(n_workers, **how):
    """A client of workers with one thread each."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    how |= {"threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(n_workers, **how) as cluster,
        distributed.Client(cluster) as client,
        dask.config.set(scheduler=None),
    ):
        yield client


def test_a_task_on_the_only_thread_may_call():
    with cluster_of(1, processes=False) as client:
        found = client.submit(solved, True).result(timeout=60)
    np.testing.assert_allclose(found, solved(False), atol=SAME)


@pytest.mark.slow
def test_a_lost_worker_is_made_up_for():
    forest, X, y, dX, dy = forest_problem(3000, 30)
    here = sb.compress(forest, X, y, **WEIGHTS_ALONE)
    lost = []

    class Losing(Mirror):
        """Ends a worker once the rows are on both of them."""

        def solve(self, objective, start=None):
            pid = next(iter(client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
            lost.append(pid)
            return super().solve(objective, start)

    with warnings.catch_warnings(), cluster_of(2) as client:
        warnings.simplefilter("ignore")
        there = sb.compress(forest, dX, dy, solver=Losing(), **WEIGHTS_ALONE)
    assert lost
    np.testing.assert_allclose(there.weights_, here.weights_, atol=1e-5)
