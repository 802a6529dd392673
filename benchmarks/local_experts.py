"""Bags of half-space experts: how much of an oracle's gain weights that depend on the row find.

Each member is fitted to targets that were shuffled among the rows of one half-space, so it knows
nothing there; which half it is, and on which bag of rows, chance decides. The oracle gate gives
each row to the members that are competent on its side, with their global weights. The half-space
is that of one feature ("axis"), or of the sum of two ("oblique").

Of the vote alone: no calibrator, members as they are, weights by `sparsebag.compress`.
"""

from __future__ import annotations

import time
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import sparsebag as sb
from benchmarks.datasets import Unavailable
from benchmarks.kept_output import options, results_of

TRAIN, TEST, FEATURES, MEMBERS, KEPT, SEEDS = 2000, 8000, 6, 40, 20, 2
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
    """Rows, targets, and a fitted bag of experts."""
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
    bag.set_params(random_state=seed, oob_score=True).fit(X[:TRAIN], y[:TRAIN])
    return X, y, bag


def said(model: Any, X: np.ndarray) -> np.ndarray:
    """Class probabilities, or numbers."""
    return model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)


def oracle_vote(bag: Any, weights: np.ndarray, X: np.ndarray) -> np.ndarray:
    """The vote in which only members that know a row's side have weight there."""
    active = np.flatnonzero(weights)
    sides = np.array([bag.estimators_[j].side_ for j in active])
    if len(set(sides.tolist())) == 1:
        raise Unavailable("all kept members know the same side")
    competent = (X @ bag.estimator.normal > 0.0)[:, None] == sides
    own = np.where(competent, weights[active], 0.0)
    own /= own.sum(axis=1, keepdims=True)
    votes = np.stack([said(bag.estimators_[j], X) for j in active], axis=1)
    vote = np.einsum("ij,ij...->i...", own, votes)
    return vote if vote.ndim == 1 else (1.0 - FLOOR) * vote + FLOOR / vote.shape[1]


def share_of_oracle(task: str, boundary: str, base: str, seed: int) -> dict[str, float]:
    """Losses on test rows with global weights, the gate and the oracle, and the share found."""
    X, y, bag = problem(task, boundary, base, seed)
    how: dict[str, Any] = {"refine": None, "max_estimators": KEPT, "floor": FLOOR}
    how |= {"calibration": None} if task == "classification" else {}
    X_test, y_test, votes, seconds = X[TRAIN:], y[TRAIN:], {}, 0.0
    for name, local in (("global", None), ("local", "auto")):
        start = time.process_time()
        small = sb.compress(bag, X[:TRAIN], y[:TRAIN], local=local, **how)
        seconds = time.process_time() - start - seconds  # what the gate takes beside the rest
        votes[name] = said(small, X_test)
    votes["oracle"] = oracle_vote(bag, small.weights_, X_test)
    loss = log_loss if task == "classification" else mean_squared_error
    losses = {name: float(loss(y_test, vote)) for name, vote in votes.items()}
    share = (losses["global"] - losses["local"]) / (losses["global"] - losses["oracle"])
    return {**losses, "share": share, "seconds": seconds}


def main() -> None:
    options(__doc__).parse_args()
    with results_of("local_experts", keep=True):
        shares = []
        for seed, boundary in product(range(SEEDS), ("axis", "oblique")):
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
