"""Weights that depend on the row, fitted to honest votes of the survivors.

``w(x) = softmax(log w + B'z(x))``: the global weights w, and a ridge-penalised map of what a
design (`local_design`) makes of the row. B = 0 is exactly the global model. What B moves a member
by is bounded: unbounded, the luck of a few hundred rows parts members that know the same place.

A row's vote is made by the members that have it out of bag, with their weights renormalised; a
little mass τ of the row's *global* vote keeps it defined where a gate trusts only members that have
seen the row, and such a row then speaks neither for the gate nor against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sparsebag.refine.calibrator import softmax_rows
from sparsebag.refine.directions import Directions
from sparsebag.refine.gate import bounded, bounded_slope
from sparsebag.refine.local_choice import Candidate, effective_rows
from sparsebag.refine.local_design import (
    BoundedDeviation,
    Deviation,
    FittedMap,
    LinearDesign,
    RegionDesign,
)
from sparsebag.refine.size_matched import finished_votes

LEAST_MASS = 0.02
"""τ at least: the paper's zero would let a gate divide by nothing."""
LEAST_FLOOR = 1e-3
"""Of votes while fitting, for members may be sure and wrong."""
MOST_STEPS = 60
"""Of L-BFGS; what is left to gain after so many is below what the folds can see."""
FIRST_STEP = 0.3
"""Of both factors of the map, in units of their priors."""
PARTED = 2.0
"""Prior standard deviation of what is bounded: most members may go most of the way."""
PLANE = Candidate("linear", 2.0, steepness=16.0)
"""A step, as regions have at their borders."""


@dataclass(frozen=True)
class LocalEvidence:
    """Honest votes of the survivors, and the features of the rows they are about.

    Attributes
    ----------
    features : ndarray of shape (R, d)
        NaN where unknown.
    votes : ndarray of shape (R, k, C)
        Class probabilities, or with C = 1 predictions; anything where ``mask`` is False.
    mask : ndarray of bool of shape (R, k)
        Where the member had no part of the row; every row has one.
    target : ndarray of shape (R,)
        Class positions, or numbers.
    weight : ndarray of shape (R,)
        Of the rows, none zero, summing to one.
    base : ndarray of shape (k,)
        The global weights, none zero.
    classifies : bool
    floor : float
        Share of the uniform class distribution in the deployed vote.
    mass : float
        τ.
    """

    features: np.ndarray
    votes: np.ndarray
    mask: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    base: np.ndarray
    classifies: bool
    floor: float = 0.0
    mass: float = LEAST_MASS

    @property
    def n_rows(self) -> int:
        """R."""
        return len(self.target)

    @property
    def effective_rows(self) -> float:
        """Rows of equal weight that say as much."""
        return effective_rows(self.weight)

    def take(self, rows: np.ndarray) -> LocalEvidence:
        """Slice every parallel array by row.

        Parameters
        ----------
        rows : index array

        Returns
        -------
        LocalEvidence
        """
        weight = self.weight[rows]
        return replace(
            self,
            features=self.features[rows],
            votes=self.votes[rows],
            mask=self.mask[rows],
            target=self.target[rows],
            weight=weight / weight.sum(),
        )

    def voted(self, weights: np.ndarray) -> np.ndarray:
        """The out-of-bag vote of each row under weights of its own, finished as deployed.

        Parameters
        ----------
        weights : ndarray of shape (R, k)

        Returns
        -------
        ndarray of shape (R, C)
        """
        votes = self._raw(weights)
        return finished_votes(votes, self.floor) if self.classifies else votes

    def _raw(self, weights: np.ndarray) -> np.ndarray:
        heard = np.where(self.mask, weights, 0.0)
        own = np.where(self.mask, self.base, 0.0)
        votes = np.where(self.mask[:, :, None], self.votes, 0.0)
        anchor = np.einsum("ij,ijc->ic", own / own.sum(axis=1, keepdims=True), votes)
        total = heard.sum(axis=1, keepdims=True) + self.mass
        return np.asarray((np.einsum("ij,ijc->ic", heard, votes) + self.mass * anchor) / total)


