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
    notes = _notes(frontier)
    for i in range(len(table)):
        risk = float(table.expected_risk[i])
        change = risk / whole - 1.0 if whole > 0.0 else 0.0
        about = "" if frontier.measured[i] else "about "
        times = frontier.latency
        ms = "not measured" if times is None else f"{about}{times[i]:.3g} ms"
        kept = " (kept)" if table.chosen[i] else ""
        point = {
            "members": f"{int(table.k[i]):,}{kept}",
            "nodes": f"{int(table.nodes[i]):,}" if table.nodes[i] else "–",
            "bytes": _bytes(float(table.bytes[i])),
            "latency": ms,
            "risk": f"{risk:.4g} ± {float(table.standard_error[i]):.2g}",
            "change": f"{change:+.1%}",
            "random": f"{float(table.random_risk[i]):.4g}",
            "note": notes.get(i, ""),
        }
        nodes = f"{point['nodes']} nodes, " if table.nodes[i] else ""
        # A slider's value is read aloud when it moves. It holds every figure, so that the figures
        # below need not be announced as well, which would say everything twice.
        point["words"] = (
            f"{frontier.members_at(i)}{kept}, expected {frontier.score} {point['risk']}, "
            f"{point['change']} against all, {point['random']} for as many at random, {nodes}"
            f"{point['bytes']} {frontier.bytes_are}, 1000 rows: {ms}. {point['note']}"
        ).strip()
        points.append(point)
    return points


def _notes(frontier: Frontier) -> dict[int, str]:
    """A word at both sides of every leap."""
    notes: dict[int, str] = {}
    for gap in frontier.gaps:
        for here, there, way in ((gap, gap + 1, "next step"), (gap + 1, gap, "step back")):
            text = f"{frontier.left_out(gap)}: the {way} is {frontier.members_at(there)}."
            notes[here] = f"{notes.get(here, '')} {text}".strip()
    return notes


def _bytes(size: float) -> str:
    return f"{size / 1e6:.2f} MB" if size >= 1e6 else f"{size / 1e3:.1f} kB"
