"""The full ensemble as it is, and with one temperature on its probabilities."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from benchmarks.methods.base import Method, Model, Skipped, floored, uniform_vote
from benchmarks.problem import Problem

TEMPERATURES = (0.05, 20.0)
FLOOR = 1e-3
"""Share of the uniform class distribution mixed in first: the logarithm of 0 has no temperature."""
NO_PROBABILITIES = "regression has no probabilities to scale"


def run_uniform(problem: Problem, k: int | None = None) -> list[Model]:
    """Standard bagging: every member, equal weights."""
    return [uniform_vote(problem)]


def run_uniform_floored(problem: Problem, k: int | None = None) -> list[Model]:
    """Standard bagging with our default's floor: its fair rival in log-loss."""
    return [floored(uniform_vote(problem), problem)]


def run_uniform_temperature(problem: Problem, k: int | None = None) -> list[Model]:
    """Standard bagging, softened or sharpened by the temperature of least OOB log-loss."""
    if problem.task == "regression":
        raise Skipped(NO_PROBABILITIES)
    uniform = uniform_vote(problem)
    temperature = fit_temperature(uniform_oob_vote(problem), problem)

    def predict(X: np.ndarray) -> np.ndarray:
        return at_temperature(uniform.predict(X), temperature)

    return [Model(predict, uniform.survivors, uniform.members, (uniform.parts, temperature))]


def uniform_oob_vote(problem: Problem) -> np.ndarray:
    """Mean OOB probabilities (M, C); NaN where no member has the row out of bag."""
    voters = problem.oob.mask.sum(axis=1)
    with np.errstate(invalid="ignore"):
        return problem.oob.votes.sum(axis=1) / voters[:, None]


def fit_temperature(proba: np.ndarray, problem: Problem) -> float:
    """The temperature that minimises log-loss on the rows with a vote."""
    covered = np.isfinite(proba[:, 0])
    proba, target = proba[covered], problem.oob.target[covered]

    def log_loss(log_temperature: float) -> float:
        scaled = at_temperature(proba, float(np.exp(log_temperature)))
        return float(-np.log(scaled[np.arange(len(target)), target]).mean())

    bounds = tuple(np.log(TEMPERATURES))
    return float(np.exp(minimize_scalar(log_loss, bounds=bounds, method="bounded").x))


def at_temperature(proba: np.ndarray, temperature: float) -> np.ndarray:
    """``p ** (1/T)``, normalised, after the floor."""
    floored = (1.0 - FLOOR) * proba + FLOOR / proba.shape[1]
    logits = np.log(floored) / temperature
    scaled = np.exp(logits - logits.max(axis=1, keepdims=True))
    return scaled / scaled.sum(axis=1, keepdims=True)


METHODS = (
    Method("uniform", run_uniform),
    Method("uniform_floored", run_uniform_floored),
    Method(
        "uniform_temperature",
        run_uniform_temperature,
        reads_oob=True,
        tasks=("classification",),
        not_elsewhere=NO_PROBABILITIES,
    ),
)
