"""Nodes of a gate in an ONNX graph: weights, and temperatures, of each row."""

from __future__ import annotations

import numpy as np

from sparsebag.deploy.gate import CompiledGate, LinearGate, RegionGate
from sparsebag.deploy.onnx_graph import Graph
from sparsebag.deploy.trees import round_down
from sparsebag.refine.directions import Directions
from sparsebag.refine.temperature import SHARPEST, SOFTEST

SUM, LESS_OR_EQUAL = 1, 0
"""Codes of TreeEnsemble's attributes."""


def gate_nodes(graph: Graph, gate: CompiledGate) -> tuple[str, str | None]:
    """Adds the nodes of a gate.

    Parameters
    ----------
    graph : Graph
    gate : CompiledGate

    Returns
    -------
    weights : str
        Name of a value of shape (rows, members).
    inverse_temperature : str or None
        Name of a value of shape (rows, 1), where the gate has temperatures.
    """
    if isinstance(gate.source, LinearGate):
        return _linear(graph, gate.source)
    assert isinstance(gate.source, RegionGate)
    return _regions(graph, gate.source)


def _linear(graph: Graph, gate: LinearGate) -> tuple[str, str | None]:
    h = _sums(graph, graph.cast(graph.cast("X", np.float32), np.float64), gate)
    read = h
    if gate.offset is not None:
        shifted = graph.add("Add", h, graph.constant(gate.offset))
        square = graph.add("Add", graph.add("Mul", shifted, shifted), graph.constant(1.0))
        read = graph.add("Div", shifted, graph.add("Sqrt", square))
    logits = graph.add("MatMul", read, graph.constant(gate.up.T))
    logits = graph.add("Add", logits, graph.constant(gate.base))
    if gate.activation == "softmax":
        weights = graph.add("Softmax", logits, axis=1)
    else:
        weights = _sparsemax(graph, logits, gate.n_members)
    if gate.log_temperature is None:
        return weights, None
    log_t = graph.add("MatMul", h, graph.constant(gate.log_temperature[1:, None]))
    log_t = graph.add("Add", log_t, graph.constant(gate.log_temperature[0]))
    log_t = _clipped(graph, log_t, np.log(SHARPEST), np.log(SOFTEST))
    return weights, graph.add("Exp", graph.add("Neg", log_t))


def _sums(graph: Graph, x: str, of: LinearGate | Directions) -> str:
    """``down @ z`` of rows that were rounded to float32."""
    z = graph.add("Sub", x, graph.constant(of.mean))
    z = graph.add("Mul", z, graph.constant(1.0 / of.scale))
    z = _clipped(graph, z, -of.clip, of.clip)
    # x - x is zero for numbers, and NaN for what is none: missing and infinite values.
    is_number = graph.add("Equal", graph.add("Sub", x, x), graph.constant(0.0))
    z = graph.add("Where", is_number, z, graph.constant(0.0))
    return graph.add("MatMul", z, graph.constant(of.down.T))


def _clipped(graph: Graph, value: str, least: float, most: float) -> str:
    above = graph.add("Max", value, graph.constant(least))
    return graph.add("Min", above, graph.constant(most))


def _sparsemax(graph: Graph, logits: str, k: int) -> str:
    """As `sparsebag.refine.gate.sparsemax_rows`."""
    largest = graph.add("ReduceMax", logits, graph.ints([1]), keepdims=1)
    logits = graph.add("Sub", logits, largest)
    falling = graph.first_of("TopK", logits, graph.ints([k]), axis=1)
    sums = graph.add("CumSum", falling, graph.constant(1, np.int64))
    sums = graph.add("Sub", sums, graph.constant(1.0))
    scaled = graph.add("Mul", falling, graph.constant(np.arange(1.0, k + 1.0)))
    above = graph.cast(graph.add("Greater", scaled, sums), np.float64)
    support = graph.add("ReduceSum", above, graph.ints([1]), keepdims=1)
    last = graph.add("Sub", graph.cast(support, np.int64), graph.constant(1, np.int64))
    tau = graph.add("Div", graph.add("GatherElements", sums, last, axis=1), support)
    return graph.add("Max", graph.add("Sub", logits, tau), graph.constant(0.0))


def _regions(graph: Graph, gate: RegionGate) -> tuple[str, str | None]:
    inner = np.flatnonzero(gate.region < 0)
    if len(inner) == 0:  # one region: a node with it on both sides
        left = right = np.zeros(1, dtype=np.int64)
        inner, is_leaf = np.zeros(1, dtype=np.int64), np.ones((1, 2), dtype=bool)
        slots = np.stack([left, right], axis=1)
    else:
        slots = np.stack([gate.left[inner], gate.right[inner]], axis=1)
        is_leaf = gate.region[slots] >= 0
    number = np.zeros(len(gate.region), dtype=np.int64)  # of an inner node among them
    number[inner] = np.arange(len(inner))
    index = number[slots]
    index[is_leaf] = np.arange(int(is_leaf.sum()))
    tensor = graph.onnx.numpy_helper.from_array
    read = graph.cast(graph.cast("X", np.float32), np.float64)
    if gate.directions is not None:
        sums = graph.cast(_sums(graph, read, gate.directions), np.float32)
        read = graph.add("Concat", read, graph.cast(sums, np.float64), axis=1)
    reached = graph.add(
        "TreeEnsemble",
        read,
        domain="ai.onnx.ml",
        n_targets=1,
        aggregate_function=SUM,
        post_transform=0,
        tree_roots=[0],
        nodes_featureids=gate.feature[inner].astype(np.int64).tolist(),
        nodes_splits=tensor(round_down(gate.threshold[inner]).astype(np.float64), "gate_splits"),
        nodes_modes=tensor(np.full(len(inner), LESS_OR_EQUAL, dtype=np.uint8), "gate_modes"),
        nodes_truenodeids=index[:, 0].tolist(),
        nodes_falsenodeids=index[:, 1].tolist(),
        nodes_trueleafs=is_leaf[:, 0].astype(np.int64).tolist(),
        nodes_falseleafs=is_leaf[:, 1].astype(np.int64).tolist(),
        nodes_missing_value_tracks_true=(gate.missing_left[inner] != 0).astype(np.int64).tolist(),
        leaf_targetids=[0] * int(is_leaf.sum()),
        leaf_weights=tensor(gate.region[slots[is_leaf]].astype(np.float64), "gate_regions"),
    )
    region = graph.add("Squeeze", graph.cast(reached, np.int64), graph.ints([1]))
    weights = graph.add("Gather", graph.constant(gate.region_weights), region, axis=0)
    if gate.temperature is None:
        return weights, None
    inverse = graph.constant(1.0 / gate.temperature[:, None])
    return weights, graph.add("Gather", inverse, region, axis=0)
