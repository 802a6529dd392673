"""The paper's method on every bag of its tables: penalty, starts, estimate, last bits.

What one data set shows may be that data set's; this repeats the experiments on all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.datasets import PAPER, PAPER_SEED, Unavailable
from benchmarks.figures.landscape import SAME_OBJECTIVE
from benchmarks.methods.base import voting_model
from benchmarks.problem import Problem, make_problem
from benchmarks.scoring import figures_on_test_rows
from benchmarks.verdict.results import MAIN_SCORE
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.fit_weights import solve_weights
from sparsebag.objective.losses import resolve_loss
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.settings import Settings, resolve_settings

TREES = "DecisionTree"
LINEAR = {"classification": "LogisticRegression", "regression": "Ridge"}
STARTS = 10
PERTURBED = 6
"""Fits to votes whose last bits are drawn anew."""


@dataclass(frozen=True)
class PaperFit:
    """``preset="paper"`` on one bag, from its evidence on."""

    problem: Problem

    @cached_property
    def evidence(self) -> OOBEvidence:
        problem = self.problem
        return collect_evidence(problem.pool, problem.X, problem.y, dtype=np.float64)

    @cached_property
    def settings(self) -> Settings:
        auto = dict.fromkeys(("loss", "solver", "floor", "prior_mass"), "auto")
        return resolve_settings(lam=None, preset="paper", **auto)

    @cached_property
    def objective(self) -> Objective:
        settings = self.settings
        loss = resolve_loss(settings.loss, self.evidence.task)
        return Objective(
            self.evidence,
            loss,
            ConcaveQuadratic(settings.lam or 0.0),
            floor=settings.floor,
            prior_mass=settings.prior_mass,
        )

    def weights(self, start: np.ndarray | None = None, **changes: Any) -> np.ndarray:
        """Fitted weights, with other settings or from another start."""
        return solve_weights(self.evidence, replace(self.settings, **changes), start=start).weights

    def of_last_bits(self, draw: int) -> np.ndarray:
        """Weights fitted to votes of which half are one last bit lower."""
        rng = np.random.default_rng([PAPER_SEED, draw])
        votes = np.asarray(self.evidence.votes)
        lower = votes * (1.0 - np.finfo(float).eps * rng.integers(0, 2, votes.shape))
        return solve_weights(replace(self.evidence, votes=lower), self.settings).weights

    def test_score(self, weights: np.ndarray) -> float:
        """Test log-loss or mean squared error."""
        figures = figures_on_test_rows(voting_model(self.problem, weights), self.problem)
        return figures[MAIN_SCORE[self.problem.task]]


def measure() -> dict[str, Any]:
    """By data set and base model; sets that cannot be had here are left out."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # SLSQP stops early; that is part of what is shown
        return {f"{p.name} {p.base}": _measure(PaperFit(p)) for p in _problems()}


def _problems() -> Iterator[Problem]:
    for dataset in PAPER.values():
        for base in (TREES, LINEAR[dataset.task]):
            try:
                yield make_problem(dataset, base, PAPER_SEED)
            except Unavailable:
                continue


def _measure(fit: PaperFit) -> dict[str, Any]:
    weights = fit.weights()
    measured = {
        **_point(fit, weights),
        "members": len(weights),
        "oob_loss": float(fit.objective.loss_value(weights)),
        "survivors_without_penalty": int(np.count_nonzero(fit.weights(lam=0.0))),
        "perturbed": [_point(fit, fit.of_last_bits(draw)) for draw in range(PERTURBED)],
    }
    if fit.problem.base == TREES:
        measured["starts"] = _starts(fit)
    return measured


def _point(fit: PaperFit, weights: np.ndarray) -> dict[str, float]:
    return {
        "survivors": int(np.count_nonzero(weights)),
        "objective": float(fit.objective.value(weights)),
        "test_score": fit.test_score(weights),
    }


def _starts(fit: PaperFit) -> dict[str, Any]:
    """Objectives before small weights are dropped, from the uniform start and from random ones."""
    n_members = fit.evidence.n_members
    random = np.random.default_rng(PAPER_SEED).dirichlet(np.ones(n_members), STARTS)
    reached = [
        float(fit.objective.value(fit.weights(start, drop_threshold=0.0)))
        for start in (None, *random)
    ]
    uniform, others = reached[0], np.array(reached[1:])
    return {
        "n_starts": STARTS,
        "uniform": uniform,
        "best": float(min(reached)),
        "worst": float(others.max()),
        "n_lower_than_uniform": int((others < uniform - SAME_OBJECTIVE * abs(uniform)).sum()),
    }
