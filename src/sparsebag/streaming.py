"""Weights from evidence that is streamed: solved in few passes, or as it arrives."""

from __future__ import annotations

import hashlib
import os
import pickle
from dataclasses import replace
from inspect import signature
from numbers import Real
from typing import Any, Literal

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.callers_warning import warn_caller
from sparsebag.evidence.evidence import UncoveredRowsWarning, warn_of_uneven
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_given, check_readable
from sparsebag.evidence.row_stream import RowStream, evidence_block, shape_of
from sparsebag.evidence.store_seal import check_store
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.objective.pass_journal import BlockCut, PassJournal, recorded_cut
from sparsebag.objective.penalties import ConcaveQuadratic
from sparsebag.objective.stream_objective import (
    DEFAULT_MEMORY,
    HELD_SHARE,
    NO_ROWS,
    StreamObjective,
)
from sparsebag.settings import Settings, check_strength, resolve_settings
from sparsebag.solvers.auto import resolve_solver
from sparsebag.solvers.base import Solution, judged_solve, one_blas_thread
from sparsebag.solvers.online import OnlineSolve
from sparsebag.solvers.simplex import check_start

Array = Any

SMALLEST_MEMORY = 1 << 20
COUNTED_SHARE = 0.6
"""Of the memory allowed, what is shared out: joins, checks and solvers hold copies besides."""
BLOCK_SHARE = 32
"""A block takes at most this part of the memory allowed: checking one makes several copies."""


def solve_stream(
    stream: RowStream,
    settings: Settings,
    *,
    memory_limit: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    start: Array | None = None,
    verbose: int = 0,
) -> Solution:
    """Minimise the objective the settings describe over a stream.

    Parameters
    ----------
    stream : RowStream
    settings : Settings
    memory_limit : int, optional
        Bytes that may be held at a time; default 1 GiB.
    checkpoint : path, optional
        Where passes are recorded, so that a killed solve goes on from there.
    start : array of shape (N,), optional
    verbose : int, default 0

    Returns
    -------
    Solution
    """
    if stream.n_members < 2:
        raise ValueError("there is one member only; there is nothing to choose from.")
    limit = _check_memory(memory_limit)
    memory = _counted(limit)
    loss = _loss_of(stream, settings.loss)
    floor = settings.floor if stream.task == "classification" else 0.0
    penalty = ConcaveQuadratic(settings.lam or 0.0)
    if not stream.is_replayable:
        return _solve_once(stream, settings, loss, memory, checkpoint, start, verbose)
    check_store(stream)
    journal = None
    if checkpoint is None:
        stream = _in_small_blocks(stream, memory)
    else:
        # The sums on record are of blocks cut for another limit; smaller ones do under a larger.
        checkpoint = os.path.expanduser(checkpoint)
        before = recorded_cut(checkpoint)
        cut_for = limit if before is None else min(limit, before.memory_limit)
        stream = _in_small_blocks(stream, _counted(cut_for))
        what = repr((shape_of(stream), _values_of(loss), penalty, floor, settings.prior_mass))
        fingerprint = hashlib.blake2b(what.encode()).hexdigest()[:32]
        journal = PassJournal(checkpoint, fingerprint, BlockCut(cut_for, stream.n_blocks))
        if before is not None and limit < before.memory_limit:
            journal.blocks.if_shorter = (
                f"pass memory_limit of at least {before.memory_limit}, with which it was written"
            )
    with one_blas_thread():
        objective = StreamObjective(
            stream,
            loss,
            penalty,
            floor=floor,
            prior_mass=settings.prior_mass,
            memory_limit=memory,
            journal=journal,
            verbose=verbose,
        )
        solver = resolve_solver(settings.solver, objective, verbose)
        solution = judged_solve(
            solver,
            objective,
            start,
            drop_threshold=settings.drop_threshold,
            drops_always=settings.drops_always,
        )
        objective.stream.meet_the_rest()
        check_store(stream)
    solution = replace(solution, n_passes=objective.n_passes)
    _warn_uncovered(objective.n_uncovered, objective.n_rows)
    objective.warn_of_uneven_rows()
    return solution


def _solve_once(
    stream: RowStream,
    settings: Settings,
    loss: Loss,
    memory: int,
    checkpoint: str | os.PathLike[str] | None,
    start: Array | None,
    verbose: int,
) -> Solution:
    """One pass over rows that will not come again."""
    if settings.solver not in ("auto", "mirror"):
        raise ValueError(
            f"solver={settings.solver!r} reads the rows more than once, but these come once; use "
            "solver='mirror', or a stream that can be read again."
        )
    if checkpoint is not None:
        raise ValueError(
            "a checkpoint needs rows that can be read again; store them with store_evidence first."
        )
    online = OnlineSolve(
        loss,
        ConcaveQuadratic(settings.lam or 0.0),
        floor=settings.floor if stream.task == "classification" else 0.0,
        prior_mass=settings.prior_mass,
        sample_bytes=memory // HELD_SHARE,
        start=None if start is None else check_start(on_host(start), stream.n_members),
        drop_threshold=settings.drop_threshold,
        drops_always=settings.drops_always,
        verbose=verbose,
    )
    for block in _in_small_blocks(stream, memory).blocks():
        online.add(block)
    if online.n_rows == 0:
        raise ValueError(NO_ROWS)
    return replace(_solved(online), n_passes=1.0)


