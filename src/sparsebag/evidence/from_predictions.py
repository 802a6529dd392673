"""Evidence from a user's own matrices: any language's forest, any framework's members."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array, size

from sparsebag.evidence.arrays import CPU_CHECKED_ENTRIES, detached, on_host, row_blocks
from sparsebag.evidence.evidence import PROBABILITY_TOLERANCE, OOBEvidence, zero_in_bag
from sparsebag.evidence.members import Task, UnknownLabelError, check_labels, class_positions
from sparsebag.evidence.readable import check_dense, check_readable, what_are_no_numbers

Array = Any

SUM_TOLERANCE = 2.0**-7
"""How far from 1 a member's class probabilities may sum: bfloat16 and printed digits pass."""
LARGEST_COPY_BYTES = 256 << 20
"""A matrix with anything but zeros where rows were in the bag is copied, once, up to this size: the
solver's passes are then as fast as can be. A larger one is read as it is and zeroed block by
block in every pass over all members, so that peak memory stays near the matrix itself."""

FOR_REGRESSION = "for regression pass loss='squared_error' (task='regression' of a stream)"
"""What to do about targets or predictions that are none of classes."""
ELSE_ZERO = "pass 1 where the row is out of bag, else 0."
ALL_ZERO = (
    "every member gives every row's true class probability zero; predictions must hold the "
    "probability of the row's true class (or, with three axes, of every class, in the order of "
    "labels=)."
)


def from_predictions(
    predictions: Array,
    oob_mask: Array | None,
    y: Array,
    *,
    task: Task,
    sample_weight: Array | None = None,
    labels: Array | None = None,
    every_class: bool = False,
    first_row: int | None = None,
) -> OOBEvidence:
    """Check a user's matrices and turn them into evidence.

    Parameters
    ----------
    predictions : array of shape (M, N) or (M, N, C)
        What member j says of row i. Regression: the prediction. Classification, two axes: the
        probability of the row's *true* class; three axes: of every class.
    oob_mask : array of shape (M, N) or None
        True or 1 where row i is out of bag for member j, else False or 0; None if every row is
        unseen by every member.
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
    first_row : int, optional
        These are some rows of more, beginning with this one: none at all, or weights and votes of
        zero alone, need not be a mistake.

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
    check_readable(oob_mask, "oob_mask")
    check_readable(y, "y")
    check_readable(labels, "labels")
    check_labels(labels)
    is_part, first_row = first_row is not None, first_row or 0
    predictions = _check_predictions(predictions, task, is_part=is_part)
    xp = array_namespace(predictions)
    mask = _as_mask(oob_mask, predictions, first_row)
    classes: np.ndarray | None = None
    class_votes: tuple[Array, ...] | None = None
    zeroed, off = True, 0.0
    if task == "regression":
        target = _like(y, predictions, "y")
        votes, zeroed = _out_of_bag(predictions, mask, first_row, probabilities=False)
    else:
        target, classes = _encode(y, labels, predictions)
        if predictions.ndim == 2:
            if every_class and len(classes) > 2:
                raise ValueError(
                    "this loss reads every class; pass predictions of shape (rows, members, "
                    "classes)."
                )
            votes, zeroed = _out_of_bag(predictions, mask, first_row, probabilities=True)
        else:
            _check_class_axis(predictions, classes)
            votes, off = _true_class(predictions, mask, target, first_row)
        # Without a row out of bag there is another sentence for it.
        unseen = not is_part and (mask is None or bool(xp.any(mask)))
        if unseen and _all_zero(votes, None if zeroed else mask):
            raise ValueError(ALL_ZERO)
        if off > SUM_TOLERANCE:
            raise ValueError(
                "each member's class probabilities must sum to 1 in every row (to within "
                f"{SUM_TOLERANCE:g}); some are off by {off:.3g}; divide them by their sum over "
                f"the third axis, or pass the softmax of the scores."
            )
        if every_class and len(classes) > 2:
            class_votes = _class_planes(predictions, mask)
    return OOBEvidence(
        votes=votes,
        oob_mask=mask,
        target=target,
        task=task,
        sample_weight=check_sample_weight(sample_weight, predictions, is_part=is_part),
        classes=classes,
        class_votes=class_votes,
        source="matrices",
        is_zeroed=zeroed,
    )


def check_sample_weight(
    sample_weight: Array | None, like: Array, *, is_part: bool = False
) -> Array | None:
    """Row weights as float64 on the namespace and device of ``like``; one sentence if unusable.

    Parameters
    ----------
    sample_weight : array of shape (M,) or None
        Row weights.
    like : array
        Its first axis has M entries.
    is_part : bool, default False
        These are some rows of more, which may all weigh nothing.

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
    check_readable(sample_weight, "sample_weight")
    weights = _like(sample_weight, like, "sample_weight")
    xp = array_namespace(weights)
    if bool(xp.any(weights < 0)) or not (is_part or bool(xp.any(weights > 0))):
        raise ValueError(
            "sample_weight must not be negative and must not be zero everywhere; leave it out "
            "for equal weights."
        )
    return weights


