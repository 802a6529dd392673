"""Weights from evidence on a Dask cluster: solved where the rows are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparsebag.evidence.cluster_matrices import (
    are_row_blocks,
    blocks_of_matrices,
    blocks_of_parts,
    is_dask_array,
)
from sparsebag.evidence.cluster_rows import ClusterBlocks
from sparsebag.evidence.members import Task
from sparsebag.objective.cluster_objective import ClusterObjective
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.settings import Settings
from sparsebag.solvers.auto import resolve_solver
from sparsebag.solvers.base import Solution, judged_solve, one_blas_thread

Array = Any


def fit_weights_on_cluster(
    predictions: Any,
    oob_mask: Any,
    y: Any,
    settings: Settings,
    *,
    task: Task,
    loss: Loss,
    sample_weight: Any = None,
    labels: Array | None = None,
    start: Array | None = None,
    verbose: int = 0,
) -> Solution:
    """`sparsebag.fit_weights` for Dask arrays, and for row blocks on workers.

    Parameters
    ----------
    predictions : dask.array of shape (M, N) or (M, N, C), or list of row blocks
    oob_mask, y, sample_weight : dask.array or array, or None
    settings : Settings
    task : {"classification", "regression"}
    loss : Loss
    labels, start, verbose
        As in `sparsebag.fit_weights`.

    Returns
    -------
    Solution
    """
    blocks = user_blocks(
        predictions,
        oob_mask,
        y,
        task=task,
        sample_weight=sample_weight,
        labels=labels,
        every_class=loss.channel == "every_class",
        verbose=verbose,
    )
    return solve_blocks(blocks, replace(settings, loss=loss), task, start=start, verbose=verbose)


def user_blocks(
    predictions: Any, oob_mask: Any, y: Any, *, sample_weight: Any = None, **how: Any
) -> ClusterBlocks:
    """A user's evidence as blocks on the workers, whichever way it is given.

    Parameters
    ----------
    predictions, oob_mask, y, sample_weight
        As in `fit_weights_on_cluster`.
    **how
        Of `blocks_of_matrices` and `blocks_of_parts`.

    Returns
    -------
    ClusterBlocks
        Of `OOBEvidence`.
    """
    if are_row_blocks(predictions) and not all(is_dask_array(block) for block in predictions):
        if not (oob_mask is None and y is None and sample_weight is None):
            raise ValueError(
                "row blocks on workers carry their mask, targets and sample weights themselves: "
                "pass (predictions, oob_mask, y) or (predictions, oob_mask, y, sample_weight) in "
                "each, and none of them beside; labels= may be passed."
            )
        return blocks_of_parts(predictions, **how)
    if y is None:
        raise ValueError("y is missing; pass one target a row.")
    return blocks_of_matrices(predictions, oob_mask, y, sample_weight=sample_weight, **how)


def solve_blocks(
    blocks: ClusterBlocks,
    settings: Settings,
    task: Task,
    *,
    start: Array | None = None,
    verbose: int = 0,
) -> Solution:
    """Minimise the objective the settings describe over row blocks on the workers.

    Parameters
    ----------
    blocks : ClusterBlocks
        Of `OOBEvidence`.
    settings : Settings
    task : {"classification", "regression"}
    start : array of shape (N,), optional
    verbose : int, default 0

    Returns
    -------
    Solution
    """
    objective = objective_of(blocks, settings, task)
    with one_blas_thread():
        solver = resolve_solver(settings.solver, objective, verbose)
        return judged_solve(
            solver,
            objective,
            start,
            drop_threshold=settings.drop_threshold,
            drops_always=settings.drops_always,
        )


def objective_of(blocks: ClusterBlocks, settings: Settings, task: Task) -> ClusterObjective:
    """The objective the settings describe, with a warning where its rows deserve one.

    Parameters
    ----------
    blocks : ClusterBlocks
        Of `OOBEvidence`.
    settings : Settings
    task : {"classification", "regression"}

    Returns
    -------
    ClusterObjective
    """
    objective = ClusterObjective(
        blocks,
        resolve_loss(settings.loss, task),
        ConcaveQuadratic(settings.lam or 0.0),
        floor=settings.floor if task == "classification" else 0.0,
        prior_mass=settings.prior_mass,
    )
    if objective.n_members < 2:
        raise ValueError("there is one member only; there is nothing to choose from.")
    objective.warn_of_rows()
    return objective
