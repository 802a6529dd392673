"""The numbers behind ``preset=``: resolved once, here, and nowhere else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.objective.losses import Loss
from sparsebag.refine.calibration_kinds import resolve_kind
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
LOCAL = ("auto", "linear", "regions")
"""Ways for weights to depend on the row."""


@dataclass(frozen=True)
class Settings:
    """What a fit runs with, after ``preset`` and ``"auto"`` are resolved.

    ``lam`` is None where the members are selected by their full-vote risk, without a penalty;
    ``drops_always``: weights up to ``drop_threshold`` are dropped even if the solve then has not
    converged.
    """

    lam: float | None
    loss: str | Loss
    solver: str | Solver
    floor: float
    prior_mass: float
    drop_threshold: float
    evidence_dtype: Any
    refine: str | None = None
    calibration: Any = None
    local: str | None = None
    drops_always: bool = False

    @property
    def reads_every_class(self) -> bool:
        """Whether the steps after the weights need every class's votes."""
        steps = (self.refine, self.calibration, self.local)
        return self.lam is None or any(step is not None for step in steps)


def resolve_settings(
    *,
    lam: float | str | None,
    loss: str | Loss,
    solver: str | Solver,
    floor: float | str,
    prior_mass: float | str,
    preset: str | None,
    refine: str | None = None,
    calibration: Any = None,
    local: str | None = None,
) -> Settings:
    """Fill what was left at ``"auto"``, by preset.

    Parameters
    ----------
    lam, loss, solver, floor, prior_mass
        As passed by the user; an explicit value wins over the preset. ``lam="auto"`` is None
        (selection), ``lam=None`` is 0; both are 0.05 in the paper's preset.
    preset : {None, "paper"}
        ``"paper"``: λ = 0.05, SLSQP, no floor, no prior mass, double precision, weights up to 1e-5
        dropped, and nothing after the weights.
    refine : {"auto", "leaves", None}
        "auto" is None in the paper's preset.
    calibration : str, object or None
        As `sparsebag.refine.calibrate.fit_calibrator` takes it; "auto" is None in the paper's
        preset.
    local : {None, "auto", "linear", "regions"}

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
    selects = isinstance(lam, str) and lam == "auto" and not paper
    if lam is None or (isinstance(lam, str) and lam == "auto"):
        lam = PAPER_LAM if paper else DEFAULT_LAM
    if isinstance(lam, str) or not _is_number(lam) or lam < 0:
        raise ValueError(
            f"lam must be 'auto' or a finite number that is not negative, got {lam!r}."
        )
    check_solver(solver)
    if refine not in (None, "auto", "leaves"):
        raise ValueError(f"refine={refine!r} is not known; use 'auto', 'leaves' or None.")
    if not (local is None or (isinstance(local, str) and local in LOCAL)):
        raise ValueError(f"local={local!r} is not known; use 'auto', 'linear', 'regions' or None.")
    if calibration is not None:
        resolve_kind(calibration, 2)  # of more classes "beta" is refused when they are known
    if paper:  # it stops at the weights, unless more is asked for by name
        refine = None if refine == "auto" else refine
        calibration = (
            None if isinstance(calibration, str) and calibration == "auto" else calibration
        )
    return Settings(
        lam=None if selects else float(lam),
        loss=loss,
        solver="slsqp" if paper and isinstance(solver, str) and solver == "auto" else solver,
        floor=_number("floor", floor, 0.0 if paper else DEFAULT_FLOOR, below=1.0),
        prior_mass=_number("prior_mass", prior_mass, 0.0 if paper else DEFAULT_PRIOR_MASS),
        drop_threshold=DROP_THRESHOLD,
        evidence_dtype=np.float64 if paper else np.float32,
        refine=refine,
        calibration=calibration,
        local=local,
        drops_always=paper,
    )


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
