"""The objective's landscape: where random starts end, and its curvature along the simplex."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import PAPER_SEED
from benchmarks.figures.bagged_trees import BaggedTrees, settings_of
from benchmarks.figures.style import COLOUR, LABEL, new_figure, save
from sparsebag.objective.penalties import ConcaveQuadratic

STARTS = 50
CURVATURE_POINTS = 3
SAME_OBJECTIVE = 1e-6
"""Two runs that differ by less ended in the same place."""


def measure(bagged: BaggedTrees) -> dict[str, Any]:
    rng = np.random.default_rng(PAPER_SEED)
    starts = rng.dirichlet(np.ones(bagged.n_members), STARTS)
    settings = settings_of("paper")
    loss_alone = bagged.objective(settings, ConcaveQuadratic(0.0))
    curvature = [curvatures(loss_alone, w) for w in starts[:CURVATURE_POINTS]]
    whole = curvatures(bagged.objective(settings), bagged.uniform_weights())
    return {
        "dataset": bagged.dataset,
        "members": bagged.n_members,
        "n_curvature_points": CURVATURE_POINTS,
        "smallest_loss_curvature": float(min(c[0] for c in curvature)),
        "largest_curvature": float(whole[-1]),
        "starts": {preset: _runs(bagged, preset, starts) for preset in ("paper", "default")},
    }


def curvatures(objective: Any, weights: np.ndarray) -> np.ndarray:
    """The Hessian's eigenvalues along the simplex (directions that sum to zero), ascending."""
    n = len(weights)
    # Householder's basis of the directions that sum to zero: N - 1 orthonormal columns.
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[0][:, 1:]
    return np.linalg.eigvalsh(basis.T @ objective.hessian(weights) @ basis)


def _runs(bagged: BaggedTrees, preset: str, starts: np.ndarray) -> dict[str, Any]:
    settings = settings_of(preset)

    def run(start: np.ndarray | None) -> tuple[float, float, float]:
        weights = bagged.solve(settings, start).weights
        objective = bagged.objective(settings)
        test = bagged.test_loss(weights, settings.floor)
        return objective.value(weights), objective.loss_value(weights), test

    uniform, oob_loss, test_loss = run(None)
    runs = np.array([run(start) for start in starts])
    reached = runs[:, 0]
    return {
        "n_starts": len(starts),
        "uniform": uniform,
        "uniform_oob_loss": oob_loss,
        "uniform_test_loss": test_loss,
        "best": float(min(uniform, reached.min())),
        "worst": float(reached.max()),
        "n_lower_than_uniform": int((reached < uniform - SAME_OBJECTIVE).sum()),
        "median_test_loss": float(np.median(runs[:, 2])),
        "reached": reached.tolist(),
        "test_loss": runs[:, 2].tolist(),
    }


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(2, width=4.2, height=3.4)
    for panel, (preset, runs) in zip(axes[0], measured["starts"].items(), strict=True):
        panel.scatter(
            runs["reached"],
            runs["test_loss"],
            s=16,
            color=COLOUR[preset],
            alpha=0.55,
            linewidths=0,
            label=f"{runs['n_starts']} random Dirichlet starts",
        )
        panel.scatter(
            [runs["uniform"]],
            [runs["uniform_test_loss"]],
            marker="*",
            s=150,
            facecolor="white",
            edgecolor="black",
            zorder=3,
            label="uniform start",
        )
        panel.set_title(f"{LABEL[preset]}, {measured['dataset']}")
        panel.set(xlabel="objective reached (lower is better)", ylabel="test log-loss")
        panel.margins(0.12)
        panel.ticklabel_format(useOffset=False)
        panel.locator_params(axis="x", nbins=5)
        panel.legend(title=f"{runs['n_lower_than_uniform']} of {runs['n_starts']} end lower")
    save(figure, path)
