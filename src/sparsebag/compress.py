"""`compress`: fitted ensemble in, smaller fitted estimator out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.frozen import FrozenEstimator

from sparsebag.estimators import SparseBaggingClassifier, SparseBaggingRegressor
from sparsebag.evidence.members import with_bags
from sparsebag.validation import check_ensemble, is_classification, unfrozen
from sparsebag.objective.losses import Loss
from sparsebag.solvers.base import Solver


def compress(
    ensemble: Any,
    X: Any,
    y: Any,
    *,
    lam: float | str = "auto",
    max_estimators: float | None = None,
    max_nodes: float | None = None,
    max_bytes: float | None = None,
    tolerance: float | None = None,
    confidence: float | None = None,
    loss: str | Loss = "auto",
    solver: str | Solver = "auto",
    floor: float | str = "auto",
    prior_mass: float | str = "auto",
    calibration: Any = "auto",
    refine: str | None = "auto",
    rehearsal: str | int = "auto",
    local: str | bool | None = None,
    preset: str | None = None,
    evidence: str = "oob",
    sample_weight: Any = None,
    estimators_samples: Sequence[Any] | None = None,
    estimators_features: Sequence[Any] | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Any:
    """Keep the few members of a fitted ensemble that matter, with weights on the simplex.

    The ensemble itself is not changed.

    Parameters
    ----------
    ensemble : fitted ensemble or list of fitted models
        ``BaggingClassifier/Regressor``, ``RandomForest*``, ``ExtraTrees*``, ``Voting*``, one of
        these in a ``FrozenEstimator``, or a list of models.
    X : array-like, sparse matrix or DataFrame of shape (M, n_features)
        The rows the ensemble was trained on, in order; with ``evidence="holdout"``, rows it has
        never seen. A Dask array stays where its workers have it (``docs/scaling_dask.md``).
    y : array-like of shape (M,)
        Their targets.
    lam : "auto" or float, default "auto"
        "auto": the smallest ensemble that is expected to lose no more than ``tolerance``. A
        number: the paper's way, the out-of-bag loss with the concave penalty ``-λ‖w‖²``, λ in
        the unit of your loss; 0.05 with ``preset="paper"``.
    max_estimators, max_nodes, max_bytes : int, optional
        Budgets: the most members, tree nodes, or bytes of their arrays to keep, those of a gate
        (``local``) among them.
    tolerance : float or None, default 0.01
        Relative increase of the Brier score or squared error over the whole ensemble's that you
        accept. None: the best ensemble within the budget, even if a smaller one would do.
        ``print(small.selection_)`` says what was chosen and why.
    loss : {"auto", "log_loss", "brier", "squared_error"} or Loss
        What weights are fitted to. "auto": log-loss for classifiers, squared error for
        regressors. Members are selected by Brier score or squared error.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror", "projected_sgd"} or \
            Solver
        "auto" follows `sparsebag.select_solver`.
    floor : float or "auto"
        Share of the uniform class distribution mixed into each vote; "auto" is 0.001.
    prior_mass : float or "auto"
        Weight of the uniform ensemble's vote in each row while fitting; "auto" is 0.02.
    calibration : {"auto", "temperature", "isotonic", ...}, object or None, default "auto"
        How the survivors' probabilities are corrected (classification), fitted on honest votes
        of as many members as were kept. "auto": a temperature with a fitted floor, or a richer
        family where it clearly wins, and nothing where nothing helps. An object with
        scikit-learn's ``fit`` and ``predict`` or ``predict_proba`` is fitted itself. None: the
        vote as it is.
    refine : {"auto", "leaves", None}, default "auto"
        "auto": the survivors' leaf values are refitted, on copies, where an honest estimate says
        that helps; `small.refinement_` tells what was done. "leaves": always
        unless all members are kept, or an error. None: the leaves as they are.
    local : {None, "auto", "linear", "regions"}, default None
        Weights that depend on the row: a gate that trusts other members, and is more or less
        sure, elsewhere. "linear": smoothly with the features. "regions": by the regions of a
        shallow tree. "auto": whichever held-out rows are sure is better, or the global weights;
        `small.local_` tells. A kind that is named is fitted whether it gains or not. Where one
        member has all the weight, and there is nothing to weigh, of a calibrated classifier the
        temperature alone depends on the row, with a warning, or it is an error where that is not
        sure to gain; linear regressors within a budget stay one model, with a warning; for all
        others it is an error.
    preset : {None, "paper"}
        "paper": the paper to the letter (SLSQP, 1e-15 clip, no floor, no prior mass, weights up
        to 1e-5 dropped, no calibration, no refitted leaves).
    evidence : {"oob", "holdout"}
        Whether X holds the training rows or held-out ones.
    sample_weight : array-like of shape (M,), optional
        Row weights of the loss.
    estimators_samples : sequence of index arrays, optional
        For a list of models: the rows of X each was trained on.
    estimators_features : sequence of index arrays, optional
        For a list of models: the columns of X each was trained on.
    n_jobs : int, optional
        Threads over members. The weights do not depend on it.
    verbose : int, default 0
        Progress on standard error.

    Returns
    -------
    SparseBaggingClassifier or SparseBaggingRegressor
        Fitted; predicts from the survivors.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(100, random_state=0).fit(X, y)
    >>> small = sb.compress(forest, X, y, tolerance=0.05)
    >>> small.n_active_ < 50
    True
    >>> ten = sb.compress(forest, X, y, max_estimators=10, tolerance=None)
    >>> ten.n_active_ <= 10
    True
    """
    ensemble = with_bags(unfrozen(ensemble), estimators_samples, estimators_features)
    check_ensemble(ensemble)
    kind = SparseBaggingClassifier if is_classification(ensemble) else SparseBaggingRegressor
    return kind(
        FrozenEstimator(ensemble),
        lam=lam,
        max_estimators=max_estimators,
        max_nodes=max_nodes,
        max_bytes=max_bytes,
        tolerance=tolerance,
        confidence=confidence,
        loss=loss,
        solver=solver,
        floor=floor,
        prior_mass=prior_mass,
        calibration=calibration,
        refine=refine,
        rehearsal=rehearsal,
        local=local,
        preset=preset,
        evidence=evidence,
        n_jobs=n_jobs,
        verbose=verbose,
    ).fit(X, y, sample_weight=sample_weight)
