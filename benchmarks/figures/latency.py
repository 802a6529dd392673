"""Latency against survivors: timed alone on one bag, and in every row of the results."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.datasets import PAPER_SEED
from benchmarks.figures.bagged_trees import BaggedTrees
from benchmarks.figures.style import new_figure, note, save
from benchmarks.verdict.results import PAPER_BASES, Results
from sparsebag.deploy.weighted_vote import WeightedVote

SIZES = (1, 2, 5, 10, 20, 35, 50, 75, 100)
ROWS = 1000
REPEATS = 40
BASE_LOOK = {
    "DecisionTree": ("#0072B2", "o"),
    "LogisticRegression": ("#D55E00", "s"),
    "Ridge": ("#009E73", "^"),
    "SVM": ("#CC79A7", "D"),
    "MLP": ("#E69F00", "v"),
}


def measure(bagged: BaggedTrees, results: Results | None) -> dict[str, Any]:
    """Milliseconds for 1000 rows at each k, and the straight line through them."""
    rng = np.random.default_rng(PAPER_SEED)
    rows = bagged.problem.X_test[rng.integers(0, len(bagged.problem.X_test), ROWS)]
    pool = bagged.problem.pool
    votes = []
    for k in SIZES:
        members = rng.choice(bagged.n_members, k, replace=False)
        votes.append(WeightedVote(pool.keep(members), np.full(k, 1.0 / k)))
    milliseconds = _fastest_ms(votes, rows)
    slope, intercept = np.polyfit(SIZES, milliseconds, 1)
    residual = np.array(milliseconds) - (intercept + slope * np.array(SIZES))
    return {
        "dataset": bagged.dataset,
        "members": bagged.n_members,
        "k": list(SIZES),
        "ms": milliseconds,
        "slope_ms": float(slope),
        "intercept_ms": float(intercept),
        "r2": float(1.0 - residual.var() / np.var(milliseconds)),
        "rows": _shares(results) if results is not None else {},
    }


def _fastest_ms(votes: list[WeightedVote], rows: np.ndarray) -> list[float]:
    """Each vote's fastest call, in this thread's own time: other work must not count."""
    fastest = [np.inf] * len(votes)
    with threadpool_limits(1):
        for _ in range(REPEATS):
            for i, vote in enumerate(votes):
                start = time.thread_time()
                vote.predict_proba(rows)
                fastest[i] = min(fastest[i], 1000.0 * (time.thread_time() - start))
    return fastest


def _shares(results: Results) -> dict[str, list[list[float]]]:
    """By base model: share of the members kept, share of uniform's latency, of every SCSB row."""
    rows = results.finished("scsb_paper").dropna(subset="speedup")
    points: dict[str, list[list[float]]] = {}
    for (_, base), kept, taken in zip(
        rows.index,
        rows["survivors"] / rows["members"],
        1.0 / rows["speedup"],
        strict=True,
    ):
        points.setdefault(base, []).append([float(kept), float(taken)])
    return points


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(2 if measured["rows"] else 1, width=4.2, height=3.4)
    alone = axes[0, 0]
    k = np.array(measured["k"])
    alone.plot(k, measured["intercept_ms"] + measured["slope_ms"] * k, color="#999999", linewidth=1)
    alone.plot(k, measured["ms"], "o", color=BASE_LOOK["DecisionTree"][0], markersize=5)
    alone.set(
        xlabel="trees kept", ylabel="processor ms for 1000 rows", ylim=(0, None), xlim=(0, None)
    )
    alone.set_title(f"{measured['dataset']}: random trees of {measured['members']}, timed alone")
    note(
        alone,
        f"{measured['slope_ms']:.3f} ms a tree {measured['intercept_ms']:+.2f} ms\n"
        f"R² {measured['r2']:.3f}",
    )
    if measured["rows"]:
        _draw_rows(axes[0, 1], measured["rows"])
    save(figure, path)


def _draw_rows(panel: Any, rows: dict[str, list[list[float]]]) -> None:
    panel.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle=":", label="linear")
    for base, points in rows.items():
        colour, marker = BASE_LOOK[base]
        kept, taken = np.array(points).T
        filled = colour if base in PAPER_BASES else "none"
        panel.scatter(
            kept, taken, marker=marker, s=26, facecolors=filled, edgecolors=colour, label=base
        )
    panel.set(xlim=(0, 1.02), ylim=(0, None))
    panel.set(xlabel="share of the members kept", ylabel="share of uniform's latency")
    panel.set_title('every SCSB row (preset="paper")')
    panel.legend()
