"""Latency and size of the compiled predictor, beside every engine that runs its trees.

    SPARSEBAG_DATA=... python -m benchmarks.latency [--quick]

The paper's spambase setting: 100 bagged trees, seed 42, 30 % test rows, compressed with
``preset="paper"``. Every engine runs the survivors, and the full bag; XGBoost has 100 rounds of
its own. Engines take turns in bursts of calls, so that a busy moment of the machine hits all of
them and each runs with its own caches warm; every call gets other rows than the one before, so that
no branch predictor learns them by heart. Ratios are of the best times: on a loaded machine long
calls are interrupted and short ones are not, which would flatter the faster engine.
"""

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier

import sparsebag as sb
from benchmarks import quality
from benchmarks.datasets import PAPER, PAPER_SEED
from benchmarks.kept_output import options, results_of
from benchmarks.picture import SHOWN
from benchmarks.rivals import packed
from sparsebag.deploy.artifact import dumps
from sparsebag.deploy.export_onnx import export_onnx
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.export_treelite import export_treelite
from sparsebag.deploy.from_members import compile_members
from sparsebag.evidence.from_ensemble import read_ensemble

BATCHES = (1, 10, 100, 1000, 100_000)
SECONDS_A_BATCH = 8.0  # for all engines together on one batch size, shared equally
TURNS, FEWEST_TURNS = 10, 2
MOST_CALLS = 1000  # of an engine in one turn
BLOCK_ROWS = 100_000  # that a batch size's different batches hold together
OURS = "sparsebag"

Predict = Callable[[np.ndarray], Any]


class Missing(RuntimeError):
    """An engine cannot be had here; the message says why."""


@dataclass(frozen=True)
class Trees:
    """The same trees in three forms."""

    name: str
    forest: Any  # scikit-learn's forest of them, weights folded in
    bag: Any  # as it was fitted, or None
    compiled: Any  # ours


def sparsebag(trees: Trees, n_threads: int) -> Predict:
    predict = trees.compiled.predict_proba
    one = trees.compiled.predict_proba_one
    return lambda X: one(X[0]) if len(X) == 1 else predict(X, n_threads)


def sklearn_forest(trees: Trees, n_threads: int) -> Predict:
    trees.forest.set_params(n_jobs=n_threads)
    return trees.forest.predict_proba


def sklearn_bag(trees: Trees, n_threads: int) -> Predict:
    if trees.bag is None:
        raise Missing("only the full ensemble is a bag")
    trees.bag.set_params(n_jobs=n_threads)
    return trees.bag.predict_proba


def converted_graph(trees: Trees) -> bytes:
    """What scikit-learn's own converter makes: float32 leaves, a TreeEnsembleClassifier."""
    from skl2onnx import to_onnx

    sample = np.zeros((1, trees.forest.n_features_in_), dtype=np.float32)
    try:
        graph = to_onnx(trees.forest, sample, options={id(trees.forest): {"zipmap": False}})
    except Exception as error:  # a converter that trails scikit-learn's releases
        raise Missing(f"skl2onnx: {str(error)[:80]}") from error
    return graph.SerializeToString()


def exported_graph(trees: Trees) -> bytes:
    """What `to_onnx` makes: float64 leaves, one TreeEnsemble node."""
    return export_onnx(trees.compiled).graph.SerializeToString()


def onnx_runtime(graph: Callable[[Trees], bytes], trees: Trees, n_threads: int) -> Predict:
    import onnxruntime

    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads, how.inter_op_num_threads = n_threads, 1
    session = onnxruntime.InferenceSession(graph(trees), how, providers=["CPUExecutionProvider"])
    return lambda X: session.run(["probabilities"], {"X": X})


def treelite_gtil(trees: Trees, n_threads: int) -> Predict:
    import treelite

    model = export_treelite(trees.compiled).trees
    return lambda X: treelite.gtil.predict(model, X.astype(np.float64), nthread=n_threads)


def compiled_c(trees: Trees, n_threads: int) -> Predict:
    import tl2cgen

    if shutil.which("gcc") is None:
        raise Missing("there is no gcc")
    folder = Path(tempfile.mkdtemp())
    library = folder / "trees.so"
    model = export_treelite(trees.compiled).trees
    tl2cgen.export_lib(model, toolchain="gcc", libpath=library, params={"parallel_comp": 2})
    try:
        predictor = tl2cgen.Predictor(library, nthread=n_threads)
    except tl2cgen.TL2cgenError as error:  # OMP_NUM_THREADS allows fewer
        raise Missing(f"tl2cgen: {str(error).splitlines()[0][-80:]}") from error
    return lambda X: predictor.predict(tl2cgen.DMatrix(X.astype(np.float64), dtype="float64"))


