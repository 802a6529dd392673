"""Whole models around a compressed ensemble: saved by skops, exported to ONNX and scikit-learn."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import make_pipeline

from sparsebag.deploy.artifact import ArtifactError, dumps, loads
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.deployable import Deployable
from sparsebag.deploy.export_onnx import IR_VERSION, OPSET, OnnxExport, export_onnx
from sparsebag.deploy.export_sklearn import export_sklearn
from sparsebag.deploy.verification import NotExportable, verify
from sparsebag.evidence.readers import optional_import
from sparsebag.evidence.wrappers import closed, innermost, rewrapped
from sparsebag.sources.whole_file import read_whole, write_whole


class _Deployed(BaseEstimator):  # type: ignore[misc]
    """A compiled ensemble as the last step of a model that was read from a file."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def fit(self, X: Any, y: Any) -> Any:
        """Refuse: the ensemble that was compressed is not in the file."""
        raise TypeError("a model loaded from a file cannot be refitted.")

    def predict(self, X: Any) -> np.ndarray:
        """As the compiled ensemble predicts."""
        return np.asarray(self.model.predict(X))

    def __sklearn_is_fitted__(self) -> bool:
        return True


class DeployedClassifier(ClassifierMixin, _Deployed):  # type: ignore[misc]
    """A classifier read from a file."""

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities."""
        return np.asarray(self.model.predict_proba(X))

    @property
    def classes_(self) -> Any:
        """Labels, in the order of ``predict_proba``."""
        return getattr(self.model, "classes", None)


class DeployedRegressor(RegressorMixin, _Deployed):  # type: ignore[misc]
    """A regressor read from a file."""


TRUSTED = [
    *("builtins.object", "numpy.dtype", "numpy.number"),
    *(f"{__name__}.Deployed{kind}" for kind in ("Classifier", "Regressor")),
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.feature_selection._mutual_info.mutual_info_classif",
    *map("sklearn.feature_selection._univariate_selection.{}".format, ("chi2", "f_classif")),
    "sklearn.feature_selection._univariate_selection.f_regression",
]
"""Types in a file beside those that skops knows to be harmless."""


def compiled_in(model: Any) -> CompiledEnsemble:
    """The predictor of a compressed ensemble, read from a file or not; else one sentence.

    Parameters
    ----------
    model : object

    Returns
    -------
    CompiledEnsemble
    """
    found = model.model if isinstance(model, _Deployed) else model
    found = found.compile() if isinstance(found, Deployable) else found
    if isinstance(found, CompiledEnsemble):
        return found
    name = type(model).__name__
    raise TypeError(f"this {name} is not compressed; pass what sparsebag.compress returned.")


def save_wrapped(model: Any, path: Any, *, allow_pickle: bool = False) -> None:
    """Write a model around compressed ensembles: a skops file, with theirs inside.

    Parameters
    ----------
    model : Pipeline or other wrapper
        Of searches, their best estimators.
    path : path-like
    allow_pickle : bool
        As of `sparsebag.save`.
    """
    skops_io = optional_import("skops.io", "cli", "saving a Pipeline")
    compiled: list[CompiledEnsemble] = []

    def numbered(part: Any, around: Any) -> Any:
        compiled.append(compiled_in(part.model))
        kind = DeployedRegressor if compiled[-1].classes is None else DeployedClassifier
        return kind(len(compiled) - 1)

    def best(outer: Any, made: list[Any]) -> Any:
        return made[0] if isinstance(outer, BaseSearchCV) else closed(outer, made)

    whole, file = rewrapped(model, numbered, close=best), io.BytesIO()
    try:
        skops_io.dump(whole, file, compression=zipfile.ZIP_DEFLATED)
        content = file.getvalue()
        skops_io.loads(content, trusted=skops_io.get_untrusted_types(data=content))
    except Exception as error:  # a lambda, a lock, an open file
        raise ArtifactError(
            f"skops cannot save this {type(model).__name__} ({_told(error)}); move your own "
            f"functions into a module."
        ) from None
    with zipfile.ZipFile(file, "a") as members:
        for i, ensemble in enumerate(compiled):
            members.writestr(f"{i}.sbag", dumps(ensemble, allow_pickle=allow_pickle))
    write_whole(path, file.getvalue())


def load_wrapped(path: Any, *, allow_pickle: bool = False, trusted: Sequence[str] = ()) -> Any:
    """Read what `save_wrapped` wrote.

    Parameters
    ----------
    path : path-like
    allow_pickle : bool
    trusted : sequence of str
        Types to trust in addition to those that skops trusts.

    Returns
    -------
    Same kind as was saved
    """
    skops_io = optional_import("skops.io", "cli", "loading a Pipeline")
    content = bytes(read_whole(path, n_first=2, check=lambda first, n_bytes: None))
    try:
        unknown = set(skops_io.get_untrusted_types(data=content)) - {*TRUSTED, *trusted}
        if unknown:
            raise ArtifactError(
                f"'{path}' holds types that skops does not trust; if you made the "
                f"file yourself, pass trusted={sorted(unknown)}."
            )
        model = skops_io.loads(content, trusted=[*TRUSTED, *trusted])
        with zipfile.ZipFile(io.BytesIO(content)) as members:
            return rewrapped(
                model,
                lambda part, around: type(part.model)(
                    loads(members.read(f"{part.model.model}.sbag"), allow_pickle=allow_pickle)
                ),
            )
    except ArtifactError:
        raise
    except Exception as error:  # a damaged file raises anything
        raise ArtifactError(f"'{path}' is not a valid model file ({error}).") from None


def to_sklearn(model: Any) -> Any:
    """The model with ordinary scikit-learn ensembles in place of compressed ones.

    Parameters
    ----------
    model : what `sparsebag.compress` returned

    Returns
    -------
    Same kind as ``model``

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_diabetes(return_X_y=True)
    >>> pipe = make_pipeline(StandardScaler(), RandomForestRegressor(20, random_state=0)).fit(X, y)
    >>> type(sb.to_sklearn(sb.compress(pipe, X, y))[-1]).__name__
    'RandomForestRegressor'
    """
    return rewrapped(model, lambda part, around: export_sklearn(compiled_in(part.model)))


class PipelineOnnx(OnnxExport):
    """An ONNX graph of a whole pipeline: one input a column of a table, or ``X``."""

    # In single precision a value at a split may fall on its other side.
    tolerance: ClassVar[float] = 1e-3
    rows_excused: ClassVar[float] = 0.02
    advice: ClassVar[str] = (
        ". ONNX computes the preprocessing in single precision; run it in Python and export the "
        "ensemble alone, as by small[-1].to_onnx(path)"
    )

    def predict(self, X: Any) -> np.ndarray:
        """Probabilities, or numbers (regression), by ONNX Runtime."""
        is_vote, feed = self.model.classes is not None, {}
        for each in self.session.get_inputs():
            column = np.asarray(X[each.name] if each.name in getattr(X, "columns", ()) else X)
            is_text = each.type == "tensor(string)"
            column = column.astype(str).astype(object) if is_text else column.astype(np.float32)
            feed[each.name] = column.reshape(-1, 1) if column.ndim == 1 else column
        (out,) = self.session.run(["probabilities" if is_vote else "prediction"], feed)
        return np.asarray(out)


def to_onnx(model: Any, X: Any = None, path: Any = None) -> Any:
    """An ONNX graph of the whole model, verified with ONNX Runtime.

    Parameters
    ----------
    model : what `sparsebag.compress` returned
        An ensemble, or a Pipeline whose other steps skl2onnx can convert.
    X : array-like or DataFrame, optional
        A few rows as the Pipeline takes them: their types become the graph's inputs, and the
        graph must predict them as the model does, as `sparsebag.verify` judges.
    path : path-like, optional
        Where to write it.

    Returns
    -------
    OnnxExport or PipelineOnnx
        With ``graph`` and ``predict(X)``.

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> small = sb.compress(RandomForestRegressor(20, random_state=0).fit(X, y), X, y)
    >>> bool(np.allclose(sb.to_onnx(small).predict(X), small.predict(X)))
    True
    """
    parts = innermost(model)
    heads = [layer for axis, layer in parts[0][1].layers if axis == "X"]
    if len(parts) > 1 or len(heads) < len(parts[0][1].layers):
        what = "transformed targets" if len(parts) == 1 else "several ensembles in one model"
        raise NotExportable(
            f"{what} have no ONNX form; export the parts of this {type(model).__name__} that "
            "sparsebag.compress made, one by one."
        )
    ensemble = export_onnx(compiled_in(parts[0][0].model))
    export = ensemble
    if isinstance(X, (str, Path)):  # an ensemble needs no rows: to_onnx(model, path)
        X, path = None, X
    if heads:
        if X is None:
            raise ValueError("exporting a Pipeline needs a few rows: to_onnx(model, X, path).")
        skl2onnx = optional_import("skl2onnx", "onnx", "exporting a Pipeline to ONNX")
        opsets = {"": OPSET, "ai.onnx.ml": 3}
        try:
            rows = _as_single(X[:1])
            head = skl2onnx.to_onnx(make_pipeline(*heads), rows, target_opset=opsets)
            _name_inputs(head.graph, getattr(rows, "columns", ()))
            export = PipelineOnnx(_merged(head, ensemble), ensemble.model)
            export.predict(X[:1])
        except Exception as error:  # an operator that one of them lacks, a locale, anything
            raise NotExportable(
                f"the preprocessing steps have no ONNX form: {_told(error)}. Export the ensemble "
                "alone, as by small[-1].to_onnx(path)."
            ) from None
        verify(model, export, X)
    if path is not None:
        write_whole(path, export.graph.SerializeToString())
    return export


def _told(error: Exception) -> str:
    """The first sentence of a library's message, without its stop."""
    return " ".join(str(error).split()).partition(". ")[0].rstrip(".")


