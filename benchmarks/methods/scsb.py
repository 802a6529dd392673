"""Ours: the paper's preset, and whatever `sparsebag.compress` does by itself today."""

from __future__ import annotations

import sparsebag as sb
from benchmarks.methods.base import Method, Model, voting_model
from benchmarks.problem import Problem


def run_scsb_paper(problem: Problem, k: int | None = None) -> list[Model]:
    """The paper to the letter; its survivors vote through the same code as the full ensemble."""
    small = sb.compress(problem.ensemble, problem.X, problem.y, preset="paper")
    return [voting_model(problem, small.weights_)]


def run_sparsebag_default(problem: Problem, k: int | None = None) -> list[Model]:
    """The defaults, with the predictor users get."""
    small = sb.compress(problem.ensemble, problem.X, problem.y)
    return [
        Model(
            predict=small.predict_proba if problem.task == "classification" else small.predict,
            survivors=small.n_active_,
            members=len(small.weights_),
            parts=(small.estimators_, small.weights_[small.active_]),
        )
    ]


METHODS = (
    Method("scsb_paper", run_scsb_paper, ours=True),
    Method("sparsebag_default", run_sparsebag_default, ours=True),
)
