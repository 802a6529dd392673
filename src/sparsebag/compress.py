"""`compress`: fitted ensemble in, smaller fitted estimator out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sklearn.frozen import FrozenEstimator

from sparsebag.estimators import SparseBaggingClassifier, SparseBaggingRegressor
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import with_bags
from sparsebag.evidence.wrappers import innermost, rewrapped
from sparsebag.objective.losses import Loss
from sparsebag.progress import Listener
from sparsebag.settings import check_params
from sparsebag.solvers.base import Solver
from sparsebag.validation import check_ensemble


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
    verbose: int | Listener = 0,
) -> Any:
    """Compress a fitted bagging ensemble, using its training data.

    Trees are pruned and their leaves refitted to the vote of the whole ensemble; other members are
    selected and weighted. Probabilities are calibrated. A rehearsal on copies of the ensemble
    chooses the size. The ensemble itself is not changed.

    Parameters
    ----------
    ensemble : fitted ensemble, model around one, or list of fitted models
        ``BaggingClassifier/Regressor``, ``RandomForest*``, ``ExtraTrees*``, ``Voting*``; forests
        of XGBoost, LightGBM, imbalanced-learn, quantile-forest, cuML and treelite; a list of
        models; or a ``Pipeline``, search, ``TransformedTargetRegressor``, ``FrozenEstimator``,
        ``CalibratedClassifierCV``, ``MultiOutput*`` or ``OneVsRestClassifier`` around one.
    X : array-like, sparse matrix or DataFrame of shape (M, n_features)
        The data the ensemble was trained on, in the same order; with ``evidence="holdout"``, data
        it has not seen. May be a Dask array.
    y : array-like of shape (M,)
        Their targets.
    lam : "auto" or float, default "auto"
        "auto": the size follows from ``tolerance`` and the budgets. A number: the paper's
        weights only, on the out-of-bag loss with the penalty ``-lam * ||w||**2``.
    max_estimators, max_nodes, max_bytes : int or float, optional
        Budgets: the maximum number of members, of tree nodes, or of bytes in the saved file (of a
        Pipeline, of the ensemble only). An int is a count, a float between 0 and 1 a share of the
        whole ensemble. Without ``tolerance``, the model is as large as the budget allows.
    tolerance : float, optional
        Accepted relative increase of the Brier score or squared error, compared with the whole
        ensemble after calibration: the smallest model within it is kept. At least 0 and below 1.
        Default: 0.01 if there is no budget.
    confidence : float, optional
        None: the expected increase, plus a margin of 0.65 standard errors, must be within
        ``tolerance``. A number of at least 0.5, such as 0.95: the upper confidence bound must be.
    loss : {"auto", "log_loss", "brier", "squared_error"} or Loss, default "auto"
        The loss that weights minimise if ``lam`` is a number. "auto": log-loss for classifiers,
        squared error for regressors.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror"} or Solver, \
            default "auto"
        Used if ``lam`` is a number. "auto" follows `sparsebag.select_solver`.
    floor : float or "auto", default "auto"
        Share of the uniform class distribution mixed into each vote; "auto" is 0.001.
    prior_mass : float or "auto", default "auto"
        Weight of the uniform ensemble's vote in each row while weights are fitted; "auto" is 0.02.
    calibration : {"auto", "temperature"}, object or None, default "auto"
        "auto": a temperature with a small uniform share, if it lowers the held-out log-loss.
        "temperature": always. An object with ``fit`` and ``predict``, ``transform`` or
        ``predict_proba``: a fitted copy of it. None: no calibration.
    refine : {"auto", None}, default "auto"
        "auto": trees are pruned and refitted, on copies. None: whole trees are selected by their
        out-of-bag votes and not changed.
    rehearsal : {"auto", False} or int, default "auto"
        Copies of the ensemble are fitted on part of the rows, compressed, and scored on the rest.
        "auto": four folds and 32 trees, or one split and 25 trees with 20,000 rows or more. An int:
        the number of folds. False: no rehearsal; the budget, or 10% of the nodes, is kept, without
        an estimate.
    local : {None, "auto", True}, default None
        Weights that depend on the row; members are not changed. "auto": if held-out rows show a
        clear gain. True: always.
    preset : {None, "paper"}, default None
        "paper": the paper's weights to the letter (SLSQP, ``lam=0.05``, no floor, no prior mass),
        and nothing else.
    evidence : {"oob", "holdout"}, default "oob"
        Whether X holds the training rows or held-out ones.
    sample_weight : array-like of shape (M,), optional
        Row weights, used in every step. ``class_weight`` and balanced bags are read from the
        ensemble.
    estimators_samples : sequence of index arrays, optional
        For a list of models: the rows of X that each was trained on.
    estimators_features : sequence of index arrays, optional
        For a list of models: the columns of X that each was trained on.
    n_jobs : int, optional
        Threads. Results do not depend on it.
    verbose : int or callable, default 0
        Show progress on standard error, or call a function at each step with an event
        (``event.step``, ``seconds``, and ``number`` of ``total`` parts).

    Returns
    -------
    SparseBaggingClassifier or SparseBaggingRegressor
        Fitted. ``print(small.selection_)`` says what was kept and what to expect. For a Pipeline or
        most other wrappers, a copy with the small model inside; use it with `sparsebag.save`,
        `sparsebag.report_on` and `sparsebag.to_onnx`.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(100, random_state=0).fit(X, y)
    >>> small = sb.compress(forest, X, y, max_nodes=0.2)
    >>> small.n_nodes_ <= 0.2 * small.selection_.before.nodes
    True
    >>> small.predict_proba(X).shape
    (569, 2)
    """
    given = with_bags(ensemble, estimators_samples, estimators_features)
    made = []
    for part, around in innermost(given, X, y):
        check_ensemble(part.model)
        pool = read_ensemble(part.model)
        kind = SparseBaggingRegressor if pool.classes is None else SparseBaggingClassifier
        small = kind(
            FrozenEstimator(part.model),
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
        )
        check_params("compress", **small.get_params(deep=False))
        wrapping, is_calibrated = around if around.layers else None, part.calibrated is not None
        small._pool = replace(pool, wrapping=wrapping, is_calibrated=is_calibrated)
        small.fit(part.X, part.y, sample_weight=sample_weight)
        small._calibrated = part.calibrated
        if evidence == "oob" and pool.can_be_refitted:  # clones fit and compress anew
            small.estimator = pool.source
        made.append(small)
    left = iter(made)
    return rewrapped(given, lambda part, around: next(left))
