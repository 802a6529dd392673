"""Loss against size and λ, with the curve of as many random members drawn in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.datasets import PAPER_SEED
from benchmarks.figures.bagged_trees import PRESETS, BaggedTrees
from benchmarks.figures.style import COLOUR, LABEL, OBJECTIVE, new_figure, save
from sparsebag.settings import DEFAULT_FLOOR, PAPER_LAM

LAMBDAS = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
SIZES = (1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100)
DRAWS = 30


def measure(bagged: BaggedTrees) -> dict[str, Any]:
    """Test log-loss, every vote with the same floor: sizes are compared, not clips."""
    rng = np.random.default_rng(PAPER_SEED)
    random = []
    for k in SIZES:
        draws = [rng.choice(bagged.n_members, k, replace=False) for _ in range(DRAWS)]
        losses = [bagged.test_loss(_equal(bagged, d), DEFAULT_FLOOR) for d in draws]
        low, high = np.quantile(losses, [0.05, 0.95])
        random.append(
            {"k": k, "mean": float(np.mean(losses)), "low": float(low), "high": float(high)}
        )
    own = _own_oob_loss(bagged)
    best = [
        {"k": k, "log_loss": bagged.test_loss(_equal(bagged, own[:k]), DEFAULT_FLOOR)}
        for k in SIZES
    ]
    paths = {preset: [_point(bagged, preset, lam) for lam in LAMBDAS] for preset in PRESETS}
    return {
        "dataset": bagged.dataset,
        "members": bagged.n_members,
        "floor": DEFAULT_FLOOR,
        "uniform": bagged.test_loss(bagged.uniform_weights(), DEFAULT_FLOOR),
        "random_k": random,
        "best_k": best,
        **paths,
    }


def _point(bagged: BaggedTrees, preset: str, lam: float) -> dict[str, float]:
    weights = bagged.compress(preset, lam).weights_
    return {
        "lam": lam,
        "survivors": int(np.count_nonzero(weights)),
        "effective": float(1.0 / np.sum(weights**2)),
        "heaviest": float(weights.max()),
        "log_loss": bagged.test_loss(weights, DEFAULT_FLOOR),
    }


def _equal(bagged: BaggedTrees, members: np.ndarray) -> np.ndarray:
    weights = np.zeros(bagged.n_members)
    weights[members] = 1.0 / len(members)
    return weights


def _own_oob_loss(bagged: BaggedTrees) -> np.ndarray:
    """Members from least to greatest mean log-loss on their own out-of-bag rows."""
    votes = (1 - DEFAULT_FLOOR) * bagged.evidence.votes + DEFAULT_FLOOR / bagged.problem.n_classes
    mask = np.asarray(bagged.evidence.oob_mask, dtype=bool)
    return np.argsort((-np.log(votes) * mask).sum(axis=0) / mask.sum(axis=0))


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(2, width=4.6, height=3.7)
    _draw_losses(axes[0, 0], measured)
    _draw_sizes(axes[0, 1], measured)
    save(figure, path)


def _draw_losses(panel: Any, measured: dict[str, Any]) -> None:
    k, mean, low, high = (
        [p[c] for p in measured["random_k"]] for c in ("k", "mean", "low", "high")
    )
    panel.fill_between(k, low, high, color=COLOUR["random"], alpha=0.2, linewidth=0)
    panel.plot(k, mean, color=COLOUR["random"], label=f"{LABEL['random']} (mean, 5–95 %)")
    losses = [p["log_loss"] for p in measured["best_k"]]
    panel.plot(k, losses, color=COLOUR["best"], linestyle="--", label=LABEL["best"])
    panel.axhline(
        measured["uniform"],
        color=COLOUR["uniform"],
        linewidth=0.9,
        linestyle=":",
        label=f"all {measured['members']}, uniform",
    )
    for preset, marker in (("paper", "s"), ("default", "o")):
        points = measured[preset]
        panel.plot(
            [p["survivors"] for p in points],
            [p["log_loss"] for p in points],
            marker,
            color=COLOUR[preset],
            markersize=5,
            label=f"{OBJECTIVE[preset]}; the number is λ, if above {PAPER_LAM:g}",
        )
        for point in points:
            if point["lam"] > PAPER_LAM:
                panel.annotate(
                    f"{point['lam']:g}",
                    (point["survivors"], point["log_loss"]),
                    (6, -3),
                    textcoords="offset points",
                    fontsize=7.5,
                    color=COLOUR[preset],
                )
    usual = measured["paper"][0]
    panel.annotate(
        f"λ ≤ {PAPER_LAM:g}",
        (usual["survivors"], usual["log_loss"]),
        (-8, 9),
        textcoords="offset points",
        fontsize=7.5,
    )
    panel.set(
        xscale="log", yscale="log", xlabel="members kept", ylabel="test log-loss (votes floored)"
    )
    panel.set_xticks([1, 2, 5, 10, 20, 50, 100], labels=["1", "2", "5", "10", "20", "50", "100"])
    panel.minorticks_off()
    low, high = panel.get_ylim()
    panel.set_ylim(low, 2.6 * high)  # room for the legend
    ticks = [t for t in (0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0) if _within(panel, t)]
    panel.set_yticks(ticks, labels=[f"{t:g}" for t in ticks])
    panel.set_title(f"{measured['dataset']}: what a size costs")
    panel.legend()


def _within(panel: Any, value: float) -> bool:
    low, high = panel.get_ylim()
    return low <= value <= high


def _draw_sizes(panel: Any, measured: dict[str, Any]) -> None:
    positions = np.arange(len(LAMBDAS))
    for preset, marker in (("paper", "s"), ("default", "o")):
        points = measured[preset]
        for quantity, line in (("survivors", "-"), ("effective", "--")):
            label = "survivors" if quantity == "survivors" else "effective, 1/Σw²"
            panel.plot(
                positions,
                [p[quantity] for p in points],
                line,
                marker=marker,
                markersize=4,
                color=COLOUR[preset],
                label=f"{OBJECTIVE[preset]}: {label}",
            )
    panel.set_xticks(positions, labels=[f"{lam:g}" for lam in LAMBDAS])
    panel.set(xlabel="λ (not to scale)", ylabel="members")
    panel.set_ylim(0, 1.45 * panel.get_ylim()[1])
    panel.set_title("survivors, and how many equal ones they amount to")
    panel.legend()
