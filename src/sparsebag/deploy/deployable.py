"""What a fitted estimator offers for production: compile, save, export."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted

from sparsebag.deploy.artifact import save
from sparsebag.deploy.compiled import CompiledEnsemble


class Deployable:
    """Mixin of estimators whose ``fit`` leaves a compiled ensemble."""

    _compiled: CompiledEnsemble

    def compile(self) -> CompiledEnsemble:
        """The predictor itself, without scikit-learn's checks: for serving and for export.

        Returns
        -------
        CompiledEnsemble
            Its ``repr`` says which path each member took.
        """
        check_is_fitted(self, "weights_")
        return self._compiled

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
