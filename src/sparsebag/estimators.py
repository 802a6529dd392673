"""The pipeline as scikit-learn estimators: `SparseBaggingClassifier`, `SparseBaggingRegressor`."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, validate_data

from sparsebag.cluster_survivors import survivors_on_cluster
from sparsebag.deploy.deployable import Deployable
from sparsebag.deploy.from_members import compile_members
from sparsebag.deploy.tree_copies import deployed_estimators
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.estimator_docs import documented
from sparsebag.evidence.cluster_matrices import given_rows
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.evidence import warn_unverified
from sparsebag.evidence.from_cluster import is_on_cluster
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import Task
from sparsebag.evidence.readable import check_readable
from sparsebag.given_ensemble import (
    LeftOutOfPickle,
    accepts,
    check_ensemble,
    check_targets,
    evidence_source,
    unfrozen,
)
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.refine.calibration_kinds import calibration_for
from sparsebag.refining import Survivors, find_survivors
from sparsebag.report.compare import Fitted, compare
from sparsebag.report.compression_report import CompressionReport
from sparsebag.report.coverage import oob_coverage
from sparsebag.selection.budget import Budget
from sparsebag.selection.tolerance import check_tolerance
from sparsebag.settings import Settings, check_n_jobs, check_verbose, resolve_settings
from sparsebag.solvers.base import Solver


class _SparseBagging(Deployable, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share; `fit` reads as the data flows."""

    _task: Task

    def __init__(
        self,
        estimator: Any = None,
        *,
        lam: float | str = "auto",
        max_estimators: int | None = None,
        max_nodes: int | None = None,
        max_bytes: int | None = None,
        tolerance: float | None = 0.01,
        loss: str | Loss = "auto",
        solver: str | Solver = "auto",
        floor: float | str = "auto",
        prior_mass: float | str = "auto",
        calibration: Any = "auto",
        refine: str | None = "auto",
        local: str | None = None,
        preset: str | None = None,
        evidence: str = "oob",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.lam = lam
        self.max_estimators = max_estimators
        self.max_nodes = max_nodes
        self.max_bytes = max_bytes
        self.tolerance = tolerance
        self.loss = loss
        self.solver = solver
        self.floor = floor
        self.prior_mass = prior_mass
        self.calibration = calibration
        self.refine = refine
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
        check_n_jobs(self.n_jobs)
        check_verbose(self.verbose)
        loss = resolve_loss(self.loss, self._task)
        settings, source = self._settings(loss), evidence_source(self.evidence, self._is_frozen)
        budget = self._budget(settings)
        tolerance = check_tolerance(self.tolerance, budget if settings.lam is None else None)
        check_ensemble(self._ensemble_to_fit(), self._task)
        X, y = given_rows(X, y, sample_weight)
        if is_on_cluster(X) and not self._is_frozen:
            raise ValueError(
                "scikit-learn cannot fit an ensemble to a Dask array; fit it first and pass "
                "it to sparsebag.compress, or wrap it in sklearn.frozen.FrozenEstimator."
            )
        check_targets(y, self._task)
        X = X if hasattr(X, "shape") else np.asarray(X)
        validate_data(self, X, skip_check_array=True)
        ensemble = self._fitted_ensemble(X, y, sample_weight, fit_params)
        pool = read_ensemble(ensemble)
        how: dict[str, Any] = {
            "source": source,
            "sample_weight": sample_weight,
            "n_jobs": self.n_jobs,
            "verbose": self.verbose,
        }
        goal: dict[str, Any] = {"budget": budget, "tolerance": tolerance}
        class_votes = _class_votes(settings, loss)
        if is_on_cluster(X):
            found, verified_by = survivors_on_cluster(
                pool, X, y, settings, class_votes=bool(class_votes), **goal, **how
            )
            self._warn_unverified(source, verified_by)
            self._coverage = None  # the rows are on the workers
        else:
            evidence = collect_evidence(
                pool, X, y, class_votes=class_votes, dtype=settings.evidence_dtype, **how
            )
            verified_by = evidence.verified_by
            self._warn_unverified(source, verified_by)
            found = find_survivors(
                evidence, pool, X, settings, n_jobs=self.n_jobs, verbose=self.verbose, **goal
            )
            self._coverage = oob_coverage(evidence, found.solution.weights, X)
        self._keep(found, settings)
        self._full, self._accepts = ensemble, accepts(ensemble)
        self.verified_by_ = verified_by
        return self

    def report(self, X: Any = None, y: Any = None, *, baseline: Any = None) -> CompressionReport:
        """Compare the full ensemble with its survivors on rows neither has seen.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features), optional
            Test rows. Without them the report tells what was chosen and what it is expected to
            cost, and nothing is checked.
        y : array-like of shape (rows,), optional
            Their targets.
        baseline : fitted ensemble or list of fitted models, optional
            The full ensemble, where this object no longer has it (pickles and copies leave it
            out).

        Returns
        -------
        CompressionReport
            ``print`` it, or take ``.to_markdown()``, ``.to_frame()``, ``.save("report.html")``.
        """
        check_is_fitted(self, "weights_")
        full = unfrozen(self._full if baseline is None else baseline)
        if full is None:
            raise ValueError(
                "the full ensemble is not kept in pickles and copies; pass it as baseline= to "
                "compare."
            )
        pool = read_ensemble(full)
        if len(pool.members) != len(self.weights_):
            raise ValueError(
                f"baseline has {len(pool.members)} members but {len(self.weights_)} were weighted; "
                "pass the ensemble that was compressed."
            )
        n = len(pool.members)
        own = np.full(n, 1.0 / n) if pool.own_weights is None else pool.own_weights
        before = WeightedVote(pool, own)
        told = Fitted(
            weights=self.weights_,
            selection=self.selection_,
            coverage=getattr(self, "_coverage", None),
            verified_by=self.verified_by_,
            params=self.get_params(deep=False),
        )
        rows = None if X is None else self._check_X(X)
        return compare(before, self._vote, rows, y, self._compiled, told)

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

    def _warn_unverified(self, source: str, verified_by: str | None) -> None:
        if self._is_frozen and source == "oob" and verified_by is None:
            warn_unverified()

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    def _settings(self, loss: Loss) -> Settings:
        return resolve_settings(
            lam=self.lam,
            loss=loss,
            solver=self.solver,
            floor=self.floor,
            prior_mass=self.prior_mass,
            preset=self.preset,
            refine=self.refine,
            calibration=calibration_for(self._task, self.calibration),
            local=self.local,
        )

    def _budget(self, settings: Settings) -> Budget:
        budget = Budget(self.max_estimators, self.max_nodes, self.max_bytes)
        if settings.lam is not None and budget.named():
            raise ValueError(
                f"{budget} sets the size and lam={settings.lam:g} the penalty; use one of the two "
                "(a budget goes with lam='auto' and no preset)."
            )
        return budget

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

    def _keep(self, found: Survivors, settings: Settings) -> None:
        self.solution_, self.selection_ = found.solution, found.selection
        self.path_ = None if found.selection is None else found.selection.table
        self.refinement_, self.calibration_ = found.refinement, found.calibrated
        self.calibrator_ = None if found.calibrated is None else found.calibrated.calibrator
        self.local_ = found.local
        gated = found.local.gate is not None and found.local.gate.has_temperature
        self.temperature_ = None if gated else getattr(self.calibrator_, "temperature", None)
        self.weights_ = np.asarray(self.solution_.weights)
        self.active_ = np.flatnonzero(self.weights_)
        self.n_active_ = len(self.active_)
        self.compression_ratio_ = 1.0 - self.n_active_ / len(self.weights_)
        self._copies: list[Any] | None = None
        how = (self.weights_[self.active_], settings.floor, self.calibrator_, found.local.gate)
        self._vote = WeightedVote(found.pool, *how)
        self._compiled = compile_members(found.pool, *how, self.active_)
        if found.pool.classes is not None:
            self.classes_ = found.pool.classes

    # -- prediction, tags, pickling ----------------------------------------------------------

    @property
    def estimators_(self) -> list[Any]:
        """The survivors as they vote: with refitted leaves they are copies."""
        if self._copies is None:
            self._copies = deployed_estimators(self._vote.pool)
        return self._copies

    def _check_X(self, X: Any) -> Any:
        """X as the survivors read it, under the checks scikit-learn's own ensembles make."""
        check_is_fitted(self, "weights_")
        check_readable(X, "X")
        kind = self._vote.pool.input_kind
        if kind == "as_given":
            validate_data(self, X, reset=False, skip_check_array=True)
            return X
        checks: dict[str, Any] = {"dtype": None, "accept_sparse": ["csr", "csc"]}
        checks["ensure_all_finite"] = False
        if kind != "array":
            finite = "allow-nan" if self._accepts.nan and not sp.issparse(X) else True
            checks = {"dtype": np.float32, "accept_sparse": "csr", "ensure_all_finite": finite}
        return validate_data(self, X, reset=False, **checks)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = getattr(self, "_accepts", None) or accepts(self._ensemble_to_fit())
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.nan
        return tags

    def __getstate__(self) -> Any:
        """A fitted object's pickle carries the survivors, not the ensemble they came from."""
        state = dict(super().__getstate__())
        if "weights_" in state:
            state["_full"] = state["_copies"] = None
            if self._is_frozen:
                state["estimator"] = FrozenEstimator(LeftOutOfPickle())
            elif self.estimator is not None:
                state["estimator"] = clone(self.estimator)  # the caller may have fitted theirs
        return state


@documented
class SparseBaggingClassifier(ClassifierMixin, _SparseBagging):  # type: ignore[misc]
    """A bagging classifier reduced to the few members that matter, weighted on the simplex.

    {shared}
    classes_ : ndarray of shape (C,)
        Class labels, in the order of ``predict_proba``.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> forest = RandomForestClassifier(50, random_state=0)
    >>> clf = SparseBaggingClassifier(forest, tolerance=0.05).fit(X, y)
    >>> clf.n_active_ < 50
    True
    """

    _task = "classification"

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities: the survivors' weighted vote.

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

    def predict(self, X: Any) -> np.ndarray:
        """Most probable class of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        proba = self.predict_proba(X)
        return np.asarray(np.take(self.classes_, np.argmax(proba, axis=1)))


@documented
class SparseBaggingRegressor(RegressorMixin, _SparseBagging):  # type: ignore[misc]
    """A bagging regressor reduced to the few members that matter, weighted on the simplex.

    {shared}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = RandomForestRegressor(50, random_state=0)
    >>> reg = SparseBaggingRegressor(forest, tolerance=0.05).fit(X, y)
    >>> reg.n_active_ < 50
    True
    """

    _task = "regression"

    def predict(self, X: Any) -> np.ndarray:
        """Weighted mean of the survivors' predictions.

        Parameters
        ----------
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        X = self._check_X(X)
        return self._compiled.predict(X, self.n_jobs)


def _routing_enabled() -> bool:
    return bool(get_config()["enable_metadata_routing"])


def _class_votes(settings: Settings, loss: Loss) -> bool | Literal["on_demand"]:
    """How every class's votes are needed: at each of a solver's steps, once or twice, or not."""
    if loss.channel == "every_class" and settings.lam is not None:
        return True
    return "on_demand" if settings.reads_every_class else False