def xgboost_100(X: np.ndarray, y: np.ndarray, trees: Trees, n_threads: int) -> Predict:
    import xgboost

    model = xgboost.XGBClassifier(n_estimators=100, n_jobs=n_threads, random_state=0).fit(X, y)
    booster = model.get_booster()
    booster.set_param({"nthread": n_threads})
    return booster.inplace_predict


SAME_TREES: dict[str, Callable[[Trees, int], Predict]] = {
    "sparsebag": sparsebag,
    "scikit-learn forest": sklearn_forest,
    "scikit-learn bag": sklearn_bag,
    "ONNX Runtime (skl2onnx)": partial(onnx_runtime, converted_graph),
    "ONNX Runtime (to_onnx)": partial(onnx_runtime, exported_graph),
    "treelite GTIL": treelite_gtil,
    "treelite compiled C": compiled_c,
}


def made(
    makers: dict[str, Callable[[Trees, int], Predict]], trees: Trees, n_threads: int
) -> dict[str, Predict | str]:
    """Each engine ready to call, or the reason why not."""
    out: dict[str, Predict | str] = {}
    for name, make in makers.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out[name] = make(trees, n_threads)
        except ImportError as error:
            out[name] = f"{error.name} is not installed"
        except Missing as reason:
            out[name] = str(reason)
    return out


def spambase() -> tuple[Trees, Trees, Trees, np.ndarray, Any, Any]:
    """The paper's survivors, the default's pruned trees, full bag, test rows, training rows."""
    X, y = PAPER["spambase"].load()
    X, X_test, y, _ = train_test_split(X, y, test_size=0.3, random_state=PAPER_SEED)
    bag = BaggingClassifier(DecisionTreeClassifier(), 100, random_state=PAPER_SEED).fit(X, y)
    small = sb.compress(bag, X, y, preset="paper")
    few = Trees(f"survivors ({small.n_active_})", small.to_sklearn(), None, small.compile())
    default = sb.compress(bag, X, y)
    share = default.n_nodes_ / default.selection_.before.nodes
    name = f"default ({default.n_active_}, {share:.1%} of nodes)"
    pruned = Trees(name, default.to_sklearn(), None, default.compile())
    compiled = compile_members(read_ensemble(bag), np.full(100, 0.01))
    full = Trees("full (100)", export_sklearn(compiled), bag, compiled)
    return few, pruned, full, np.ascontiguousarray(X_test, dtype=np.float32), X, y


