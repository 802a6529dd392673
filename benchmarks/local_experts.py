"""Bags of half-space experts: how much of an oracle gate's gain each gate finds.

Each member is fitted to targets that were shuffled among the rows of one half-space, so it knows
nothing there; which half it is, and on which bag of rows, chance decides. The oracle gate gives
each row to the members that are competent on its side, with their global weights. The half-space
is that of one feature ("axis"), or of the sum of two ("oblique").

Of the vote alone: no calibrator, members as they are, weights by `sparsebag.compress`.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from benchmarks.datasets import Unavailable
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.local.fit import fit_gate

TRAIN, TEST, FEATURES, MEMBERS, KEPT = 2000, 8000, 6, 40, 20
NOISE, SHARPNESS, FLOOR = 0.5, 2.0, 1e-3


class HalfSpaceExpert(BaseEstimator):
    """A model that learns one side of a plane through zero, and noise on the other."""

    def __init__(self, model: Any = None, normal: Any = None, random_state: Any = None) -> None:
        self.model, self.normal, self.random_state = model, normal, random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> HalfSpaceExpert:
        rng = np.random.default_rng(self.random_state)
        self.side_ = bool(rng.integers(2))
        elsewhere = np.flatnonzero((X @ self.normal > 0.0) != self.side_)
        y = y.copy()
        y[elsewhere] = y[rng.permutation(elsewhere)]
        self.model_ = clone(self.model).fit(X, y)
        if hasattr(self.model_, "classes_"):
            self.classes_ = self.model_.classes_
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict(X)


class ExpertClassifier(ClassifierMixin, HalfSpaceExpert):
    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.model_.predict_proba(X)


class ExpertRegressor(RegressorMixin, HalfSpaceExpert):
    pass


BASES = {
    ("classification", "tree"): DecisionTreeClassifier(min_samples_leaf=5, max_features=0.5),
    ("classification", "linear"): LogisticRegression(),
    ("regression", "tree"): DecisionTreeRegressor(min_samples_leaf=5, max_features=0.5),
    ("regression", "linear"): Ridge(),
}


def problem(task: str, boundary: str, base: str, seed: int) -> tuple[Any, ...]:
    """Rows, targets, the side of each row, and a fitted bag of experts."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(TRAIN + TEST, FEATURES))
    normal = np.zeros(FEATURES)
    normal[: 1 if boundary == "axis" else 2] = 1.0
    side = X @ normal > 0.0
    slopes = rng.normal(size=(2, FEATURES))
    signal = np.where(side, X @ slopes[0], X @ slopes[1])
    if task == "classification":
        y = (rng.random(len(X)) < 1.0 / (1.0 + np.exp(-SHARPNESS * signal))).astype(int)
        bag = BaggingClassifier(ExpertClassifier(BASES[task, base], normal), MEMBERS)
    else:
        y = signal + NOISE * rng.normal(size=len(X))
        bag = BaggingRegressor(ExpertRegressor(BASES[task, base], normal), MEMBERS)
    bag.set_params(random_state=seed).fit(X[:TRAIN], y[:TRAIN])
    return X, y, side, bag


def sides_of(bag: Any, active: np.ndarray) -> np.ndarray:
    """The side each survivor knows; an oracle has nothing to choose where it is the same."""
    sides = np.array([bag.estimators_[j].side_ for j in active])
    if len(set(sides.tolist())) == 1:
        raise Unavailable("all survivors know the same side")
    return sides


class OracleGate:
    """The global weights of those members that are competent on a row's side."""

    def __init__(self, weights: np.ndarray, sides: np.ndarray, normal: np.ndarray) -> None:
        self._weights, self._sides, self._normal = weights, sides, normal

    def weights(self, X: np.ndarray) -> np.ndarray:
        competent = (X @ self._normal > 0.0)[:, None] == self._sides
        own = np.where(competent, self._weights, 0.0)
        total = own.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, own / np.where(total > 0.0, total, 1.0), self._weights)


def share_of_oracle(task: str, boundary: str, base: str, seed: int) -> dict[str, float]:
    """Losses on test rows with global weights, the gate and the oracle, and the share found."""
    X, y, _, bag = problem(task, boundary, base, seed)
    how: dict[str, Any] = {"refine": None, "max_estimators": KEPT, "tolerance": None}
    how |= {"calibration": None} if task == "classification" else {}
    small = sb.compress(bag, X[:TRAIN], y[:TRAIN], **how)
    pool, weights = read_ensemble(bag), small.weights_
    evidence = collect_evidence(pool, X[:TRAIN], y[:TRAIN], class_votes=True, verify=False)
    start = time.process_time()
    local = fit_gate(evidence, X[:TRAIN], weights, local="auto", floor=FLOOR)
    seconds = time.process_time() - start
    active = np.flatnonzero(weights)
    oracle = OracleGate(weights[active], sides_of(bag, active), bag.estimator.normal)
    losses = {}
    for name, gate in (("global", None), ("local", local.gate), ("oracle", oracle)):
        vote = WeightedVote(pool.keep(active), weights[active], FLOOR, None, gate)  # type: ignore[arg-type]
        if task == "classification":
            losses[name] = float(log_loss(y[TRAIN:], vote.predict_proba(X[TRAIN:])))
        else:
            losses[name] = float(np.mean((vote.predict(X[TRAIN:]) - y[TRAIN:]) ** 2))
    share = (losses["global"] - losses["local"]) / (losses["global"] - losses["oracle"])
    return {**losses, "share": share, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    shares = []
    for seed in range(args.seeds):
        for boundary in ("axis", "oblique"):
            for task, base in BASES:
                try:
                    found = share_of_oracle(task, boundary, base, seed)
                except Unavailable as reason:
                    print(f"{task} {base} {boundary} {seed}: skipped, {reason}")
                    continue
                shares.append(found["share"])
                told = ", ".join(f"{name} {value:.3g}" for name, value in found.items())
                print(f"{task} {base} {boundary} {seed}: {told}", flush=True)
    print(f"share of the oracle's gain: mean {np.mean(shares):.3f}, least {min(shares):.3f}")


if __name__ == "__main__":
    main()
