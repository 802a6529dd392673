"""From evidence to weights: objective, solver, exact zeros. `fit_weights` is its public face."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from sparsebag.evidence.evidence import OOBEvidence, warn_uncovered
from sparsebag.evidence.from_predictions import from_predictions
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_given, is_dask
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.objective.objective import Objective
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.progress import Listener, Progress, listener_of
from sparsebag.settings import Settings, check_params, resolve_settings
from sparsebag.solvers.auto import resolve_solver
from sparsebag.solvers.base import Solution, Solver, judged_solve, one_blas_thread
from sparsebag.solvers.simplex import given_start
from sparsebag.sources.base import Source
from sparsebag.sources.dask import rows_of_matrices
from sparsebag.sources.stream import DEFAULT_MEMORY, Checkpoint, RowStream, StreamRows

Array = Any


def solve_weights(
    rows: OOBEvidence | Source,
    settings: Settings,
    *,
    start: Array | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    listener: Listener | None = None,
) -> Solution:
    """Minimise the objective the settings describe and drop what they call negligible.

    Parameters
    ----------
    rows : OOBEvidence or Source
    settings : Settings
    start : array of shape (N,), optional
    checkpoint : path, optional
        Of streams: where the best weights so far are kept.
    listener : function, optional
        Told the objective after every pass over all members' votes.

    Returns
    -------
    Solution
    """
    if rows.n_members < 2:
        raise ValueError("there is only one member; there is nothing to choose from.")
    start = None if start is None else given_start(start, rows.n_members)
    loss, penalty = resolve_loss(settings.loss, rows.task), ConcaveQuadratic(settings.lam or 0.0)
    if isinstance(rows, OOBEvidence):
        warn_uncovered(rows)
    floor, prior_mass = settings.floor, settings.prior_mass
    saved = None
    if checkpoint is not None:
        about = repr((rows.n_members, rows.task, loss.name, penalty, floor, prior_mass))
        saved = Checkpoint(checkpoint, about)
        start = saved.weights if saved.weights is not None else start
    progress = Progress(listener)

    def told(weights: Array, value: float) -> None:
        progress.say(f"objective {value:.8g}")
        if saved is not None:
            saved.save(weights, value)

    with one_blas_thread():
        objective = Objective(rows, loss, penalty, floor=floor, prior_mass=prior_mass)
        objective.on_pass = told
        solution = judged_solve(
            resolve_solver(settings.solver, objective),
            objective,
            start,
            drops_always=settings.drops_always,
        )
    if not isinstance(rows, OOBEvidence):
        objective.warn_of_rows()
    return replace(solution, n_passes=objective.n_passes)


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
    verbose: int | Listener = 0,
) -> Solution:
    """Fit simplex weights to a user's own matrices, from any library or language.

    Parameters
    ----------
    predictions : array of shape (M, N) or (M, N, C), or RowStream
        Prediction of member j for row i: a number in regression; otherwise the probability of the
        row's true class or, with three axes, of every class. NumPy, PyTorch and CuPy arrays are
        processed on their device and in their precision, Dask arrays on their workers. Or a stream
        of row blocks (`sparsebag.stream_rows`) for data that is larger than memory, which includes
        mask and targets.
    oob_mask : array of shape (M, N) or None
        True or 1 if row i was *not* used to train member j, else False or 0. None: no row trained
        any member.
    y : array of shape (M,)
        Targets.
    loss : {"log_loss", "brier", "squared_error"} or Loss, default "log_loss"
        Use ``"squared_error"`` for regression; for a stream with ``task="regression"`` it is the
        default. Brier with more than two classes needs three axes.
    lam : float, optional
        Strength λ of the concave penalty ``-λ‖w‖²``, in the unit of the loss.
        Default 0 (the simplex alone makes weights sparse), or 0.05 with ``preset="paper"``.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror"} or \
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
        Initial weights; default: equal weights.
    memory_limit : int, optional
        Streams only: memory limit in bytes; default 1 GiB.
    checkpoint : path, optional
        Streams only: a file for the best weights so far, from which the same call resumes if it was
        killed.
    verbose : int or callable, default 0
        Show the objective after every pass on standard error, or call a function with an event
        (``event.step``, ``seconds``).

    Returns
    -------
    Solution
        ``weights`` (on the simplex, exact zeros), ``objective``, ``stationarity_gap``,
        ``status``, counts and trace.

    Notes
    -----
    Passes over float32 votes in C order, in memory or from a stream (log-loss, squared error, Brier
    of two classes; regression only with a mask), use all processors, or as many as
    ``OMP_NUM_THREADS`` says; the result does not depend on the number of threads. Other data is
    read by one thread.

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
    check_params("fit_weights", lam=lam, floor=floor, prior_mass=prior_mass, preset=preset)
    check_params("fit_weights", memory_limit=memory_limit, verbose=verbose)
    if isinstance(lam, str):
        raise ValueError(
            "lam='auto' needs an ensemble: matrices do not say what a member costs; pass a number, "
            "or use sparsebag.compress, which chooses the size by itself."
        )
    check_given(predictions)
    settings = resolve_settings(
        lam=lam, loss=loss, solver=solver, floor=floor, prior_mass=prior_mass, preset=preset
    )
    listener = listener_of(verbose)
    if isinstance(predictions, RowStream):
        if not (oob_mask is None and y is None and sample_weight is None and labels is None):
            raise ValueError(
                "a stream already carries mask, targets, sample weights and labels; do not pass "
                "them separately."
            )
        if loss == "log_loss" and predictions.task == "regression":
            settings = replace(settings, loss="auto")
        rows = StreamRows(predictions, int(memory_limit or DEFAULT_MEMORY))
        return solve_weights(rows, settings, start=start, checkpoint=checkpoint, listener=listener)
    if memory_limit is not None or checkpoint is not None:
        raise ValueError(
            "memory_limit and checkpoint are for streams; pass sparsebag.stream_rows(...), or "
            "leave them out."
        )
    on_dask = is_dask(predictions)
    is_read = callable(predictions) or isinstance(predictions, (Iterator, str, os.PathLike))
    if is_read and not on_dask:  # Dask's tasks can be called, too
        raise ValueError(
            "predictions is a function, a generator or a path; wrap it in "
            "sparsebag.stream_rows(...)."
        )
    if y is None:
        raise ValueError("y is missing; pass one target per row.")
    regression = loss == "squared_error" or getattr(loss, "channel", None) == "prediction"
    task: Task = "regression" if regression else "classification"
    chosen = resolve_loss(loss, task)
    read = rows_of_matrices if on_dask else from_predictions
    evidence: OOBEvidence | Source = read(
        predictions,
        oob_mask,
        y,
        task=task,
        sample_weight=sample_weight,
        labels=labels,
        every_class=chosen.channel == "every_class",
    )
    settings = replace(settings, loss=chosen)
    return solve_weights(evidence, settings, start=start, listener=listener)
