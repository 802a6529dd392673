"""Nodes and constants of an ONNX graph in the making."""

from __future__ import annotations

from typing import Any

import numpy as np

OPSET, ML_OPSET, IR_VERSION = 18, 5, 10
"""ai.onnx.ml 5 has the TreeEnsemble operator with float64 leaves."""


class Graph:
    """Nodes and constants of a graph in the making; values are known by their names."""

    def __init__(self) -> None:
        try:
            import onnx
            import onnxruntime  # noqa: F401 -- verify needs it, and the error is clearer here
        except ImportError as error:
            raise ImportError(
                "exporting to ONNX needs onnx and onnxruntime; pip install 'sparsebag[onnx]'."
            ) from error
        self.onnx: Any = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node; returns the name of its output."""
        name = output or f"{op.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(op, list(inputs), [name], **attributes)
        self.nodes.append(node)
        return name

    def first_of(self, op: str, *inputs: str, **attributes: Any) -> str:
        """A node of two outputs, of which the first is used."""
        name = f"{op.lower()}_{len(self.nodes)}"
        outputs = [name, f"{name}_rest"]
        self.nodes.append(self.onnx.helper.make_node(op, list(inputs), outputs, **attributes))
        return name

    def constant(self, values: Any, dtype: Any = np.float64) -> str:
        """A tensor known beforehand."""
        name = f"constant_{len(self.constants)}"
        array = np.asarray(values, dtype=dtype)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def ints(self, values: list[int]) -> str:
        """A tensor of whole numbers."""
        return self.constant(values, np.int64)

    def cast(self, value: str, dtype: Any) -> str:
        """Another type."""
        return self.add("Cast", value, to=self.type_of(dtype))

    def type_of(self, dtype: Any) -> int:
        """ONNX's number for a type."""
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def sum_of_rows(self, table: str, width: int, *, weighted: bool = False) -> Any:
        """Body of a Scan that adds rows of a table, known outside of it, to a running sum.

        Weighted, each is multiplied by a number of its own, a second thing that is scanned.
        """
        helper = self.onnx.helper
        number, whole = self.type_of(np.float64), self.type_of(np.int64)
        before, after = (
            helper.make_tensor_value_info(name, number, [None, width]) for name in ("sum", "sum_on")
        )
        index = helper.make_tensor_value_info("own_rows", whole, [None])
        nodes = [helper.make_node("Gather", [table, "own_rows"], ["said"], axis=0)]
        inputs = [before, index]
        if weighted:
            inputs.append(helper.make_tensor_value_info("own_weights", number, [None, 1]))
            nodes.append(helper.make_node("Mul", ["said", "own_weights"], ["weighted"]))
        added = "weighted" if weighted else "said"
        nodes.append(helper.make_node("Add", ["sum", added], ["sum_on"]))
        return helper.make_graph(nodes, "sum_of_rows", inputs, [after])

    def output(
        self,
        op: str,
        name: str,
        shape: list[Any],
        *inputs: str,
        dtype: Any = np.float64,
        **how: Any,
    ) -> Any:
        """A node whose output leaves the graph."""
        self.add(op, *inputs, output=name, **how)
        is_text = np.dtype(dtype).kind in "UO"
        kind = self.onnx.TensorProto.STRING if is_text else self.type_of(dtype)
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def finished(self, width: int, dtype: Any, outputs: list[Any]) -> Any:
        """The whole model, checked; ``width`` columns of ``dtype`` go in."""
        helper = self.onnx.helper
        X = helper.make_tensor_value_info("X", self.type_of(dtype), [None, width])
        graph = helper.make_graph(self.nodes, "sparsebag", [X], outputs, self.constants)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
        proto = helper.make_model(
            graph, opset_imports=opsets, producer_name="sparsebag", ir_version=IR_VERSION
        )
        self.onnx.checker.check_model(proto)
        return proto
