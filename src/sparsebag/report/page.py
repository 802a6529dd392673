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
from sparsebag.report.changes import shown
from sparsebag.report.compression_report import (
    FILE,
    PICKLED,
    RANDOM_DRAWS,
    SPEED,
    CompressionReport,
    change_cells,
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
        RANDOM_DRAWS=RANDOM_DRAWS,
        tiles=at_a_glance(report),
        cells=[[name, *map(figure, row, row.values())] for name, row in report.rows.items()],
        changes=[[c.name, *change_cells(c)] for c in report.changes],
        charts={
            "curve": None if curve is None else svg.curve_chart(curve, kept, prefix),
            "reliability": None if binned is None else svg.reliability_chart(*binned, prefix),
        },
        points=[] if curve is None else slider_points(curve, kept),
        bins=[] if binned is None else _bins(*binned),
        style=style,
        script=script,
        policy=_policy(style, script),
    )
    return page.strip()


def at_a_glance(report: CompressionReport) -> list[tuple[str, str, str]]:
    """Name, before and after of the five figures at the top of the page."""
    full, small = list(report.rows.values())[:2]
    found = []
    if PICKLED in full and FILE in small:
        found.append(("file", in_bytes(1000 * full[PICKLED]), in_bytes(1000 * small[FILE])))
    size = "nodes" if "nodes" in full else "members"
    found.append((size, figure(size, full[size]), figure(size, small[size])))
    if SPEED in full:  # milliseconds for a thousand rows are microseconds for one
        found.append(("time per row", f"{full[SPEED]:,.3g} µs", f"{small[SPEED]:,.3g} µs"))
    main = [change for change in report.changes if change.is_main]
    return found + [(c.name, shown(c.name, c.before), shown(c.name, c.after)) for c in main]


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
            "share": f"{100 * curve.share[i]:.3g} %{' (kept)' if i == kept else ''}",
            "nodes": f"{nodes:,}" if nodes else "–",
            "members": f"{members:,}",
            "ratio": f"{ratio:.3f} ± {float(curve.error[i]):.3f}",
            "change": f"{ratio - 1.0:+.1%}",
            "risk": f"{ratio * curve.whole_risk:.4g}",
        }
        # A slider's value is read aloud when it moves. It holds every figure, so that the figures
        # below need not be announced as well, which would say everything twice.
        point["words"] = (
            f"{point['share']} of the ensemble: {f'{nodes:,} nodes, ' if nodes else ''}{members:,} "
            f"member{'' if members == 1 else 's'}, expected {curve.score} {point['risk']}, "
            f"{point['ratio']} times the full ensemble's ({point['change']})"
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
