"""The paper's bagged trees on one data set, with every member's votes kept."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

import sparsebag as sb
from benchmarks.datasets import PAPER, PAPER_SEED, Unavailable
from benchmarks.datasets.suite import SUITE
from benchmarks.problem import Problem, make_problem
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.fit_weights import solve_weights
from sparsebag.objective.losses import LogLoss
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic, Penalty
from sparsebag.settings import Settings, resolve_settings
from sparsebag.solvers.base import Solution

PRESETS = {"paper": "paper", "default": None}


@dataclass(frozen=True)
class BaggedTrees:
    """A fitted bag of classification trees, its evidence and its members' test votes."""

    problem: Problem

    @property
    def dataset(self) -> str:
        return self.problem.name

    @property
    def n_members(self) -> int:
        return len(self.problem.pool.members)

    @cached_property
    def evidence(self) -> OOBEvidence:
        problem = self.problem
        return collect_evidence(problem.pool, problem.X, problem.y, dtype=np.float64)

    @cached_property
    def test_votes(self) -> np.ndarray:
        """Every member's probabilities of the test rows, (N, rows, C)."""
        pool, n_classes = self.problem.pool, self.problem.n_classes
        X = pool.prepare(self.problem.X_test)
        return np.stack([member.predict_proba(X, n_classes) for member in pool.members])

    def test_loss(self, weights: np.ndarray, floor: float) -> float:
        """Test log-loss of the weighted vote, mixed with ``floor`` of the uniform distribution."""
        proba = np.tensordot(weights, self.test_votes, axes=1)
        proba = proba / proba.sum(axis=1, keepdims=True)
        floored = (1.0 - floor) * proba + floor / proba.shape[1]
        return float(log_loss(self.problem.y_test, floored))  # scikit-learn's clip, as in scoring

    def uniform_weights(self) -> np.ndarray:
        return np.full(self.n_members, 1.0 / self.n_members)

    def compress(self, preset: str, lam: float | None = None) -> Any:
        """What `sparsebag.compress` does with the bag; λ None is the preset's own."""
        problem = self.problem
        with _solver_may_stop_early():
            return sb.compress(
                problem.ensemble, problem.X, problem.y, lam=lam, preset=PRESETS[preset]
            )

    def objective(self, settings: Settings, penalty: Penalty | None = None) -> Objective:
        return Objective(
            self.evidence,
            LogLoss(),
            penalty or ConcaveQuadratic(settings.lam),
            floor=settings.floor,
            prior_mass=settings.prior_mass,
        )

    def solve(self, settings: Settings, start: np.ndarray | None = None) -> Solution:
        with _solver_may_stop_early():
            return solve_weights(self.evidence, settings, start=start)


def _solver_may_stop_early() -> Any:
    """The paper's SLSQP does; that is part of what is shown."""
    return warnings.catch_warnings(action="ignore", category=ConvergenceWarning)


def settings_of(preset: str) -> Settings:
    """What a preset fits weights with."""
    return resolve_settings(
        lam=None,
        loss="log_loss",
        solver="auto",
        floor="auto",
        prior_mass="auto",
        preset=PRESETS[preset],
    )


def fit_bagged_trees(*names: str) -> BaggedTrees:
    """The paper's protocol on the first of these data sets that can be had here."""
    for name in names:
        try:
            return BaggedTrees(make_problem({**PAPER, **SUITE}[name], "DecisionTree", PAPER_SEED))
        except Unavailable:
            continue
    raise Unavailable(f"none of {', '.join(names)} can be had here")
