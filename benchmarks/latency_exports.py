"""Exports beside the model, on every data set of the paper, with and without missing values."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import sparsebag as sb
from benchmarks.datasets import PAPER, PAPER_SEED, Unavailable
from sparsebag.deploy.verification import verify

MISSING_SHARE = 0.05
MEMBERS = 50


def compare_exports(data_dir: str | None) -> None:
    """A line a data set and kind of member; raises where an export does not match."""
    for name, dataset in PAPER.items():
        try:
            X, y = dataset.load(data_dir)
        except Unavailable as reason:
            print(f"  left out: {reason}")
            continue
        is_vote = dataset.task == "classification"
        forest = RandomForestClassifier if is_vote else RandomForestRegressor
        bag = BaggingClassifier if is_vote else BaggingRegressor
        line = LogisticRegression(max_iter=2000) if is_vote else Ridge()
        holes = np.random.default_rng(0).random(X.shape) < MISSING_SHARE
        scaled = StandardScaler().fit_transform(X)
        cases = {
            "forest": (forest(MEMBERS, random_state=PAPER_SEED), X),
            "forest, NaN": (
                forest(MEMBERS, random_state=PAPER_SEED),
                np.where(holes, np.nan, X),
            ),
            "linear": (bag(line, MEMBERS, random_state=PAPER_SEED, oob_score=True), scaled),
        }
        for kind, (model, rows) in cases.items():
            train, test, y_train, _ = train_test_split(
                rows, y, test_size=0.3, random_state=PAPER_SEED
            )
            small = sb.compress(model.fit(train, y_train), train, y_train)
            print(f"  {name + ', ' + kind:<32}{_compared(small, test, is_vote)}")


def _compared(small: sb.SparseBaggingClassifier, X: np.ndarray, is_vote: bool) -> str:
    """Differences of the exports its kind of members has."""
    found = {"onnx": small.to_onnx().verify(X)}
    if set(small.compile().paths) == {"trees"}:
        found["treelite"] = small.to_treelite().verify(X)
    ordinary = small.to_sklearn()
    predict = ordinary.predict_proba if is_vote else ordinary.predict
    found["sklearn"] = verify(small.compile(), predict, X, 1e-9)
    return "; ".join(
        f"{name} {v.largest_difference:.0e} {v.label_flips} {v.boundary_rows}"
        for name, v in found.items()
    )
