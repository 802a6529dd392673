"""A compiled ensemble as an ONNX graph: one ``TreeEnsemble`` node, weights in the leaves.

Sums are taken in float64, as ours are; trees compare float32 values, as scikit-learn's do. To
export another calibrator, add its nodes to `CALIBRATOR_NODES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import Calibrator
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees
from sparsebag.deploy.verification import (
    Export,
    NotExportable,
    check_fixed_weights,
    dense,
    name_of,
    probe_rows,
    width_of_rows,
)
from sparsebag.deploy.votes import LayeredVotes
from sparsebag.evidence.readers import optional_import
from sparsebag.sources.whole_file import write_whole

OPSET, ML_OPSET, IR_VERSION = 18, 5, 10
"""ai.onnx.ml 5 has the TreeEnsemble operator with float64 leaves."""
MAX_LEAVES = 2**15
"""Leaves times classes that are written out in the trees, about 2 MB; more become a table."""
ACTIVATION_NODES = {"logistic": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


@dataclass(frozen=True, repr=False)
class OnnxExport(Export):
    """An ONNX graph and the model it stands for.

    Attributes
    ----------
    graph : onnx.ModelProto
        Input ``X`` (float32 for trees alone, else float64); outputs ``label`` and
        ``probabilities``, or ``prediction``.
    model : CompiledEnsemble
    """

    graph: Any
    model: CompiledEnsemble

    @cached_property
    def session(self) -> Any:
        """An ONNX Runtime session on one thread."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # what is wrong is raised
        content = self.graph.SerializeToString()
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def predict(self, X: Any) -> np.ndarray:
        """Probabilities, or numbers (regression), by ONNX Runtime.

        Parameters
        ----------
        X : array-like of shape (rows, n_features)

        Returns
        -------
        ndarray
        """
        name = "prediction" if self.model.classes is None else "probabilities"
        rows = np.asarray(dense(X), dtype=_input_dtype(self.model))
        if rows.ndim == 2 and rows.shape[1] != (width := width_of_rows(self.model)):
            raise ValueError(f"X has {rows.shape[1]} features, but {width} were fitted.")
        (out,) = self.session.run([name], {"X": rows})
        return np.asarray(out)

    def save(self, path: Any) -> None:
        """Write the graph.

        Parameters
        ----------
        path : path-like
        """
        write_whole(path, self.graph.SerializeToString())


def export_onnx(model: CompiledEnsemble) -> OnnxExport:
    """The ensemble as an ONNX graph, verified on rows at its thresholds.

    Parameters
    ----------
    model : CompiledEnsemble

    Returns
    -------
    OnnxExport
    """
    check_fixed_weights(model.gate, "the ONNX export")
    graph = Graph()
    scores = [_scores(graph, group) for group in model.groups]
    total = scores[0] if len(scores) == 1 else graph.add("Sum", *scores)
    if model.classes is None:
        outputs = [graph.output("Squeeze", "prediction", [None], total, graph.ints([1]))]
    else:
        outputs = _vote(graph, model, total)
    export = OnnxExport(graph.finished(width_of_rows(model), _input_dtype(model), outputs), model)
    export.verify(probe_rows(model))
    return export


def _input_dtype(model: CompiledEnsemble) -> Any:
    only_trees = all(isinstance(group, FlatTrees) for group in model.groups)
    return np.float32 if only_trees else np.float64


# -- groups ----------------------------------------------------------------------------------


def _scores(graph: Graph, group: Any) -> str:
    """The name of a group's scores."""
    if isinstance(group, FlatTrees):
        return _trees(graph, group)
    if isinstance(group, LayeredVotes):
        z = graph.add("MatMul", graph.cast("X", np.float64), graph.constant(group.coef))
        z = graph.add("Add", z, graph.constant(group.intercept))
        if len(group.weights) == 1:  # ONNX Runtime before 1.26 has no product after a transposition
            z = graph.add("Unsqueeze", z, graph.ints([0]))
        else:
            per_member = graph.ints([0, len(group.weights), -1])
            z = graph.add("Transpose", graph.add("Reshape", z, per_member), perm=[1, 0, 2])
        for layer, bias in zip(group.layers, group.biases, strict=True):
            if group.activation in ACTIVATION_NODES:
                z = graph.add(ACTIVATION_NODES[group.activation], z)
            z = graph.add("MatMul", z, graph.constant(layer))
            z = graph.add("Add", z, graph.constant(bias))
        return _weighted(graph, _link(graph, z, group), group)
    raise NotExportable(
        "some members predict for themselves and have no ONNX form; only trees, "
        "linear models and scikit-learn's networks can be exported."
    )


