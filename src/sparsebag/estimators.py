"""The pipeline as scikit-learn estimators: `SparseBaggingClassifier`, `SparseBaggingRegressor`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
)
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, has_fit_parameter, validate_data

from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.evidence.collect import collect_evidence
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.members import MemberPool
from sparsebag.objective.losses import Loss, resolve_loss
from sparsebag.report.compression_report import CompressionReport, compare
from sparsebag.settings import DEFAULT_LAM, Settings, resolve_settings
from sparsebag.solvers.base import Solver
from sparsebag.weighting import solve_weights

_PARAMETERS = """
    Parameters
    ----------
    estimator : ensemble, optional
        The bagging ensemble. Unfitted: it is cloned and fitted on the rows given to ``fit``.
        Fitted and wrapped in ``sklearn.frozen.FrozenEstimator``: used as it is, and the rows
        given to ``fit`` must be its training rows, in order (or, with ``evidence="holdout"``,
        rows it has never seen). Default: a random forest of 100 trees.
    lam : float, default 0.05
        Strength λ of the concave penalty ``-λ‖w‖²``.
    loss : {loss_names} or Loss, default "auto"
        What the out-of-bag vote is judged by; "auto" is {loss_default}.
    solver : {{"auto", "slsqp", "active_set", "projected_gradient"}} or Solver, default "auto"
        "auto" follows `sparsebag.select_solver`.
    floor : float or "auto", default "auto"
        ε: each vote is mixed with the uniform class distribution, ``(1-ε)P + ε/C``, in fitting
        and in prediction. "auto" is 0.001 (paper: 0). Ignored in regression.
    prior_mass : float or "auto", default "auto"
        τ: weight of the uniform ensemble's out-of-bag vote in each row while fitting; keeps
        rows defined that no survivor has out of bag. "auto" is 0.02 (paper: 0).
    preset : {{None, "paper"}}, default None
        "paper" resolves every "auto" as the paper has it: SLSQP, no floor, no prior mass,
        weights up to 1e-5 dropped.
    evidence : {{"oob", "holdout"}}, default "oob"
        Which of the rows given to ``fit`` judge a member: those out of its bag, or all of them.
    n_jobs : int, optional
        Threads over members, in fitting and prediction. Results do not depend on it.
    random_state : int, RandomState or None
        Passed to the ensemble that ``fit`` clones. The weights themselves involve no chance.
    verbose : int, default 0
        Progress on standard error.

    Attributes
    ----------
    weights_ : ndarray of shape (N,)
        On the simplex, with exact zeros.
    active_ : ndarray
        Indices of the survivors.
    n_active_ : int
        How many they are.
    compression_ratio_ : float
        Share of members dropped.
    estimators_ : list
        The survivors.
    solution_ : Solution
        Objective, stationarity gap, status, trace.
    n_features_in_ : int
        Number of columns seen in ``fit``.
    feature_names_in_ : ndarray
        Their names, where X had string names.