def _name_inputs(graph: Any, columns: Any) -> None:
    """Give inputs the names of a table's columns, of which skl2onnx keeps letters and digits."""
    names = dict(zip([each.name for each in graph.input], columns, strict=False))
    for each in graph.input:
        each.name = names.get(each.name, each.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def _merged(head: Any, ensemble: OnnxExport) -> Any:
    """The graph of a head that skl2onnx made, before that of an ensemble."""
    from onnx import compose, helper

    first = compose.add_prefix(head, "head_", rename_inputs=False)
    kind = ensemble.graph.graph.input[0].type.tensor_type.elem_type
    last = first.graph.output[0].name
    first.graph.node.append(helper.make_node("Cast", [last], ["head_numbers"], to=kind))
    del first.graph.output[:]
    shape = [None, ensemble.graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value]
    first.graph.output.append(helper.make_tensor_value_info("head_numbers", kind, shape))
    every = [*first.opset_import, *ensemble.graph.opset_import]  # ours win
    versions = {opset.domain: opset.version for opset in every}
    del first.opset_import[:]
    first.opset_import.extend(helper.make_opsetid(*pair) for pair in versions.items())
    first.ir_version = IR_VERSION
    return compose.merge_models(first, ensemble.graph, [("head_numbers", "X")])


def _as_single(X: Any) -> Any:
    """Rows with numbers in single precision, for which ONNX Runtime has all operators."""
    X = X.to_pandas() if hasattr(X, "to_pandas") else X
    if all(isinstance(name, str) for name in getattr(X, "columns", [0])):
        numbers = X.select_dtypes(["number", "bool"])
        texts = X.columns.difference(numbers.columns)
        return X.astype({**dict.fromkeys(numbers, np.float32), **dict.fromkeys(texts, object)})
    X = np.asarray(X)
    X = X.reshape(-1, 1) if X.ndim == 1 else X
    return X.astype(np.float32) if X.dtype.kind in "fiub" else X.astype(object)
