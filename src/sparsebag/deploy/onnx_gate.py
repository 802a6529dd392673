"""Nodes of a gate in an ONNX graph: the weights of each row."""

from __future__ import annotations

import numpy as np

from sparsebag.deploy.onnx_graph import Graph
from sparsebag.local.gate import LinearGate


def gate_nodes(graph: Graph, gate: LinearGate) -> str:
    """Adds the nodes of a gate.

    Parameters
    ----------
    graph : Graph
    gate : LinearGate

    Returns
    -------
    str
        Name of the weights, of shape (rows, members).
    """
    x = graph.cast(graph.cast("X", np.float32), np.float64)
    z = graph.add("Sub", x, graph.constant(gate.mean))
    z = graph.add("Mul", z, graph.constant(1.0 / gate.scale))
    z = graph.add("Max", z, graph.constant(-gate.clip))
    z = graph.add("Min", z, graph.constant(gate.clip))
    # x - x is zero for numbers, and NaN for missing and infinite values.
    is_number = graph.add("Equal", graph.add("Sub", x, x), graph.constant(0.0))
    z = graph.add("Where", is_number, z, graph.constant(0.0))
    h = graph.add("MatMul", z, graph.constant(gate.down.T))
    h = graph.add("Add", h, graph.constant(gate.offset))
    square = graph.add("Add", graph.add("Mul", h, h), graph.constant(1.0))
    bounded = graph.add("Div", h, graph.add("Sqrt", square))
    logits = graph.add("MatMul", bounded, graph.constant(gate.up.T))
    logits = graph.add("Add", logits, graph.constant(gate.base))
    return graph.add("Softmax", logits, axis=1)
