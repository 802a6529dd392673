"""Draw the paper benchmark's figures and keep the numbers behind them.

    SPARSEBAG_DATA=... python -m benchmarks.paper_figures [--only starts paradox]

Pictures go to ``docs/figures``, numbers to ``benchmarks/results/paper_experiments.json``, from
which ``python -m benchmarks.paper_verdict`` quotes. The paper's protocol: 30 % test rows, seed 42,
100 bagged trees; spambase and segment, else scikit-learn's bundled sets. About two minutes, and one
more for ``every_bag``, which repeats what needs no picture on every data set of the tables.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.figures import (
    every_bag,
    frontier,
    landscape,
    latency,
    paradox,
    reliability,
    spectrum,
)
from benchmarks.figures.bagged_trees import BaggedTrees, fit_bagged_trees
from benchmarks.verdict.results import Results, read_experiments

RESULTS = Path("benchmarks/results/paper.csv")
EXPERIMENTS = Path("benchmarks/results/paper_experiments.json")
FIGURES = Path("docs/figures")
SIGNIFICANT_DIGITS = 8


@cache
def binary() -> BaggedTrees:
    return fit_bagged_trees("spambase", "breast_cancer")


@cache
def small() -> BaggedTrees:
    return fit_bagged_trees("breast_cancer")


@cache
def multiclass() -> BaggedTrees:
    return fit_bagged_trees("segment", "digits")


def _reliability(results: Results | None) -> dict[str, Any]:
    return {b.dataset: reliability.measure(b) for b in (binary(), multiclass())}


MEASURE: dict[str, Callable[[Results | None], dict[str, Any]]] = {
    "reliability": _reliability,
    "frontier": lambda results: frontier.measure(binary()),
    "spectrum": lambda results: spectrum.measure(binary()),
    "latency": lambda results: latency.measure(binary(), results),
    "landscape": lambda results: landscape.measure(binary(), small()),
    "paradox": lambda results: paradox.measure(binary()),
    "every_bag": lambda results: every_bag.measure(),
}
SECONDS = "seconds"
"""Key of the wall time that each experiment took, its figure included."""
DRAW: dict[str, tuple[str, Callable[[dict[str, Any], Path], None]]] = {
    "reliability": ("reliability", reliability.draw),
    "frontier": ("frontier", frontier.draw),
    "spectrum": ("spectrum", spectrum.draw),
    "latency": ("latency", latency.draw),
    "landscape": ("starts", landscape.draw),
    "paradox": ("paradox", paradox.draw),
}


def rounded(value: Any) -> Any:
    """Numbers cut to the digits that mean something, so that the file is small and stable."""
    if isinstance(value, dict):
        return {key: rounded(v) for key, v in value.items()}
    if isinstance(value, list):
        return [rounded(v) for v in value]
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if isinstance(value, float) else value


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=list(MEASURE), default=list(MEASURE))
    parser.add_argument("--redraw", action="store_true", help="draw from the kept numbers")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--experiments", type=Path, default=EXPERIMENTS)
    parser.add_argument("--out", type=Path, default=FIGURES)
    args = parser.parse_args(arguments)
    results = Results.read(args.results) if args.results.exists() else None
    experiments = read_experiments(args.experiments)
    for name in args.only:
        started = time.perf_counter()
        if not args.redraw:
            experiments[name] = rounded(MEASURE[name](results))
        if name in DRAW:
            file, draw = DRAW[name]
            draw(experiments[name], args.out / f"{file}.png")
        seconds = time.perf_counter() - started
        if not args.redraw:
            experiments.setdefault(SECONDS, {})[name] = rounded(seconds)
            args.experiments.parent.mkdir(parents=True, exist_ok=True)
            kept = {key: experiments[key] for key in (*MEASURE, SECONDS) if key in experiments}
            args.experiments.write_text(json.dumps(kept) + "\n")
        print(f"{name}  {seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
