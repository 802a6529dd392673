"""The L1-simplex paradox: three members, the whole simplex in view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures.bagged_trees import BaggedTrees, settings_of
from benchmarks.figures.style import COLOUR, new_figure, save
from sparsebag.objective.penalties import ConcaveQuadratic, L1Norm, Penalty
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.projected_gradient import ProjectedGradient

STRENGTH = 0.2
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


def objective_of(bagged: BaggedTrees, penalty: Penalty) -> SimplexObjective:
    """The out-of-bag objective of the three members the default weighs most."""
    settings = settings_of("default")
    heaviest = np.sort(np.argsort(bagged.solve(settings).weights)[-3:])
    return bagged.objective(settings, penalty).restrict(heaviest)


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
        "survivors_loss": int(np.count_nonzero(minimisers["loss"])),
        "survivors_l1": int(np.count_nonzero(minimisers["l1"])),
        "survivors_concave": int(np.count_nonzero(minimisers["concave"])),
        "grid_values": values,
    }


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(3, width=3.1, height=3.1)
    points = grid() @ CORNERS
    for panel, (name, (title, _)) in zip(axes[0], PENALTIES.items(), strict=True):
        values = np.array(measured["grid_values"][name])
        panel.tricontourf(points[:, 0], points[:, 1], values, levels=14, cmap="cividis")
        panel.tricontour(
            points[:, 0], points[:, 1], values, levels=14, colors="white", linewidths=0.4
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
        panel.set_title(title, pad=14)
        panel.set(aspect="equal", xlim=(-0.1, 1.1), ylim=(-0.1, 0.98))
        panel.axis("off")
    figure.supxlabel(
        f"three trees of {measured['dataset']}; star: minimiser. On the simplex ‖w‖₁ = 1: "
        "the second picture is the first plus a constant.",
        fontsize=8.5,
    )
    save(figure, path)
