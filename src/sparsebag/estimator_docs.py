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
        "auto": the size follows from ``tolerance`` and the budgets. A number: the paper's
        weights only, on the out-of-bag loss with the penalty ``-lam * ||w||**2``.
    max_estimators, max_nodes, max_bytes : int or float, optional
        Budgets: the most members, tree nodes, or bytes of the saved file. An int counts, a float
        between 0 and 1 is a share of the whole ensemble. A budget without ``tolerance`` is spent.
    tolerance : float, optional
        Accepted relative increase of the Brier score (classification) or squared error
        (regression) over the whole ensemble's, both calibrated: the smallest model within it is
        kept. A fraction, from 0 and below 1. Default: 0.01 without a budget.
    confidence : float, optional
        None: the expected increase plus one standard error must be within ``tolerance``. A number
        from 0.5, such as 0.95: its upper bound at this confidence must be.
    loss : {"auto", "log_loss", "brier", "squared_error"} or Loss, default "auto"
        What weights are fitted to where ``lam`` is a number. "auto": log-loss for
        classification, squared error for regression.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror", "projected_sgd"} or \
            Solver, default "auto"
        Where ``lam`` is a number. "auto" follows `sparsebag.select_solver`.
    floor : float or "auto", default "auto"
        Each vote is mixed with the uniform class distribution, ``(1 - floor) * p + floor / C``,
        in fitting and in prediction. "auto" is 0.001 (paper: 0). Ignored in regression.
    prior_mass : float or "auto", default "auto"
        Weight of the uniform ensemble's out-of-bag vote in each row while weights are fitted.
        "auto" is 0.02 (paper: 0).
    calibration : {"auto", "temperature"}, object or None, default "auto"
        "auto": a temperature with a small uniform share, where it lowers the held-out log-loss.
        "temperature": always. An object with ``fit`` and ``predict``, ``transform`` or
        ``predict_proba``: a fitted copy of it. None: the vote as it is. Regressors: not used.
    refine : {"auto", None}, default "auto"
        "auto": trees are pruned and their leaves refitted to the vote of the whole ensemble, on
        copies. None: members as they are, chosen and weighted by their out-of-bag votes.
    rehearsal : {"auto", False} or int, default "auto"
        Copies of the ensemble are fitted on part of the rows, compressed, and scored on the rest.
        "auto": three folds and 50 trees; one split and 25 trees from 20,000 rows. An int: folds.
        False: none; the budget, or 10 % of the nodes, is kept, and no quality is estimated.
    local : {None, "auto", True}, default None
        Weights that depend on the row, over members as they are. "auto": where held-out rows show
        a clear gain. True: always.
    preset : {None, "paper"}, default None
        "paper": the paper's weights to the letter (SLSQP, ``lam=0.05``, no floor, no prior mass,
        weights up to 1e-5 dropped), and nothing else.
    evidence : {"oob", "holdout"}, default "oob"
        Whether the rows given to ``fit`` are the ensemble's training rows or held-out ones.
    n_jobs : int, optional
        Threads, in fitting and in prediction. Results do not depend on it.
    random_state : int, RandomState or None
        Passed to the ensemble that ``fit`` clones. Compression is deterministic: the same
        ensemble and rows give the same model.
    verbose : int, default 0
        Progress on standard error.

    Attributes
    ----------
    weights_ : ndarray of shape (N,)
        Of all members, on the simplex, with exact zeros. Trees that are kept and refitted weigh
        the same.
    active_ : ndarray of shape (n_active,)
        Positions of the kept members in the ensemble.
    n_active_ : int
        How many they are.
    n_nodes_ : int
        Nodes of the kept trees; 0 where there are none.
    nbytes_ : int
        Size of the saved file.
    n_survivors_ : int
        Models the deployed predictor evaluates: one where linear regressors collapse into it.
    estimators_ : list
        The kept members as they vote. Pruned trees are copies; yours stay as they were.
    selection_ : Selection
        Sizes before and after, expected quality, and what was done; ``print`` it.
    path_ : RiskCurve or None
        Expected loss of every size. None without a rehearsal, and where ``lam`` is a number.
    refinement_ : Recipe or None
        How the leaves were refitted; None where they are the ensemble's own.
    calibration_ : Calibration or None
        The calibrator and the held-out log-loss before and after; ``print`` it. None for
        regression and where nothing is calibrated.
    local_ : object or None
        Weights that depend on the row, and what they gained; ``print`` it.
    solution_ : Solution or None
        Of the penalised objective, where ``lam`` is a number.
    verified_by_ : str or None
        What proved that the rows given to ``fit`` are the ensemble's training rows; None where
        there is nothing to check (members that are no trees, no ``oob_score=True``).
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
