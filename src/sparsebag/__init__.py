"""Make a fitted bagging ensemble smaller and faster, from its training data alone.

The data flows one way, a folder a step::

    evidence    what each member says about rows it never saw
    objective   loss of the weighted vote on those rows, plus a penalty on the weights
    solvers     weights on the probability simplex, most of them exactly zero
    selection   how many members are needed, and what that is expected to cost
    selection   how many members, by what each size is expected to lose
    deploy      the survivors' weighted vote
    report      before and after

>>> import sparsebag as sb
>>> from sklearn.datasets import load_breast_cancer
>>> from sklearn.ensemble import RandomForestClassifier
>>> X, y = load_breast_cancer(return_X_y=True)
>>> forest = RandomForestClassifier(100, random_state=0).fit(X, y)
>>> small = sb.compress(forest, X, y, tolerance=0.05)  # accept a Brier score 5 % higher
>>> small.n_active_ < 50
True
"""

from sparsebag.compress import compress
from sparsebag.estimators import SparseBaggingClassifier, SparseBaggingRegressor
from sparsebag.evidence.evidence import OOBEvidence, UncoveredRowsWarning, UnverifiedRowsWarning
from sparsebag.report import metrics
from sparsebag.report.compression_report import CompressionReport
from sparsebag.selection.select import RegretWarning, Selection
from sparsebag.selection.table import PathTable
from sparsebag.solvers.auto import select_solver
from sparsebag.solvers.base import Solution, Status
from sparsebag.weighting import fit_weights, lambda_path

__version__ = "0.1.0"

__all__ = [
    "compress",
    "fit_weights",
    "lambda_path",
    "SparseBaggingClassifier",
    "SparseBaggingRegressor",
    "OOBEvidence",
    "UncoveredRowsWarning",
    "UnverifiedRowsWarning",
    "RegretWarning",
    "Selection",
    "PathTable",
    "Solution",
    "Status",
    "select_solver",
    "CompressionReport",
    "metrics",
]
