"""What a fitted estimator offers for production: compile, save, export."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sklearn.utils.validation import check_is_fitted

from sparsebag.deploy.artifact import save
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.verification import Verification, verify
from sparsebag.deploy.weighted_vote import WeightedVote
from sparsebag.sources.whole_file import write_whole

if TYPE_CHECKING:
    from sparsebag.deploy.export_onnx import OnnxExport
    from sparsebag.deploy.export_treelite import TreeliteExport


class Deployable:
    """Mixin of estimators whose ``fit`` leaves a compiled ensemble."""

    _compiled: CompiledEnsemble
    _vote: WeightedVote

    @property
    def nbytes_(self) -> int:
        """Bytes of the file that ``save`` writes."""
        return self.compile().file_bytes

    def compile(self) -> CompiledEnsemble:
        """The predictor itself, without scikit-learn's checks: for serving and for export.

        Returns
        -------
        CompiledEnsemble
            Its ``repr`` lists how members are evaluated.
        """
        check_is_fitted(self, "weights_")
        names = getattr(self, "feature_names_in_", None)
        if names is None:
            return self._compiled
        return replace(self._compiled, feature_names=tuple(map(str, names)))

    def save(self, path: Any, *, allow_pickle: bool = False) -> None:
        """Write the predictor to one ``.sbag`` file, which `sparsebag.load` reads.

        Parameters
        ----------
        path : path-like
        allow_pickle : bool
            Needed for members that are neither trees, linear models nor scikit-learn's networks:
            they can only be stored as pickles, which run code when they are loaded.
        """
        save(self.compile(), path, allow_pickle=allow_pickle)

    def verify(self, export: Any, X: Any, tolerance: float | None = None) -> Verification:
        """Compare an export with this model; raise if they differ.

        Parameters
        ----------
        export : OnnxExport, TreeliteExport, scikit-learn estimator or CompiledEnsemble
            What ``to_onnx``, ``to_treelite``, ``to_sklearn`` or `sparsebag.load` returned.
        X : array-like, sparse matrix or DataFrame of shape (rows, n_features)
        tolerance : float, optional
            Largest accepted difference.

        Returns
        -------
        Verification
            Largest difference, changed labels and near ties.
        """
        return verify(self, export, X, tolerance)

    def to_onnx(self, path: Any = None) -> OnnxExport:
        """An ONNX graph, verified against this model with ONNX Runtime.

        Parameters
        ----------
        path : path-like, optional
            Where to write it.

        Returns
        -------
        OnnxExport
            With ``graph``, ``save(path)``, ``predict(X)`` and ``verify(X)``.
        """
        from sparsebag.deploy.export_onnx import export_onnx

        export = export_onnx(self.compile())
        if path is not None:
            export.save(path)
        return export

    def predict_one(self, row: Any) -> Any:
        """The label of one row, or its number (regression).

        Parameters
        ----------
        row : array-like of shape (n_features,), dict or Series
            A dict or Series is read by names. A service calls ``compile().predict_one``.

        Returns
        -------
        label or float
        """
        return self.compile().predict_one(row)

    def to_treelite(self, path: Any = None) -> TreeliteExport:
        """A treelite model, verified against this model with treelite's reference engine.

        Parameters
        ----------
        path : path-like, optional
            Where to write it, as treelite's own ``serialize`` does.

        Returns
        -------
        TreeliteExport
            With ``trees`` (the ``treelite.Model``), ``predict(X)`` and ``verify(X)``.
        """
        from sparsebag.deploy.export_treelite import export_treelite

        export = export_treelite(self.compile())
        if path is not None:
            write_whole(path, bytes(export.trees.serialize_bytes()))
        return export

    def to_sklearn(self) -> Any:
        """An ordinary scikit-learn ensemble that predicts the same, verified.

        ``small.verify(exported, X)`` compares it with this model on rows of yours.

        Returns
        -------
        RandomForestClassifier, RandomForestRegressor, VotingClassifier or VotingRegressor
            With a temperature, or if refitted leaves may be negative, a
            ``StackingClassifier`` of it: ``estimators_[0]`` is the forest.
        """
        from sparsebag.deploy.export_sklearn import export_sklearn

        return export_sklearn(self.compile())