def _solved(online: OnlineSolve) -> Solution:
    """The solution so far, with a word on rows that are left out, or that decide alone."""
    solution = online.solution()
    _warn_uncovered(online.n_uncovered, online.n_rows)
    n_covered = online.n_rows - online.n_uncovered
    warn_of_uneven(online.row_weight, online.squared_weight, n_covered)
    return solution


def _in_small_blocks(stream: RowStream, memory: int) -> RowStream:
    """The stream in blocks that leave room for the rest, where it can be cut."""
    cut = getattr(stream, "with_block_bytes", None)
    smaller: RowStream = stream if cut is None else cut(memory // BLOCK_SHARE)
    return smaller


def _warn_uncovered(n_uncovered: int, n_rows: int) -> None:
    if n_uncovered:
        warn_caller(
            f"{n_uncovered} of {n_rows} rows are out of bag for no member and are left out; more "
            "members, or a smaller max_samples, would cover them.",
            UncoveredRowsWarning,
        )


class OnlineWeights:
    """Weights of members whose evidence arrives over time, in blocks that are not kept.

    A bounded sample of all rows so far is held, and every row corrects what the sample alone would
    say; after one look at each row the weights are close to those of all rows at once. While all
    rows fit, they are those. ``solution_.stationarity_gap`` is measured on rows held out of the
    sample; where it stays large, the status says so and a warning is given. So it is where members'
    worth changes over time, and rows gone by can no longer correct the sample: the weights are then
    as good as its own. Old rows count as much as new ones.

    Parameters
    ----------
    loss : {"log_loss", "brier", "squared_error"} or Loss, default "log_loss"
        As in `sparsebag.fit_weights`.
    labels : array of shape (C,), optional
        All classes; needed in classification, since no block need show all of them.
    lam : float, optional
        Strength of the concave penalty; default 0.
    floor, prior_mass : float or "auto"
        ε and τ of the objective; see `sparsebag.compress`.
    memory_limit : int, optional
        Bytes that may be held; default 1 GiB. Of six tenths of it a quarter is the sample, an
        eighth the rows that judge it; 64 and 48 rows at the least.
    random_state : int, default 0
        Seed of the sample.
    verbose : int, default 0
        Progress on standard error.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> online = OnlineWeights(loss="squared_error")
    >>> for day in range(5):
    ...     truth = rng.normal(size=200)
    ...     votes = truth[:, None] + rng.normal(size=(200, 20)) * np.linspace(0.2, 3.0, 20)
    ...     online = online.partial_fit(votes, rng.random((200, 20)) < 0.5, truth)
    >>> online.n_rows_, bool(online.weights_[:5].sum() > online.weights_[5:].sum())
    (1000, True)
    """

    def __init__(
        self,
        *,
        loss: str | Loss = "log_loss",
        labels: Array | None = None,
        lam: float | None = None,
        floor: float | Literal["auto"] = "auto",
        prior_mass: float | Literal["auto"] = "auto",
        memory_limit: int | None = None,
        random_state: int = 0,
        verbose: int = 0,
    ) -> None:
        self.loss, self.labels, self.lam = loss, labels, lam
        self.floor, self.prior_mass = floor, prior_mass
        self.memory_limit, self.random_state, self.verbose = memory_limit, random_state, verbose
        self._online: OnlineSolve | None = None
        self._n_members = 0
        self._solution: Solution | None = None

    def partial_fit(
        self,
        predictions: Array,
        oob_mask: Array | None,
        y: Array,
        sample_weight: Array | None = None,
    ) -> OnlineWeights:
        """Take in more rows.

        Parameters
        ----------
        predictions : array of shape (B, N) or (B, N, C)
        oob_mask : array of shape (B, N) or None
        y : array of shape (B,)
        sample_weight : array of shape (B,), optional
            All as in `sparsebag.fit_weights`.

        Returns
        -------
        OnlineWeights
            Itself.
        """
        regression = (
            self.loss == "squared_error" or getattr(self.loss, "channel", None) == "prediction"
        )
        task: Literal["classification", "regression"] = (
            "regression" if regression else "classification"
        )
        loss = resolve_loss(self.loss, task)
        if not regression and self.labels is None:
            raise ValueError(
                "labels= is needed for classification: no block need hold every class; pass all "
                "of them, in the order of predict_proba."
            )
        if y is None:
            raise ValueError("y is missing; pass one target a row.")
        check_given(predictions)
        check_readable(predictions, "predictions")
        check_readable(oob_mask, "oob_mask")
        check_readable(y, "y")
        if np.ndim(y) == 0:
            raise ValueError(
                "y must have one value a row; of one row pass tables of it: row[None, :], "
                "mask[None, :] and [y]."
            )
        if not len(y):
            return self  # a day without rows
        block = evidence_block(
            on_host(predictions),
            None if oob_mask is None else on_host(oob_mask),
            on_host(y),
            sample_weight,
            task=task,
            labels=self.labels,
            every_class=loss.channel == "every_class",
        )
        if block.n_members < 2:
            raise ValueError("there is one member only; there is nothing to choose from.")
        if self._online is None:
            self._online = self._begin(loss, classification=not regression)
            self._n_members = block.n_members
        if block.n_members != self._n_members:
            raise ValueError(
                f"this block has {block.n_members} members, those before had {self._n_members}; "
                "pass one column a member, always in the same order."
            )
        self._online.add(block)
        self._solution = None
        return self

    @property
    def solution_(self) -> Solution:
        """Solution: of the rows so far; solved when it is asked for."""
        if self._online is None:
            raise ValueError("no rows yet; call partial_fit with some first.")
        if self._solution is None:
            self._solution = _solved(self._online)
        return self._solution

    @property
    def weights_(self) -> np.ndarray:
        """Ndarray of shape (N,): weights on the simplex, with exact zeros."""
        return np.asarray(self.solution_.weights)

    @property
    def n_rows_(self) -> int:
        """int: rows seen so far."""
        return 0 if self._online is None else self._online.n_rows

    def __repr__(self) -> str:
        """Settings that are not the default's, and the rows seen."""
        default = signature(type(self)).parameters
        given = {
            name: on_host(value).tolist() if name == "labels" and value is not None else value
            for name, value in ((name, getattr(self, name)) for name in default)
        }
        settings = [
            f"{name}={value!r}"
            for name, value in given.items()
            if value is not default[name].default and value != default[name].default
        ]
        seen = "no rows yet"
        if self._online is not None:
            seen = f"{self.n_rows_:,} rows of {self._n_members} members"
        return f"OnlineWeights({', '.join(settings)}): {seen}"

    def _begin(self, loss: Loss, *, classification: bool) -> OnlineSolve:
        check_strength(self.lam)
        settings = resolve_settings(
            lam=self.lam,
            loss=loss,
            solver="mirror",
            floor=self.floor,
            prior_mass=self.prior_mass,
            preset=None,
        )
        return OnlineSolve(
            loss,
            ConcaveQuadratic(settings.lam or 0.0),
            floor=settings.floor if classification else 0.0,
            prior_mass=settings.prior_mass,
            sample_bytes=_counted(_check_memory(self.memory_limit)) // HELD_SHARE,
            seed=self.random_state,
            drop_threshold=settings.drop_threshold,
            verbose=self.verbose,
        )


def _loss_of(stream: RowStream, loss: str | Loss) -> Loss:
    """The loss, where it fits what the stream says its rows are about."""
    try:
        return resolve_loss(loss, stream.task)
    except ValueError as error:
        other: Task = "regression" if stream.task == "classification" else "classification"
        try:
            resolve_loss(loss, other)
        except ValueError:
            raise error from None
        raise ValueError(
            f"{str(error)[:-1]}, or say of the stream what its rows are about: "
            f"sparsebag.stream_rows(..., task={other!r})."
        ) from None


def _values_of(loss: Loss) -> bytes:
    """A loss by its class and attributes: a repr need not show them, or may show an address."""
    try:
        return pickle.dumps(loss)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise ValueError(
            "a checkpoint has to know the loss again, but this one cannot be pickled; define its "
            "class in a module, or leave checkpoint= out."
        ) from error


def _check_memory(memory_limit: Any) -> int:
    memory_limit = DEFAULT_MEMORY if memory_limit is None else memory_limit
    is_number = isinstance(memory_limit, Real) and not isinstance(memory_limit, bool)
    if not is_number or memory_limit < SMALLEST_MEMORY or memory_limit % 1 != 0:
        raise ValueError(
            f"memory_limit must be a whole number of bytes, at least {SMALLEST_MEMORY} (1 MiB), "
            f"got {memory_limit!r}."
        )
    return int(memory_limit)


def _counted(memory_limit: int) -> int:
    return max(SMALLEST_MEMORY, int(COUNTED_SHARE * memory_limit))
