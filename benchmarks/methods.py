"""What is compared on the paper's data: its method, its baselines, and three of our own."""

import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, LogisticRegression

import sparsebag as sb
from benchmarks.problem import Problem, at_temperature

try:  # here and not where it runs, which is timed
    import xgboost
except ImportError:
    xgboost = None

PAPER_SEED = 42
ROUNDS = 100
DRAWS = 10
"""Draws of random-k; the scorer averages their scores."""
DROPPED = 1e-5
"""Normalised weights up to this are zero, as in the paper's code."""


class Skipped(Exception):
    """The method does not apply here; the message says why."""


@dataclass(frozen=True)
class Model:
    """A fitted model: X to class probabilities (rows, C) or predictions (rows,), and its size.

    The pickle of ``parts``, what would be shipped, is its size in bytes.
    """

    predict: Callable[[np.ndarray], np.ndarray]
    survivors: int
    members: int
    parts: Any

    @property
    def size(self) -> dict[str, float]:
        n_bytes = len(pickle.dumps(self.parts, protocol=5))
        return {"survivors": self.survivors, "members": self.members, "bytes": n_bytes}


@dataclass(frozen=True)
class Method:
    """A way from a problem to a model, which never sees the test rows.

    ``run(problem, k)`` returns one model, or several where lots are drawn and scores averaged; only
    this call is timed. ``k`` is the number of members that ``size_from`` kept. A method without an
    ensemble learns from the rows and runs once a data set.
    """

    run: Callable[[Problem, int | None], Sequence[Model]]
    has_ensemble: bool = True
    is_ours: bool = False
    size_from: str | None = None
    tasks: tuple[str, ...] = ("classification", "regression")


def voting_model(problem: Problem, weights: np.ndarray) -> Model:
    """The weighted vote of those with weight. All voting methods predict by this same loop."""
    active = np.flatnonzero(weights)
    kept = weights[active] / weights[active].sum()
    estimators = [problem.ensemble.estimators_[j] for j in active]

    def predict(X: np.ndarray) -> np.ndarray:
        votes = sum(w * problem.votes(e, X) for w, e in zip(kept, estimators, strict=True))
        return votes if problem.task == "classification" else votes[:, 0]

    return Model(predict, len(active), len(weights), (estimators, kept))


def uniform(problem: Problem, k: int | None = None) -> list[Model]:
    """Standard bagging: every member, equal weights."""
    return [voting_model(problem, np.ones(len(problem.ensemble.estimators_)))]


def scsb_paper(problem: Problem, k: int | None = None) -> list[Model]:
    """The paper's method."""
    small = sb.compress(problem.ensemble, problem.X, problem.y, preset="paper")
    return [voting_model(problem, small.weights_)]


def sparsebag_default(problem: Problem, k: int | None = None) -> list[Model]:
    """What `sparsebag.compress` does by itself, with the predictor users get."""
    small = sb.compress(problem.ensemble, problem.X, problem.y)
    predict = small.predict_proba if problem.task == "classification" else small.predict
    parts = small.estimators_, small.weights_[small.active_]
    return [Model(predict, small.n_active_, len(small.weights_), parts)]


def random_k(problem: Problem, k: int | None) -> list[Model]:
    """Members drawn without replacement, equal weights, several times."""
    n_members = len(problem.ensemble.estimators_)
    models = []
    for draw in range(DRAWS):
        chosen = np.random.default_rng([problem.seed, draw]).choice(n_members, k, replace=False)
        models.append(voting_model(problem, np.isin(np.arange(n_members), chosen).astype(float)))
    return models


def lasso_pruned(problem: Problem, k: int | None = None) -> list[Model]:
    """The paper's baseline, as its published figures have it: found by trial against those.

    Votes on rows in a member's bag count as zero, which blurs every column and is why this Lasso
    hardly prunes. Coefficients become weights, normalised; in classification each member has a
    column a class and its weight is the sum of its coefficients' absolute values.
    """
    votes, target = problem.oob_votes, problem.y
    n_rows, n_members, n_classes = votes.shape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if problem.task == "regression":
            lasso = LassoCV(cv=5, positive=True, random_state=PAPER_SEED, max_iter=10_000)
            weights = lasso.fit(votes[:, :, 0], target).coef_
        else:
            # penalty="l1" up to scikit-learn 1.7, l1_ratio=1 alone since.
            new = LogisticRegression().penalty == "deprecated"
            lasso = LogisticRegression(
                **({"l1_ratio": 1.0} if new else {"penalty": "l1"}),
                solver="saga",
                max_iter=1000,
                random_state=PAPER_SEED,
            ).fit(votes.reshape(n_rows, -1), target)
            weights = np.abs(lasso.coef_.reshape(-1, n_members, n_classes)).sum(axis=(0, 2))
    if not weights.any():
        raise ValueError("the Lasso dropped every member")
    weights = weights / weights.sum()
    return [voting_model(problem, np.where(weights > DROPPED, weights, 0.0))]


def uniform_temperature(problem: Problem, k: int | None = None) -> list[Model]:
    """Standard bagging at the temperature of least out-of-bag log-loss."""
    (full,) = uniform(problem)
    covered = problem.oob_mask.any(axis=1)
    voters = problem.oob_mask[covered].sum(axis=1, keepdims=True)
    oob, target = problem.oob_votes[covered].sum(axis=1) / voters, problem.y[covered]

    def log_loss(log_temperature: float) -> float:
        scaled = at_temperature(oob, float(np.exp(log_temperature)))
        return float(-np.log(scaled[np.arange(len(target)), target]).mean())

    bounds = tuple(np.log((0.05, 20.0)))
    found = float(np.exp(minimize_scalar(log_loss, bounds=bounds, method="bounded").x))
    predict = lambda X: at_temperature(full.predict(X), found)  # noqa: E731
    return [replace(full, predict=predict, parts=(full.parts, found))]


def xgboost_100(problem: Problem, k: int | None = None) -> list[Model]:
    """Boosting with 100 rounds; a round is counted as one member, one tree a class or not."""
    if xgboost is None:
        raise Skipped("xgboost is not installed (pip install xgboost-cpu)")
    classify = problem.task == "classification"
    kind = xgboost.XGBClassifier if classify else xgboost.XGBRegressor
    booster = kind(n_estimators=ROUNDS, random_state=problem.seed, n_jobs=1)
    booster.fit(problem.X, problem.y)
    predict = booster.predict_proba if classify else booster.predict
    return [Model(predict, ROUNDS, ROUNDS, booster)]


METHODS = {
    "uniform": Method(uniform),
    "lasso_pruned": Method(lasso_pruned),
    "xgboost": Method(xgboost_100, has_ensemble=False),
    "scsb_paper": Method(scsb_paper, is_ours=True),
    "random_k": Method(random_k, size_from="scsb_paper"),
    "uniform_temperature": Method(uniform_temperature, tasks=("classification",)),
    "sparsebag_default": Method(sparsebag_default, is_ours=True),
}