"""


def _documented(cls: Any) -> Any:
    """Put the shared parameter list into a class docstring, once for both estimators."""
    head, example = cls.__doc__.split("{parameters}")
    parameters = _PARAMETERS.format(
        loss_names=cls._loss_names, loss_default=cls._loss_default
    ).strip()
    cls.__doc__ = head + parameters + "\n" + example
    return cls


class _SparseBagging(MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """What both estimators share; `fit` reads as the data flows."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        lam: float = DEFAULT_LAM,
        loss: str | Loss = "auto",
        solver: str | Solver = "auto",
        floor: float | str = "auto",
        prior_mass: float | str = "auto",
        preset: str | None = None,
        evidence: str = "oob",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.lam = lam
        self.loss = loss
        self.solver = solver
        self.floor = floor
        self.prior_mass = prior_mass
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
            Row weights: for the ensemble, if it is fitted here, and for the weights.
        **fit_params : dict
            Routed to the ensemble's ``fit`` (needs scikit-learn's metadata routing).

        Returns
        -------
        self
        """
        settings = self._settings()
        if y is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: members are judged by it."
            )
        validate_data(self, X, skip_check_array=True)
        if self._task == "classification":
            check_classification_targets(y)
        ensemble = self._fitted_ensemble(X, y, sample_weight, fit_params)
        pool = self._read(ensemble)
        loss = resolve_loss(settings.loss, pool.task)
        evidence = collect_evidence(
            pool,
            X,
            y,
            source="holdout" if self.evidence == "holdout" else "oob",
            sample_weight=sample_weight,
            class_votes=loss.channel == "every_class",
            dtype=settings.evidence_dtype,
            n_jobs=self.n_jobs,
            verify=self._is_frozen,
            verbose=self.verbose,
        )
        self.solution_ = solve_weights(evidence, settings, verbose=self.verbose)
        self._keep_survivors(pool, settings)
        self._ensemble = ensemble
        return self

    def report(self, X: Any, y: Any, *, baseline: Any = None) -> CompressionReport:
        """Compare the full ensemble with its survivors on rows neither has seen.

        Parameters
        ----------
        X, y : array-like
            Test rows.
        baseline : fitted ensemble, optional
            The full ensemble, where this object no longer has it (pickles leave it out).

        Returns
        -------
        CompressionReport
            ``str()`` it, or take ``.to_markdown()``, ``.to_frame()``, ``.save(path)``.
        """
        check_is_fitted(self, "weights_")
        full = self._ensemble if baseline is None else baseline
        if full is None:
            raise ValueError(
                "the full ensemble is not kept in pickles; pass it as baseline= to compare."
            )
        pool = read_ensemble(full)
        uniform = WeightedVote(pool, np.full(len(pool.members), 1.0 / len(pool.members)))
        return compare(uniform, self._vote, X, y)

    def get_metadata_routing(self) -> MetadataRouter:
        """Route ``sample_weight`` and friends to the ensemble's ``fit`` (see scikit-learn).

        Returns
        -------
        MetadataRouter
        """
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(
                estimator=self._ensemble_to_fit(),
                method_mapping=MethodMapping().add(caller="fit", callee="fit"),
            )
        )

    # -- steps of fit ------------------------------------------------------------------------

    _task: str
    _ensemble: Any

    def _default_ensemble(self) -> Any:
        raise NotImplementedError  # both estimators define it

    @property
    def _is_frozen(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator)

    def _settings(self) -> Settings:
        if self.evidence not in ("oob", "holdout"):
            raise ValueError(f"evidence={self.evidence!r} is not known; use 'oob' or 'holdout'.")
        return resolve_settings(
            lam=self.lam,
            loss=self.loss,
            solver=self.solver,
            floor=self.floor,
            prior_mass=self.prior_mass,
            preset=self.preset,
        )

    def _ensemble_to_fit(self) -> Any:
        return self._default_ensemble() if self.estimator is None else self.estimator

    def _fitted_ensemble(self, X: Any, y: Any, sample_weight: Any, fit_params: Any) -> Any:
        if self._is_frozen:
            return self.estimator.estimator
        if self.evidence == "holdout":
            raise ValueError(
                "evidence='holdout' needs a fitted ensemble, because the rows given to fit are "
                "those it has not seen; wrap it in sklearn.frozen.FrozenEstimator or use "
                "sparsebag.compress."
            )
        ensemble = clone(self._ensemble_to_fit())
        if not hasattr(ensemble, "fit"):
            raise TypeError(
                f"estimator must be a bagging ensemble, not a {type(ensemble).__name__}; wrap a "
                "fitted one in sklearn.frozen.FrozenEstimator or use sparsebag.compress."
            )
        if self.random_state is not None and "random_state" in ensemble.get_params(deep=False):
            ensemble.set_params(random_state=self.random_state)
        if sample_weight is not None and not has_fit_parameter(ensemble, "sample_weight"):
            raise ValueError(f"{type(ensemble).__name__}.fit does not take sample_weight.")
        if sample_weight is not None:
            fit_params = {**fit_params, "sample_weight": sample_weight}
        if fit_params:
            fit_params = process_routing(self, "fit", **fit_params).estimator.fit
            if sample_weight is not None and "sample_weight" not in fit_params:
                fit_params = {**fit_params, "sample_weight": sample_weight}
        return ensemble.fit(X, y, **fit_params)

    def _read(self, ensemble: Any) -> MemberPool:
        if isinstance(ensemble, _LeftOut):
            raise NotFittedError(
                "the full ensemble was left out of this pickle, so it cannot be compressed "
                "again; compress the original."
            )
        pool = read_ensemble(ensemble)
        if pool.task != self._task:
            raise ValueError(
                f"{type(self).__name__} is for {self._task}, but the ensemble does {pool.task}."
            )
        return pool

    def _keep_survivors(self, pool: MemberPool, settings: Settings) -> None:
        self.weights_ = np.asarray(self.solution_.weights)
        self.active_ = np.flatnonzero(self.weights_)
        self.n_active_ = len(self.active_)
        self.compression_ratio_ = 1.0 - self.n_active_ / len(self.weights_)
        survivors = pool.keep(self.active_)
        self.estimators_ = [member.estimator for member in survivors.members]
        self._vote = WeightedVote(survivors, self.weights_[self.active_], settings.floor)
        if pool.classes is not None:
            self.classes_ = pool.classes

    def _check_X(self, X: Any) -> Any:
        check_is_fitted(self, "weights_")
        if self._vote.pool.input_kind == "tree":
            return validate_data(
                self,
                X,
                reset=False,
                dtype=np.float32,
                accept_sparse="csr",
                ensure_all_finite="allow-nan",
            )
        if self._vote.pool.input_kind == "array":
            return validate_data(
                self,
                X,
                reset=False,
                dtype=None,
                accept_sparse=["csr", "csc"],
                ensure_all_finite=False,
            )
        validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._ensemble_to_fit()).input_tags
        tags.input_tags.sparse = inner.sparse
        tags.input_tags.allow_nan = inner.allow_nan
        return tags

    def __getstate__(self) -> Any:
        """A fitted object's pickle carries the survivors, not the ensemble they came from."""
        state = dict(super().__getstate__())
        if "weights_" in state:
            state["_ensemble"] = None
            if isinstance(self.estimator, FrozenEstimator):
                state["estimator"] = FrozenEstimator(_LeftOut())
        return state


