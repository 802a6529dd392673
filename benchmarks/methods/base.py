"""What a method is and what it hands to the scorer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.problem import Problem
from sparsebag.deploy.weighted_vote import WeightedVote


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
    matches_size : bool
        Whether it must be given ``k``.
    """

    name: str
    run: Callable[[Problem, int | None], Sequence[Model]]
    needs_ensemble: bool = True
    reads_oob: bool = False
    matches_size: bool = False


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
