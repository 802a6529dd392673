"""The objective's landscape: where random starts end, and its curvature along the simplex."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import PAPER_SEED
from benchmarks.figures.bagged_trees import PRESETS, BaggedTrees, settings_of
from benchmarks.figures.style import COLOUR, LABEL, new_figure, save
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.settings import DEFAULT_FLOOR
from sparsebag.solvers.base import drop_small_weights

STARTS = 50
CURVATURE_POINTS = 20
SAME_OBJECTIVE = 1e-6
"""Two runs that differ by less ended in the same place."""


def measure(bagged: BaggedTrees, *others: BaggedTrees) -> dict[str, Any]:
    """Starts on the first bag; curvature on all of them."""
    starts = np.random.default_rng(PAPER_SEED).dirichlet(np.ones(bagged.n_members), STARTS)
    paper = settings_of("paper")
    at_centre = curvatures(bagged.objective(paper), bagged.uniform_weights())
    return {
        "dataset": bagged.dataset,
        "members": bagged.n_members,
        "largest_curvature": float(at_centre[-1]),
        "loss_curvature": {b.dataset: loss_curvature(b) for b in (bagged, *others)},
        "starts": {preset: _runs(bagged, preset, starts) for preset in PRESETS},
    }


def loss_curvature(bagged: BaggedTrees) -> dict[str, Any]:
    """How often, and how far, the loss alone bends down at random weights.

    Votes are floored: with log 0 in it the paper's loss has no second derivative.
    """
    smooth = replace(settings_of("paper"), floor=DEFAULT_FLOOR)
    loss = bagged.objective(smooth, ConcaveQuadratic(0.0))
    points = np.random.default_rng(PAPER_SEED).dirichlet(
        np.ones(bagged.n_members), CURVATURE_POINTS
    )
    smallest = np.array([curvatures(loss, weights)[0] for weights in points])
    return {
        "n_points": len(points),
        "n_negative": int((smallest < 0).sum()),
        "smallest": float(smallest.min()),
    }


def curvatures(objective: Objective, weights: np.ndarray) -> np.ndarray:
    """The Hessian's eigenvalues along the simplex (directions that sum to zero), ascending."""
    n = len(weights)
    # Columns after the first of this Q are orthonormal and sum to zero.
    basis = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[0][:, 1:]
    return np.linalg.eigvalsh(basis.T @ objective.hessian(weights) @ basis)


def _runs(bagged: BaggedTrees, preset: str, starts: np.ndarray) -> dict[str, Any]:
    settings = settings_of(preset)
    objective = bagged.objective(settings)

    def run(start: np.ndarray | None) -> tuple[float, float, float, float]:
        """Objective reached, the same after small weights are dropped, OOB loss, test loss."""
        reached = bagged.solve(replace(settings, drop_threshold=0.0), start)
        kept = drop_small_weights(reached, objective, settings.drop_threshold)
        oob_loss = objective.loss_value(kept.weights)
        test_loss = bagged.test_loss(kept.weights, settings.floor)
        return reached.objective, kept.objective, oob_loss, test_loss

    uniform, uniform_kept, oob_loss, test_loss = run(None)
    runs = np.array([run(start) for start in starts])
    reached = runs[:, 0]
    return {
        "n_starts": len(starts),
        "uniform": uniform,
        "uniform_after_drop": uniform_kept,
        "uniform_oob_loss": oob_loss,
        "uniform_test_loss": test_loss,
        "best": float(min(uniform, reached.min())),
        "worst": float(reached.max()),
        "n_lower_than_uniform": int((reached < uniform - SAME_OBJECTIVE).sum()),
        "median_test_loss": float(np.median(runs[:, 3])),
        "reached": reached.tolist(),
    }


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(1, width=6.0, height=3.5)
    panel = axes[0, 0]
    for preset, runs in measured["starts"].items():
        excess = np.sort(np.array(runs["reached"])) - runs["best"]
        ranks = np.arange(1, len(excess) + 1)
        colour = COLOUR[preset]
        below = f"{runs['n_lower_than_uniform']} of {runs['n_starts']} below the uniform start"
        panel.plot(
            ranks,
            np.maximum(excess, SAME_OBJECTIVE),
            "o",
            color=colour,
            markersize=4,
            label=f"{LABEL[preset]}: {below}",
        )
        level = max(runs["uniform"] - runs["best"], SAME_OBJECTIVE)
        panel.axhline(level, color=colour, linewidth=1, linestyle="--")
        panel.annotate(
            f"uniform start, {runs['uniform']:.4f}",
            (len(excess), level),
            (0, 4),
            textcoords="offset points",
            ha="right",
            fontsize=8,
            color=colour,
        )
    panel.set(
        yscale="log",
        xlabel=f"{STARTS} random Dirichlet starts, best first",
        ylabel="objective above the best\n(10⁻⁶: the same)",
    )
    low, high = panel.get_ylim()
    panel.set_ylim(low / 2, high * 40)
    panel.set_title(f"{measured['dataset']}, {measured['members']} bagged trees")
    panel.legend(loc="upper left")
    save(figure, path)
