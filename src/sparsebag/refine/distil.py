"""Distilling: few trees' leaves refitted together, so that they say what the whole ensemble says.

The teacher is the whole ensemble with refitted leaves. It needs no targets, so as many rows can
be made up as one likes and nothing can be overfitted to; what the few trees then miss of the
teacher is measured on made-up rows that were not used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.size_matched import finished_votes
from sparsebag.refine.synthetic_rows import synthetic_rows
from sparsebag.refine.targets import Targets

MOST_SYNTHETIC = 45_000
SYNTHETIC_PER_ROW = 20
"""Synthetic rows for each training row, where these are few."""
HELD_OUT_SHARE = 0.1
"""Of the synthetic rows: they measure, and are not fitted to."""
TEACHERS = 200
"""Trees of the teacher; more hardly change their mean."""
RIDGE = 10.0
"""Pseudo-rows that hold each leaf at its start."""
SWEEPS = 4
RISK_PER_MISS = 1.4
"""Risk that the trees add to the teacher's, per squared difference to it on synthetic rows: the
median over 31 data sets. Above one, because differences are larger on real rows (1.15) and lean
the way the teacher itself is wrong."""


class Distillery:
    """The teacher's word on synthetic rows, for any choice of survivors.

    Parameters
    ----------
    routed : RoutedRows
        With dense rows.
    targets : Targets
    twicing, lam : float
        Strengths of the refitted leaves.
    seed : int, default 0
        Of the synthetic rows.

    Attributes
    ----------
    n_synthetic : int
    n_teachers : int
    """

    def __init__(
        self, routed: RoutedRows, targets: Targets, twicing: float, lam: float, seed: int = 0
    ) -> None:
        self.routed = routed
        self.targets = targets
        self.twicing, self.lam = twicing, lam
        fitted = min(MOST_SYNTHETIC, SYNTHETIC_PER_ROW * routed.n_rows)
        held = int(HELD_OUT_SHARE * fitted)
        self.n_synthetic = fitted
        self._rows = synthetic_rows(routed, fitted + held, seed)
        self._leaves: dict[int, np.ndarray] = {}
        n = len(routed.pool.members)
        teachers = np.unique(np.linspace(0, n - 1, min(n, TEACHERS)).astype(int))
        self.n_teachers = len(teachers)
        word = np.zeros((len(self._rows), targets.n_columns))
        for j in teachers:
            word += self.start(int(j))[self._leaf(int(j))]
        self._teacher = self._as_columns(word / len(teachers))

    def start(self, j: int) -> np.ndarray:
        """Refitted values of every node of tree j, before distillation; shape (K, D)."""
        return self.targets.leaf_table(self.routed, j, self.twicing, self.lam)

    def distil(
        self, members: Sequence[int] | np.ndarray, weights: np.ndarray
    ) -> tuple[list[np.ndarray], float]:
        """Values of some trees' nodes that together say what the teacher says.

        Parameters
        ----------
        members : sequence of int
        weights : ndarray of shape (k,)
            Positive, summing to one.

        Returns
        -------
        values : list of ndarray of shape (K, D)
        missed : float
            Risk they are expected to add to the teacher's.
        """
        n = self.n_synthetic
        leaves = [self._leaf(int(j)) for j in members]
        start = [self.start(int(j)) for j in members]
        values = backfit(start, [leaf[:n] for leaf in leaves], weights, self._teacher[:n])
        said = sum(w * v[leaf[n:]] for w, v, leaf in zip(weights, values, leaves, strict=True))
        difference = self._as_columns(np.asarray(said)) - self._teacher[n:]
        missed = float(np.mean(np.sum(difference**2, axis=1))) * self.targets.multiplicity
        return values, RISK_PER_MISS * missed

    def _as_columns(self, said: np.ndarray) -> np.ndarray:
        """Summed votes as deployed: class shares clipped at zero and normalised."""
        if self.targets.n_classes is None:
            return said
        proba = finished_votes(self.targets.as_votes(said))
        return proba[:, 1:] if self.targets.n_classes == 2 else proba

    def _leaf(self, j: int) -> np.ndarray:
        if j not in self._leaves:
            self._leaves[j] = self.routed.pool.members[j].apply(self._rows).astype(np.int32)
        return self._leaves[j]


def backfit(
    start: list[np.ndarray],
    leaves: list[np.ndarray],
    weights: np.ndarray,
    goal: np.ndarray,
    ridge: float = RIDGE,
    sweeps: int = SWEEPS,
) -> list[np.ndarray]:
    """Refit one tree's leaves after the other to what the others leave of a goal.

    Minimises, a tree at a time, ``Σ (goal − Σ_j w_j v_j)² + ridge Σ_j w_j² ‖v_j − start_j‖²``.

    Parameters
    ----------
    start : list of ndarray of shape (K_j, D)
    leaves : list of ndarray of shape (rows,)
    weights : ndarray of shape (k,)
    goal : ndarray of shape (rows, D)
    ridge : float
    sweeps : int

    Returns
    -------
    list of ndarray of shape (K_j, D)

    Examples
    --------
    >>> leaves, goal = np.array([0, 0, 1, 1]), np.array([[1.0], [3.0], [5.0], [5.0]])
    >>> (value,) = backfit([np.zeros((2, 1))], [leaves], np.ones(1), goal, ridge=0.0)
    >>> value.ravel().tolist()
    [2.0, 5.0]
    """
    values = [v.copy() for v in start]
    left = goal - sum(w * v[leaf] for w, v, leaf in zip(weights, values, leaves, strict=True))
    left = np.asfortranarray(left)
    counts = [np.bincount(leaf, minlength=len(v)) for leaf, v in zip(leaves, values, strict=True)]
    for _ in range(sweeps):
        for value, first, leaf, weight, count in zip(
            values, start, leaves, weights, counts, strict=True
        ):
            mass = np.maximum(count + ridge, 1e-12)
            for d in range(goal.shape[1]):
                found = np.bincount(leaf, left[:, d], minlength=len(value)) / weight
                move = (found - ridge * (value[:, d] - first[:, d])) / mass
                value[:, d] += move
                left[:, d] -= weight * move[leaf]
    return values
