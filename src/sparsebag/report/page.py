"""The report as one HTML page: no network, no library, readable in print and by screen readers."""

from __future__ import annotations

import html
import json
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
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>sparsebag report: {html.escape(report.headline())}</title>"
        f"<style>{_text('page.css')}</style></head><body>"
        "<a class='sb-skip' href='#main'>Skip to the report</a>"
        f"<header><h1>sparsebag report</h1><p class='sb-lead'>{html.escape(report.sentence())}</p>"
        f"{page_sections.cards(report)}{page_sections.warnings_box(report)}"
        f"<nav aria-label='Sections'><ul>{links}</ul></nav></header>"
        f"<main id='main'>{body}</main>{_data(report)}<script>{_text('page.js')}</script>"
        "</body></html>"
    )


def fragment(report: CompressionReport) -> str:
    """The report for a notebook's cell: tables and still pictures, no style sheet, no script.

    Parameters
    ----------
    report : CompressionReport

    Returns
    -------
    str
    """
    pictures = ""
    details = report.details
    if details is not None and details.frontier is not None:
        pictures += charts.frontier_chart(details.frontier, "members")
    if details is not None and details.reliability is not None:
        pictures += charts.reliability_chart(*details.reliability)
    if details is not None and details.trusted is not None:
        pictures += charts.trusted_chart(details.trusted)
    return (
        f"<div class='sparsebag-report'><p><strong>{html.escape(report.sentence())}</strong></p>"
        f"{page_sections.tables(report)}"
        f"<div style='display:flex;flex-wrap:wrap;gap:1em'>{pictures}</div></div>"
    )


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _data(report: CompressionReport) -> str:
    """Every size's figures as the slider shows them, as data the script reads."""
    details = report.details
    if details is None or details.frontier is None:
        return ""
    content = json.dumps(slider_points(details.frontier)).replace("<", "\\u003c")
    return f"<script type='application/json' id='sb-frontier-data'>{content}</script>"
