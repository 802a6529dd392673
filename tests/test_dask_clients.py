"""Calls of clients of a distributed scheduler: from a task, with verbose, of no client at all."""

import gc
import time
import warnings

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb

dask = pytest.importorskip("dask", reason="dask is not installed (pip install 'sparsebag[dask]')")
da = pytest.importorskip("dask.array", reason="dask.array is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")

SAME = 1e-6
FEW_PASSES = {"solver": "mirror"}


def rows(n=900):
    X = np.random.default_rng(0).normal(size=(n, 5))
    return X, (X[:, 0] + X[:, 1] ** 2 > 1).astype(int)


def matrices(n_rows=900, n_members=12):
    rng = np.random.default_rng(0)
    votes = (rng.beta(4, 2, (n_rows, n_members)) * np.linspace(0.6, 1, n_members)).astype("f4")
    return votes, rng.random((n_rows, n_members)) < 0.6, rng.integers(0, 2, n_rows)


def compressed(on_cluster, verbose=0):
    X, y = rows()
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    X = da.from_array(X, chunks=(300, 5)) if on_cluster else X
    how = {"lam": 0.01, "refine": None, "calibration": None, "verbose": verbose}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sb.compress(forest, X, y, **how).weights_


@pytest.fixture
def one_thread():
    """One worker of one thread in this process."""
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(processes=False, **settings) as cluster:
        yield cluster


@pytest.mark.parametrize("verbose", [0, 1])
def test_a_task_on_the_only_thread_may_call(one_thread, verbose):
    with distributed.Client(one_thread) as client:
        found = client.submit(compressed, True, verbose).result(timeout=60)
    np.testing.assert_allclose(found, compressed(False), atol=SAME)


def test_verbose_needs_no_client():
    votes, mask, y = matrices()
    here = sb.fit_weights(votes, mask, y)
    chunks = [da.from_array(a, chunks=(300, *a.shape[1:])) for a in (votes, mask, y)]
    there = sb.fit_weights(*chunks, verbose=1)
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


def test_verbose_counts_of_a_client_that_is_not_the_default(one_thread, capsys):
    votes, mask, y = matrices()
    chunks = [da.from_array(a, chunks=(300, *a.shape[1:])) for a in (votes, mask, y)]
    client = distributed.Client(one_thread, set_as_default=False)
    with client, dask.config.set(scheduler=client):
        sb.fit_weights(*chunks, verbose=1, **FEW_PASSES)
    assert "[cluster] block 3 of 3" in capsys.readouterr().err


def test_futures_of_a_client_that_is_not_asked_get_one_sentence(one_thread):
    votes, mask, y = matrices()
    here = sb.fit_weights(votes, mask, y, **FEW_PASSES)
    with distributed.Client(one_thread, set_as_default=False) as client:
        blocks = [client.scatter((votes[i::2], mask[i::2], y[i::2])) for i in range(2)]
        with pytest.raises(ValueError, match=r"block 0 is a future of a client that is not asked"):
            sb.fit_weights(blocks)
        with client.as_current():
            there = sb.fit_weights(blocks, **FEW_PASSES)
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


def test_futures_of_another_client_of_the_same_scheduler_will_do(one_thread):
    votes, mask, y = matrices()
    here = sb.fit_weights(votes, mask, y, **FEW_PASSES)
    owner = distributed.Client(one_thread, set_as_default=False)
    with owner, distributed.Client(one_thread.scheduler_address):
        blocks = [owner.scatter((votes[i::2], mask[i::2], y[i::2])) for i in range(2)]
        there = sb.fit_weights(blocks, **FEW_PASSES)
        owner.close()
        with pytest.raises(ValueError, match=r"block 0 is a future of a client that is not asked"):
            sb.fit_weights(blocks)
    np.testing.assert_allclose(there.weights, here.weights, atol=SAME)


def test_what_an_actor_says_is_no_row_block():
    said = distributed.actor.EagerActorFuture((np.eye(2), None, [0, 1]))
    with pytest.raises(ValueError, match="predictions must have shape"):
        sb.fit_weights([said, said], None, [0, 1])


class Interrupted:
    """Where progress goes until the user has seen enough."""

    def write(self, text):
        if "block" in text:
            raise KeyboardInterrupt

    def flush(self):
        pass


ENDS = {
    "error": (ValueError, {"labels": [0, 1]}),
    "interrupted": (KeyboardInterrupt, {"labels": [0, 1, 2], "verbose": 1}),
}


@pytest.mark.parametrize("end", sorted(ENDS))
def test_an_error_leaves_nothing_on_the_workers(one_thread, end, monkeypatch):
    votes, mask, y = matrices()
    error, how = ENDS[end]
    with distributed.Client(one_thread) as client:
        blocks = [client.submit(tuple, (votes, mask, y + i)) for i in range(2)]
        distributed.wait(blocks)
        gc.collect()
        gc.disable()
        try:
            monkeypatch.setattr("sys.stderr", Interrupted())
            with pytest.raises(error) as raised:  # and keeps its traceback, as a notebook does
                sb.fit_weights(blocks, **how)
            if error is ValueError:
                raised.match("block 1: y holds a class that labels=")
            deadline = time.monotonic() + 20.0
            while len(one_thread.scheduler.tasks) > len(blocks) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert set(one_thread.scheduler.tasks) == {block.key for block in blocks}
        finally:
            gc.enable()