def _check_predictions(predictions: Array, task: Task, *, is_part: bool) -> Array:
    """Predictions as an array of floats, of a shape that fits the task."""
    check_dense(predictions, "predictions")
    check_readable(predictions, "predictions")
    given = detached(predictions)
    out = given if is_array_api_obj(given) else np.asarray(given)
    if wrong := what_are_no_numbers(out):
        raise ValueError(f"predictions must be numbers (got {wrong}).")
    shape = tuple(out.shape)
    if task == "regression" and len(shape) != 2:
        raise ValueError(f"regression predictions must have shape (rows, members), got {shape}.")
    check_shape(shape, is_part=is_part)
    xp = array_namespace(out)
    if out.dtype in (xp.float32, xp.float64):
        return out
    half = xp.isdtype(out.dtype, "real floating") and out.dtype.itemsize == 2
    try:
        return xp.astype(out, xp.float32 if half else xp.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"predictions must be numbers ({error}).") from error


def check_shape(shape: tuple[int, ...], *, is_part: bool = False) -> None:
    """One sentence for a shape that predictions cannot have.

    Parameters
    ----------
    shape : tuple of int
    is_part : bool, default False
        These are some rows of more, which may be none.

    Examples
    --------
    >>> check_shape((10, 3))
    """
    if len(shape) not in (2, 3):
        raise ValueError(
            f"predictions must have shape (rows, members) or (rows, members, classes), got {shape}."
        )
    if 0 in (shape[1:] if is_part else shape):
        raise ValueError(f"predictions are empty (shape {shape}); pass what the members predict.")


def check_mask_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """One sentence for a mask that has another shape than the predictions.

    Parameters
    ----------
    shape, wanted : tuple of int

    Examples
    --------
    >>> check_mask_shape((10, 3), (10, 3))
    """
    if shape != wanted:
        raise ValueError(
            f"oob_mask has shape {shape} but predictions have {wanted} (rows, members); pass one "
            f"mask entry per prediction, or None if no member was trained on these rows."
        )


def _as_mask(oob_mask: Array | None, predictions: Array, first_row: int = 0) -> Array | None:
    """A user's mask as booleans beside predictions; one sentence where it is none."""
    if oob_mask is None:
        return None
    check_dense(oob_mask, "oob_mask")
    xp = array_namespace(predictions)
    if hasattr(oob_mask, "iloc"):
        oob_mask = np.asarray(oob_mask)
    if wrong := what_are_no_numbers(oob_mask):
        raise ValueError(f"oob_mask holds {wrong}; {ELSE_ZERO}")
    mask = xp.asarray(detached(oob_mask), device=device(predictions))
    check_mask_shape(tuple(mask.shape), tuple(predictions.shape[:2]))
    if mask.dtype == xp.bool:
        return mask
    if xp.isdtype(mask.dtype, "real floating") and bool(xp.any(xp.isnan(mask))):
        raise ValueError(f"oob_mask holds NaN; {ELSE_ZERO}")
    _check_values(mask, first_row)
    return mask != 0


def _check_values(mask: Array, first_row: int) -> None:
    """Refuse what is neither 0 nor 1: read as "not zero", counts would mean the opposite."""
    xp = array_namespace(mask)
    # Whole numbers that are all 0 or 1 take two plain reads, and no room.
    is_whole = is_numpy_array(mask) and mask.dtype.kind in "iu" and mask.size > 0
    if is_whole and mask.min() >= 0 and mask.max() <= 1:
        return
    for rows in row_blocks(mask, cpu_entries=CPU_CHECKED_ENTRIES):
        block = mask[rows, ...]
        strange = (block != 0) & (block != 1)
        if not bool(xp.any(strange)):
            continue
        row, member = np.argwhere(on_host(strange))[0]
        value = on_host(block)[row, member]
        shown = f"{value:g}" if isinstance(value, np.floating) else str(value)
        raise ValueError(
            f"oob_mask must hold only 0 and 1 (or True and False) but has {shown} at row "
            f"{first_row + (rows.start or 0) + row}, member {member}; {_instead_of(value)}"
        )


