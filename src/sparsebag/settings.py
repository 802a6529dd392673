"""The numbers behind ``preset=``: resolved once, here, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from sparsebag.calibration.fit import check_calibration
from sparsebag.judge.choose import Budget, check_confidence, check_tolerance
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.progress import Listener, to_stderr
from sparsebag.solvers.auto import check_solver
from sparsebag.solvers.base import Solver

DEFAULT_LAM = 0.0
"""The simplex alone makes weights sparse, and zero is the one λ that fits every loss's unit."""
PAPER_LAM = 0.05
"""The paper's λ: a third of the loss on easy data, where it costs accuracy."""
DEFAULT_FLOOR = 1e-3
"""ε: no vote is ever surer than 1 - 1e-3; makes log-loss finite on 0/1 leaves."""
DEFAULT_PRIOR_MASS = 0.02
"""τ: the solvers' speed hangs on it; smaller is ill-posed, larger blurs the weights."""
DROP_THRESHOLD = 1e-5
"""Weights up to this are dropped, as by the paper's code: SLSQP leaves dust on dead members.
Outside its preset they are kept where a solve that converged would not have without them."""


@dataclass(frozen=True)
class Settings:
    """What a fit runs with, after ``preset`` and ``"auto"`` are resolved.

    ``lam`` is None where the size is chosen by what each size is expected to cost, without a
    penalty; ``drops_always``: weights up to ``drop_threshold`` are dropped even if the solve then
    has not converged.
    """

    lam: float | None
    loss: str | Loss
    solver: str | Solver
    floor: float
    prior_mass: float
    drop_threshold: float
    evidence_dtype: Any
    drops_always: bool = False
    refine: str | None = None
    calibration: Any = None
    local: str | bool | None = None
    rehearsal: Any = "auto"
    budget: Budget = field(default_factory=Budget)
    tolerance: float | None = None
    confidence: float | None = None
    source: Literal["oob", "holdout"] = "oob"
    n_jobs: int | None = None
    listener: Listener | None = None

    @property
    def class_votes(self) -> bool | Literal["on_demand"]:
        """How every class's votes are needed: at each of a solver's steps, a few times, or not."""
        if self.lam is not None and getattr(self.loss, "channel", "") == "every_class":
            return True
        needed = self.lam is None or self.calibration is not None or self.local is not None
        return "on_demand" if needed else False


def resolve_settings(
    *,
    lam: float | str | None,
    loss: str | Loss,
    solver: str | Solver,
    floor: float | str,
    prior_mass: float | str,
    preset: str | None,
) -> Settings:
    """Fill what was left at ``"auto"``, by preset; what comes after the weights is left out.

    Parameters
    ----------
    lam, loss, solver, floor, prior_mass
        As passed by the user; an explicit value wins over the preset. ``lam="auto"`` is None
        (no penalty), ``lam=None`` is 0; both are 0.05 in the paper's preset.
    preset : {None, "paper"}
        ``"paper"``: λ = 0.05, SLSQP, no floor, no prior mass, double precision, weights up to 1e-5
        dropped, and nothing after the weights.

    Returns
    -------
    Settings

    Examples
    --------
    >>> resolve_settings(lam=None, loss="auto", solver="auto", floor="auto",
    ...                  prior_mass="auto", preset="paper").solver
    'slsqp'
    """
    if preset not in (None, "paper"):
        raise ValueError(f"preset={preset!r} is not known; use None or 'paper'.")
    paper = preset == "paper"
    chooses = isinstance(lam, str) and lam == "auto" and not paper
    if lam is None or (isinstance(lam, str) and lam == "auto"):
        lam = PAPER_LAM if paper else DEFAULT_LAM
    if isinstance(lam, str) or not _is_number(lam) or lam < 0:
        raise ValueError(
            f"lam must be 'auto' or a finite number that is not negative, got {lam!r}."
        )
    check_solver(solver)
    return Settings(
        lam=None if chooses else float(lam),
        loss=loss,
        solver="slsqp" if paper and isinstance(solver, str) and solver == "auto" else solver,
        floor=_number("floor", floor, 0.0 if paper else DEFAULT_FLOOR, below=1.0),
        prior_mass=_number("prior_mass", prior_mass, 0.0 if paper else DEFAULT_PRIOR_MASS),
        drop_threshold=DROP_THRESHOLD,
        evidence_dtype=np.float64 if paper else np.float32,
        drops_always=paper,
    )


