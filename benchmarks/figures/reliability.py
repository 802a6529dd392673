"""Reliability diagrams: what a vote says of itself against how often it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

from benchmarks.figures.bagged_trees import BaggedTrees
from benchmarks.figures.style import COLOUR, LABEL, new_figure, note, save
from benchmarks.methods import METHODS as BENCHMARKED
from sparsebag.report import metrics

METHODS = {
    "uniform": "uniform",
    "paper": "scsb_paper",
    "default": "sparsebag_default",
    "temperature": "uniform_temperature",
}
"""Panels, and the benchmark's methods they show."""


def measure(bagged: BaggedTrees) -> dict[str, Any]:
    """Each method's reliability curve, calibration error, confidence and accuracy."""
    problem = bagged.problem
    measured = {}
    for name, method in METHODS.items():
        (model,) = BENCHMARKED[method].run(problem, None)
        proba = model.predict(problem.X_test)
        measured[name] = _scores(problem.y_test, proba, model.survivors)
    return measured


def _scores(y: np.ndarray, proba: np.ndarray, survivors: int) -> dict[str, Any]:
    curve = metrics.reliability_curve(y, proba)
    return {
        "survivors": int(survivors),
        "ece": metrics.expected_calibration_error(y, proba),
        "log_loss": float(log_loss(y, proba)),
        "mean_confidence": float(proba.max(axis=1).mean()),
        "accuracy": float(np.mean(proba.argmax(axis=1) == y)),
        "curve": {
            "confidence": curve.confidence.tolist(),
            "accuracy": curve.accuracy.tolist(),
            "count": curve.count.tolist(),
        },
    }


def draw(measured: dict[str, dict[str, Any]], path: Path) -> None:
    figure, axes = new_figure(len(METHODS), len(measured), width=2.4, height=2.4)
    for row, (dataset, by_method) in zip(axes, measured.items(), strict=True):
        for panel, method in zip(row, METHODS, strict=True):
            scores = by_method[method]
            curve = {k: np.array(v) for k, v in scores["curve"].items()}
            panel.plot([0, 1], [0, 1], color="#777777", linewidth=0.8, linestyle=":")
            panel.plot(curve["confidence"], curve["accuracy"], color=COLOUR[method], linewidth=1.2)
            share = curve["count"] / curve["count"].sum()
            panel.scatter(
                curve["confidence"],
                curve["accuracy"],
                s=8 + 160 * share,
                color=COLOUR[method],
                alpha=0.75,
                linewidths=0,
            )
            panel.set(xlim=(0.3, 1.03), ylim=(0.0, 1.06))
            panel.set_title(LABEL[method], color=COLOUR[method])
            text = f"{scores['survivors']} trees\nECE {scores['ece']:.3f}"
            note(panel, f"{text}\nlog-loss {scores['log_loss']:.3f}", 0.05, 0.28)
        row[0].set_ylabel(f"{dataset}\nshare correct")
    for panel in axes[-1]:
        panel.set_xlabel("stated confidence")
    save(figure, path)
