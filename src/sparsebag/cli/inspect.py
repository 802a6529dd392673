"""What is done with a ``.sbag`` file: ``sparsebag inspect``, ``export`` and ``bench``."""

from __future__ import annotations

import io
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from typer import Option

from sparsebag.cli import models, tables
from sparsebag.cli.command import Data, Model, Screen, TrustPickle
from sparsebag.deploy.artifact import VERSION
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees
from sparsebag.judge.selection import in_bytes
from sparsebag.sources.whole_file import write_whole

SECONDS_EACH = 1.0
"""Time spent on each figure; the best call counts, because load only ever adds."""
TEXT_AS_CODES = (
    "Columns of text must be passed as numbers: the position of each text in the lists that "
    "`sparsebag inspect {model} --json` shows under categories, and NaN for any other."
)


SUFFIXES = {"onnx": ".onnx", "treelite": ".treelite", "sklearn": ".skops"}
OUTPUT = (
    "Default: MODEL with the suffix .onnx, .treelite or .skops (.joblib for sklearn writes a "
    "pickle)."
)


def inspect(model: Model, screen: Screen, trust_pickle: TrustPickle = False) -> None:
    """Show what a compressed model holds; the file's checksum is verified on the way.

    Example: sparsebag inspect small.sbag
    """
    facts = _facts(models.read_compiled(model, trust_pickle=trust_pickle))
    facts["file_bytes"] = model.stat().st_size
    lines = [
        f"{name.removesuffix('_bytes').replace('_', ' '):<22}"
        f"{in_bytes(value) if name.endswith('_bytes') else _in_words(value)}"
        for name, value in facts.items()
        if value is not None
    ]
    facts |= {"file": str(model), "format_version": VERSION}
    screen.result(facts, "\n".join([f"{model} (checksum ok, format {VERSION})", *lines]))


def _facts(compiled: CompiledEnsemble) -> dict[str, Any]:
    classes, calibrator, gate = compiled.classes, compiled.calibrator, compiled.gate
    if calibrator is not None:
        numbers = {name: np.squeeze(value).tolist() for name, value in calibrator.params.items()}
    return {
        "task": "regression" if classes is None else "classification",
        "classes": None if classes is None else classes.tolist(),
        "members": len(compiled.paths),
        "models_evaluated": compiled.n_models,
        "paths": {path: compiled.paths.count(path) for path in dict.fromkeys(compiled.paths)},
        "inner_nodes": sum(len(g.threshold) for g in compiled.groups if isinstance(g, FlatTrees)),
        "memory_bytes": compiled.nbytes,
        "columns": compiled.n_features,
        "column_names": compiled.feature_names,
        "categories": compiled.categories,
        "takes_missing_values": compiled.allow_nan,
        "floor": compiled.floor,
        "calibrator": None if calibrator is None else {"kind": calibrator.kind, **numbers},
        "gate": None if gate is None else str(gate).removeprefix("gate "),
    }


def _in_words(value: Any) -> str:
    """A fact for people: of many things the first, of lists within lists their length."""
    if isinstance(value, dict):
        told = {
            name: f"({len(v)})" if isinstance(v, (list, tuple)) else _in_words(v)
            for name, v in value.items()
        }
        return ", ".join(f"{name} {words}" for name, words in told.items())
    if isinstance(value, (list, tuple)):
        return f"{len(value)}: {tables.shown(value)}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def export(
    model: Model,
    to: Annotated[Literal["onnx", "treelite", "sklearn"], Option(help="Format to write.")],
    screen: Screen,
    output: Annotated[Path | None, Option("--output", "-o", help=OUTPUT)] = None,
    trust_pickle: TrustPickle = False,
) -> None:
    """Write a compressed model for ONNX Runtime, treelite or scikit-learn.

    Each export is compared with the model before it is written, on rows at the model's own
    thresholds.

    Example: sparsebag export small.sbag --to onnx
    """
    path = output or model.with_suffix(SUFFIXES[to])
    models.check_can_be_written(path, unlike=(model,))
    compiled = models.read_compiled(model, trust_pickle=trust_pickle)
    content, note = _exported(compiled, to, as_skops=path.suffix.lower() == ".skops")
    if compiled.categories:
        note = f"{note} {TEXT_AS_CODES.format(model=model)}".strip()
    write_whole(path, content)
    facts = {"output": str(path), "bytes": len(content), "to": to, "note": note}
    written = f"Written to {path} ({in_bytes(len(content))}), verified against {model}."
    screen.result(facts, f"{written}\n{note}".strip())


