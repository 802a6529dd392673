"""``preset="paper"`` on the paper's data and protocol, beside what the authors' code gave.

    SPARSEBAG_DATA=... python -m benchmarks.paper_preset [--tables tables.csv]

Protocol: 30 % test rows, seed 42; 100 bagged trees, 50 bagged linear models; λ = 0.05. The tree
rows are held to the targets (survivors within 2, loss within 2 %); the linear rows are shown.
"""

from __future__ import annotations

import argparse
import csv
import os
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from benchmarks.datasets import PAPER, PAPER_SEED, Unavailable

SURVIVORS_WITHIN = 2
LOSS_WITHIN = 0.02
BASES = {
    ("classification", "DecisionTree"): (DecisionTreeClassifier(), 100),
    ("classification", "LogisticRegression"): (LogisticRegression(max_iter=1000), 50),
    ("regression", "DecisionTree"): (DecisionTreeRegressor(), 100),
    ("regression", "Ridge"): (Ridge(), 50),
}


def run(name: str, base: str, data_dir: str | None) -> tuple[int, float, float]:
    """Survivors, test loss of the survivors, test loss of the uniform ensemble."""
    dataset = PAPER[name]
    X, y = dataset.load(data_dir)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=PAPER_SEED)
    model, n_members = BASES[dataset.task, base]
    kind = BaggingClassifier if dataset.task == "classification" else BaggingRegressor
    bag = kind(model, n_estimators=n_members, random_state=PAPER_SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lbfgs on unscaled columns
        bag.fit(X, y)
    small = sb.compress(bag, X, y, preset="paper")
    if dataset.task == "classification":
        # scikit-learn's clip, not 1e-15: it is what the recorded figures were scored with.
        losses = [log_loss(y_test, m.predict_proba(X_test)) for m in (small, bag)]
    else:
        losses = [mean_squared_error(y_test, m.predict(X_test)) for m in (small, bag)]
    return small.n_active_, float(losses[0]), float(losses[1])


def recorded(tables: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    with tables.open() as file:
        return {(r["dataset"], r["base"], r["model"]): r for r in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data_dir = os.environ.get("SPARSEBAG_DATA")
    parser.add_argument("--data-dir", default=data_dir)
    parser.add_argument("--tables", default=f"{data_dir}/../paper/tables.csv" if data_dir else None)
    args = parser.parse_args()
    tables = recorded(Path(args.tables)) if args.tables else {}
    print(
        f"{'dataset':<19}{'base':<20}{'survivors':>10}{'code':>6}{'loss':>11}{'code':>11}"
        f"{'differs':>9}{'uniform':>11}{'code':>11}  verdict"
    )
    met = held = 0
    for name, dataset in PAPER.items():
        for task, base in BASES:
            if task != dataset.task:
                continue
            try:
                active, loss, uniform = run(name, base, args.data_dir)
            except Unavailable as reason:
                print(f"{name:<19}{base:<20} skipped: {reason}")
                continue
            score = "code_log_loss" if task == "classification" else "code_mse"
            row = tables.get((name, base, "SCSB"), {})
            full = tables.get((name, base, "Standard Bagging"), {})
            code_active, code_loss = (
                float(row.get("code_active", "nan")),
                float(row.get(score, "nan")),
            )
            differs = loss / code_loss - 1.0
            ok = abs(active - code_active) <= SURVIVORS_WITHIN and abs(differs) <= LOSS_WITHIN
            verdict = "shown only"
            if base == "DecisionTree" and np.isfinite(code_active):
                held, met, verdict = held + 1, met + ok, "met" if ok else "MISSED"
            print(
                f"{name:<19}{base:<20}{active:>10}{code_active:>6.0f}{loss:>11.6g}"
                f"{code_loss:>11.6g}{differs:>9.1%}{uniform:>11.6g}"
                f"{float(full.get(score, 'nan')):>11.6g}  {verdict}",
                flush=True,
            )
    print(f"\n{met} of {held} tree rows within {SURVIVORS_WITHIN} survivors and {LOSS_WITHIN:.0%}")


if __name__ == "__main__":
    main()
