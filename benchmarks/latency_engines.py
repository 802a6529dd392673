"""The engines `benchmarks.latency` compares, each as its users would call it at its fastest.

Every maker takes scikit-learn's ensemble of the trees and a number of threads, and returns a
function of float32 rows; one that cannot be had raises `Missing` with the reason.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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


def _session(content: bytes, n_threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = n_threads, 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def onnx_converted(trees: Trees, n_threads: int) -> Predict:
    """What scikit-learn's own converter makes: float32 leaves, a TreeEnsembleClassifier."""
    try:
        from skl2onnx import to_onnx
    except ImportError as error:
        raise Missing("skl2onnx is not installed") from error
    sample = np.zeros((1, trees.forest.n_features_in_), dtype=np.float32)
    options = {id(trees.forest): {"zipmap": False}}
    try:
        graph = to_onnx(trees.forest, sample, options=options)
    except Exception as error:  # a converter that trails scikit-learn's releases
        raise Missing(f"skl2onnx: {str(error)[:80]}") from error
    session = _session(graph.SerializeToString(), n_threads)
    return lambda X: session.run(["probabilities"], {"X": X})


def onnx_exported(trees: Trees, n_threads: int) -> Predict:
    """What `to_onnx` makes: float64 leaves, one TreeEnsemble node."""
    from sparsebag.deploy.export_onnx import export_onnx

    session = _session(export_onnx(trees.compiled).graph.SerializeToString(), n_threads)
    return lambda X: session.run(["probabilities"], {"X": X})


def treelite_gtil(trees: Trees, n_threads: int) -> Predict:
    try:
        import treelite
    except ImportError as error:
        raise Missing("treelite is not installed") from error
    from sparsebag.deploy.export_treelite import export_treelite

    model = export_treelite(trees.compiled).trees
    return lambda X: treelite.gtil.predict(model, X.astype(np.float64), nthread=n_threads)


def compiled_c(trees: Trees, n_threads: int) -> Predict:
    try:
        import tl2cgen
    except ImportError as error:
        raise Missing("tl2cgen is not installed") from error
    if shutil.which("gcc") is None:
        raise Missing("there is no gcc")
    from sparsebag.deploy.export_treelite import export_treelite

    folder = Path(tempfile.mkdtemp())
    library = folder / "trees.so"
    model = export_treelite(trees.compiled).trees
    tl2cgen.export_lib(model, toolchain="gcc", libpath=library, params={"parallel_comp": 2})
    try:
        predictor = tl2cgen.Predictor(library, nthread=n_threads)
    except tl2cgen.TL2cgenError as error:  # OMP_NUM_THREADS allows fewer
        raise Missing(f"tl2cgen: {str(error).splitlines()[0][-80:]}") from error
    return lambda X: predictor.predict(tl2cgen.DMatrix(X.astype(np.float64), dtype="float64"))


def xgboost_100(X: np.ndarray, y: np.ndarray) -> Callable[[Trees, int], Predict]:
    def make(trees: Trees, n_threads: int) -> Predict:
        try:
            import xgboost
        except ImportError as error:
            raise Missing("xgboost is not installed") from error
        model = xgboost.XGBClassifier(n_estimators=100, n_jobs=n_threads, random_state=0).fit(X, y)
        booster = model.get_booster()
        booster.set_param({"nthread": n_threads})
        return booster.inplace_predict

    return make


SAME_TREES: dict[str, Callable[[Trees, int], Predict]] = {
    "sparsebag": sparsebag,
    "scikit-learn forest": sklearn_forest,
    "scikit-learn bag": sklearn_bag,
    "ONNX Runtime (skl2onnx)": onnx_converted,
    "ONNX Runtime (to_onnx)": onnx_exported,
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
        except Missing as reason:
            out[name] = str(reason)
    return out
