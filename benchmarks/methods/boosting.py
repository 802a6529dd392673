"""XGBoost with 100 trees and its own defaults, the paper's outside competitor."""

from __future__ import annotations

from benchmarks.methods.base import Method, Model, Skipped
from benchmarks.problem import Problem

try:  # here and not in `run`, which is timed
    import xgboost
except ImportError:
    xgboost = None

ROUNDS = 100


def run_xgboost(problem: Problem, k: int | None = None) -> list[Model]:
    """Boosting on the training rows. A round is counted as one member, one tree a class or not."""
    if xgboost is None:
        raise Skipped("xgboost is not installed (pip install xgboost-cpu)")
    classification = problem.task == "classification"
    kind = xgboost.XGBClassifier if classification else xgboost.XGBRegressor
    booster = kind(n_estimators=ROUNDS, random_state=problem.seed, n_jobs=1)
    booster.fit(problem.X, problem.y)
    predict = booster.predict_proba if classification else booster.predict
    return [Model(predict, ROUNDS, ROUNDS, booster)]


METHODS = (Method("xgboost", run_xgboost, needs_ensemble=False),)
