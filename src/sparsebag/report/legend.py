"""Which line or mark is which; drawn with shapes too, for those who do not see the colours."""

from __future__ import annotations

import html

from sparsebag.report.svg import PAGE

LINES = {
    "line": "",
    "dashed": ";stroke-dasharray:6 4",
    "circle": "",
    "square": "",
}
# Written in the tags: a notebook has no style sheet for it.
LIST = "display:flex;flex-wrap:wrap;gap:.3em 1.2em;list-style:none;padding:0;margin:.2em 0 .8em"


def legend(*entries: tuple[str, str, str]) -> str:
    """A key of a chart.

    Parameters
    ----------
    *entries : tuple of str
        What it is, its colour, and how it is drawn: one of `LINES`.

    Returns
    -------
    str

    Examples
    --------
    >>> "random members" in legend(("random members", "grey", "dashed"))
    True
    """
    lines = "".join(
        f"<li style='display:flex;align-items:center;gap:.4em;margin:0'>{_swatch(colour, drawn)}"
        f"{html.escape(text)}</li>"
        for text, colour, drawn in entries
    )
    return f"<ul class='sb-key' style='{LIST}'>{lines}</ul>"


def _swatch(colour: str, drawn: str) -> str:
    thin = drawn in ("circle", "square")
    mark = {
        "circle": f'<circle cx="14" cy="6" r="4.5" style="fill:{colour}"/>',
        "square": '<rect x="9.75" y="1.75" width="8.5" height="8.5" '
        f'style="fill:{PAGE};stroke:{colour};stroke-width:1.5"/>',
    }.get(drawn, "")
    return (
        '<svg class="sb-swatch" aria-hidden="true" width="28" height="12" viewBox="0 0 28 12" '
        'style="flex:none">'
        '<line x1="1" x2="27" y1="6" y2="6" '
        f'style="stroke:{colour};stroke-width:{1 if thin else 2}{LINES[drawn]}"/>{mark}</svg>'
    )