class WeightsProblem:
    """Rows to fit local weights to, as `local_choice` asks for them.

    Parameters
    ----------
    evidence : LocalEvidence
    linear : LinearDesign
        Of all rows: standardising looks at no target.
    unit : float, optional
        Squared error that counts as one half; default: that of the global weights.
    """

    def __init__(
        self, evidence: LocalEvidence, linear: LinearDesign, unit: float | None = None
    ) -> None:
        self.evidence, self.linear = evidence, linear
        self.base = np.log(evidence.base)
        self._unit = unit
        self._grown: dict[tuple[int, int, bool], RegionDesign] = {}

    @property
    def n_rows(self) -> int:
        """Rows that can be split."""
        return self.evidence.n_rows

    @property
    def row_weight(self) -> np.ndarray:
        """Weights of the rows, summing to one."""
        return self.evidence.weight

    def take(self, rows: np.ndarray) -> WeightsProblem:
        """The same for some rows.

        Parameters
        ----------
        rows : index array

        Returns
        -------
        WeightsProblem
        """
        return WeightsProblem(self.evidence.take(rows), self.linear, self.unit)

    def fit(self, candidate: Candidate) -> FittedMap:
        """The map of least penalised loss.

        Parameters
        ----------
        candidate : Candidate

        Returns
        -------
        FittedMap
        """
        return self._planes(candidate) if candidate.kind == "linear" else self._regions(candidate)

    def _planes(self, candidate: Candidate) -> BoundedDeviation:
        """Planes, and how the weights change from one side to the other.

        A logit that is linear in the features has one parameter for two things: how fast members
        take over near the plane, and how unlike the weights are far from it. A steep one leaves
        far rows to the one member of the largest slope. Bounded, a logit has a parameter for each.
        """
        rows, design = self.evidence, self.linear
        columns = design.columns(rows.features)
        d, k = columns.shape[1], len(self.base)
        r = min(candidate.rank, d, k)
        with_offset = np.hstack([columns, np.ones((len(columns), 1))])
        # Minus the logarithm of a normal prior of both factors, as a row's share of nats.
        of_down = 0.5 * design.pull / candidate.steepness**2 / rows.effective_rows
        of_part = 0.5 / PARTED**2 / rows.effective_rows

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            down, part = flat[: (d + 1) * r].reshape(d + 1, r), flat[(d + 1) * r :].reshape(r, k)
            h, up = with_offset @ down, candidate.spread * bounded(part)
            side = bounded(h)
            side -= rows.weight @ side
            losses, gradient = self._loss_and_gradient(self.base + side @ up)
            gradient *= rows.weight[:, None]
            value = float(rows.weight @ losses)
            value += of_down * float(np.sum(down**2)) + of_part * float(np.sum(part**2))
            of_side = gradient @ up.T
            of_side -= rows.weight[:, None] * of_side.sum(axis=0)  # the mean side is taken off
            d_down = with_offset.T @ (of_side * bounded_slope(h)) + 2.0 * of_down * down
            d_up = candidate.spread * (side.T @ gradient)
            d_part = d_up * bounded_slope(part) + 2.0 * of_part * part
            return value, np.concatenate([d_down.ravel(), d_part.ravel()])

        # Zero is stationary; so the fit starts a little way down the steepest directions.
        left, _, right = np.linalg.svd(
            columns.T @ (rows.weight[:, None] * self._signal), full_matrices=False
        )
        start = (
            np.vstack([FIRST_STEP * left[:, :r], np.zeros((1, r))]),
            FIRST_STEP / candidate.spread * right[:r],
        )
        found = least(objective, np.concatenate([factor.ravel() for factor in start]))
        down, part = found[: (d + 1) * r].reshape(d + 1, r), found[(d + 1) * r :].reshape(r, k)
        up = candidate.spread * bounded(part)
        centre = rows.weight @ bounded(with_offset @ down)
        return BoundedDeviation(design, down[:d], down[d], up, centre)

    def _regions(self, candidate: Candidate) -> Deviation:
        """Regions, and weights of each, pulled to the global ones."""
        rows, design = self.evidence, self._design(candidate)
        columns = design.columns(rows.features)
        d, k, r = columns.shape[1], len(self.base), candidate.rank
        r = min(r, d, k)
        # A region's position in a direction is about one, a member's slope along it at most the
        # spread.
        of_down = 0.5 * design.pull / rows.effective_rows
        of_part = 0.5 / PARTED**2 / rows.effective_rows

        def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
            down, part = flat[: d * r].reshape(d, r), flat[d * r :].reshape(r, k)
            place, up = columns @ down, candidate.spread * bounded(part)
            losses, gradient = self._loss_and_gradient(self.base + place @ up)
            gradient *= rows.weight[:, None]
            value = float(rows.weight @ losses)
            value += of_down * float(np.sum(down**2)) + of_part * float(np.sum(part**2))
            d_down = columns.T @ (gradient @ up.T) + 2.0 * of_down * down
            d_up = candidate.spread * (place.T @ gradient)
            d_part = d_up * bounded_slope(part) + 2.0 * of_part * part
            return value, np.concatenate([d_down.ravel(), d_part.ravel()])

        left, _, right = np.linalg.svd(
            columns.T @ (rows.weight[:, None] * self._signal), full_matrices=False
        )
        start = (
            FIRST_STEP / np.sqrt(design.pull) * left[:, :r],
            FIRST_STEP / candidate.spread * right[:r],
        )
        found = least(objective, np.concatenate([factor.ravel() for factor in start]))
        down, part = found[: d * r].reshape(d, r), found[d * r :].reshape(r, k)
        return Deviation(design, down @ (candidate.spread * bounded(part)))

    def _design(self, candidate: Candidate) -> RegionDesign:
        """Regions do not depend on how far weights may go: grown once a shape."""
        shape = candidate.regions, candidate.rank, candidate.oblique
        if shape not in self._grown:
            self._grown[shape] = self._grow(*shape)
        return self._grown[shape]

    def _grow(self, regions: int, rank: int, oblique: bool) -> RegionDesign:
        rows, signal, unit = self.evidence, self._signal, self.linear.unit
        if oblique:
            # The members that a plane parts are known from the fit of the plane.
            plane = self._plane
            normal = plane.down / np.maximum(np.linalg.norm(plane.down), np.finfo(float).tiny)
            directions = Directions(plane.design.mean, plane.design.scale, normal.T)
            parted = signal @ plane.up.T
            return RegionDesign.grow(rows.features, parted, rows.weight, regions, directions, unit)
        first = RegionDesign.grow(rows.features, signal, rows.weight, regions, unit=unit)
        # Most of a gradient of k members is noise. The directions in which the first tree's
        # regions differ are not: a second tree is grown on these alone.
        means = first.columns(rows.features).T @ (rows.weight[:, None] * signal)
        means /= np.sqrt(np.maximum(first.share, np.finfo(float).tiny))[:, None]
        right = np.linalg.svd(means, full_matrices=False)[2]
        signal = signal @ right[:rank].T
        return RegionDesign.grow(rows.features, signal, rows.weight, regions, unit=unit)

    @cached_property
    def _plane(self) -> BoundedDeviation:
        """The plane that oblique regions may be split along."""
        return self._planes(PLANE)

    @cached_property
    def _signal(self) -> np.ndarray:
        """Minus the gradient of each row's loss in the logits, at the global weights."""
        return -self._loss_and_gradient(np.tile(self.base, (self.n_rows, 1)))[1]

    def losses(self, deviation: FittedMap | None) -> np.ndarray:
        """Each row's out-of-bag loss, under the global weights for None.

        Parameters
        ----------
        deviation : FittedMap or None

        Returns
        -------
        ndarray of shape (R,)
        """
        moved = 0.0 if deviation is None else deviation.at(self.evidence.features)
        return self._loss_and_gradient(self.base + moved * np.ones((self.n_rows, 1)))[0]

    def weights(self, deviation: FittedMap | None) -> np.ndarray:
        """Each row's weights.

        Parameters
        ----------
        deviation : FittedMap or None

        Returns
        -------
        ndarray of shape (R, k)
        """
        moved = 0.0 if deviation is None else deviation.at(self.evidence.features)
        return softmax_rows(self.base + moved * np.ones((self.n_rows, 1)))

    @property
    def unit(self) -> float:
        """Squared error that counts as one half, so that regression too is in nats."""
        if self._unit is None:
            error = (self._judged - self._target[:, None]) ** 2
            heard = np.where(self.evidence.mask, self.evidence.base, 0.0)
            mean = np.einsum("ij,ij->i", heard, error) / heard.sum(axis=1)
            own = float(self.evidence.weight @ mean)
            self._unit = own if own > 0.0 else 1.0
        return self._unit

    @cached_property
    def _judged(self) -> np.ndarray:
        """What the loss reads of each vote (R, k): the true class's share, or the prediction."""
        rows = self.evidence
        if not rows.classifies:
            return np.where(rows.mask, rows.votes[:, :, 0], 0.0).astype(np.float64)
        of_true = rows.votes[np.arange(rows.n_rows), :, rows.target].astype(np.float64)
        floor = max(rows.floor, LEAST_FLOOR)
        kept = (1.0 - floor) * np.clip(of_true, 0.0, 1.0) + floor / rows.votes.shape[2]
        return np.where(rows.mask, kept, 0.0)

    @cached_property
    def _target(self) -> np.ndarray:
        return self.evidence.target.astype(np.float64)

    @cached_property
    def _heard(self) -> np.ndarray:
        return self.evidence.mask.astype(np.float64)

    @cached_property
    def _anchor(self) -> np.ndarray:
        """τ times each row's vote under the global weights."""
        own = self._heard * self.evidence.base
        mean = np.einsum("ij,ij->i", own, self._judged) / own.sum(axis=1)
        return np.asarray(self.evidence.mass * mean)

    def _loss_and_gradient(self, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows' losses and their gradients in the logits.

        With ``p = (Σ w I P + τ u) / (Σ w I + τ)``: ``dp/dw_j = I_j (P_j − p) / (Σ w I + τ)``, and
        through the softmax ``dL/dlogit_j = w_j (c_j − Σ_l w_l c_l)`` for ``c = dL/dw``.
        """
        weights = softmax_rows(logits)
        heard = weights * self._heard
        total = heard.sum(axis=1) + self.evidence.mass
        p = (np.einsum("ij,ij->i", heard, self._judged) + self._anchor) / total
        if self.evidence.classifies:
            losses, slope = -np.log(p), -1.0 / p
        else:
            error = p - self._target
            losses, slope = 0.5 * error**2 / self.unit, error / self.unit
        ahead = (slope / total)[:, None] * (self._judged - p[:, None]) * heard
        return losses, ahead - weights * ahead.sum(axis=1, keepdims=True)


def least(objective: Any, start: np.ndarray) -> np.ndarray:
    """Where a smooth objective is least, from a start.

    Parameters
    ----------
    objective : callable
        A vector to value and gradient.
    start : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (n,)

    Examples
    --------
    >>> least(lambda x: (float(x @ x - 2 * x[0]), 2 * x - 2), np.zeros(1)).round(6).tolist()
    [1.0]
    """
    from scipy.optimize import minimize

    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS})
    return np.asarray(found.x)
