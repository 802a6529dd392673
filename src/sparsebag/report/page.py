"""The report as one HTML page: no network, no library, readable in print and by screen readers."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from sparsebag.report import charts, page_sections
from sparsebag.report.slider import slider_points

if TYPE_CHECKING:
    from sparsebag.report.compression_report import CompressionReport

HERE = Path(__file__).parent


def page(report: CompressionReport) -> str:
    """The whole page.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    str
    """
    sections = page_sections.sections(report)
    links = "".join(f"<li><a href='#{s.name}'>{html.escape(s.title)}</a></li>" for s in sections)
    body = "".join(
        f"<section id='{s.name}' aria-labelledby='{s.name}-head'>"
        f"<h2 id='{s.name}-head'>{html.escape(s.title)}</h2>{s.body}</section>"
        for s in sections
    )
    style, script = _text("page.css"), _text("page.js")
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy(style, script)}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>sparsebag report: {html.escape(report.headline())}</title>"
        f"<style>{style}</style></head><body>"
        "<a class='sb-skip' href='#main'>Skip to the report</a>"
        f"<header><h1>sparsebag report</h1><p class='sb-lead'>{html.escape(report.sentence())}</p>"
        f"{page_sections.warnings_box(report)}"
        f"<nav aria-label='Sections'><ul>{links}</ul></nav></header>"
        f"<main id='main'>{body}</main>{_data(report)}<script>{script}</script>"
        "</body></html>"
    )


def policy(style: str, script: str) -> str:
    """What a browser may do for the page: run this script, use this style, and fetch nothing.

    Parameters
    ----------
    style, script : str

    Returns
    -------
    str
        A Content-Security-Policy. Colours within tags are allowed; they can fetch nothing either.

    Examples
    --------
    >>> policy("", "")[:76]
    "default-src 'none'; base-uri 'none'; form-action 'none'; script-src 'sha256-"
    """
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src '{_digest(script)}'; style-src-elem '{_digest(style)}'; "
        "style-src-attr 'unsafe-inline'; style-src 'unsafe-inline'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def fragment(report: CompressionReport) -> str:
    """The report for a notebook's cell: tables and still pictures, no style sheet, no script.

    Its ids are new each time: a notebook may hold many reports.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    str
    """
    pictures = ""
    details = report.details
    prefix = f"sb-{secrets.token_hex(4)}"
    if details is not None and details.selection.curve is not None:
        curve, kept = details.selection.curve, details.selection.position
        pictures += _figure(
            f"Expected {curve.score} of each size",
            charts.curve_key() + charts.curve_chart(curve, kept, prefix),
        )
    if details is not None and details.reliability is not None:
        pictures += _figure(
            "Reliability",
            charts.reliability_key() + charts.reliability_chart(*details.reliability, prefix),
        )
    if details is not None and details.trusted is not None:
        pictures += _figure(
            "Where members are trusted", charts.trusted_chart(details.trusted, prefix)
        )
    return (
        f"<div class='sparsebag-report'><p><strong>{html.escape(report.sentence())}</strong></p>"
        f"{page_sections.tables(report)}"
        f"<div style='display:flex;flex-wrap:wrap;gap:1em 2em'>{pictures}</div></div>"
    )


def _figure(title: str, body: str) -> str:
    return (
        "<figure style='margin:0;max-width:26em'><figcaption style='font-weight:600'>"
        f"{html.escape(title)}</figcaption>{body}</figure>"
    )


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _data(report: CompressionReport) -> str:
    """Every size's figures as the slider shows them, as data the script reads."""
    chosen = None if report.details is None else report.details.selection
    if chosen is None or chosen.curve is None:
        return ""
    points = slider_points(chosen.curve, chosen.position)
    content = json.dumps(points).replace("<", "\\u003c")
    return f"<script type='application/json' id='sb-curve-data'>{content}</script>"
