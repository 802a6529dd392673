"""What gates of half-space experts are said to save, beside what they save on new rows.

Bags of trees with the default calibration, on seeds that no other benchmark reports. For each gate:
the gain out of bag, what is expected to be left of it when all members vote, and the real one.

    python -m benchmarks.local_estimate
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np

import sparsebag as sb
from benchmarks.environment import environment
from benchmarks.local_experts import KEPT, TRAIN, problem

RESULTS = Path(__file__).parent / "results" / "local_estimate.txt"
COLUMNS = "{:>4}  {:8} {:>18} {:>18} {:>18}"


def gain_text(gain: float, error: float) -> str:
    return f"{gain:.4f} ± {error:.4f}"


def lines_of(seed: int, boundary: str) -> list[str]:
    X, y, _, bag = problem("classification", boundary, "tree", seed)
    options = {"refine": None, "max_estimators": KEPT, "tolerance": None}
    new, true = X[TRAIN:], y[TRAIN:]
    rows = np.arange(len(true))
    flat = sb.compress(bag, X[:TRAIN], y[:TRAIN], **options)
    before = -np.log(flat.predict_proba(new)[rows, true])
    lines = []
    for kind in ("linear", "regions"):
        small = sb.compress(bag, X[:TRAIN], y[:TRAIN], local=kind, **options)
        saved = before + np.log(small.predict_proba(new)[rows, true])
        told = small.local_.weights
        texts = (
            gain_text(told.gain, told.gain_error),
            gain_text(told.deployed_gain, told.deployed_error),
            gain_text(saved.mean(), saved.std() / np.sqrt(len(saved))),
        )
        lines.append(COLUMNS.format(seed, kind, *texts))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first-seed", type=int, default=90)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--boundary", choices=("axis", "oblique"), default="axis")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", category=sb.UnverifiedRowsWarning)
    head = COLUMNS.format("seed", "gate", "out of bag", "all members", "new rows")
    lines = [
        f"benchmarks.local_estimate, {args.boundary}, source {environment()['source']}",
        "Log-loss saved by gates of bagged trees, half-space experts, calibrated by default",
        head,
    ]
    print("\n".join(lines), flush=True)
    for seed in range(args.first_seed, args.first_seed + args.seeds):
        found = lines_of(seed, args.boundary)
        print("\n".join(found), flush=True)
        lines += found
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
