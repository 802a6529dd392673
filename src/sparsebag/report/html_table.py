"""A table as HTML has it: a caption, heads of columns, heads of rows."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any


def table(
    caption: str,
    head: Sequence[str],
    lines: Sequence[Sequence[Any]],
    *,
    left: Sequence[int] = (),
) -> str:
    """A real table: caption, column heads, row heads; where it is too wide it scrolls, by keys too.

    Parameters
    ----------
    caption : str
    head : sequence of str
    lines : sequence of sequences
        Cells as text, or as ``(text, class)``.
    left : sequence of int
        Columns of words.

    Returns
    -------
    str

    Examples
    --------
    >>> table("Scores", ["", "before"], [["log-loss", "0.3"]])[:64]
    "<div class='sb-scroll' style='overflow-x:auto' role='region' tab"
    """
    heads = "".join(
        f"<th scope='col'{_left(i, left)}>{html.escape(name)}</th>" if name else "<td></td>"
        for i, name in enumerate(head)
    )
    body = "".join(
        "<tr>"
        + f"<th scope='row'>{html.escape(str(line[0]))}</th>"
        + "".join(_cell(c, i + 1, left) for i, c in enumerate(line[1:]))
        + "</tr>"
        for line in lines
    )
    name = html.escape(caption, quote=True)
    return (
        f"<div class='sb-scroll' style='overflow-x:auto' role='region' tabindex='0' "
        f"aria-label='{name}'><table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _left(i: int, left: Sequence[int]) -> str:
    return " class='sb-left'" if i in left else ""


def _cell(content: Any, i: int, left: Sequence[int]) -> str:
    text, kind = content if isinstance(content, tuple) else (content, "")
    names = " ".join(filter(None, [kind, "sb-left" if i in left else ""]))
    attribute = f" class='{names}'" if names else ""
    return f"<td{attribute}>{html.escape(str(text))}</td>"
