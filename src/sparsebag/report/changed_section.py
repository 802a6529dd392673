"""What changed: classes and rows, from plain data to HTML."""

from __future__ import annotations

from collections.abc import Sequence

from sparsebag.report.html_table import table
from sparsebag.report.prediction_changes import ClassChanges, PredictionChanges

SHOWN_CLASSES = 20
"""Classes of the table; of more, those that changed most, and the others are folded away."""


def changed_section(changed: PredictionChanges) -> str:
    """How many predictions moved, in which classes, and which rows.

    Parameters
    ----------
    changed : PredictionChanges

    Returns
    -------
    str
    """
    share = changed.n_changed / max(changed.n_rows, 1)
    if not changed.classes:
        text = (
            f"{changed.n_changed:,} of {changed.n_rows:,} predictions ({share:.1%}) moved by more "
            f"than a tenth of the targets' spread: {changed.mended:,} closer to the target, "
            f"{changed.broken:,} farther from it."
        )
        quantiles = [[name, f"{value:.4g}"] for name, value in changed.quantiles.items()]
        tables_of = table("Absolute change of the prediction", ["", "change"], quantiles)
    else:
        text = (
            f"{changed.n_changed:,} of {changed.n_rows:,} rows ({share:.1%}) are predicted "
            f"otherwise: {changed.mended:,} were wrong and are right now, {changed.broken:,} were "
            "right and are wrong now."
        )
        tables_of = _classes(changed.classes)
    return f"<p>{text}</p><div class='sb-row'>{tables_of}</div>{_changed_rows(changed)}"


def _classes(classes: Sequence[ClassChanges]) -> str:
    if len(classes) <= SHOWN_CLASSES:
        return _class_table("Rows by their true class", classes)
    most = sorted(classes, key=lambda c: (-c.changed, -abs(c.right_after - c.right_before)))
    others = most[SHOWN_CLASSES:]
    caption = f"Rows by their true class: the {SHOWN_CLASSES} of {len(classes)} that changed most"
    rest = _class_table("Rows by their true class: the others", others)
    return (
        f"<div>{_class_table(caption, most[:SHOWN_CLASSES])}"
        f"<details><summary>The other {len(others)} classes</summary>{rest}</details></div>"
    )


def _class_table(caption: str, classes: Sequence[ClassChanges]) -> str:
    lines = [
        [c.label, f"{c.n_rows:,}", f"{c.right_before:,}", f"{c.right_after:,}", f"{c.changed:,}"]
        for c in classes
    ]
    head = ["class", "rows", "right before", "right after", "predicted otherwise"]
    return table(caption, head, lines)


def _changed_rows(changed: PredictionChanges) -> str:
    if not changed.rows:
        return ""
    lines = [
        [
            f"{row.row}",
            row.truth,
            _sure(row.before, row.sure_before),
            _sure(row.after, row.sure_after),
        ]
        for row in changed.rows
    ]
    head = ["row (from 0)", "truth", "before", "after"]
    rows = table("Rows whose prediction moved most", head, lines)
    return f"<details><summary>{len(lines)} rows that moved most</summary>{rows}</details>"


def _sure(label: str, sure: float | None) -> str:
    return label if sure is None else f"{label} ({sure:.0%})"
