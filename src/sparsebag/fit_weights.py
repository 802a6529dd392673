"""From evidence to weights: objective, solver, exact zeros. `fit_weights` is its public face."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from sparsebag.cluster_weights import fit_weights_on_cluster
from sparsebag.evidence.cluster_matrices import are_row_blocks
from sparsebag.evidence.evidence import OOBEvidence, warn_uncovered
from sparsebag.evidence.from_cluster import is_on_cluster
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_given
from sparsebag.evidence.row_stream import RowStream
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.simplex_objective import SimplexObjective
from sparsebag.settings import Settings, check_strength, check_verbose, resolve_settings
from sparsebag.solvers.auto import resolve_solver
from sparsebag.solvers.base import Solution, Solver, judged_solve, one_blas_thread
from sparsebag.solvers.simplex import check_given_start
from sparsebag.streaming import solve_stream

Array = Any


def solve_weights(
    evidence: OOBEvidence, settings: Settings, *, start: Array | None = None, verbose: int = 0
) -> Solution:
    """Minimise the objective the settings describe and drop what they call negligible."""
    if evidence.n_members < 2:
        raise ValueError("there is one member only; there is nothing to choose from.")
    loss = resolve_loss(settings.loss, evidence.task)
    warn_uncovered(evidence)
    with one_blas_thread():
        objective = SimplexObjective(
            evidence,
            loss,
            ConcaveQuadratic(settings.lam or 0.0),
            floor=settings.floor,
            prior_mass=settings.prior_mass,
        )
        solver = resolve_solver(settings.solver, objective, verbose)
        return judged_solve(
            solver,
            objective,
            start,
            drop_threshold=settings.drop_threshold,
            drops_always=settings.drops_always,
        )


def fit_weights(
    predictions: Array | RowStream,
    oob_mask: Array | None = None,
    y: Array | None = None,
    *,
    loss: str | Loss = "log_loss",
    lam: float | None = None,
    solver: str | Solver = "auto",
    floor: float | str = "auto",
    prior_mass: float | str = "auto",
    preset: Literal["paper"] | None = None,
    sample_weight: Array | None = None,
    labels: Array | None = None,
    start: Array | None = None,
    memory_limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    verbose: int = 0,
) -> Solution:
    """Fit simplex weights to a user's own matrices, from any library or language.

    Parameters
    ----------
    predictions : array of shape (M, N) or (M, N, C), or RowStream
        What member j says of row i: a regression prediction; the probability of the row's true
        class; or, with three axes, of every class. NumPy, PyTorch or CuPy; the work stays on
        the array's device and in its precision. A Dask array is solved where its workers have it,
        and so is a list of ``dask.delayed`` objects or futures, one a block of rows, that carry
        the rest themselves: ``(predictions, oob_mask, y)``, or a sample weight more.
        Or a stream of row blocks, for evidence that is larger than memory or made on the way
        (`sparsebag.stream_rows`, `sparsebag.open_evidence`, `sparsebag.stream_members`); it
        carries its mask and targets itself.
    oob_mask : array of shape (M, N) or None
        True or 1 where row i was *not* used to train member j, else False or 0. None: no row was.
    y : array of shape (M,)
        Targets.
    loss : {"log_loss", "brier", "squared_error"} or Loss, default "log_loss"
        ``"squared_error"`` means regression, and arrays need it there. A stream says itself which
        of the two it is, and of one with ``task="regression"`` the default means
        ``"squared_error"``. Brier of more than two classes needs three axes.
    lam : float, optional
        Strength λ of the concave penalty ``-λ‖w‖²``, in the unit of your loss: compare the two.
        Default 0 (the simplex alone makes weights sparse), or 0.05 with ``preset="paper"``.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror", "projected_sgd"} or \
            Solver
        ``"auto"`` follows `sparsebag.select_solver`.
    floor, prior_mass : float or "auto"
        ε and τ of the objective; see `sparsebag.compress`.
    preset : {None, "paper"}
        ``"paper"`` resolves every "auto" as in the paper.
    sample_weight : array of shape (M,), optional
        Row weights.
    labels : array of shape (C,), optional
        Class order of the third axis; default: sorted distinct values of ``y``.
    start : array of shape (N,), optional
        Where to start; default: the simplex's centre.
    memory_limit : int, optional
        Streams only: bytes that may be held at a time; default 1 GiB.
    checkpoint : path, optional
        Streams only: a file that records every pass, so that the same call goes on after a kill.
    verbose : int, default 0
        Progress on standard error.

    Returns
    -------
    Solution
        ``weights`` (on the simplex, exact zeros), ``objective``, ``stationarity_gap``,
        ``status``, counts and trace.

    Notes
    -----
    Passes over float32 votes in C order, in memory or of a stream (log-loss, squared error, Brier
    of two classes; regression only with a mask), take as many threads as there are processors, or
    as the environment's ``OMP_NUM_THREADS`` says, fewer where there is little to read at a time;
    the result does not depend on their number. Other evidence is read by one.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=500)
    >>> noise = rng.normal(size=(500, 20)) * np.linspace(0.2, 3.0, 20)
    >>> mask = rng.random((500, 20)) < 0.37
    >>> solution = fit_weights(truth[:, None] + noise, mask, truth, loss="squared_error")
    >>> bool(solution.weights[:5].sum() > 0.75), solution.status.success  # the least noisy five
    (True, True)
    """
    check_verbose(verbose)
    check_strength(lam)
    check_given(predictions)
    check_given_start(start, predictions)
    settings = resolve_settings(
        lam=lam, loss=loss, solver=solver, floor=floor, prior_mass=prior_mass, preset=preset
    )
    # Before streams: a delayed object has every attribute, and so seems to be one.
    if is_on_cluster(predictions) or are_row_blocks(predictions):
        _refuse_stream_settings(memory_limit, checkpoint, "bound the memory of Dask workers there")
        task, chosen = _task_and_loss(loss)
        return fit_weights_on_cluster(
            predictions,
            oob_mask,
            y,
            settings,
            task=task,
            loss=chosen,
            sample_weight=sample_weight,
            labels=labels,
            start=start,
            verbose=verbose,
        )
    if isinstance(predictions, RowStream):
        if not (oob_mask is None and y is None and sample_weight is None and labels is None):
            raise ValueError(
                "a stream carries its mask, targets, sample weights and labels itself; pass none "
                "of them beside it."
            )
        if loss == "log_loss" and predictions.task == "regression":
            settings = replace(settings, loss="auto")
        return solve_stream(
            predictions,
            settings,
            memory_limit=memory_limit,
            checkpoint=checkpoint,
            start=start,
            verbose=verbose,
        )
    _refuse_stream_settings(memory_limit, checkpoint, "pass sparsebag.stream_rows(...)")
    if callable(predictions) or isinstance(predictions, Iterator):
        raise ValueError(
            "predictions is a generator, or a function that starts one; pass "
            "sparsebag.stream_rows(predictions, n_members=..., labels=...) in its place."
        )
    if isinstance(predictions, (str, os.PathLike)):
        raise ValueError(
            "predictions is a path; pass sparsebag.open_evidence(path) of stored evidence, or "
            "sparsebag.stream_rows(path, oob_mask, y) of an .npy file."
        )
    if y is None:
        raise ValueError("y is missing; pass one target a row.")
    evidence, chosen = _from_matrices(predictions, oob_mask, y, loss, sample_weight, labels)
    return solve_weights(evidence, replace(settings, loss=chosen), start=start, verbose=verbose)


def _from_matrices(
    predictions: Array,
    oob_mask: Array | None,
    y: Array,
    loss: str | Loss,
    sample_weight: Array | None,
    labels: Array | None,
) -> tuple[OOBEvidence, Loss]:
    task, chosen = _task_and_loss(loss)
    evidence = from_predictions(
        predictions,
        oob_mask,
        y,
        task=task,
        sample_weight=sample_weight,
        labels=labels,
        every_class=chosen.channel == "every_class",
    )
    return evidence, chosen


def _refuse_stream_settings(memory_limit: Any, checkpoint: Any, instead: str) -> None:
    if memory_limit is not None or checkpoint is not None:
        raise ValueError(
            "memory_limit and checkpoint are for streams, whose rows are read block by block; "
            f"{instead}, or leave them out."
        )


def _task_and_loss(loss: str | Loss) -> tuple[Task, Loss]:
    regression = loss == "squared_error" or getattr(loss, "channel", None) == "prediction"
    task: Task = "regression" if regression else "classification"
    return task, resolve_loss(loss, task)
