"""What a method is and what it hands to the scorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.problem import Problem
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.settings import DEFAULT_FLOOR


class Skipped(Exception):
    """The method does not apply here; the message says why."""


@dataclass(frozen=True)
class Model:
    """A fitted model, as far as the scorer needs to know it.

    Attributes
    ----------
    predict : callable
        X to class probabilities (rows, C), or to predictions (rows,).
    survivors, members : int
        Members kept, and members there were.
    parts : object
        What would be shipped; its pickle is the model's size.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    survivors: int
    members: int
    parts: Any


@dataclass(frozen=True)
class Method:
    """A way from a problem to a model. It never sees the test rows and never scores itself.

    Attributes
    ----------
    name : str
    run : callable
        ``run(problem, k)``: one model, or several where the method draws lots and its scores are
        to be averaged. ``k`` is the size to match, None for methods that choose their own.
        Only this call is timed.
    needs_ensemble : bool
        False for methods that learn from the rows alone; they run once a data set.
    reads_oob : bool
        Whether it reads the shared ``problem.oob``, whose collection is then part of its time.
    size_from : str, optional
        The method whose number of survivors is its ``k``.
    ours : bool
        Whether its figures hang on this library's code: other source, other row. Such rows are
        also timed in turn with the full ensemble.
    tasks : tuple of str
        Where it applies; elsewhere it is skipped with ``not_elsewhere`` as the reason.
    """

    name: str
    run: Callable[[Problem, int | None], Sequence[Model]]
    needs_ensemble: bool = True
    reads_oob: bool = False
    size_from: str | None = None
    ours: bool = False
    tasks: tuple[str, ...] = ("classification", "regression")
    not_elsewhere: str = ""


def voting_model(problem: Problem, weights: np.ndarray) -> Model:
    """The members' weighted vote; zero weights are dropped, the others sum to one.

    Every voting method predicts through this same code, so that latencies compare members and not
    implementations.

    Parameters
    ----------
    problem : Problem
    weights : ndarray of shape (N,)
        Not negative.

    Returns
    -------
    Model
    """
    active = np.flatnonzero(weights)
    kept = weights[active] / weights[active].sum()
    vote = WeightedVote(problem.pool.keep(active), kept)
    return Model(
        predict=vote.predict_proba if problem.task == "classification" else vote.predict,
        survivors=len(active),
        members=len(weights),
        parts=([member.estimator for member in vote.pool.members], kept),
    )


def uniform_vote(problem: Problem) -> Model:
    """Standard bagging: every member, equal weights."""
    n_members = len(problem.pool.members)
    return voting_model(problem, np.full(n_members, 1.0 / n_members))


def floored(model: Model, problem: Problem, floor: float = DEFAULT_FLOOR) -> Model:
    """The same model with the share of the uniform distribution mixed in that our default mixes in.

    Log-loss punishes a wrong certainty without bound, so a vote with a floor may only be compared
    with votes that have one. Predictions of a regression have no floor.

    Parameters
    ----------
    model : Model
    problem : Problem
    floor : float

    Returns
    -------
    Model
    """
    if problem.task == "regression":
        return model

    def predict(X: np.ndarray) -> np.ndarray:
        return (1.0 - floor) * model.predict(X) + floor / problem.n_classes

    return replace(model, predict=predict)