def blocks_of(rows: np.ndarray, batch: int) -> list[np.ndarray]:
    """Batches drawn from the rows, no two alike."""
    rng = np.random.default_rng(0)
    n = int(np.clip(BLOCK_ROWS // batch, 1, MOST_CALLS))
    return [rows[rng.integers(0, len(rows), batch)] for _ in range(n)]


def timed(
    engines: dict[str, Predict], blocks: list[np.ndarray], budget: float
) -> dict[str, np.ndarray]:
    """Seconds of every call, the engines taking turns."""
    clock, first = time.perf_counter, {}
    for name, predict in engines.items():
        predict(blocks[0])  # caches, threads, imports
        start = clock()
        predict(blocks[0])
        first[name] = clock() - start
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    turns = int(np.clip(budget / sum(first.values()), FEWEST_TURNS, TURNS))
    for _ in range(turns):
        for name, predict in engines.items():
            share = budget / (turns * len(engines) * first[name])
            for call in range(int(np.clip(share, 1, MOST_CALLS))):
                block = blocks[call % len(blocks)]
                start = clock()
                predict(block)
                seconds[name].append(clock() - start)
    return {name: np.array(s) for name, s in seconds.items()}


def print_table(times: dict[str, np.ndarray], batch: int, n_threads: int) -> None:
    threads = "one thread" if n_threads == 1 else f"{n_threads} threads"
    print(f"\n{batch:,} row{'s' * (batch > 1)}, {threads}, microseconds a call")
    print(f"  {'engine':<44}{'calls':>7}{'best':>14}{'p50':>14}{'p99':>14}{'× ours':>10}")
    ours = times[next(name for name in times if name.startswith(f"{OURS}, survivors"))]
    for name, seconds in times.items():
        figures = "".join(f"{1e6 * s:>14,.1f}" for s in np.percentile(seconds, [0, 50, 99]))
        ratio = seconds.min() / ours.min()
        print(f"  {name:<44}{len(seconds):>7}{figures}{ratio:>9.1f}x")


def engines_for(
    few: Trees, pruned: Trees, full: Trees, X: Any, y: Any, n_threads: int
) -> dict[str, Predict]:
    out: dict[str, Predict] = {}
    ours = {name: SAME_TREES[name] for name in (OURS, "ONNX Runtime (to_onnx)")}
    makers = {"XGBoost (100 rounds)": partial(xgboost_100, X, y)}
    tables = ((few, SAME_TREES), (pruned, ours), (full, SAME_TREES), (full, makers))
    for trees, table in tables:
        for name, engine in made(table, trees, n_threads).items():
            label = name if table is makers else f"{name}, {trees.name}"
            if isinstance(engine, str):
                if "bag" not in name:
                    print(f"  left out: {label}: {engine}")
            else:
                out[label] = engine
    return out


def sizes(few: Trees, full: Trees) -> None:
    print("\nSize in bytes")
    for trees in (few, full):
        ours = len(dumps(trees.compiled))
        figures = {".sbag": ours, "joblib, scikit-learn's forest": packed(trees.forest, 0)}
        if trees.bag is not None:
            figures["joblib, scikit-learn's bag"] = packed(trees.bag, 0)
        try:
            figures["ONNX (skl2onnx)"] = len(converted_graph(trees))
            figures["ONNX (to_onnx)"] = len(exported_graph(trees))
            figures["treelite"] = len(export_treelite(trees.compiled).trees.serialize_bytes())
        except (ImportError, Missing) as reason:
            print(f"  left out: {reason}")
        for name, size in figures.items():
            label = f"{name}, {trees.name}"
            print(f"  {label:<52}{size:>12,}{size / ours:>8.1f}x")


def readme_table(budget: float) -> None:
    """README's forests and what the default makes of them, a row at a time."""
    print("\nForests of 100 trees and the default's, one row, one thread: best time, ms → µs")
    for name in SHOWN:
        p = quality.fit(name, "forest", 0).problem
        small = sb.compress(p.ensemble, p.X, p.y).compile()
        call = "predict" if p.task == "regression" else "predict_proba"
        forest, one = getattr(p.ensemble.set_params(n_jobs=1), call), getattr(small, f"{call}_one")
        engines = {"forest": forest, OURS: lambda X, one=one: one(X[0])}
        times = timed(engines, blocks_of(p.X_test.astype(np.float32), 1), budget)
        before, after = (seconds.min() for seconds in times.values())
        print(f"  {name:<20}{1e3 * before:.2g} → {1e6 * after:.2g}")


def main() -> None:
    quick = options(__doc__, quick="a sixth of the time, no 100 000 rows").parse_args().quick
    with results_of("latency", keep=not quick):
        print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        few, pruned, full, rows, X, y = spambase()
        print(
            f"\nspambase, {few.name} of 100 bagged trees, {rows.shape[1]} features; {few.compiled}"
        )
        times: dict[tuple[int, int], dict[str, np.ndarray]] = {}
        budget = SECONDS_A_BATCH / (6 if quick else 1)
        for n_threads in (1, 2):
            engines = engines_for(few, pruned, full, X, y, n_threads)
            for batch in BATCHES[:4] if quick else BATCHES:
                times[batch, n_threads] = timed(engines, blocks_of(rows, batch), budget)
                print_table(times[batch, n_threads], batch, n_threads)
                sys.stdout.flush()
        title = "The default's pruned trees beside the whole bag, both compiled"
        print(f"\n{title} (best times, one thread)")
        for batch in sorted({batch for batch, _ in times}):
            table = times[batch, 1]
            gain = table[f"{OURS}, {full.name}"].min() / table[f"{OURS}, {pruned.name}"].min()
            print(f"  {batch:,} row{'s' * (batch > 1)}: {gain:.1f}x faster")
        sizes(few, full)
        readme_table(budget / 4)


if __name__ == "__main__":
    main()
