"""Stochastic mirror steps over minibatches of a sample, each corrected by what the anchor knows."""

from __future__ import annotations

from typing import Any

from sparsebag.objective.objective import Objective
from sparsebag.solvers.base import Point, SolveLog
from sparsebag.solvers.geometry import Geometry

Array = Any

BATCHES = 32
"""Minibatches the sample is cut into; one stochastic step each."""
FEWEST_BATCH_ROWS = 64
NEGLIGIBLE = 0.01
"""Average weight, as a share of 1/N, below which a member is screened out after the steps."""


def stochastic_steps(
    objective: Objective, anchor: Point, geometry: Geometry, log: SolveLog
) -> Array:
    """One epoch of variance-reduced steps from the anchor; the average iterate, screened.

    ``objective`` is the tilted sample, so a minibatch's gradient less the one at the anchor, plus
    the anchor's, has the tilted gradient for a mean and no noise at the anchor.

    Parameters
    ----------
    objective : Objective
    anchor : Point
        With the tilted gradient there.
    geometry : Geometry
        In which steps are made.
    log : SolveLog
        Counts them.

    Returns
    -------
    array of shape (N,)
    """
    xp = objective.xp
    n_batches = max(1, min(BATCHES, objective.n_rows // FEWEST_BATCH_ROWS))
    weights = anchor.weights
    average = 0.0 * weights
    squares = 0.0
    for k in range(n_batches):
        batch = objective.at_rows(slice(k, None, n_batches))
        _, here = batch.value_and_gradient(weights)
        _, there = batch.value_and_gradient(anchor.weights)
        log.nbytes_read += 2 * batch.nbytes_per_pass
        log.n_iterations += 1
        gradient = here - there + anchor.gradient
        size = geometry.dual_norm(gradient)
        squares += size * size  # infinite where a power would be an error
        length = geometry.radius(objective.n_members) / max(squares, 1e-300) ** 0.5
        weights = geometry.step(weights, gradient, length)
        average = average + (k + 1) * weights  # later iterates count more
    average = average / xp.sum(average)
    kept = xp.where(average >= NEGLIGIBLE / objective.n_members, average, 0.0 * average)
    return kept / xp.sum(kept)
