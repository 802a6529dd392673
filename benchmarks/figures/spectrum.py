"""The weights' spectrum: how unequal the survivors are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.figures.bagged_trees import PRESETS, BaggedTrees
from benchmarks.figures.style import COLOUR, OBJECTIVE, new_figure, save
from sparsebag.settings import PAPER_LAM


def measure(bagged: BaggedTrees) -> dict[str, Any]:
    weights = {}
    for preset in PRESETS:
        for lam in (0.0, PAPER_LAM):
            found = np.sort(bagged.compress(preset, lam).weights_)[::-1]
            weights[f"{preset} {lam:g}"] = found[found > 0].tolist()
    return {"dataset": bagged.dataset, "members": bagged.n_members, "weights": weights}


def draw(measured: dict[str, Any], path: Path) -> None:
    figure, axes = new_figure(2, width=4.4, height=3.3)
    for key, weights in measured["weights"].items():
        preset, lam = key.split()
        look = {
            "color": COLOUR[preset],
            "linestyle": "-" if lam != "0" else ":",
            "label": f"{OBJECTIVE[preset]}, λ = {lam}",
        }
        rank = np.arange(1, len(weights) + 1)
        axes[0, 0].plot(rank, weights, marker=".", markersize=4, linewidth=1, **look)
        axes[0, 1].step([0, *rank], [0, *np.cumsum(weights)], where="mid", linewidth=1.2, **look)
    n = measured["members"]
    axes[0, 0].axhline(1 / n, color=COLOUR["uniform"], linewidth=0.9, label="uniform")
    axes[0, 1].plot([0, n], [0, 1], color=COLOUR["uniform"], linewidth=0.9, label="uniform")
    axes[0, 0].set(yscale="log", xlabel="member, heaviest first", ylabel="weight", xlim=(0, None))
    axes[0, 0].set_title(f"{measured['dataset']}: weights of the survivors")
    axes[0, 1].set(xlabel="heaviest members", ylabel="share of the weight", xlim=(0, n))
    axes[0, 1].set_title("cumulated")
    axes[0, 1].legend(loc="lower right")
    save(figure, path)
