"""Evidence from a user's own matrices: any language's forest, any framework's members."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, is_numpy_array

from sparsebag.evidence.blocks import row_blocks
from sparsebag.evidence.evidence import OOBEvidence, Task

Array = Any


def from_predictions(
    predictions: Array,
    oob_mask: Array | None,
    y: Array,
    *,
    task: Task,
    sample_weight: Array | None = None,
    labels: Array | None = None,
    every_class: bool = False,
) -> OOBEvidence:
    """Check a user's matrices and turn them into evidence.

    Parameters
    ----------
    predictions : array of shape (M, N) or (M, N, C)
        What member j says of row i. Regression: the prediction. Classification, two axes: the
        probability of the row's *true* class; three axes: of every class.
    oob_mask : array of shape (M, N) or None
        Non-zero where row i is out of bag for member j; None if every row is unseen by every
        member.
    y : array of shape (M,)
        Targets. With true-class probabilities they only name the classes.
    task : {"classification", "regression"}
        What ``predictions`` are.
    sample_weight : array of shape (M,), optional
        Row weights, not negative.
    labels : array of shape (C,), optional
        Class order of the third axis; default: sorted distinct values of ``y``.
    every_class : bool, default False
        Keep every class's votes (needs three axes unless there are two classes).

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> e = from_predictions(np.array([[0.9, 0.2], [0.6, 0.7]]), None, [0, 1],
    ...                      task="classification")
    >>> e.n_rows, e.n_members
    (2, 2)
    """
    predictions = _as_array(predictions)
    if predictions.ndim not in (2, 3):
        raise ValueError(
            "predictions must have shape (rows, members) or (rows, members, classes), "
            f"got {tuple(predictions.shape)}."
        )
    if task == "regression" and predictions.ndim == 3:
        raise ValueError("regression predictions must have shape (rows, members).")
    xp = array_namespace(predictions)
    if not xp.isdtype(predictions.dtype, "real floating"):
        predictions = xp.astype(predictions, xp.float64)
    mask = _check_mask(oob_mask, predictions)
    n_rows = predictions.shape[0]
    seen = _check_seen(predictions, mask, probabilities=task == "classification")
    classes: np.ndarray | None = None
    class_votes: tuple[Array, ...] | None = None
    if task == "regression":
        target = _like(y, predictions, n_rows, "y")
    else:
        target, classes = _encode(y, labels, predictions, n_rows)
        if predictions.ndim == 3:
            if predictions.shape[2] != len(classes):
                raise ValueError(
                    f"predictions have {predictions.shape[2]} classes but y and labels have "
                    f"{len(classes)}; pass labels= with one entry a class."
                )
            if every_class and len(classes) > 2:
                planes = [seen[:, :, c] for c in range(len(classes))]
                class_votes = tuple(
                    sp.csr_array(p) if is_numpy_array(p) else xp.asarray(p, copy=True)
                    for p in planes
                )
            index = xp.broadcast_to(target[:, None, None], (n_rows, predictions.shape[1], 1))
            seen = xp.take_along_axis(seen, index, axis=2)[:, :, 0]
        elif every_class and len(classes) > 2:
            raise ValueError(
                "this loss reads every class: pass predictions of shape (rows, members, classes)."
            )
    return OOBEvidence(
        votes=seen,
        oob_mask=mask,
        target=target,
        task=task,
        sample_weight=check_sample_weight(sample_weight, predictions),
        classes=classes,
        class_votes=class_votes,
        source="matrices",
    )


def check_sample_weight(sample_weight: Array | None, like: Array) -> Array | None:
    """Row weights as float64 on the namespace and device of ``like``; one sentence if unusable.

    Parameters
    ----------
    sample_weight : array of shape (M,) or None
        Row weights.
    like : array
        Its first axis has M entries.

    Returns
    -------
    array or None

    Examples
    --------
    >>> check_sample_weight([1, 2], np.zeros((2, 3))).tolist()
    [1.0, 2.0]
    """
    if sample_weight is None:
        return None
    weights = _like(sample_weight, like, int(like.shape[0]), "sample_weight")
    xp = array_namespace(weights)
    if bool(xp.any(weights < 0)) or float(xp.sum(weights)) == 0.0:
        raise ValueError("sample_weight must not be negative and must not be zero everywhere.")
    return weights


def _as_array(values: Array) -> Array:
    return values if hasattr(values, "device") and hasattr(values, "dtype") else np.asarray(values)


def _like(values: Array, like: Array, n_rows: int, name: str) -> Array:
    xp = array_namespace(like)
    out = xp.asarray(values, dtype=xp.float64, device=like.device)
    if out.ndim != 1:
        raise ValueError(
            f"{name} must have one value a row, got shape {tuple(out.shape)}; "
            "multi-output problems are not supported."
        )
    if out.shape[0] != n_rows:
        raise ValueError(f"{name} has {out.shape[0]} rows but the predictions have {n_rows}.")
    if not bool(xp.all(xp.isfinite(out))):
        raise ValueError(f"{name} holds NaN or infinity.")
    return out


def _check_mask(oob_mask: Array | None, predictions: Array) -> Array | None:
    if oob_mask is None:
        return None
    xp = array_namespace(predictions)
    mask = xp.asarray(oob_mask, device=predictions.device)
    if tuple(mask.shape) != tuple(predictions.shape[:2]):
        raise ValueError(
            f"oob_mask has shape {tuple(mask.shape)} but predictions have "
            f"{tuple(predictions.shape[:2])} (rows, members)."
        )
    return mask if mask.dtype == xp.bool else mask != 0


def _check_seen(predictions: Array, mask: Array | None, *, probabilities: bool) -> Array:
    """Predictions with zeros where a row was in the bag; a copy only if something is to change."""
    xp = array_namespace(predictions)
    any_vote = False
    clean = predictions
    for rows in row_blocks(predictions):
        block = predictions[rows]
        if mask is not None:
            keep = mask[rows] if predictions.ndim == 2 else mask[rows][:, :, None]
            if bool(xp.any((block != 0) & ~keep)):
                block = xp.where(keep, block, xp.zeros_like(block))
                if clean is predictions:
                    clean = xp.asarray(predictions, copy=True)
                clean[rows] = block
        if not bool(xp.all(xp.isfinite(block))):
            raise ValueError(
                "predictions hold NaN or infinity where the mask says out of bag; a member must "
                "answer for every row it is judged on."
            )
        if probabilities and (bool(xp.any(block < 0)) or bool(xp.any(block > 1 + 1e-6))):
            raise ValueError("classification predictions must be probabilities between 0 and 1.")
        any_vote = any_vote or bool(xp.any(block != 0))
    if probabilities and not any_vote:
        raise ValueError(
            "every member gives every row probability zero; predictions must hold the "
            "probability of the row's true class (or of every class, with three axes)."
        )
    return clean


def _encode(y: Array, labels: Array | None, like: Array, n_rows: int) -> tuple[Array, np.ndarray]:
    xp = array_namespace(like)
    values = np.asarray(y.cpu() if hasattr(y, "cpu") else y.get() if hasattr(y, "get") else y)
    if values.ndim != 1:
        raise ValueError(
            f"y must have one value a row, got shape {values.shape}; "
            "multi-output problems are not supported."
        )
    if values.shape[0] != n_rows:
        raise ValueError(f"y has {values.shape[0]} rows but the predictions have {n_rows}.")
    classes = np.unique(values) if labels is None else np.asarray(labels)
    if len(classes) < 2:
        raise ValueError(f"y has one class only ({classes[0]!r}); classification needs two.")
    order = np.argsort(classes)
    position = np.searchsorted(classes, values, sorter=order)
    index = order[np.minimum(position, len(classes) - 1)]
    if not np.array_equal(classes[index], values):
        raise ValueError("y holds a class that labels= does not name.")
    target = xp.asarray(index, device=like.device)
    return cast(Array, target), classes