def _instead_of(value: Any) -> str:
    """What somebody who passed this most likely meant."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not 0 < value < np.inf:
        return ELSE_ZERO
    if value % 1 != 0:
        return "the order is predictions, oob_mask, y."
    return "for counts of how often a row trained a member, pass counts == 0."


def _like(values: Array, like: Array, name: str) -> Array:
    """One float64 value a row of ``like``, on its namespace and device."""
    xp = array_namespace(like)
    if hasattr(values, "iloc"):
        values = np.asarray(values)
    try:
        if wrong := what_are_no_numbers(values):
            raise ValueError(f"got {wrong}")
        out = xp.asarray(detached(values), dtype=xp.float64, device=device(like))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must hold one number per row ({error}).") from error
    out = out[:, 0] if out.ndim == 2 and out.shape[1] == 1 else out
    check_length(tuple(out.shape), like, name)
    if not bool(xp.all(xp.isfinite(out))):
        raise ValueError(f"{name} holds NaN or infinity; leave those rows out.")
    return out


def check_length(shape: tuple[int, ...], like: Array, name: str) -> None:
    """One sentence for what does not have one value a row of ``like``.

    Parameters
    ----------
    shape : tuple of int
    like : array
    name : str

    Examples
    --------
    >>> check_length((10,), np.zeros((10, 3)), "y")
    """
    n_rows = int(like.shape[0])
    if len(shape) != 1:
        raise ValueError(
            f"{name} must have one value per row, got shape {shape}; "
            + ("multi-output problems are not supported." if name == "y" else f"pass {n_rows}.")
        )
    if shape[0] != n_rows:
        raise ValueError(
            f"{name} has {shape[0]} values for {n_rows} rows; pass {n_rows}, one per row."
        )


def _check_block(block: Array, first_row: int, *, probabilities: bool) -> None:
    xp = array_namespace(block)
    if not bool(xp.all(xp.isfinite(block))):
        row, member = np.argwhere(~np.isfinite(on_host(block)))[0][:2]
        raise ValueError(
            "predictions hold NaN or infinity where the mask says out of bag, first in row "
            f"{first_row + row} of member {member}; a member needs a prediction for every row it "
            f"is judged on."
        )
    if probabilities and bool(xp.any((block < 0) | (block > 1 + PROBABILITY_TOLERANCE))):
        values = on_host(block)
        place = np.argwhere((values < 0) | (values > 1 + PROBABILITY_TOLERANCE))[0]
        raise ValueError(
            "classification predictions must be probabilities between 0 and 1 (the first invalid "
            f"one is {values[tuple(place)]:.9g}, in row {first_row + place[0]} of member "
            f"{place[1]}); {FOR_REGRESSION}."
        )


def _out_of_bag(
    predictions: Array, mask: Array | None, first_row: int, *, probabilities: bool
) -> tuple[Array, bool]:
    """Checked predictions, and whether they hold zeros wherever a row was in the bag.

    They are copied only if something is to change and the copy is small.
    """
    xp = array_namespace(predictions)
    small = (size(predictions) or 0) * xp.finfo(predictions.dtype).bits // 8 <= LARGEST_COPY_BYTES
    votes, zeroed = predictions, True
    for rows in row_blocks(predictions, cpu_entries=CPU_CHECKED_ENTRIES):
        block, unseen = predictions[rows, ...], None if mask is None else mask[rows, ...]
        if not _is_plain(block, probabilities=probabilities):
            judged = zero_in_bag(block, unseen)
            _check_block(judged, first_row + (rows.start or 0), probabilities=probabilities)
        if unseen is None or not bool(xp.any((block != 0) & ~unseen)):
            continue
        if not small:
            zeroed = False
            continue
        if votes is predictions:
            votes = xp.asarray(predictions, copy=True)
        votes[rows, ...] = zero_in_bag(block, unseen)
    return votes, zeroed


def _is_plain(block: Array, *, probabilities: bool) -> bool:
    """Whether nothing in the block is to be refused, in the bag or out of it: two plain reads."""
    xp = array_namespace(block)
    least, most = float(xp.min(block)), float(xp.max(block))  # NaN where there is one
    if probabilities:
        return least >= 0.0 and most <= 1.0 + PROBABILITY_TOLERANCE
    return bool(np.isfinite(least) and np.isfinite(most))


def has_votes(block: OOBEvidence) -> bool:
    """Whether some rows of classification evidence have a vote that is not zero; see `ALL_ZERO`.

    Parameters
    ----------
    block : OOBEvidence

    Returns
    -------
    bool
        True also for regression, where zero is a prediction.

    Examples
    --------
    >>> classes = np.array([0, 1])
    >>> has_votes(OOBEvidence(np.zeros((2, 2)), None, np.ones(2), "classification", None, classes))
    False
    """
    mask = None if block.is_zeroed else block.oob_mask
    return block.task == "regression" or not _all_zero(block.votes, mask)


def _all_zero(votes: Array, mask: Array | None) -> bool:
    """Whether no member gives any row a vote."""
    xp = array_namespace(votes)
    return not any(
        bool(xp.any(zero_in_bag(votes[rows, ...], None if mask is None else mask[rows, ...]) != 0))
        for rows in row_blocks(votes)
    )


def _true_class(
    predictions: Array, mask: Array | None, target: Array, first_row: int
) -> tuple[Array, float]:
    """The true class's plane of a (rows, members, classes) array, without copying the others.

    And by how much the classes' sum is off from 1 at worst, where rows are out of bag.
    """
    xp = array_namespace(predictions)
    n_rows, n_members, _ = predictions.shape
    votes = xp.zeros((n_rows, n_members), dtype=predictions.dtype, device=device(predictions))
    off = 0.0
    for rows in row_blocks(predictions):
        unseen = None if mask is None else mask[rows, ...]
        block = zero_in_bag(predictions[rows, ...], unseen)
        _check_block(block, first_row + (rows.start or 0), probabilities=True)
        excess = zero_in_bag(xp.sum(block, axis=2) - 1.0, unseen)
        off = max(off, float(xp.max(xp.abs(excess))))
        index = xp.broadcast_to(target[rows][:, None, None], (block.shape[0], n_members, 1))
        votes[rows, ...] = xp.take_along_axis(block, index, axis=2)[:, :, 0]
    return votes, off


def _class_planes(predictions: Array, mask: Array | None) -> tuple[Array, ...]:
    """One (rows, members) matrix a class: sparse in NumPy, dense elsewhere."""
    xp = array_namespace(predictions)
    planes = (zero_in_bag(predictions[:, :, c], mask) for c in range(predictions.shape[2]))
    if is_numpy_array(predictions):
        return tuple(sp.csr_array(plane) for plane in planes)
    return tuple(xp.asarray(plane, copy=True) for plane in planes)


def _check_class_axis(predictions: Array, classes: np.ndarray) -> None:
    if predictions.shape[2] != len(classes):
        raise ValueError(
            f"predictions have {predictions.shape[2]} classes but y and labels have "
            f"{len(classes)}; pass labels= with one entry per class."
        )


def _encode(y: Array, labels: Array | None, like: Array) -> tuple[Array, np.ndarray]:
    """Targets as positions in the classes, and the classes."""
    values = on_host(y)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    check_length(values.shape, like, "y")
    if values.dtype.kind == "f" and not np.array_equal(values, np.round(values)):
        raise ValueError(f"y does not hold classes (it has fractions or NaN); {FOR_REGRESSION}.")
    try:
        classes = np.unique(values) if labels is None else on_host(labels)
    except TypeError as error:
        raise ValueError(f"y mixes labels that cannot be sorted ({error}).") from error
    if len(classes) < 2:
        raise ValueError(
            f"y has only one class ({classes.tolist()}); classification needs two (pass labels= "
            "if there are more than y shows)."
        )
    if len(np.unique(classes)) != len(classes):
        raise ValueError("labels= names a class twice; pass each class once.")
    try:
        index = class_positions(values, classes)
    except UnknownLabelError as unknown:
        raise ValueError(
            f"y holds a class that labels= does not name ({unknown}); pass every class."
        ) from None
    return array_namespace(like).asarray(index, device=device(like)), classes
