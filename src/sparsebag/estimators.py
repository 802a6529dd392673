"""The pipeline as scikit-learn estimators: `SparseBaggingClassifier`, `SparseBaggingRegressor`."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, validate_data

from sparsebag.compress_dask import compress_on_cluster
from sparsebag.deploy.deployable import Deployable
from sparsebag.deploy.rows import by_name
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.evidence import warn_unverified
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_readable, is_dask
from sparsebag.objective.losses import Loss
from sparsebag.pipeline import Compressed, compress_pool
from sparsebag.progress import Listener
from sparsebag.settings import settings_of
from sparsebag.solvers.base import Solver, one_blas_thread
from sparsebag.validation import (
    LeftOutOfPickle,
    accepts,
    check_ensemble,
    check_targets,
    given_rows,
)


class _SparseBagging(Deployable, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share.

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
        Budgets: the maximum number of members, of tree nodes, or of bytes in the saved file. An int
        is a count, a float between 0 and 1 a share of the whole ensemble. Without ``tolerance``,
        the model is as large as the budget allows.
    tolerance : float, optional
        Accepted relative increase of the Brier score (classification) or squared error
        (regression), compared with the whole ensemble after calibration: the smallest model within
        it is kept. At least 0 and below 1. Default: 0.01 if there is no budget.
    confidence : float, optional
        None: the expected increase, plus a margin of 0.65 standard errors, must be within
        ``tolerance``. A number of at least 0.5, such as 0.95: the upper confidence bound must be.
    loss : {"auto", "log_loss", "brier", "squared_error"} or Loss, default "auto"
        The loss that weights minimise if ``lam`` is a number. "auto": log-loss for
        classification, squared error for regression.
    solver : {"auto", "slsqp", "active_set", "projected_gradient", "mirror"} or Solver, \
            default "auto"
        Used if ``lam`` is a number. "auto" follows `sparsebag.select_solver`.
    floor : float or "auto", default "auto"
        Each vote is mixed with the uniform class distribution, ``(1 - floor) * p + floor / C``,
        in fitting and in prediction. "auto" is 0.001 (paper: 0). Ignored in regression.
    prior_mass : float or "auto", default "auto"
        Weight of the uniform ensemble's out-of-bag vote in each row while weights are fitted.
        "auto" is 0.02 (paper: 0).
    calibration : {"auto", "temperature"}, object or None, default "auto"
        "auto": a temperature with a small uniform share, if it lowers the held-out log-loss.
        "temperature": always. An object with ``fit`` and ``predict``, ``transform`` or
        ``predict_proba``: a fitted copy of it. None: no calibration. Ignored in regression.
    refine : {"auto", None}, default "auto"
        "auto": trees are pruned and their leaves refitted to the vote of the whole ensemble, on
        copies. None: whole trees are selected by their out-of-bag votes and not changed.
    rehearsal : {"auto", False} or int, default "auto"
        Copies of the ensemble are fitted on part of the rows, compressed, and scored on the rest.
        "auto": four folds and 32 trees, or one split and 25 trees with 20,000 rows or more. An int:
        the number of folds. False: no rehearsal; the budget, or 10% of the nodes, is kept, without
        an estimate.
    local : {None, "auto", True}, default None
        Weights that depend on the row; members are not changed. "auto": if held-out rows show a
        clear gain. True: always.
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
    verbose : int or callable, default 0
        Show progress on standard error, or call a function at each step with an event
        (``event.step``, ``seconds``, and ``number`` of ``total`` parts).

    Attributes
    ----------
    weights_ : ndarray of shape (N,)
        Weights of all members, non-negative with sum 1 and exact zeros. Refitted trees have equal
        weights.
    active_ : ndarray of shape (n_active,)
        Positions of the kept members in the ensemble.
    n_active_ : int
        Number of kept members.
    n_nodes_ : int
        Nodes of the kept trees; 0 if members are not trees.
    nbytes_ : int
        Size of the saved file.
    estimators_ : list
        The kept members. Pruned trees are copies; yours are not changed.
    selection_ : Selection
        Sizes before and after, expected quality, and what was done; ``print`` it.
    path_ : RiskCurve or None
        Expected loss at every size. None where nothing was rehearsed or judged out of bag, as with
        trees and ``rehearsal=False``, or if ``lam`` is a number.
    refinement_ : Recipe or None
        How the leaves were refitted; None if they were not.
    calibration_ : Calibration or None
        The calibrator and the held-out log-loss before and after; ``print`` it. None for regression
        or if nothing is calibrated.
    local_ : object or None
        Weights that depend on the row, and their gain; ``print`` it.
    solution_ : Solution or None
        Solution of the penalised objective, if ``lam`` is a number.
    verified_by_ : str or None
        What proved that the rows given to ``fit`` are the ensemble's training rows; None where
        there is nothing to check (members that are no trees, no ``oob_score=True``).
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray
        Their names, where X had string names. Tables are matched by them.
    feature_importances_ : ndarray of shape (n_features,)
        As of scikit-learn's forests, of the kept trees; only where all members are trees.
    """

    _task: Task
    _calibrated: Any = None

    def __init__(
        self,
        estimator: Any = None,
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
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int | Listener = 0,
    ) -> None:
        self.estimator = estimator
        self.lam = lam
        self.max_estimators = max_estimators
        self.max_nodes = max_nodes
        self.max_bytes = max_bytes
        self.tolerance = tolerance
        self.confidence = confidence
        self.loss = loss
        self.solver = solver
        self.floor = floor
        self.prior_mass = prior_mass
        self.calibration = calibration
        self.refine = refine
        self.rehearsal = rehearsal
        self.local = local
        self.preset = preset
        self.evidence = evidence
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> Self:
        """Fit the ensemble if it is not frozen, then its members' weights.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (M, n_features)
            Training rows of the ensemble, or unseen rows with ``evidence="holdout"``.
        y : array-like of shape (M,)
            Targets.
        sample_weight : array-like of shape (M,), optional
            Row weights of the loss, and of the ensemble's own fit. With metadata routing enabled
            the ensemble gets them if it requests them (``set_fit_request``).
        **fit_params : dict
            Routed to the ensemble's ``fit``; needs scikit-learn's metadata routing.

        Returns
        -------
        self
        """
        settings = settings_of(self, self._task, is_frozen=self._is_frozen)
        check_ensemble(self._ensemble_to_fit(), self._task)
        X, y = given_rows(X, y, sample_weight)
        if is_dask(X) and not self._is_frozen:
            raise ValueError(
                "scikit-learn cannot fit an ensemble to a Dask array; fit it first and pass "
                "it to sparsebag.compress, or wrap it in sklearn.frozen.FrozenEstimator."
            )
        check_targets(y, self._task)
        X = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(self, X, skip_check_array=True)
        ensemble = self._fitted_ensemble(X, y, sample_weight, fit_params)
        pool = self.__dict__.pop("_pool", None) or read_ensemble(ensemble)
        if settings.calibration == "auto" and not pool.leaves_are_shares:
            # The mean of the shares that scores stand for is less sure than that of their mean.
            settings = replace(settings, calibration="temperature")
        walk = compress_on_cluster if is_dask(X) else compress_pool
        with one_blas_thread():
            found = walk(pool, X, y, settings, sample_weight)
        if self._is_frozen and self.evidence == "oob" and found.verified_by is None:
            warn_unverified()
        self._keep(found)
        self._full, self._accepts = ensemble, accepts(ensemble)
        return self

    def report(
        self, X: Any = None, y: Any = None, *, sample_weight: Any = None, baseline: Any = None
    ) -> Any:
        """Compare the full ensemble with the small model on test data.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features), optional
            Test data. Without it, the report has only the expected figures.
        y : array-like of shape (rows,), optional
            Their targets.
        sample_weight : array-like of shape (rows,), optional
            Their weights. Default: the class weights that the ensemble was trained with, if any.
        baseline : fitted ensemble or list of fitted models, optional
            The full ensemble, if this object no longer has it (pickles and copies do not include
            it).

        Returns
        -------
        CompressionReport
            ``print`` it, or take ``.to_markdown()``, ``.rows``, ``.save("report.html")``.
        """
        from sparsebag.report.wrapped import report_on

        check_is_fitted(self, "weights_")
        return report_on(self, X, y, sample_weight, baseline=baseline)

    def get_metadata_routing(self) -> MetadataRouter:
        """What ``fit`` takes itself and what it routes to the ensemble's ``fit``.

        Returns
        -------
        MetadataRouter
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        if self._is_frozen:
            return router
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=self._ensemble_to_fit(), method_mapping=mapping)

    # -- steps of fit ------------------------------------------------------------------------

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    def _ensemble_to_fit(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        forest = RandomForestClassifier if self._task == "classification" else RandomForestRegressor
        default = forest(n_jobs=self.n_jobs)
        return default.set_fit_request(sample_weight=True) if _routing_enabled() else default

    def _fitted_ensemble(self, X: Any, y: Any, sample_weight: Any, fit_params: Any) -> Any:
        params = dict(fit_params)
        if sample_weight is not None:
            params["sample_weight"] = sample_weight
        if _routing_enabled():
            routed = process_routing(self, "fit", **params)
            params = {} if self._is_frozen else routed.estimator.fit
        elif fit_params:
            raise ValueError(
                f"fit got {', '.join(sorted(fit_params))}, which only scikit-learn's metadata "
                "routing can pass on; call sklearn.set_config(enable_metadata_routing=True)."
            )
        if self._is_frozen:
            return self.estimator.estimator
        ensemble = clone(self._ensemble_to_fit())
        if self.random_state is not None and "random_state" in ensemble.get_params(deep=False):
            ensemble.set_params(random_state=self.random_state)
        return ensemble.fit(X, y, **params)

    def _keep(self, found: Compressed) -> None:
        self.weights_ = found.weights
        self.active_ = np.flatnonzero(self.weights_)
        self.n_active_ = len(self.active_)
        self.selection_, self.path_ = found.selection, found.selection.curve
        self.n_nodes_ = found.selection.after.nodes
        self.refinement_, self.calibration_ = found.recipe, found.calibration
        self.solution_, self.local_ = found.solution, found.local
        self.verified_by_ = found.verified_by
        self._compiled = found.compiled
        share = self.weights_[self.active_]
        calibrator = None if found.calibration is None else found.calibration.calibrator
        gate = None if found.local is None else found.local.gate
        floor = found.compiled.floor
        self._vote = WeightedVote(found.pool, share / share.sum(), floor, calibrator, gate)
        if found.pool.classes is not None:
            self.classes_ = found.pool.classes

    # -- prediction, tags, pickling ----------------------------------------------------------

    @property
    def estimators_(self) -> list[Any]:
        """The kept members as they vote: pruned trees are copies, your own stay as they were."""
        check_is_fitted(self, "weights_")
        return [member.estimator for member in self._vote.pool.members]

    @property
    def feature_importances_(self) -> np.ndarray:
        """Mean decrease of impurity by the splits that are left, as scikit-learn's forests have it.

        Only where all members are trees.
        """
        trees, total = self._kept_trees(), np.zeros(self.n_features_in_)
        for member, weight in zip(trees, self._vote.weights, strict=True):
            own = member.estimator.tree_.compute_feature_importances()
            columns = np.arange(len(total)) if member.features is None else member.features
            np.add.at(total, columns, weight * own)
        return np.asarray(total / (total.sum() or 1.0))

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each row, or its number (regression).

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        X = self._check_X(X)
        return self._compiled.predict(X, self.n_jobs)

    def apply(self, X: Any) -> np.ndarray:
        """The leaf of each row in each kept tree.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, n_active)
        """
        trees, X = self._kept_trees(), self._check_X(X)
        return np.column_stack([member.apply(X) for member in trees])

    def decision_path(self, X: Any) -> tuple[Any, np.ndarray]:
        """The nodes each row passes in each kept tree, as scikit-learn's forests give them.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        indicator : sparse matrix of shape (rows, n_nodes)
        n_nodes_ptr : ndarray of shape (n_active + 1,)
            Columns of tree j are from ``n_nodes_ptr[j]`` to ``n_nodes_ptr[j + 1]``.
        """
        trees, X = self._kept_trees(), self._check_X(X)
        paths = [member._call("decision_path", member._slice(X)) for member in trees]
        ends = np.cumsum([0, *(path.shape[1] for path in paths)])
        return sp.hstack(paths).tocsr(), ends

    def to_shap(self) -> dict[str, Any]:
        """The kept trees for ``shap.TreeExplainer(small.to_shap())``.

        SHAP values and the expected value add up to what the leaves add up to: the vote before
        the floor and the calibration; where leaves hold scores, the scores before the softmax.

        Returns
        -------
        dict
        """
        from sparsebag.deploy.export_shap import export_shap

        check_is_fitted(self, "weights_")
        return export_shap(self._vote)

    def _kept_trees(self) -> Any:
        check_is_fitted(self, "weights_")
        members = self._vote.pool.members
        if not all(member.is_tree for member in members):
            raise AttributeError("only trees have leaves, paths and importances.")
        return members

    def _check_X(self, X: Any) -> Any:
        """X as the kept members read it, under the checks scikit-learn's own ensembles make."""
        check_is_fitted(self, "weights_")
        check_readable(X, "X")
        X = by_name(X, getattr(self, "feature_names_in_", None))
        kind = self._vote.pool.input_kind
        if kind == "as_given":
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        checks: dict[str, Any] = {"dtype": None, "accept_sparse": ["csr", "csc"]}
        checks["ensure_all_finite"] = False
        if kind != "array":
            finite = "allow-nan" if self._accepts.allow_nan and not sp.issparse(X) else True
            checks = {"dtype": np.float32, "accept_sparse": "csr", "ensure_all_finite": finite}
        return validate_data(self, X, reset=False, **checks)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = getattr(self, "_accepts", None) or accepts(self._ensemble_to_fit())
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags

    def __getstate__(self) -> Any:
        """A fitted object's pickle carries the kept members, not the ensemble they came from."""
        state = dict(super().__getstate__())
        if "weights_" in state:
            state["_full"] = state["_calibrated"] = None
            if self._is_frozen:
                state["estimator"] = FrozenEstimator(LeftOutOfPickle())
            elif self.estimator is not None:
                state["estimator"] = clone(self.estimator)  # the caller may have fitted theirs
        return state


