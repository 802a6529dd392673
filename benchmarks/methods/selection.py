"""Baselines of a given size k: random members, the best members, and Caruana's greedy selection.

Members are judged on OOB rows by log-loss (floored, so that the 0/1 leaves of trees have a loss)
or by squared error.
"""

from __future__ import annotations

import numpy as np

from benchmarks.methods.base import Method, Model, voting_model
from benchmarks.problem import Problem

DRAWS = 10
"""Draws of random-k; the scorer averages their scores."""
FLOOR = 1e-3
REPEATS = 3
"""Greedy picks, repeats included, for each member asked for; after those only new members."""


def run_random_k(problem: Problem, k: int | None) -> list[Model]:
    """Members drawn without replacement, equal weights, several times."""
    n_members = len(problem.pool.members)
    models = []
    for draw in range(DRAWS):
        chosen = np.random.default_rng([problem.seed, draw]).choice(n_members, k, replace=False)
        models.append(voting_model(problem, _indicator(chosen, n_members)))
    return models


def run_best_k(problem: Problem, k: int | None) -> list[Model]:
    """The members of least loss on their own OOB rows, equal weights."""
    assert k is not None
    return [voting_model(problem, best_members(problem, k))]


def best_members(problem: Problem, k: int) -> np.ndarray:
    """Equal weights on the k members of least own OOB loss, shape (N,)."""
    mask = problem.oob.mask
    losses = np.where(mask, _loss(problem, problem.oob.judged), 0.0).sum(axis=0)
    own_loss = losses / np.maximum(mask.sum(axis=0), 1)
    chosen = np.argsort(own_loss, kind="stable")[:k]
    return _indicator(chosen, mask.shape[1]) / k


def run_caruana(problem: Problem, k: int | None) -> list[Model]:
    """Greedy selection with replacement until k members are in; picks are the weights."""
    assert k is not None
    return [voting_model(problem, greedy_picks(problem, k).astype(float))]


def greedy_picks(problem: Problem, k: int) -> np.ndarray:
    """How often each member is picked, adding at each step the one that lowers the loss most.

    A row that no picked member has out of bag is charged what one voter costs it on average. (To
    fill in the uniform ensemble's vote instead, as a prior would, rewards leaving rows uncovered:
    the greedy search then picks one member over and over.)

    Parameters
    ----------
    problem : Problem
    k : int
        Distinct members wanted.

    Returns
    -------
    ndarray of shape (N,)
    """
    covered = problem.oob.mask.any(axis=1)
    votes, mask = problem.oob.judged[covered], problem.oob.mask[covered]
    own_loss = np.where(mask, _loss(problem, votes, covered), 0.0)
    one_voter = (own_loss.sum(axis=1) / mask.sum(axis=1))[:, None]
    picks = np.zeros(votes.shape[1], dtype=int)
    vote_sum, voters = np.zeros((len(votes), 1)), np.zeros((len(votes), 1))
    while np.count_nonzero(picks) < k:
        with_each = (vote_sum + votes) / np.maximum(voters + mask, 1.0)
        loss = np.where(voters + mask > 0, _loss(problem, with_each, covered), one_voter)
        mean_loss = loss.mean(axis=0)
        if picks.sum() >= REPEATS * k:
            mean_loss[picks > 0] = np.inf
        best = int(np.argmin(mean_loss))
        picks[best] += 1
        vote_sum[:, 0] += votes[:, best]
        voters[:, 0] += mask[:, best]
    return picks


def _loss(
    problem: Problem, votes: np.ndarray, rows: np.ndarray | slice = slice(None)
) -> np.ndarray:
    """Pointwise loss of votes (rows, members) on the true class, or of predictions."""
    if problem.task == "classification":
        return -np.log((1.0 - FLOOR) * votes + FLOOR / problem.n_classes)
    return np.square(votes - problem.oob.target[rows, None])


def _indicator(chosen: np.ndarray, n_members: int) -> np.ndarray:
    weights = np.zeros(n_members)
    weights[chosen] = 1.0
    return weights


METHODS = (
    Method("random_k", run_random_k, matches_size=True),
    Method("best_k", run_best_k, reads_oob=True, matches_size=True),
    Method("caruana", run_caruana, reads_oob=True, matches_size=True),
)
