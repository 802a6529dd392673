"""Which rows are out of which bags, as a user says it: checked, and as booleans."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from sparsebag.evidence.arrays import detached, on_host
from sparsebag.evidence.blocks import CPU_CHECKED_ENTRIES, row_blocks
from sparsebag.evidence.readable import check_dense, what_are_no_numbers

Array = Any

ELSE_ZERO = "pass 1 where the row is out of bag, else 0."


def as_mask(oob_mask: Array | None, predictions: Array, first_row: int = 0) -> Array | None:
    """A user's mask as booleans beside predictions; one sentence where it is none.

    Parameters
    ----------
    oob_mask : array of shape (M, N) or None
        True or 1 where row i is out of bag for member j, else False or 0.
    predictions : array of shape (M, N) or (M, N, C)
        On whose device it is wanted.
    first_row : int, default 0
        The number of the first row, for messages.

    Returns
    -------
    array of booleans or None

    Examples
    --------
    >>> as_mask([[1, 0]], np.zeros((1, 2))).tolist()
    [[True, False]]
    >>> as_mask([[1, 3]], np.zeros((1, 2)))
    Traceback (most recent call last):
    ...
    ValueError: oob_mask must hold only 0 and 1 (or True and False) but has 3 at row 0, member 1...
    """
    if oob_mask is None:
        return None
    check_dense(oob_mask, "oob_mask")
    xp = array_namespace(predictions)
    if hasattr(oob_mask, "iloc"):
        oob_mask = np.asarray(oob_mask)
    if wrong := what_are_no_numbers(oob_mask):
        raise ValueError(f"oob_mask holds {wrong}; {ELSE_ZERO}")
    mask = xp.asarray(detached(oob_mask), device=device(predictions))
    if tuple(mask.shape) != tuple(predictions.shape[:2]):
        raise ValueError(
            f"oob_mask has shape {tuple(mask.shape)} but predictions have "
            f"{tuple(predictions.shape[:2])} (rows, members); pass one mask entry a prediction, or "
            "None if no member was trained on these rows."
        )
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
        return "predictions go before oob_mask, which comes before y."
    return "counts of how often a row trained a member say the opposite: pass counts == 0."
