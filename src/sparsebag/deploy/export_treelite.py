"""A compiled forest as a treelite model: GTIL, compiled C (tl2cgen), or GPU engines from there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.calibration.calibrator import finished_votes
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees
from sparsebag.deploy.verification import (
    Export,
    NotExportable,
    check_fixed_weights,
    dense,
    probe_rows,
)
from sparsebag.evidence.readers import optional_import


@dataclass(frozen=True, repr=False)
class TreeliteExport(Export):
    """A treelite model and the ensemble it stands for.

    Attributes
    ----------
    trees : treelite.Model
        The weighted vote, floor included, or of scores their softmax; reads float32 values,
        given as float64. `predict` does the rest of the calibration, and `note` says so.
    model : CompiledEnsemble
    """

    trees: Any
    model: CompiledEnsemble

    def predict(self, X: Any) -> np.ndarray:
        """Probabilities, or numbers (regression), by treelite's reference engine.

        Parameters
        ----------
        X : array-like of shape (rows, n_features)

        Returns
        -------
        ndarray
        """
        import treelite

        # The trees compare float32 values, whatever precision the caller has.
        rows = np.asarray(dense(X), dtype=np.float32).astype(np.float64)
        # Sums: treelite's own softmax is in single precision.
        out = np.asarray(treelite.gtil.predict(self.trees, rows, nthread=1, pred_margin=True))
        out = out.reshape(len(rows), self.model.n_outputs) / (_inverse(self.model) or 1.0)
        if self.model.classes is None:
            return np.asarray(out[:, 0])
        # The floor is in the trees' sum; refined leaves are clipped before it.
        floor = self.model.floor
        raw = (out - floor / self.model.n_outputs) / (1.0 - floor)
        out = np.where(np.any(raw < 0.0, axis=1, keepdims=True), finished_votes(raw, floor), out)
        out = out / out.sum(axis=1, keepdims=True)
        return out if self.model.calibrator is None else self.model.calibrator.transform(out)

    @property
    def note(self) -> str:
        """What another engine that reads ``trees`` must do itself, in a sentence."""
        calibrator: Any = self.model.calibrator
        if self.model.classes is None:
            return "The trees' sum is the prediction."
        if calibrator is None:
            return "The trees' sum, clipped at the floor and normalised, is the probabilities."
        if not hasattr(calibrator, "temperature"):
            return f"The trees' sum is the vote before calibration ({calibrator.kind})."
        share, scale = calibrator.share, calibrator.scale
        q = "the softmax of the trees' sum"
        if not _inverse(self.model):
            scores = f"{scale:.9g} * v" if scale else "log(v)"
            v = "v is the trees' sum before calibration, clipped at the floor and normalised"
            q = f"softmax({scores} / {calibrator.temperature:.9g}), and {v}"
        return f"p = (1 - {share:.9g}) * q + {share:.9g} / {self.model.n_outputs}, where q is {q}."


def export_treelite(model: CompiledEnsemble) -> TreeliteExport:
    """The forest as a treelite model, verified on rows at its thresholds.

    Parameters
    ----------
    model : CompiledEnsemble
        All of whose members are trees.

    Returns
    -------
    TreeliteExport
    """
    tl = optional_import("treelite.model_builder", "treelite", "exporting to treelite")
    check_fixed_weights(model.gate, "treelite")
    if len(model.groups) != 1 or not isinstance(model.groups[0], FlatTrees):
        raise NotExportable(
            f"treelite holds trees only, and this ensemble has members of other kinds "
            f"({', '.join(sorted(set(model.paths) - {FlatTrees.kind}))}); use save."
        )
    trees, n, inverse = model.groups[0], model.n_outputs, _inverse(model)
    link = "identity" if model.classes is None else "softmax" if inverse else "identity_multiclass"
    builder: Any = tl.ModelBuilder(
        threshold_type="float64",
        leaf_output_type="float64",
        metadata=tl.Metadata(
            num_feature=trees.n_features,
            task_type="kRegressor" if model.classes is None else "kMultiClf",
            average_tree_output=False,
            num_target=1,
            num_class=[n],
            leaf_vector_shape=(1, n),
        ),
        tree_annotation=tl.TreeAnnotation(
            num_tree=trees.n_members,
            target_id=[0] * trees.n_members,
            class_id=[0 if model.classes is None else -1] * trees.n_members,
        ),
        postprocessor=tl.PostProcessorFunc(name=link),
        base_scores=_base_scores(model, trees),
    )
    said = (inverse or 1.0) * (1.0 - model.floor) * trees.values
    if trees.complement:  # what the second class gains, the first one loses
        said = np.concatenate([-said, said], axis=1)
    for root in trees.roots:
        builder.start_tree()
        _add_nodes(builder, trees, int(root), said)
        builder.end_tree()
    export = TreeliteExport(builder.commit(), model)
    export.verify(probe_rows(model))
    return export


def _inverse(model: CompiledEnsemble) -> float:
    """What makes votes that stand for scores the arguments of a softmax; 0 for other votes."""
    calibrator: Any = model.calibrator
    if any(trees.may_be_negative for trees in model.groups if isinstance(trees, FlatTrees)):
        return 0.0  # they are clipped first
    return getattr(calibrator, "scale", 0.0) / getattr(calibrator, "temperature", 1.0)


def _base_scores(model: CompiledEnsemble, trees: FlatTrees) -> list[float]:
    if model.classes is None:
        return [0.0]
    scores = np.full(model.n_outputs, model.floor / model.n_outputs)
    if trees.complement:
        scores[0] += (1.0 - model.floor) * trees.total
    return list((_inverse(model) or 1.0) * scores)


def _add_nodes(builder: Any, trees: FlatTrees, root: int, said: np.ndarray) -> None:
    """One tree, its nodes numbered as they are met."""
    pending, key, n_keys = [root], 0, 1
    while key < len(pending):
        node = pending[key]
        builder.start_node(key)
        if node < 0:
            value = said[~node]
            builder.leaf(value.tolist() if len(value) > 1 else float(value[0]))
        else:
            builder.numerical_test(
                feature_id=int(trees.feature[node]),
                threshold=float(trees.threshold[node]),
                default_left=bool(trees.missing_left[node]),
                opname="<=",
                left_child_key=n_keys,
                right_child_key=n_keys + 1,
            )
            pending += [int(child) for child in trees.children[node]]
            n_keys += 2
        builder.end_node()
        key += 1