def _trees(graph: Graph, trees: FlatTrees) -> str:
    width = trees.values.shape[1]
    children, roots = trees.children.copy(), trees.roots.copy()
    feature, threshold = trees.feature, trees.threshold.astype(np.float64)
    missing = trees.missing_left.astype(np.int64)
    alone = np.flatnonzero(roots < 0)  # trees of one leaf: a node with it on both sides
    children = np.concatenate([children, np.repeat(roots[alone, None], 2, axis=1)])
    roots[alone] = len(feature) + np.arange(len(alone))
    feature = np.concatenate([feature, np.zeros(len(alone), dtype=feature.dtype)])
    threshold = np.concatenate([threshold, np.zeros(len(alone))])
    missing = np.concatenate([missing, np.ones(len(alone), dtype=np.int64)])
    # A leaf of this operator adds one number to one target. Of several classes each gets a copy
    # of the trees; where that would be too much, leaves say their row of the table of values, to
    # a target a tree, and the table is looked up after it.
    direct = width == 1 or np.sum(children < 0) * width <= MAX_LEAVES
    tree_of, level = np.zeros(len(feature), dtype=np.int64), roots.astype(np.int64)
    tree_of[roots] = np.arange(len(roots))
    while len(level):  # a level of all trees at a time
        below, own = children[level].ravel(), np.repeat(tree_of[level], 2)
        tree_of[below[below >= 0]] = own[below >= 0]
        level = below[below >= 0]
    is_leaf = children < 0
    slots = np.flatnonzero(is_leaf.ravel())
    rows = ~children.ravel()[slots]
    copies = width if direct else 1
    leaf_weights = trees.values[rows].T.ravel() if direct else rows.astype(np.float64)
    targets = np.repeat(np.arange(width), len(slots)) if direct else tree_of[slots // 2]
    index = children.astype(np.int64)
    index[is_leaf] = np.arange(len(slots))
    step = np.where(is_leaf, len(slots), len(feature))
    index = np.concatenate([index + c * step for c in range(copies)])
    roots = np.concatenate([roots.astype(np.int64) + c * len(feature) for c in range(copies)])
    feature, threshold, missing = (np.tile(a, copies) for a in (feature, threshold, missing))
    is_leaf = np.tile(is_leaf, (copies, 1))
    # ONNX Runtime before 1.24 takes a root for a leaf if its children, a node and a leaf, have the
    # same number (microsoft/onnxruntime#24679).
    while np.any((index[roots, 0] == index[roots, 1]) & (is_leaf[roots, 0] != is_leaf[roots, 1])):
        index[is_leaf] = (index[is_leaf] + 1) % len(targets)
        leaf_weights, targets = np.roll(leaf_weights, 1), np.roll(targets, 1)
    tensor = graph.onnx.numpy_helper.from_array
    out = graph.add(
        "TreeEnsemble",
        graph.cast(graph.cast("X", np.float32), np.float64),
        domain="ai.onnx.ml",
        n_targets=width if direct else len(roots),
        aggregate_function=1,  # ONNX's code for a sum
        post_transform=0,  # for none
        tree_roots=roots.astype(np.int64).tolist(),
        nodes_featureids=feature.astype(np.int64).tolist(),
        nodes_splits=tensor(threshold, "splits"),
        nodes_modes=tensor(np.zeros(len(feature), dtype=np.uint8), "modes"),  # 0: less or equal
        nodes_truenodeids=index[:, 0].tolist(),
        nodes_falsenodeids=index[:, 1].tolist(),
        nodes_trueleafs=is_leaf[:, 0].astype(np.int64).tolist(),
        nodes_falseleafs=is_leaf[:, 1].astype(np.int64).tolist(),
        nodes_missing_value_tracks_true=missing.tolist(),
        leaf_targetids=targets.tolist(),
        leaf_weights=tensor(leaf_weights.astype(np.float64), "leaf_weights"),
    )
    if not direct:  # (rows, trees) of positions in the table, to (rows, trees, classes)
        said = graph.add("Gather", graph.constant(trees.values), graph.cast(out, np.int64), axis=0)
        return graph.add("ReduceSum", said, graph.ints([1]), keepdims=0)
    if not trees.complement:
        return out
    rest = graph.add("Sub", graph.constant([[trees.total]]), out)
    return graph.add("Concat", rest, out, axis=1)


def _link(graph: Graph, z: str, group: LayeredVotes) -> str:
    """Scores of shape (members, rows, q) to votes, as `votes.LINKS` does."""
    link = group.link
    if link == "identity":
        return z
    if link == "softmax":
        return graph.add("Softmax", z, axis=-1)
    if link == "one_vs_rest":
        decay = graph.add("Exp", graph.add("Neg", graph.add("Abs", z)))
        one = graph.constant(1.0)
        log_odds = graph.add("Log", graph.add("Add", one, decay))
        z = graph.add("Sub", graph.add("Min", z, graph.constant(0.0)), log_odds)
        return graph.add("Softmax", z, axis=-1)
    if link == "largest":
        # Not "equal to the largest": of equal scores the first alone gets the vote.
        best = graph.add("ArgMax", z, axis=-1, keepdims=1)
        columns = graph.ints(list(range(group.class_columns.shape[1])))
        return graph.cast(graph.add("Equal", best, columns), np.float64)
    if link == "sign":
        p = graph.cast(graph.add("Greater", z, graph.constant(0.0)), np.float64)
    else:
        p = graph.add("Sigmoid", z)
    return graph.add("Concat", graph.add("Sub", graph.constant(1.0), p), p, axis=-1)


def _weighted(graph: Graph, votes: str, group: LayeredVotes) -> str:
    """Each member's votes into its classes, times its weight, summed."""
    members, columns = group.class_columns.shape
    into = np.zeros((members, columns, group.n_outputs))
    rows = np.arange(members)[:, None]
    into[rows, np.arange(columns), group.class_columns] = group.weights[:, None]
    votes = graph.add("MatMul", votes, graph.constant(into))
    return graph.add("ReduceSum", votes, graph.ints([0]), keepdims=0)


# -- what finishes the vote ------------------------------------------------------------------


def _vote(graph: Graph, model: CompiledEnsemble, total: str) -> list[Any]:
    assert model.classes is not None
    n_classes = len(model.classes)
    p = total
    if any(isinstance(g, FlatTrees) and g.may_be_negative for g in model.groups):
        p = graph.add("Max", p, graph.constant(0.0))
        p = _normalised(graph, p)
    if model.floor:
        p = graph.add("Mul", p, graph.constant(1.0 - model.floor))
        p = graph.add("Add", p, graph.constant(model.floor / n_classes))
    p = _normalised(graph, p)
    if model.calibrator is not None:
        if model.calibrator.kind not in CALIBRATOR_NODES:
            raise NotExportable(
                f"the calibrator {name_of(model.calibrator)!r} has no ONNX form; use one of "
                f"{', '.join(sorted(CALIBRATOR_NODES))}."
            )
        p = CALIBRATOR_NODES[model.calibrator.kind](graph, p, model.calibrator, n_classes)
    shape = [None, n_classes]
    proba = graph.output("Identity", "probabilities", shape, p)
    best = graph.add("ArgMax", p, axis=1, keepdims=0)
    classes = _label_tensor(model.classes)
    labels = graph.constant(classes, classes.dtype)
    label = graph.output("Gather", "label", [None], labels, best, dtype=classes.dtype, axis=0)
    return [label, proba]


def _label_tensor(classes: np.ndarray) -> np.ndarray:
    """Labels in a type that ONNX has."""
    kind = classes.dtype.kind
    try:
        if kind in "iu" and classes.max() <= np.iinfo(np.int64).max:
            return classes.astype(np.int64)
        if kind in "fb":
            return classes.astype(np.float64 if kind == "f" else np.bool_)
        if kind in "UO" and all(isinstance(c, str) and c.encode() is not None for c in classes):
            return classes.astype(object)
    except UnicodeEncodeError:  # half a character
        pass
    raise NotExportable(
        f"labels such as {classes[-1]!r} have no ONNX form; use text, integers of 64 bits, floats "
        "or bools."
    )


def _normalised(graph: Graph, p: str) -> str:
    return graph.add("Div", p, graph.add("ReduceSum", p, graph.ints([1]), keepdims=1))


def _temperature_nodes(graph: Graph, p: str, calibrator: Calibrator, n_classes: int) -> str:
    scale = float(calibrator.params["scale"][0])
    factor = graph.constant((scale or 1.0) / float(calibrator.params["temperature"][0]))
    p = p if scale else graph.add("Log", p)
    p = graph.add("Softmax", graph.add("Mul", p, factor), axis=1)
    share = float(calibrator.params["share"][0])
    if share == 0.0:
        return p
    p = graph.add("Mul", p, graph.constant(1.0 - share))
    return graph.add("Add", p, graph.constant(share / n_classes))


CALIBRATOR_NODES: dict[str, Callable[[Graph, str, Calibrator, int], str]] = {
    "temperature": _temperature_nodes,
}
"""Kind of calibrator to a function that adds its nodes and returns the name of their output."""


# -- the graph --------------------------------------------------------------------------------


class Graph:
    """Nodes and constants of a graph in the making; values are known by their names."""

    def __init__(self) -> None:
        what = "exporting to ONNX"
        optional_import("onnxruntime", "onnx", what)  # verify needs it
        self.onnx = optional_import("onnx", "onnx", what)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """A node; returns the name of its output."""
        name = output or f"{op.lower()}_{len(self.nodes)}"
        node = self.onnx.helper.make_node(op, list(inputs), [name], **attributes)
        self.nodes.append(node)
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

    def output(
        self, op: str, name: str, shape: Any, *inputs: str, dtype: Any = np.float64, **how: Any
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
