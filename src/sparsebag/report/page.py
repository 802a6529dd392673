"""The report as one HTML page: no network, readable in print and by screen readers.

The page is `page.html`, a Jinja template; here is what it shows, as plain data.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any

import numpy as np

from sparsebag.judge.curve import RiskCurve
from sparsebag.judge.selection import in_bytes
from sparsebag.report import svg
from sparsebag.report.changes import PredictionChanges, shown
from sparsebag.report.compression_report import (
    COMPILED,
    FILE,
    PICKLED,
    SPEED,
    CompressionReport,
    figure,
)
from sparsebag.report.metrics import ReliabilityCurve

HERE = Path(__file__).parent


def render(report: CompressionReport, *, in_notebook: bool = False) -> str:
    """The whole page; for a notebook's cell tables and still pictures, without style and script.

    A cell's ids are new each time: a notebook may hold many reports.
    """
    try:
        import jinja2
    except ImportError:
        raise ImportError(
            "the HTML report needs jinja2; run: pip install 'sparsebag[report]'."
        ) from None
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
    )
    style, script = ((HERE / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    prefix = f"sb-{secrets.token_hex(4)}" if in_notebook else "sb"
    curve = None if report.selection is None else report.selection.curve
    kept = 0 if report.selection is None else report.selection.position
    binned = report.reliability
    page = templates.get_template("page.html").render(
        vars(svg),
        report=report,
        in_notebook=in_notebook,
        tiles=at_a_glance(report),
        others=[
            [report.label(c.name), c.verdict, c.in_words, c.interval]
            for c in report.changes
            if not c.is_main
        ],
        charts={
            "curve": None if curve is None else svg.curve_chart(curve, kept, prefix),
            "reliability": None if binned is None else svg.reliability_chart(*binned, prefix),
        },
        off_chart=curve is not None and not svg.is_on_chart(curve, kept).all(),
        points=[] if curve is None else slider_points(curve, kept),
        bins=[] if binned is None else _bins(*binned),
        **_of_classes(report.changed),
        style=style,
        script=script,
        policy=_policy(style, script),
    )
    return page.strip()


def at_a_glance(report: CompressionReport) -> list[tuple[str, str, str, str]]:
    """Name, before, after and a note of the five figures at the top of the page."""
    full, small = list(report.rows.values())[:2]
    found = []
    if PICKLED in full and FILE in small:
        note = f"full ensemble as .sbag: {in_bytes(1000 * full[FILE])}"
        was, is_now = (in_bytes(1000 * kb) for kb in (full[PICKLED], small[FILE]))
        found.append(("file" + ", ensemble only" * report.is_part, was, is_now, note))
    size = "nodes" if "nodes" in full else "members"
    found.append((size, figure(size, full[size]), figure(size, small[size]), ""))
    if SPEED in full:
        was, is_now, compiled = (
            f"{took:,.3g} µs" for took in (full[SPEED], small[SPEED], full[COMPILED])
        )
        note = f"in a batch; full ensemble compiled: {compiled}"
        found.append(("time per row", was, is_now, note))
    for change in report.changes:
        if change.is_main:
            was, is_now = (shown(change.name, score) for score in (change.before, change.after))
            name = report.label(change.name)
            found.append((name, was, is_now, f"change (95%): {change.interval}"))
    return found


def _of_classes(found: PredictionChanges | None) -> dict[str, Any]:
    """The confusion matrix and the scores of each class, as text."""
    if found is None or found.confusion is None:
        return {}
    names = [c.label for c in found.classes]
    k = found.confusion.shape[1]
    names = names if len(names) == k else [*names[: k - 1], "others"]
    lines = [
        [name, *(_arrow(f"{a:,}", f"{b:,}") for a, b in zip(*rows, strict=True))]
        for name, rows in zip(names, found.confusion.swapaxes(0, 1).tolist(), strict=True)
    ]
    by_class = [
        [c.label, c.n_rows, *(_arrow(*map(_share, v)) for v in (c.recall, c.precision, c.f1))]
        for c in found.classes
    ]
    return {"confusion": {"names": names, "lines": lines}, "by_class": by_class}


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _share(value: float) -> str:
    return "–" if np.isnan(value) else f"{value:.1%}"


def slider_points(curve: RiskCurve, kept: int) -> list[dict[str, str]]:
    """What the slider shows at every size of the curve."""
    points = []
    for i in range(len(curve)):
        ratio, nodes, members = (
            float(curve.ratio[i]),
            int(curve.n_nodes[i]),
            int(curve.n_members[i]),
        )
        point = {
            "share": f"{100 * curve.share[i]:.3g}%{' (kept)' if i == kept else ''}",
            "nodes": f"{nodes:,}" if nodes else "–",
            "members": f"{members:,}",
            "change": f"{ratio - 1.0:+.1%} ± {float(curve.error[i]):.1%}",
            "risk": f"{ratio * curve.whole_risk:.4g}",
        }
        # A slider's value is read aloud when it moves. It holds every figure, so that the figures
        # below need not be announced as well, which would say everything twice.
        point["words"] = (
            f"{point['share']} of the ensemble: {f'{nodes:,} nodes, ' if nodes else ''}{members:,} "
            f"member{'' if members == 1 else 's'}, expected {curve.score} {point['risk']}, "
            f"a change of {point['change']}"
        )
        points.append(point)
    return points


def _bins(*curves: ReliabilityCurve) -> list[list[str]]:
    """The bins of the reliability diagram, a line each: rows, stated, right, before and after."""
    lines = []
    for low, high in sorted({(float(a), float(b)) for curve in curves for a, b in curve.edges}):
        cells = [f"{low:.2f} to {high:.2f}"]
        for curve in curves:
            found = np.flatnonzero(np.isclose(curve.edges[:, 0], low))
            cells += ["0", "–", "–"] if not len(found) else _bin(curve, found[0])
        lines.append(cells)
    return lines


def _bin(curve: ReliabilityCurve, i: Any) -> list[str]:
    return [f"{curve.count[i]:,.0f}", f"{curve.confidence[i]:.3f}", f"{curve.accuracy[i]:.3f}"]


def _policy(style: str, script: str) -> str:
    """What a browser may do for the page: run this script, use this style, and fetch nothing."""
    digests = [
        "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"script-src '{digests[0]}'; style-src-elem '{digests[1]}'; "
        "style-src-attr 'unsafe-inline'; style-src 'unsafe-inline'"
    )
