"""ONNX carries the gate; engines of fixed weights say that they cannot."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from gated_ensembles import CASES, GATES, IRIS, compiled_and_vote
from made_up_gates import linear_gate, region_gate, region_gate_of
from sparsebag.deploy.calibrators import TemperedFloor
from sparsebag.deploy.export_onnx import export_onnx
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.export_treelite import export_treelite
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.not_exportable import NotExportable
from sparsebag.deploy.to_members import as_members
from sparsebag.deploy.verification import ExportMismatch, verify
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.refine.region_gate import RegionGate

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ONNX_CASES = [case for case in CASES if "neighbours" not in case and case != "mixed"]


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("case", ONNX_CASES)
def test_onnx_carries_the_gate(case, gate):
    model, _, X = compiled_and_vote(case, gate)
    export = export_onnx(model)  # verified on rows at the gate's and the trees' thresholds
    used = {name for node in export.graph.graph.node for name in node.input}
    inside = [a.g for node in export.graph.graph.node for a in node.attribute if a.HasField("g")]
    used |= {name for body in inside for node in body.node for name in node.input}
    assert {constant.name for constant in export.graph.graph.initializer} <= used
    found = export.verify(X)
    assert found.n_rows == len(X)
    assert found.largest_difference < 1e-11


def test_a_table_of_leaves():
    """Many leaves times classes: rows of a table, weighed tree after tree."""
    X, y = load_digits(return_X_y=True)
    pool = read_ensemble(RandomForestClassifier(12, random_state=0).fit(X, y))
    for gate in (linear_gate(12, 64), region_gate(12, 64)):
        model = compile_members(pool, np.ones(12), 1e-3, TemperedFloor(0.9, 0.05), gate)
        assert export_onnx(model).verify(X).largest_difference < 1e-11


def test_missing_and_infinite_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    X[rng.random(X.shape) < 0.2] = np.nan
    pool = read_ensemble(
        RandomForestClassifier(6, random_state=0).fit(X, rng.integers(2, size=200))
    )
    for gate in (linear_gate(6, 4), region_gate(6, 4)):
        model = compile_members(pool, np.ones(6), 1e-3, None, gate)
        assert export_onnx(model).verify(X).largest_difference < 1e-11


def test_one_member_and_one_region():
    pool = read_ensemble(RandomForestClassifier(2, random_state=0).fit(*IRIS))
    pool = pool.keep(np.array([1]))
    alone = RegionGate([0], [0.0], [-1], [-1], [0], [0], [[1.0]], 4, np.array([0.5]))
    for gate in (linear_gate(1, 4), linear_gate(1, 4, activation="sparsemax"), alone):
        model = compile_members(pool, np.ones(1), 1e-3, None, gate)
        assert export_onnx(model).verify(IRIS[0]).largest_difference < 1e-11


def test_a_wrong_gate_is_noticed():
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(*IRIS))
    model, other = (
        compile_members(pool, np.ones(6), 1e-3, None, linear_gate(6, 4, seed)) for seed in (0, 1)
    )
    with pytest.raises(ExportMismatch):
        verify(model, export_onnx(other), IRIS[0])


@pytest.mark.parametrize("gate", [linear_gate(6, 4), region_gate_of(None, 6)])
def test_engines_of_fixed_weights_say_so(gate):
    pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(IRIS[0][:, :1], IRIS[1]))
    if gate.n_features == 4:
        pool = read_ensemble(RandomForestClassifier(6, random_state=0).fit(*IRIS))
    model = compile_members(pool, np.ones(6), 1e-3, None, gate)
    told = "has ensembles with fixed weights only, .* use to_onnx or save"
    with pytest.raises(NotExportable, match=f"treelite {told}"):
        export_treelite(model)
    with pytest.raises(NotExportable, match=f"scikit-learn {told}"):
        export_sklearn(model, pool, np.ones(6))
    with pytest.raises(NotExportable, match=f"scikit-learn {told}"):
        as_members(model)
