"""The numbers behind ``preset=``: resolved once, here, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from sklearn.utils._param_validation import (
    Interval,
    Options,
    RealNotInt,
    StrOptions,
    validate_parameter_constraints,
)

from sparsebag.calibration.fit import check_calibration
from sparsebag.calibration.own import is_calibrator
from sparsebag.deploy.compiled import resolve_threads
from sparsebag.judge.choose import Budget, check_tolerance
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.objective.objective import PRIOR_MASS
from sparsebag.progress import Listener, listener_of
from sparsebag.solvers.auto import check_solver
from sparsebag.solvers.base import Solver
from sparsebag.sources.stream import SMALLEST_MEMORY

PAPER_LAM = 0.05
"""The paper's λ: a third of the loss on easy data, where it costs accuracy."""
DEFAULT_FLOOR = 1e-3
"""ε: no vote is ever surer than 1 - 1e-3; makes log-loss finite on 0/1 leaves."""


_AUTO = StrOptions({"auto"})
_LIMIT = [
    None,
    Interval(Integral, 1, None, closed="left"),
    Interval(RealNotInt, 0.0, 1.0, closed="right"),
]
CONSTRAINTS: dict[str, Any] = {
    "lam": [None, _AUTO, Interval(Real, 0.0, np.inf, closed="left")],
    "max_estimators": _LIMIT,
    "max_nodes": _LIMIT,
    "max_bytes": _LIMIT,
    "confidence": [None, Interval(Real, 0.5, 1.0, closed="left")],
    "floor": [_AUTO, Interval(Real, 0.0, 1.0, closed="left")],
    "prior_mass": [_AUTO, Interval(Real, 0.0, np.inf, closed="left")],
    "refine": [None, _AUTO],
    "rehearsal": [_AUTO, Options(bool, {False}), Interval(Integral, 2, None, closed="left")],
    "local": [None, _AUTO, Options(bool, {True})],
    "preset": [None, StrOptions({"paper"})],
    "evidence": [StrOptions({"oob", "holdout"})],
    "n_jobs": [
        None,
        Interval(Integral, 1, None, closed="left"),
        Interval(Integral, None, -1, closed="right"),
    ],
    "random_state": ["random_state"],
    "memory_limit": [None, Interval(Integral, SMALLEST_MEMORY, None, closed="left")],
    "verbose": ["verbose", callable],
}
"""What parameters may be, as scikit-learn says it; the others are checked where they are used."""


def check_params(caller: str, **params: Any) -> None:
    """scikit-learn's sentence for a parameter that is of the wrong type or out of range.

    Parameters
    ----------
    caller : str
        Of which class or function.
    **params : dict
        Only those that `CONSTRAINTS` names are looked at.

    Examples
    --------
    >>> check_params("compress", max_nodes=0.1)
    """
    for name in CONSTRAINTS.keys() & params.keys():
        value = params[name]
        if isinstance(value, bool) and name not in ("rehearsal", "local", "verbose"):
            value = str(value)  # a number to Python, but no size or strength to people
        value = value.item() if isinstance(value, np.generic) else value
        validate_parameter_constraints({name: CONSTRAINTS[name]}, {name: value}, caller)


@dataclass(frozen=True)
class Settings:
    """What a fit runs with, after ``preset`` and ``"auto"`` are resolved.

    ``lam`` is None where the size is chosen by what each size is expected to cost, without a
    penalty; ``drops_always``: small weights are dropped even if the solve then has not converged.
    """

    lam: float | None
    loss: str | Loss
    solver: str | Solver
    floor: float
    prior_mass: float
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
    def n_threads(self) -> int:
        """Threads of the compiled loops."""
        return resolve_threads(self.n_jobs)

    @property
    def class_votes(self) -> bool:
        """Whether every class's votes are needed."""
        solver_reads = getattr(self.loss, "channel", "") == "every_class"
        others_read = self.calibration is not None or self.local is not None
        return self.lam is None or solver_reads or others_read


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
    paper = preset == "paper"
    chooses = lam == "auto" and not paper
    if lam is None or lam == "auto":
        # The simplex alone makes weights sparse, and zero is the one λ that fits every loss's unit.
        lam = PAPER_LAM if paper else 0.0
    check_solver(solver)
    return Settings(
        lam=None if chooses else float(lam),
        loss=loss,
        solver="slsqp" if paper and solver == "auto" else solver,
        floor=float((0.0 if paper else DEFAULT_FLOOR) if floor == "auto" else floor),
        prior_mass=float((0.0 if paper else PRIOR_MASS) if prior_mass == "auto" else prior_mass),
        evidence_dtype=np.float64 if paper else np.float32,
        drops_always=paper,
    )


def settings_of(estimator: Any, task: str, *, is_frozen: bool) -> Settings:
    """An estimator's parameters, checked and resolved.

    Parameters
    ----------
    estimator : SparseBaggingClassifier or SparseBaggingRegressor
    task : {"classification", "regression"}
    is_frozen : bool
        Whether its ensemble was fitted before.

    Returns
    -------
    Settings
    """
    check_params(type(estimator).__name__, **estimator.get_params(deep=False))
    if estimator.evidence == "holdout" and not is_frozen:
        raise ValueError(
            "evidence='holdout' needs a fitted ensemble, because the rows given to fit are "
            "those it has not seen; wrap it in sklearn.frozen.FrozenEstimator or use "
            "sparsebag.compress."
        )
    settings = resolve_settings(
        lam=estimator.lam,
        loss=resolve_loss(estimator.loss, task),
        solver=estimator.solver,
        floor=estimator.floor,
        prior_mass=estimator.prior_mass,
        preset=estimator.preset,
    )
    budget = Budget(estimator.max_estimators, estimator.max_nodes, estimator.max_bytes)
    named = {name: getattr(estimator, name) for name in ("tolerance", "confidence", "rehearsal")}
    sized = [
        f"{name}={at!r}" for name, at in named.items() if not isinstance(at, str | bool | None)
    ]
    sized += [str(budget)] if budget.is_named else []
    if settings.lam is not None and sized:
        raise ValueError(
            f"{' and '.join(sized)} sets the size and lam={settings.lam:g} the penalty; use one of "
            "the two (a size goes with lam='auto' and no preset)."
        )
    unjudged = estimator.rehearsal is False and estimator.refine and not estimator.local
    if unjudged and (estimator.tolerance, estimator.confidence) != (None, None):
        raise ValueError(
            "tolerance= and confidence= need a rehearsal, which estimates the loss of each size; "
            "leave rehearsal at 'auto', or name a budget such as max_nodes=0.1."
        )
    refine, calibration = estimator.refine, check_calibration(estimator.calibration, task)
    if budget.max_bytes is not None and is_calibrator(calibration):
        raise ValueError(
            "max_bytes= limits the saved file, and a calibrator of your own cannot be saved; use "
            "max_nodes=, or calibration='auto'."
        )
    if settings.lam is not None:  # the paper stops at the weights, unless more is named
        refine = None
        is_auto = isinstance(calibration, str) and calibration == "auto"
        calibration = None if is_auto else calibration
    return replace(
        settings,
        refine=refine,
        calibration=calibration,
        local=estimator.local,
        rehearsal=estimator.rehearsal,
        budget=budget,
        tolerance=check_tolerance(estimator.tolerance, budget),
        confidence=estimator.confidence,
        source=estimator.evidence,
        n_jobs=estimator.n_jobs,
        listener=listener_of(estimator.verbose),
    )
