"""In a service: threads, processes, tables with names, and input of every kind."""

import multiprocessing
import pickle
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.ensemble import RandomForestClassifier

import sparsebag as sb
from processes import printed, ran
from sparsebag.deploy.artifact import dumps, loads
from toy import DIGITS, IRIS

X, Y = IRIS
NAMES = ["length", "width", "petal length", "petal width"]
TABLE = pd.DataFrame(X, columns=NAMES)


@pytest.fixture(scope="module")
def named():
    forest = RandomForestClassifier(30, random_state=0).fit(TABLE, Y)
    return sb.compress(forest, TABLE, Y)


@pytest.fixture(scope="module")
def digits():
    rows, y = DIGITS
    rows = np.where(np.random.default_rng(0).random(rows.shape) < 0.05, np.nan, rows)
    small = sb.compress(RandomForestClassifier(30, random_state=0).fit(rows, y), rows, y)
    return small.compile(), rows


def test_columns_are_read_by_name(named):
    for model in (named.compile(), loads(dumps(named.compile()))):
        for rows in (TABLE, X):
            assert np.array_equal(model.predict_proba(rows), named.predict_proba(TABLE))
        assert model.predict_one(TABLE.iloc[0]) == model.predict_one(X[0])


TURNED = TABLE[NAMES[::-1]]
RED = TABLE.astype(object).replace({"length": {5.1: "red"}})
ROW = dict(zip(NAMES, X[0], strict=True))
TABLES = [
    (TABLE.rename(columns={"length": "l"}), "X has 'l' where the model expects 'length'"),
    (RED, "column 'length' holds 'red'"),
    (TABLE[NAMES[:3]], "but 4 were fitted; 'petal width' is missing"),
    (X[:, :3], "X has 3 features, but 4 were fitted"),
    (X[0], "X must be two-dimensional but has shape"),
    (np.where(X[0, 0] == X, np.inf, X), "infinity or a value too large"),
    (X * 1e300, "infinity or a value too large"),
    (X + 1j, "X holds complex numbers"),
]
ROWS = [
    (TURNED.iloc[0].rename({"length": "l"}), "X has 'petal width' where the model expects 'le"),
    ({"length": 1.0}, "the row is incomplete; 'width', 'petal length', 'petal width' are missing."),
    (["1", "blue", "3", "4"], "column 'width' holds 'blue', which is not a number"),
    ("abc", r"one row must be one-dimensional, not shape \(\)"),
    ([[1.0, 2.0]], "one row must be one-dimensional"),
    (sp.csr_matrix(X[:1]), r"not shape \(1, 4\); use predict for many"),
    ([1.0, 2.0, 3.0], "3 features, but 4 were fitted"),
    (np.zeros(3), "has 3 columns, but 4 were fitted"),
    (np.full(4, np.inf), "infinity"),
    (X[0] + 1j, "X holds complex numbers"),
]


@pytest.mark.parametrize(("rows", "sentence"), TABLES)
def test_tables_that_cannot_be_read_get_one_sentence(rows, sentence, named):
    for model in (named.compile(), loads(dumps(named.compile()))):
        for call in (model.predict, model.predict_proba):
            with pytest.raises(ValueError, match=sentence):
                call(rows)


@pytest.mark.parametrize(("row", "sentence"), ROWS)
def test_rows_that_cannot_be_read_get_one_sentence(row, sentence, named):
    model = named.compile()
    for call in (model.predict_one, model.predict_proba_one):
        with pytest.raises(TypeError if isinstance(row, dict) else ValueError, match=sentence):
            call(row)


def test_what_pandas_calls_missing(named):
    table = TABLE.astype("Float64")
    table.iloc[0, 1] = pd.NA
    plain = X.copy()
    plain[0, 1] = np.nan
    model = named.compile()
    assert np.array_equal(model.predict_proba(table), model.predict_proba(plain))
    assert np.array_equal(model.predict_proba_one(table.iloc[0]), model.predict_proba(plain)[0])
    null = {**ROW, "width": None}
    assert np.array_equal(model.predict_proba_one(null), model.predict_proba(plain)[0])
    assert model.predict_one(TURNED.iloc[0]) == model.predict_one(ROW) == model.predict_one(X[0])


@pytest.mark.parametrize("n_jobs", [2.0, "2", [1], 0])
def test_threads_are_a_whole_number_and_may_be_too_many(n_jobs, digits):
    message = "is not an integer; use None for one thread"
    message = "n_jobs=0 is not valid" if n_jobs == 0 else message
    with pytest.raises((TypeError, ValueError), match=message):
        digits[0].predict_proba(digits[1], n_jobs=n_jobs)
    model, rows = digits
    for most in (10**30, np.int64(3), -(10**6)):
        assert np.array_equal(model.predict_proba(rows, n_jobs=most), model.predict_proba(rows))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and limits its own memory")
def test_a_system_without_threads_to_give(digits, tmp_path):
    """Threads that cannot be started are done without; they used to end the process."""
    model, rows = digits
    (tmp_path / "model").write_bytes(dumps(model))
    np.save(tmp_path / "rows.npy", np.resize(rows, (60_000, rows.shape[1])))
    code = """
import resource, numpy as np, sparsebag as sb
model, rows = sb.load("model"), np.load("rows.npy")
expected = model.predict_proba(rows)
pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + 60 * 2**20  # a thread's stack takes 8 of these
resource.setrlimit(resource.RLIMIT_AS, (most, most))
print(np.array_equal(model.predict_proba(rows, n_jobs=64), expected))
"""
    assert printed("-c", code, cwd=tmp_path) == "True"


def test_threads_share_a_model(digits):
    """The layout for missing values is made by whoever needs it first."""
    model, rows = digits
    fresh = pickle.loads(pickle.dumps(model))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: fresh.predict_proba(rows), range(8)))
        ones = list(pool.map(fresh.predict_proba_one, rows[:200]))
    expected = model.predict_proba(rows)
    assert all(np.array_equal(proba, expected) for proba in found)
    assert np.array_equal(np.stack(ones), expected[:200])


def test_others_run_while_it_predicts(digits):
    """The GIL is released: no other thread stands still for the length of a call."""
    model, rows = digits
    rows = np.resize(rows, (200_000, rows.shape[1]))

    def longest_stop():
        """Of this thread while another predicts, as a share of the call."""
        other = threading.Thread(target=model.predict_proba, args=(rows,))
        ticks = [time.perf_counter()]
        other.start()
        while other.is_alive():
            time.sleep(1e-4)
            ticks.append(time.perf_counter())
        return max(np.diff(ticks)) / (ticks[-1] - ticks[0])

    # The best of a few: a busy machine may stop any thread.
    assert min(longest_stop() for _ in range(5)) < 0.5


@pytest.mark.parametrize("how", ["fork", "spawn"])
def test_processes_get_a_model(how, named):
    if how not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {how}")
    model = named.compile()
    expected = model.predict_proba(X)
    with multiprocessing.get_context(how).Pool(1) as pool:
        assert np.array_equal(pool.apply(model.predict_proba, (X,)), expected)


def test_sub_interpreters_are_refused():
    code = """
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
print(interpreters.run_string(interpreters.create(), "import sparsebag.deploy._forest"))
"""
    run = ran("-W", "ignore", "-c", code)
    assert "sub-interpreters" in run.stdout + run.stderr or "subinterpreters" in run.stdout
