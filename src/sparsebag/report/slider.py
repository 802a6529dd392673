"""What the frontier's slider shows at every size."""

from __future__ import annotations

from sparsebag.report.frontier import Frontier


def slider_points(frontier: Frontier) -> list[dict[str, str]]:
    """The figures of every size, in the words the page shows.

    Parameters
    ----------
    frontier : Frontier

    Returns
    -------
    list of dict
    """
    table = frontier.table
    whole = float(table.expected_risk[-1])
    points = []
    for i in range(len(table)):
        risk = float(table.expected_risk[i])
        change = risk / whole - 1.0 if whole > 0.0 else 0.0
        about = "" if frontier.measured[i] else "about "
        times = frontier.latency
        ms = "not measured" if times is None else f"{about}{times[i]:.3g} ms"
        kept = " (kept)" if table.chosen[i] else ""
        points.append(
            {
                "members": f"{int(table.k[i])}{kept}",
                "nodes": f"{int(table.nodes[i]):,}" if table.nodes[i] else "–",
                "bytes": _bytes(float(table.bytes[i])),
                "latency": ms,
                "risk": f"{risk:.4g} ± {float(table.standard_error[i]):.2g}",
                "change": f"{change:+.1%}",
                "random": f"{float(table.random_risk[i]):.4g}",
                "words": f"{int(table.k[i])} members{kept}, expected {frontier.score} {risk:.4g}, "
                f"{change:+.1%} against all",
            }
        )
    return points


def _bytes(size: float) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
