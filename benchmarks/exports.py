"""Every export beside the model on the paper's data: pruned trees, calibrators, missing values.

    SPARSEBAG_DATA=... python -m benchmarks.exports

A line says, for a data set, a kind of member and an export, the worst over all `settings`: largest
difference from our predictions on the test rows, rows with another label, rows whose label hangs
on rounding. Where an export cannot carry a model, the sentence the user gets. Exits with 1 if an
export gives anything but our predictions or such a sentence.
"""

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import sparsebag as sb
from benchmarks.datasets import PAPER, PAPER_SEED, Dataset, Unavailable
from benchmarks.kept_output import options, results_of
from sparsebag.deploy.verification import TOLERANCE, ExportMismatch, NotExportable, verify

MISSING_SHARE = 0.05
MEMBERS, SURVIVORS = 30, 8

Predict = Callable[[np.ndarray], np.ndarray]


def settings(task: str, kind: str) -> list[dict[str, Any]]:
    """Ways of compressing: members as they are, or made small; every kind of calibrator."""
    found: list[dict[str, Any]] = [{}]
    if kind == "forest":
        found += [{"max_nodes": 0.2}, {"refine": None}]
    if task == "classification":
        kinds = (None, "temperature", LogisticRegression())  # the last is a user's own
        found += [{"calibration": kind} for kind in kinds]
    return found


def ensembles(task: str) -> dict[str, Any]:
    """Kinds of members, unfitted; the last reads missing values by its own means."""
    how = {"n_estimators": MEMBERS, "random_state": PAPER_SEED}
    if task == "classification":
        forest, bag = RandomForestClassifier, BaggingClassifier
        line, network = LogisticRegression(max_iter=2000), MLPClassifier
    else:
        forest, bag, line, network = RandomForestRegressor, BaggingRegressor, Ridge(), MLPRegressor
    net = network(hidden_layer_sizes=(8,), max_iter=40, random_state=PAPER_SEED)
    return {
        "forest": forest(**how),
        "linear": bag(line, oob_score=True, **how),
        "networks": bag(net, oob_score=True, **how),
        "imputer and linear": bag(make_pipeline(SimpleImputer(), line), oob_score=True, **how),
    }


def _sbag(small: Any, folder: Path) -> Predict:
    """Ours: read back from the file."""
    path = folder / "model.sbag"
    small.save(path, allow_pickle="other" in small.compile().paths)
    loaded = sb.load(path, allow_pickle=True)
    return loaded.predict if loaded.classes is None else loaded.predict_proba


def _onnx(small: Any, folder: Path) -> Predict:
    import onnxruntime

    path = folder / "model.onnx"
    export = small.to_onnx(path)
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    output = "prediction" if small.compile().classes is None else "probabilities"
    dtype = np.float32 if session.get_inputs()[0].type == "tensor(float)" else np.float64
    assert export.graph.graph.input[0].name == "X"
    return lambda X: session.run([output], {"X": X.astype(dtype)})[0]


def _treelite(small: Any, folder: Path) -> Predict:
    import treelite

    from sparsebag.deploy.export_treelite import TreeliteExport

    path = folder / "model.treelite"
    export = small.to_treelite()
    export.trees.serialize(path)
    return TreeliteExport(treelite.Model.deserialize(path), export.model).predict


def _sklearn(small: Any, folder: Path) -> Predict:
    import joblib

    path = folder / "model.joblib"
    joblib.dump(small.to_sklearn(), path)
    ordinary = joblib.load(path)
    return ordinary.predict if small.compile().classes is None else ordinary.predict_proba


EXPORTS = {".sbag": _sbag, "onnx": _onnx, "treelite": _treelite, "sklearn": _sklearn}


@dataclass
class Line:
    """One export of one kind of member on one data set, over all settings."""

    equal: int = 0
    difference: float = 0.0
    flips: int = 0
    boundary: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, make: Any, small: Any, X: np.ndarray, setting: dict[str, Any]) -> None:
        """Make the export and compare."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                predict = make(small, Path(folder))
                found = verify(small.compile(), predict, X, TOLERANCE)
            except NotExportable as reason:
                self.reasons[str(reason)] += 1
                return
            except ExportMismatch as mismatch:
                self.failures.append(f"{setting}: {mismatch}")
                return
        self.equal += 1
        self.difference = max(self.difference, found.largest_difference)
        self.flips += found.label_flips
        self.boundary += found.boundary_rows

    def __str__(self) -> str:
        total = self.equal + sum(self.reasons.values()) + len(self.failures)
        figures = f"{self.difference:>10.0e}{self.flips:>7}{self.boundary:>10}"
        return f"{f'{self.equal} of {total}':>10}" + (figures if self.equal else "")


def cases(dataset: Dataset, X: np.ndarray) -> Iterator[tuple[str, Any, np.ndarray, str]]:
    """Kind of member, ensemble, its X, and whether that has missing values."""
    holes = np.random.default_rng(PAPER_SEED).random(X.shape) < MISSING_SHARE
    scaled = StandardScaler().fit_transform(X)
    for kind, model in ensembles(dataset.task).items():
        rows = X if kind == "forest" else scaled
        if kind != "imputer and linear":
            yield kind, model, rows, "no"
        if kind in ("forest", "imputer and linear"):  # the others refuse NaN when they are fitted
            yield kind, model, np.where(holes, np.nan, rows), "yes"


def compare(dataset: Dataset, reasons: Counter[str]) -> int:
    """Print the lines of a data set; returns how many exports failed."""
    X, y = dataset.load()
    failed = 0
    for kind, model, rows, missing in cases(dataset, X):
        train, test, y_train, _ = train_test_split(rows, y, test_size=0.3, random_state=PAPER_SEED)
        lines = {name: Line() for name in EXPORTS}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(train, y_train)
        for setting in settings(dataset.task, kind):
            budget = {} if "max_nodes" in setting else {"max_estimators": SURVIVORS}
            small = sb.compress(model, train, y_train, **budget, **setting)
            for name, make in EXPORTS.items():
                lines[name].add(make, small, test, setting)
        for name, line in lines.items():
            print(f"{dataset.name:<20}{missing:<5}{kind:<20}{name:<10}{line}", flush=True)
            reasons.update({f"{name}: {reason}": n for reason, n in line.reasons.items()})
            for failure in line.failures:
                print(f"  FAILED {failure}")
            failed += len(line.failures)
    return failed


def main() -> None:
    options(__doc__).parse_args()
    failed, left_out, reasons = 0, 0, Counter[str]()
    with results_of("exports", keep=True):
        print(f"\n{SURVIVORS} of {MEMBERS} members at most; ", end="")
        print(f"NaN in {MISSING_SHARE:.0%} of the values.")
        head = f"{'data set':<20}{'NaN':<5}{'members':<20}{'export':<10}{'equal':>10}"
        print(f"\n{head}{'largest':>10}{'flips':>7}{'boundary':>10}")
        for dataset in PAPER.values():
            try:
                failed += compare(dataset, reasons)
            except Unavailable as reason:
                print(f"left out: {reason}")
                left_out += 1
        print("\nWhat an export cannot carry, in the words the user gets (how many times):")
        for reason, times in reasons.items():
            print(f"  {times:>4}  {reason}")
        verdict = f"{failed} exports differ from the model." if failed else "Every export is equal."
        print(f"\n{verdict}" + (f" {left_out} data sets were left out." if left_out else ""))
    sys.exit(1 if failed or left_out else 0)


if __name__ == "__main__":
    main()
