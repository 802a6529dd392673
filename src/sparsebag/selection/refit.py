"""Weights refitted on the user's own loss for the members selected, where that helps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.objective.losses import Loss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.solvers.auto import resolve_solver
from sparsebag.solvers.base import Solver, check_compatible, drop_small_weights, one_blas_thread

FOLDS = 5
SURE = 2.8
"""Standard errors by which the refit must win on held-out rows: Student's 97.5 % of five folds."""


@dataclass(frozen=True)
class RefitBy:
    """What weights are refitted by.

    Attributes
    ----------
    loss : Loss
    solver : str or Solver
        As `sparsebag.solvers.auto.resolve_solver` takes it.
    floor, prior_mass, drop_threshold : float
        Of the objective, and the largest weight that is dropped.
    """

    loss: Loss
    solver: str | Solver
    floor: float
    prior_mass: float
    drop_threshold: float

    def objective(self, evidence: OOBEvidence) -> SimplexObjective:
        """The out-of-bag loss, without a penalty."""
        return SimplexObjective(
            evidence,
            self.loss,
            ConcaveQuadratic(0.0),
            floor=self.floor,
            prior_mass=self.prior_mass,
        )

    def solve(self, evidence: OOBEvidence, start: np.ndarray) -> np.ndarray:
        """Weights, with exact zeros."""
        objective = self.objective(evidence)
        solver = resolve_solver(self.solver, objective, 0)
        check_compatible(solver, objective)
        solution = solver.solve(objective, start)
        return on_host(drop_small_weights(solution, objective, self.drop_threshold).weights)


@dataclass(frozen=True)
class Refit:
    """What cross-fitting says of refitted weights.

    Attributes
    ----------
    weights : ndarray of shape (k,)
        Fitted on all rows.
    gain, gain_error : float
        Mean decrease of the loss on held-out rows, and its standard error over folds.
    """

    weights: np.ndarray
    gain: float
    gain_error: float

    @property
    def helps(self) -> bool:
        """Whether the gain is sure."""
        return self.gain > SURE * self.gain_error


def refit(evidence: OOBEvidence, weights: np.ndarray, by: RefitBy, *, seed: int = 0) -> Refit:
    """Fit weights to the out-of-bag loss, and compare them with the given ones by cross-fitting.

    Both are judged with the same members on the same rows, so the out-of-bag ratio's bias, which
    is one of the number of voters, is the same for both.

    Parameters
    ----------
    evidence : OOBEvidence
        Of the selected members only.
    weights : ndarray of shape (k,)
        The weights to beat.
    by : RefitBy
    seed : int, default 0
        Of the folds.

    Returns
    -------
    Refit
    """
    judged = on_host(evidence.covered())
    if evidence.sample_weight is not None:
        judged = judged & (on_host(evidence.sample_weight) > 0)
    rows = np.random.default_rng(seed).permutation(np.flatnonzero(judged))
    n_folds = min(FOLDS, len(rows))
    if n_folds < 2:
        return Refit(weights, 0.0, np.inf)
    gains, sizes = [], []
    with one_blas_thread():
        whole = by.solve(evidence, weights)
        for f in range(n_folds):
            held = rows[f::n_folds]
            fitted = by.solve(evidence.take(np.setdiff1d(rows, held)), weights)
            on_held = by.objective(evidence.take(held))
            gains.append(on_held.value(weights) - on_held.value(fitted))
            sizes.append(len(held))
    error = float(np.std(gains, ddof=1)) / np.sqrt(n_folds)
    return Refit(whole, float(np.average(gains, weights=sizes)), error)
