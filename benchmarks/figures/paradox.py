"""The L1-simplex paradox: three members, the whole simplex in view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures.bagged_trees import BaggedTrees
from benchmarks.figures.style import COLOUR, new_figure, save
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic, L1Norm, Penalty
from sparsebag.settings import DEFAULT_FLOOR
from sparsebag.solvers.projected_gradient import ProjectedGradient

STRENGTH = 0.5
LEVELS, DRAWN_UP_TO = 12, 0.93
STEPS = 40
"""Grid steps along an edge of the triangle."""
CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
PENALTIES: dict[str, tuple[str, Penalty]] = {
    "loss": ("loss alone", ConcaveQuadratic(0.0)),
    "l1": (f"loss + {STRENGTH:g} ‖w‖₁", L1Norm(STRENGTH)),
    "concave": (f"loss − {STRENGTH:g} ‖w‖²", ConcaveQuadratic(STRENGTH)),
}


def grid() -> np.ndarray:
    """All weights on the 3-simplex in steps of 1/STEPS."""
    return np.array(
        [(i, j, STEPS - i - j) for i in range(STEPS + 1) for j in range(STEPS + 1 - i)]
    ) / float(STEPS)


def objective_of(bagged: BaggedTrees, penalty: Penalty) -> Objective:
    """Log-loss of the bag's first three trees on rows none of them has seen: a convex loss."""
    problem = bagged.problem
    rows = np.arange(len(problem.y_test))
    evidence = OOBEvidence(
        votes=bagged.test_votes[:3, rows, problem.y_test].T,
        oob_mask=None,
        target=problem.y_test,
        task="classification",
        classes=np.arange(problem.n_classes),
        source="holdout",
    )
    return Objective(evidence, LogLoss(), penalty, floor=DEFAULT_FLOOR)


def measure(bagged: BaggedTrees) -> dict[str, Any]:
    minimisers, values = {}, {}
    for name, (_, penalty) in PENALTIES.items():
        objective = objective_of(bagged, penalty)
        solutions = [
            ProjectedGradient(tol=1e-9).solve(objective, start)
            for start in (None, *(0.1 + 0.7 * np.eye(3)))
        ]
        # The concave penalty has several local minima on three members: keep the lowest.
        minimisers[name] = min(solutions, key=lambda s: s.objective).weights.tolist()
        values[name] = [objective.value(w) for w in grid()]
    moved = np.abs(np.subtract(minimisers["l1"], minimisers["loss"])).max()
    return {
        "dataset": bagged.dataset,
        "l1_strength": STRENGTH,
        "minimisers": minimisers,
        "largest_weight_change_by_l1": float(moved),
        "heaviest": {name: max(weights) for name, weights in minimisers.items()},
        "grid_values": values,
    }


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(3, width=3.1, height=3.1)
    points = grid() @ CORNERS
    for panel, (name, (title, _)) in zip(axes[0], PENALTIES.items(), strict=True):
        values = np.array(measured["grid_values"][name])
        # The loss shoots up at the edges; what lies above this quantile is one colour.
        values = np.minimum(values, np.quantile(values, DRAWN_UP_TO))
        levels = np.linspace(values.min(), values.max(), LEVELS)
        x, y = points.T
        panel.tricontourf(x, y, values, levels=levels, cmap="cividis", extend="max")
        panel.tricontour(
            x, y, values, levels=levels[:-1], colors="white", linewidths=0.4, linestyles="solid"
        )
        x, y = np.array(measured["minimisers"][name]) @ CORNERS
        panel.scatter(
            [x], [y], marker="*", s=170, color=COLOUR["paper"], edgecolor="white", zorder=3
        )
        for corner, weight, offset in zip(
            CORNERS, ("tree 1", "tree 2", "tree 3"), ((0, -13), (0, -13), (0, 5)), strict=True
        ):
            panel.annotate(
                weight, corner, offset, textcoords="offset points", ha="center", fontsize=8
            )
        panel.set_title(title, pad=4)
        panel.set(aspect="equal", xlim=(-0.1, 1.1), ylim=(-0.1, 0.95))
        panel.axis("off")
    figure.supxlabel(
        f"three bagged trees, held-out log-loss, {measured['dataset']}; star: minimiser. "
        "On the simplex ‖w‖₁ = 1: the second picture is the first plus a constant.",
        fontsize=8.5,
    )
    save(figure, path)