def _documented(cls: type) -> type:
    """The sections on parameters and attributes of the base class, in an estimator's docstring."""
    shared = inspect.cleandoc(_SparseBagging.__doc__ or "").split("\n\n", 1)[1]
    cls.__doc__ = inspect.cleandoc(cls.__doc__ or "").replace("{shared}", shared)
    return cls


@_documented
class SparseBaggingClassifier(ClassifierMixin, _SparseBagging):  # type: ignore[misc]
    """A bagging classifier that is fitted and then compressed.

    {shared}
    classes_ : ndarray of shape (C,)
        Class labels, in the order of ``predict_proba``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(50, random_state=0)
    >>> clf = SparseBaggingClassifier(forest, max_nodes=0.5).fit(X, y)
    >>> clf.n_nodes_ <= 0.5 * clf.selection_.before.nodes
    True
    """

    _task = "classification"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities: the kept members' weighted vote.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, C)
        """
        X = self._check_X(X)
        return self._compiled.predict_proba(X, self.n_jobs)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of `predict_proba`.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, C)
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))


@_documented
class SparseBaggingRegressor(RegressorMixin, _SparseBagging):  # type: ignore[misc]
    """A bagging regressor that is fitted and then compressed.

    {shared}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = RandomForestRegressor(50, random_state=0)
    >>> reg = SparseBaggingRegressor(forest, tolerance=0.05).fit(X, y)
    >>> reg.n_nodes_ < 0.5 * reg.selection_.before.nodes
    True
    """

    _task = "regression"


def _routing_enabled() -> bool:
    return bool(get_config()["enable_metadata_routing"])
