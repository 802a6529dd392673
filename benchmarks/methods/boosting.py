"""XGBoost with 100 trees and its own defaults, the paper's outside competitor."""

from __future__ import annotations

from benchmarks.methods.base import Method, Model, Skipped
from benchmarks.problem import Problem

ROUNDS = 100


def run_xgboost(problem: Problem, k: int | None = None) -> list[Model]:
    """Boosting on the training rows; one tree a round and class is counted as one member."""
    try:
        from xgboost import XGBClassifier, XGBRegressor
    except ImportError as error:
        raise Skipped("xgboost is not installed (pip install xgboost-cpu)") from error
    kind = XGBClassifier if problem.task == "classification" else XGBRegressor
    booster = kind(n_estimators=ROUNDS, random_state=problem.seed, n_jobs=1)
    booster.fit(problem.X, problem.y)
    predict = booster.predict_proba if problem.task == "classification" else booster.predict
    return [Model(predict, ROUNDS, ROUNDS, booster)]


METHODS = (Method("xgboost", run_xgboost, needs_ensemble=False),)