def settings_of(estimator: Any, task: str, source: Literal["oob", "holdout"]) -> Settings:
    """An estimator's parameters, checked and resolved.

    Parameters
    ----------
    estimator : SparseBaggingClassifier or SparseBaggingRegressor
    task : {"classification", "regression"}
    source : {"oob", "holdout"}

    Returns
    -------
    Settings
    """
    check_n_jobs(estimator.n_jobs)
    verbose = estimator.verbose
    if not callable(verbose):
        check_verbose(verbose)
    settings = resolve_settings(
        lam=estimator.lam,
        loss=resolve_loss(estimator.loss, task),
        solver=estimator.solver,
        floor=estimator.floor,
        prior_mass=estimator.prior_mass,
        preset=estimator.preset,
    )
    budget = Budget(estimator.max_estimators, estimator.max_nodes, estimator.max_bytes)
    if settings.lam is not None and budget.is_named:
        raise ValueError(
            f"{budget} sets the size and lam={settings.lam:g} the penalty; use one of the two "
            "(a budget goes with lam='auto' and no preset)."
        )
    refine, calibration = estimator.refine, check_calibration(estimator.calibration, task)
    if refine not in (None, "auto"):
        raise ValueError(f"refine={refine!r} is not known; use 'auto' or None.")
    if settings.lam is not None:  # the paper stops at the weights, unless more is named
        refine = None
        is_auto = isinstance(calibration, str) and calibration == "auto"
        calibration = None if is_auto else calibration
    local = estimator.local
    if not (local is None or local is True or (isinstance(local, str) and local == "auto")):
        raise ValueError(f"local={local!r} is not known; use None, 'auto' or True.")
    return replace(
        settings,
        refine=refine,
        calibration=calibration,
        local=local,
        rehearsal=_rehearsal(estimator.rehearsal),
        budget=budget,
        tolerance=check_tolerance(estimator.tolerance, budget),
        confidence=check_confidence(estimator.confidence),
        source=source,
        n_jobs=estimator.n_jobs,
        listener=verbose if callable(verbose) else to_stderr if verbose else None,
    )


def _rehearsal(rehearsal: Any) -> Any:
    if rehearsal is False or (isinstance(rehearsal, str) and rehearsal == "auto"):
        return rehearsal
    whole = isinstance(rehearsal, (int, np.integer)) and not isinstance(rehearsal, bool)
    if not (whole and rehearsal >= 2):
        raise ValueError(
            f"rehearsal={rehearsal!r} is not known; use 'auto', a number of folds from 2, or False."
        )
    return int(rehearsal)


def check_strength(lam: Any) -> None:
    """One sentence for a λ that matrices cannot be solved with.

    Parameters
    ----------
    lam : float or None

    Examples
    --------
    >>> check_strength(0.05)
    """
    if isinstance(lam, str):
        raise ValueError(
            f"lam must be a number here, got {lam!r}: matrices do not say what a member costs; "
            "sparsebag.compress chooses the size by itself."
        )
    if lam is not None and not (_is_number(lam) and lam >= 0):
        raise ValueError(f"lam must be a finite number that is not negative, got {lam!r}.")


def check_verbose(verbose: Any) -> None:
    """One sentence for a verbosity that is no whole number from 0.

    Parameters
    ----------
    verbose : int
    """
    if not isinstance(verbose, (int, np.integer)) or verbose < 0:
        raise ValueError(
            f"verbose must be 0 (silent), 1 (progress) or 2 (every iteration), got {verbose!r}."
        )


def check_n_jobs(n_jobs: Any) -> None:
    """One sentence for a number of threads that joblib could not use.

    Parameters
    ----------
    n_jobs : int or None
    """
    whole = isinstance(n_jobs, (int, np.integer)) and not isinstance(n_jobs, bool)
    if n_jobs is not None and not (whole and n_jobs != 0):
        raise ValueError(
            f"n_jobs must be None, a number of threads, or -1 for every core, got {n_jobs!r}."
        )


def _number(name: str, value: float | str, default: float, below: float = np.inf) -> float:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"{name}={value!r} is not known; use 'auto' or a number.")
        return default
    if not (_is_number(value) and 0 <= value < below):
        limit = f" and below {below:g}" if np.isfinite(below) else ""
        raise ValueError(f"{name} must be a finite number, at least 0{limit}, got {value!r}.")
    return float(value)


def _is_number(value: Any) -> bool:
    numeric = isinstance(value, (int, float, np.integer, np.floating))
    return numeric and not isinstance(value, bool) and math.isfinite(value)
