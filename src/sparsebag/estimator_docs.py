"""What the two estimators' docstrings share: parameters and attributes, written once."""

from __future__ import annotations

import inspect
from typing import TypeVar

Class = TypeVar("Class", bound=type)

SHARED_DOC = """
    Parameters
    ----------
    estimator : ensemble, optional
        The bagging ensemble. Unfitted: it is cloned and fitted on the rows given to ``fit``.
        Fitted and wrapped in ``sklearn.frozen.FrozenEstimator``: used as it is, and the rows
        given to ``fit`` must be its training rows, in order (or, with ``evidence="holdout"``,
        rows it has never seen). Default: a random forest of 100 trees.
    lam : "auto" or float, default "auto"
        "auto": the size is chosen by what each size is expected to lose (``tolerance``, and the
        budgets below). A number: the paper's way, the out-of-bag loss with the concave penalty
        ``-λ‖w‖²``, λ in the unit of your loss; 0.05 with ``preset="paper"``.
    max_estimators, max_nodes, max_bytes : int, optional
        Budgets: the most members, tree nodes, or bytes of their arrays to keep, those of a gate
        (``local``) among them.
    tolerance : float, default 0.01
        Relative increase of the Brier score (classification) or squared error (regression) over
        the whole ensemble's that you accept. The smallest ensemble that stays within it, with
        95 % confidence, is kept; the whole ensemble, or with a budget the best within it and a
        warning, if none does. None: the best within the budget, even if a smaller one would do.
        Not used where ``lam`` is a number.
    loss : {"auto", "log_loss", "brier", "squared_error"} or Loss, default "auto"
        What weights are fitted to. "auto": log-loss for classification, squared error for
        regression. Members are selected by Brier score or squared error; their weights are then
        refitted on this loss if cross-fitting says that helps.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror", "projected_sgd"} or \
            Solver, default "auto"
        "auto" follows `sparsebag.select_solver`.
    floor : float or "auto", default "auto"
        ε: each vote is mixed with the uniform class distribution, ``(1-ε)P + ε/C``, in fitting
        and in prediction. "auto" is 0.001 (paper: 0). Ignored in regression.
    prior_mass : float or "auto", default "auto"
        τ: weight of the uniform ensemble's out-of-bag vote in each row while fitting; keeps
        rows defined that no survivor has out of bag. "auto" is 0.02 (paper: 0).
    calibration : {"auto", "temperature", "isotonic", ...}, object or None, default "auto"
        How the survivors' probabilities are corrected (classification): fitted on votes, of rows
        that had no part in them, of as many members as were kept. "auto": a temperature with a
        fitted floor, or a richer family where it clearly wins, and nothing where nothing helps.
        An object with scikit-learn's ``fit`` and ``predict`` or ``predict_proba`` is fitted
        itself. None: the vote as it is.
    refine : {"auto", "leaves", None}, default "auto"
        "auto": the survivors' leaf values are refitted, on copies, where an honest estimate says
        that helps. "leaves": always unless all members are kept, or an error where it cannot
        be. None: the leaves as they are.
    local : {None, "auto", "linear", "regions"}, default None
        Weights that depend on the row: a gate that trusts other members, and is more or less
        sure, elsewhere. "linear": smoothly with the features. "regions": by the regions of a
        shallow tree. "auto": whichever held-out rows are sure is better, or the global weights;
        ``local_`` tells. A kind that is named is fitted whether it gains or not. Where one
        member has all the weight, and there is nothing to weigh, of a calibrated classifier the
        temperature alone depends on the row, with a warning, or it is an error where that is not
        sure to gain; linear regressors within a budget stay one model, with a warning; for all
        others it is an error.
    preset : {None, "paper"}, default None
        "paper" resolves every "auto" as the paper has it: SLSQP, no floor, no prior mass,
        weights up to 1e-5 dropped, no calibration, no refitted leaves.
    evidence : {"oob", "holdout"}, default "oob"
        Which of the rows given to ``fit`` judge a member: those out of its bag, or all of them.
    n_jobs : int, optional
        Threads over members, in collecting their votes and in prediction. Results do not depend
        on it.
    random_state : int, RandomState or None
        Passed to the ensemble that ``fit`` clones. Selection has a seed of its own, which is
        fixed: the same ensemble and rows give the same weights.
    verbose : int, default 0
        Progress on standard error.

    Attributes
    ----------
    weights_ : ndarray of shape (N,)
        On the simplex, with exact zeros.
    active_ : ndarray of shape (n_active,)
        Indices of the survivors.
    n_active_ : int
        How many they are.
    n_survivors_ : int
        Models the deployed predictor evaluates: one, where linear regressors collapse into it.
    compression_ratio_ : float
        Share of members dropped.
    estimators_ : list
        The survivors as they vote: trees with refitted leaves are copies that hold these, and
        your own stay as they were.
    verified_by_ : str or None
        What proved that the rows given to ``fit`` are the ensemble's training rows; None where
        it leaves nothing to check (members that are no trees, no ``oob_score=True``).
    solution_ : Solution
        Objective, stationarity gap, status, trace.
    selection_ : Selection or None
        What was kept, what it is expected to cost and why; ``print`` it. None where ``lam`` is a
        number.
    path_ : PathTable or None
        Every size considered: members, nodes, bytes, expected risk and its error, random
        members' risk.
    refinement_ : Refinement
        Whether and how leaves were refitted, with the expected risk before and after; ``print``
        it.
    calibration_ : Calibrated or None
        What the calibrator gained on rows it was not fitted on; ``print`` it. None for regression
        and where none was asked for.
    calibrator_ : object or None
        The calibrator, where one is used.
    temperature_ : float or None
        Its temperature, where it has one; None where the temperature depends on the row
        (``explain_weights`` has it then).
    local_ : Localisation
        Whether and how the weights depend on the row, with what that gained on held-out rows;
        ``print`` it. ``weights_`` are then those in the middle of the training rows.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray
        Their names, where X had string names.
"""


def documented(cls: Class) -> Class:
    """Put the shared sections into a class docstring, once for both estimators."""
    doc = inspect.cleandoc(cls.__doc__ or "")  # Python 3.13 dedents docstrings, 3.12 does not
    cls.__doc__ = doc.replace("{shared}", inspect.cleandoc(SHARED_DOC))
    return cls