class _LeftOut:
    """Stands for the full ensemble in a pickle of its compressed version."""

    def __repr__(self) -> str:
        return "the full ensemble, left out of the pickle"


@_documented
class SparseBaggingClassifier(ClassifierMixin, _SparseBagging):  # type: ignore[misc]
    """A bagging classifier reduced to the few members that matter, weighted on the simplex.

    {parameters}
    classes_ : ndarray of shape (C,)
        Class labels, in the order of ``predict_proba``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = SparseBaggingClassifier(RandomForestClassifier(50, random_state=0)).fit(X, y)
    >>> clf.n_active_ < 50
    True
    """

    _task = "classification"
    _loss_names = '{"auto", "log_loss", "brier"}'
    _loss_default = "log-loss"

    def _default_ensemble(self) -> Any:
        return RandomForestClassifier()

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities: the survivors' weighted vote.

        Parameters
        ----------
        X : array-like of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows, C)
        """
        return self._vote.predict_proba(self._check_X(X), self.n_jobs)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Logarithm of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (rows, n_features)

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
        X : array-like of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        proba = self.predict_proba(X)
        labels: np.ndarray = np.asarray(self.classes_)[np.argmax(proba, axis=1)]
        return labels


@_documented
class SparseBaggingRegressor(RegressorMixin, _SparseBagging):  # type: ignore[misc]
    """A bagging regressor reduced to the few members that matter, weighted on the simplex.

    {parameters}

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> reg = SparseBaggingRegressor(RandomForestRegressor(50, random_state=0)).fit(X, y)
    >>> reg.n_active_ < 50
    True
    """

    _task = "regression"
    _loss_names = '{"auto", "squared_error"}'
    _loss_default = "squared error"

    def _default_ensemble(self) -> Any:
        return RandomForestRegressor()

    def predict(self, X: Any) -> np.ndarray:
        """Weighted mean of the survivors' predictions.

        Parameters
        ----------
        X : array-like of shape (rows, n_features)

        Returns
        -------
        ndarray of shape (rows,)
        """
        return self._vote.predict(self._check_X(X), self.n_jobs)
