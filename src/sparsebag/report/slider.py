"""What the slider shows at every size of the curve."""

from __future__ import annotations

from sparsebag.judge.curve import RiskCurve


def slider_points(curve: RiskCurve, kept: int) -> list[dict[str, str]]:
    """The figures of every size, as the page shows them.

    Parameters
    ----------
    curve : RiskCurve
    kept : int
        Position of the size that was kept.

    Returns
    -------
    list of dict
    """
    points = []
    for i in range(len(curve)):
        ratio, error = float(curve.ratio[i]), float(curve.error[i])
        members, nodes = int(curve.n_members[i]), int(curve.n_nodes[i])
        mark = " (kept)" if i == kept else ""
        point = {
            "share": f"{100 * curve.share[i]:.3g} %{mark}",
            "nodes": f"{nodes:,}" if nodes else "–",
            "members": f"{members:,}",
            "ratio": f"{ratio:.3f} ± {error:.3f}",
            "change": f"{ratio - 1.0:+.1%}",
            "risk": f"{ratio * curve.whole_risk:.4g}",
        }
        # A slider's value is read aloud when it moves. It holds every figure, so that the figures
        # below need not be announced as well, which would say everything twice.
        of_nodes = f"{point['nodes']} nodes, " if nodes else ""
        point["words"] = (
            f"{point['share']} of the ensemble: {of_nodes}{members:,} "
            f"member{'' if members == 1 else 's'}, expected {curve.score} {point['risk']}, "
            f"{point['ratio']} times the whole ensemble's ({point['change']})"
        )
        points.append(point)
    return points
