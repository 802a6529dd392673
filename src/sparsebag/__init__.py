"""Make a fitted bagging ensemble smaller and faster, from its training data alone.

The data flows one way, a folder a step::

    evidence    what each member says about rows it never saw
    sources     where those rows are: memory, files, a Dask cluster
    objective   loss of the weighted vote on those rows, plus a penalty on the weights
    solvers     weights on the probability simplex, most of them exactly zero
    student     trees pruned inside, their leaves taught by the whole ensemble
    calibration probabilities that mean what they say
    judge       what each size is expected to cost, and the choice
    deploy      the small model, compiled, saved, exported
    report      before and after

>>> import sparsebag as sb
>>> from sklearn.datasets import load_breast_cancer
>>> from sklearn.ensemble import RandomForestClassifier
>>> X, y = load_breast_cancer(return_X_y=True)
>>> forest = RandomForestClassifier(100, random_state=0).fit(X, y)
>>> small = sb.compress(forest, X, y, max_nodes=0.5)
>>> small.n_nodes_ <= 0.5 * small.selection_.before.nodes
True
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparsebag.compress import compress as compress
    from sparsebag.compress_dask import SampledRowsWarning as SampledRowsWarning
    from sparsebag.deploy.artifact import ArtifactError as ArtifactError
    from sparsebag.deploy.artifact import load as load
    from sparsebag.deploy.artifact import save as save
    from sparsebag.deploy.compiled import CompiledEnsemble as CompiledEnsemble
    from sparsebag.deploy.verification import ExportMismatch as ExportMismatch
    from sparsebag.deploy.verification import Verification as Verification
    from sparsebag.deploy.verification import verify as verify
    from sparsebag.deploy.wrapped import to_onnx as to_onnx
    from sparsebag.deploy.wrapped import to_sklearn as to_sklearn
    from sparsebag.estimators import SparseBaggingClassifier as SparseBaggingClassifier
    from sparsebag.estimators import SparseBaggingRegressor as SparseBaggingRegressor
    from sparsebag.evidence.evidence import OOBEvidence as OOBEvidence
    from sparsebag.evidence.evidence import UncoveredRowsWarning as UncoveredRowsWarning
    from sparsebag.evidence.evidence import UnverifiedRowsWarning as UnverifiedRowsWarning
    from sparsebag.fit_weights import fit_weights as fit_weights
    from sparsebag.judge.curve import RiskCurve as RiskCurve
    from sparsebag.judge.selection import Selection as Selection
    from sparsebag.report import metrics as metrics
    from sparsebag.report.compression_report import CompressionReport as CompressionReport
    from sparsebag.report.wrapped import report_on as report_on
    from sparsebag.solvers.auto import select_solver as select_solver
    from sparsebag.solvers.base import Solution as Solution
    from sparsebag.solvers.base import Status as Status
    from sparsebag.solvers.slsqp import SLSQP as SLSQP
    from sparsebag.sources.readers import stream_rows as stream_rows
    from sparsebag.sources.stream import RowStream as RowStream

__version__ = "0.1.0"

# Names are imported when they are first used: a service that only loads a file and predicts
# needs neither scikit-learn nor SciPy.
_HOMES = {
    "compress": "compress",
    "fit_weights": "fit_weights",
    "SparseBaggingClassifier": "estimators",
    "SparseBaggingRegressor": "estimators",
    "OOBEvidence": "evidence.evidence",
    "RowStream": "sources.stream",
    "stream_rows": "sources.readers",
    "UncoveredRowsWarning": "evidence.evidence",
    "UnverifiedRowsWarning": "evidence.evidence",
    "SampledRowsWarning": "compress_dask",
    "RiskCurve": "judge.curve",
    "Selection": "judge.selection",
    "Solution": "solvers.base",
    "Status": "solvers.base",
    "select_solver": "solvers.auto",
    "SLSQP": "solvers.slsqp",
    "CompressionReport": "report.compression_report",
    "CompiledEnsemble": "deploy.compiled",
    "load": "deploy.artifact",
    "save": "deploy.artifact",
    "ArtifactError": "deploy.artifact",
    "to_onnx": "deploy.wrapped",
    "to_sklearn": "deploy.wrapped",
    "report_on": "report.wrapped",
    "verify": "deploy.verification",
    "Verification": "deploy.verification",
    "ExportMismatch": "deploy.verification",
    "metrics": "report.metrics",  # a module
}
__all__ = list(_HOMES)


class _Package(ModuleType):
    """The package itself, on which importing a module must not hide the function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in ("compress", "fit_weights") and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'sparsebag' has no attribute {name!r}")
        home = importlib.import_module(f"sparsebag.{_HOMES[name]}")
        found = home if name == "metrics" else getattr(home, name)
        super().__setattr__(name, found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickled by name, as any module is: a script's functions that mention it go to workers.
        return importlib.import_module, (self.__name__,)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
