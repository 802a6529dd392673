"""One problem: a data set, split with a seed, and an ensemble fitted to it. Methods share it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from sklearn.model_selection import train_test_split

from benchmarks.base_models import NO_BASE, base_model
from benchmarks.datasets import Dataset, Unavailable
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import MemberPool

TEST_SHARE = 0.3


@dataclass(frozen=True)
class OOBVotes:
    """What every member says of the rows it has not seen, every class of it.

    Attributes
    ----------
    votes : ndarray of shape (M, N, C)
        Class probabilities, or with C = 1 predictions; zero where the row is in the member's bag.
    mask : ndarray of shape (M, N)
        Whether the row is out of bag.
    target : ndarray of shape (M,)
        Class positions, or regression targets.
    seconds : float
        What collecting them took.
    """

    votes: np.ndarray
    mask: np.ndarray
    target: np.ndarray
    seconds: float

    @property
    def judged(self) -> np.ndarray:
        """The votes the loss reads, (M, N): the true class's probabilities, or the predictions."""
        if self.votes.shape[2] == 1:
            return self.votes[:, :, 0]
        return self.votes[np.arange(len(self.target)), :, self.target]


@dataclass(frozen=True)
class Problem:
    """Training rows, test rows and the ensemble fitted on the former (None for base "none")."""

    name: str
    task: str
    base: str
    seed: int
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    n_classes: int
    ensemble: Any

    @cached_property
    def pool(self) -> MemberPool:
        """The ensemble's members."""
        return read_ensemble(self.ensemble)

    @cached_property
    def oob(self) -> OOBVotes:
        """The members' out-of-bag votes, collected once for all methods that read them."""
        start = time.perf_counter()
        X, n_members = self.pool.prepare(self.X), len(self.pool.members)
        votes = np.zeros((len(self.y), n_members, max(self.n_classes, 1)))
        mask = np.ones((len(self.y), n_members), dtype=bool)
        for j, member in enumerate(self.pool.members):
            mask[self.pool.in_bag[j], j] = False
            rows = np.flatnonzero(mask[:, j])
            if self.task == "classification":
                votes[rows, j] = member.predict_proba(X[rows], self.n_classes)
            else:
                votes[rows, j, 0] = member.predict(X[rows])
        return OOBVotes(votes, mask, self.y, time.perf_counter() - start)


def make_problem(dataset: Dataset, base: str, seed: int, data_dir: str | None = None) -> Problem:
    """Load, split (30 % test rows) and fit the ensemble, all with one seed.

    Parameters
    ----------
    dataset : Dataset
    base : str
        A name of `benchmarks.base_models`, or "none" for no ensemble.
    seed : int
        Of the split and of the ensemble.
    data_dir : str, optional
        Where to look for the data first.

    Returns
    -------
    Problem
    """
    data = _load(dataset, data_dir)
    if isinstance(data, Unavailable):
        raise data
    X, y = data
    n_classes = len(np.unique(y)) if dataset.task == "classification" else 0
    X, X_test, y, y_test = train_test_split(X, y, test_size=TEST_SHARE, random_state=seed)
    ensemble = None
    if base != NO_BASE:
        model = base_model(dataset.task, base)
        if model is None:
            raise ValueError(f"{base} is not a base model for {dataset.task}.")
        X, y = X[: model.most_rows], y[: model.most_rows]  # the split has shuffled them
        ensemble = model.fit_ensemble(X, y, seed)
    return Problem(
        dataset.name, dataset.task, base, seed, X, y, X_test, y_test, n_classes, ensemble
    )


@cache
def _load(dataset: Dataset, data_dir: str | None) -> tuple[np.ndarray, np.ndarray] | Unavailable:
    """Rows and targets, or why not: asked once, for a missing network is slow to say so."""
    try:
        return dataset.load(data_dir)
    except Unavailable as reason:
        return reason
