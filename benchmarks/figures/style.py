"""One look for all figures: Okabe and Ito's colours, told apart by colour-blind readers too."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOUR = {
    "uniform": "#000000",
    "paper": "#D55E00",
    "default": "#0072B2",
    "temperature": "#009E73",
    "random": "#767676",
    "best": "#CC79A7",
}
LABEL = {
    "uniform": "uniform",
    "paper": 'SCSB, preset="paper"',
    "default": "sparsebag default",
    "temperature": "uniform + temperature",
    "random": "random k",
    "best": "best k by own OOB loss",
}
OBJECTIVE = {"paper": "paper's objective", "default": "sparsebag's objective"}
"""Where λ varies and the presets' own is only one of several."""
DPI = 100
"""Legible on a screen, and every file well below 150 kB."""


def new_figure(columns: int, rows: int = 1, width: float = 3.4, height: float = 3.2):
    """A figure and its axes, as ``plt.subplots`` gives them (always two-dimensional)."""
    plt.rcParams.update(
        {
            "font.size": 9,
            "axes.titlesize": 9.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.color": "#e4e4e4",
            "grid.linewidth": 0.6,
            "axes.axisbelow": True,
            "legend.frameon": False,
            "legend.fontsize": 8,
        }
    )
    return plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False, layout="constrained"
    )


def save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # No metadata: the same numbers give the same file.
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    plt.close(figure)


PAPER = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}


def note(axes: Axes, text: str, x: float = 0.04, y: float = 0.96) -> None:
    axes.text(x, y, text, transform=axes.transAxes, va="top", fontsize=8, bbox=PAPER)