def _exported(compiled: CompiledEnsemble, to: str, *, as_skops: bool) -> tuple[bytes, str]:
    """The content of the file, and what to say about it."""
    if to == "onnx":
        from sparsebag.deploy.export_onnx import export_onnx

        return bytes(export_onnx(compiled).graph.SerializeToString()), ""
    if to == "treelite":
        from sparsebag.deploy.export_treelite import export_treelite

        exported = export_treelite(compiled)
        return bytes(exported.trees.serialize_bytes()), exported.note or ""
    from sparsebag.deploy.export_sklearn import export_sklearn

    ensemble, file = export_sklearn(compiled), io.BytesIO()
    if as_skops:
        import skops.io

        skops.io.dump(ensemble, file, compression=zipfile.ZIP_DEFLATED)  # a twentieth of stored
        return file.getvalue(), ""
    import joblib

    joblib.dump(ensemble, file)
    return file.getvalue(), "A pickle: only load it where you trust the file."


def bench(
    model: Model,
    data: Data,
    written: tables.Written,
    screen: Screen,
    against: Annotated[
        Path | None, Option(help="The original ensemble, timed beside it: skops, or a pickle.")
    ] = None,
    trust_pickle: TrustPickle = False,
) -> None:
    """Time a model on your rows: one row, and a thousand, one thread.

    Example: sparsebag bench small.sbag data.csv --against forest.skops
    """
    compiled = models.read_compiled(model, trust_pickle=trust_pickle)
    X = tables.Table(data, written).read()
    names = tables.columns_of(data, X.columns, compiled.feature_names, compiled.n_features)
    X = tables.as_numbers(data, X[names], compiled.categories)
    X = X.iloc[np.resize(np.arange(len(X)), 1000)].reset_index(drop=True)
    batch = X.to_numpy(dtype=np.float32)
    regression = compiled.classes is None
    one = compiled.predict_one if regression else compiled.predict_proba_one
    many = compiled.predict if regression else compiled.predict_proba
    calls: dict[Path, tuple[Callable[[], Any], Callable[[], Any]]]
    calls = {model: (lambda: one(batch[0]), lambda: many(batch))}
    if against is not None:
        ensemble = models.read_ensemble_file(against, trust_pickle=trust_pickle)
        ensemble = ensemble.set_params(n_jobs=1) if hasattr(ensemble, "n_jobs") else ensemble
        its_rows: Any = X if hasattr(ensemble, "feature_names_in_") else batch
        call = ensemble.predict if regression else ensemble.predict_proba
        calls[against] = (lambda: call(its_rows[:1]), lambda: call(its_rows))
    found = {}
    for path, (of_one, of_many) in calls.items():
        screen.step(f"timing {path}")
        found[path.name] = {"one_row_us": 1e6 * _best(of_one), "batch_ms": 1e3 * _best(of_many)}
    width = max(map(len, found))
    lines = [f"{'':<{width}}  {'one row':>12}  {'1000 rows':>12}"]
    lines += [
        f"{name:<{width}}  {took['one_row_us']:>9,.1f} µs  {took['batch_ms']:>9,.2f} ms"
        for name, took in found.items()
    ]
    screen.result(found, "\n".join(lines))


def _best(call: Callable[[], Any]) -> float:
    call()
    best, end = float("inf"), time.perf_counter() + SECONDS_EACH
    while time.perf_counter() < end:
        clock, processor = time.perf_counter(), time.process_time()
        call()
        best = min(best, time.perf_counter() - clock, time.process_time() - processor)
    return best
