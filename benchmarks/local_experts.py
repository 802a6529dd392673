"""Bags of half-space experts: how much of an oracle gate's gain each gate finds.

Each member is fitted to targets that were shuffled among the rows of one half-space, so it knows
nothing there; which half it is, and on which bag of rows, chance decides. The oracle gate gives
each row to the members that are competent on its side, with their global weights. The half-space
is that of one feature ("axis"), or of the sum of two ("oblique").

Once of the vote alone, and for classifiers once more as they are deployed, calibrated by default:
without a gate by the global vote's own calibrator, with one as the fit has it. The oracle then gets
the temperature and floor that are best for the test rows themselves.
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
from benchmarks.environment import environment
from benchmarks.local_jobs import Row, run_jobs
from benchmarks.results_store import OK
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.refine.temperature import fit_tempered_floor

NAME, CALIBRATED = "local_experts", "local_calibrated_experts"
KEY = ("task", "boundary", "base", "gate", "seed")
COLUMNS = (
    *KEY,
    *("status", "reason", "survivors", "global", "local", "oracle", "share"),
    *("expected_gain", "expected_error", "seconds", "source"),
)
TRAIN, TEST, FEATURES, MEMBERS, KEPT = 2000, 8000, 6, 40, 20
NOISE, SHARPNESS = 0.5, 2.0
GATES = ("linear", "regions", "auto")
LEAST_VOTE = 1e-6
"""Of the oracle's votes, whose logarithms a temperature reads."""


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

    has_temperature = False

    def __init__(self, weights: np.ndarray, sides: np.ndarray, normal: np.ndarray) -> None:
        self._weights, self._sides, self._normal = weights, sides, normal

    def weights(self, X: np.ndarray) -> np.ndarray:
        competent = (X @ self._normal > 0.0)[:, None] == self._sides
        own = np.where(competent, self._weights, 0.0)
        total = own.sum(axis=1, keepdims=True)
        return np.where(total > 0.0, own / np.where(total > 0.0, total, 1.0), self._weights)


def rows_of(job: Row) -> list[Row]:
    task, base = job["task"], job["base"]
    X, y, _, bag = problem(task, job["boundary"], base, job["seed"])
    # The vote alone is looked at: a temperature would serve both sides.
    options: dict[str, Any] = {"refine": None, "max_estimators": KEPT, "tolerance": None}
    if task == "classification":
        options["calibration"] = None
    start = time.process_time()
    small = sb.compress(bag, X[:TRAIN], y[:TRAIN], local=job["gate"], **options)
    seconds = time.process_time() - start
    vote = small._vote
    sides = sides_of(bag, small.active_)
    oracle = OracleGate(vote.weights, sides, bag.estimator.normal)
    losses = {}
    for name, gate in (("global", None), ("local", small.local_.gate), ("oracle", oracle)):
        model: Any = WeightedVote(vote.pool, vote.weights, vote.floor, None, gate)
        if task == "classification":
            losses[name] = float(log_loss(y[TRAIN:], model.predict_proba(X[TRAIN:])))
        else:
            losses[name] = float(np.mean((model.predict(X[TRAIN:]) - y[TRAIN:]) ** 2))
    gain = small.local_.weights
    share = (losses["global"] - losses["local"]) / (losses["global"] - losses["oracle"])
    return [
        {
            **job,
            **losses,
            **{"status": OK, "survivors": small.n_active_, "share": share, "seconds": seconds},
            "expected_gain": None if gain is None else gain.gain,
            "expected_error": None if gain is None else gain.gain_error,
            "source": environment()["source"],
        }
    ]


def calibrated_rows_of(job: Row) -> list[Row]:
    """The same of classifiers with the default calibration."""
    X, y, _, bag = problem(job["task"], job["boundary"], job["base"], job["seed"])
    options: dict[str, Any] = {"refine": None, "max_estimators": KEPT, "tolerance": None}
    start = time.process_time()
    small = sb.compress(bag, X[:TRAIN], y[:TRAIN], local=job["gate"], **options)
    seconds = time.process_time() - start
    flat = sb.compress(bag, X[:TRAIN], y[:TRAIN], **options)
    vote = small._vote
    sides = sides_of(bag, small.active_)
    gate: Any = OracleGate(vote.weights, sides, bag.estimator.normal)
    X, y = X[TRAIN:], y[TRAIN:]
    votes = WeightedVote(vote.pool, vote.weights, vote.floor, None, gate).predict_proba(X)
    votes = (1.0 - LEAST_VOTE) * votes + LEAST_VOTE / votes.shape[1]
    oracle = fit_tempered_floor(votes, y, np.ones(len(y))).transform(votes)
    losses = {
        "global": float(log_loss(y, flat.predict_proba(X))),
        "local": float(log_loss(y, small.predict_proba(X))),
        "oracle": float(log_loss(y, oracle)),
    }
    gain = small.local_.weights
    share = (losses["global"] - losses["local"]) / (losses["global"] - losses["oracle"])
    return [
        {
            **job,
            **losses,
            **{"status": OK, "survivors": small.n_active_, "share": share, "seconds": seconds},
            "expected_gain": None if gain is None else gain.deployed_gain,
            "expected_error": None if gain is None else gain.deployed_error,
            "source": environment()["source"],
        }
    ]


def run(args: argparse.Namespace) -> None:
    jobs = [
        {"task": task, "boundary": boundary, "base": base, "gate": gate, "seed": seed}
        for seed in range(args.first_seed, args.first_seed + args.seeds)
        for boundary in ("axis", "oblique")
        for task, base in BASES
        for gate in GATES
    ]
    run_jobs(NAME, COLUMNS, KEY, jobs, rows_of, args.shard)
    calibrated = [job for job in jobs if job["task"] == "classification"]
    run_jobs(CALIBRATED, COLUMNS, KEY, calibrated, calibrated_rows_of, args.shard)
