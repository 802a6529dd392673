"""What is done with a ``.sbag`` file: ``sparsebag inspect``, ``export`` and ``bench``."""

from __future__ import annotations

import io
import textwrap
import timeit
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from typer import Option

from sparsebag.cli import models, tables
from sparsebag.cli.command import CommandError, Data, Model, Screen, Trust
from sparsebag.deploy.artifact import VERSION
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees
from sparsebag.judge.selection import in_bytes
from sparsebag.sources.whole_file import write_whole

SAMPLES = 5
"""Of a fifth of a second, for each figure."""
TEXT_AS_CODES = (
    "Pass text columns as numbers: the position of each text in the lists under categories in "
    "`sparsebag inspect {model} --json`, and NaN for any other text."
)

SUFFIXES = {"onnx": ".onnx", "treelite": ".treelite", "sklearn": ".skops"}
PICKLES = (".joblib", ".pkl")
OUTPUT = "Default: MODEL with .onnx, .treelite or .skops (.joblib for sklearn writes a pickle)."


def inspect(model: Model, screen: Screen, trust: Trust) -> None:
    """Show what a compressed model holds, and verify the file's checksum.

    Example: sparsebag inspect small.sbag
    """
    from sparsebag.deploy.wrapped import compiled_in
    from sparsebag.evidence.wrappers import innermost

    whole = models.read_model(model, trust)
    parts = [_facts(compiled_in(part.model)) for part, _ in innermost(whole)]
    facts = parts[0] | {"file_bytes": model.stat().st_size}
    if not isinstance(whole, CompiledEnsemble):
        facts["around"] = f"{type(whole).__name__} (ensemble 1 of {len(parts)})"
    lines = [f"{model} (checksum ok, format {VERSION})"]
    for name, value in facts.items():
        told = in_bytes(value) if name.endswith("_bytes") else _in_words(value)
        line = f"{name.removesuffix('_bytes').replace('_', ' '):<22}{told}"
        wrapped = textwrap.fill(line, 80, subsequent_indent=" " * 22)
        lines += [wrapped] * (value is not None)
    facts |= {"file": str(model), "format_version": VERSION}
    screen.result(facts, "\n".join(lines))


def _facts(compiled: CompiledEnsemble) -> dict[str, Any]:
    classes, calibrator, gate = compiled.classes, compiled.calibrator, compiled.gate
    trees = [group for group in compiled.groups if isinstance(group, FlatTrees)]
    numbers = {} if calibrator is None else calibrator.params
    return {
        "task": "regression" if classes is None else "classification",
        "classes": None if classes is None else classes.tolist(),
        "members": {path: compiled.paths.count(path) for path in dict.fromkeys(compiled.paths)},
        "nodes": sum(2 * len(group.threshold) + group.n_members for group in trees),
        "memory_bytes": compiled.nbytes,
        "columns": compiled.n_features,
        "column_names": compiled.feature_names,
        "categories": compiled.categories,
        "takes_missing_values": compiled.allow_nan,
        "floor": compiled.floor,
        "calibrator": {name: np.squeeze(value).tolist() for name, value in numbers.items()} or None,
        "gate": None if gate is None else str(gate).removeprefix("gate "),
    }


def _in_words(value: Any) -> str:
    """A fact for people: of many things the first."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(inner)}" for name, inner in value.items())
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
    trust: Trust,
    output: Annotated[Path | None, Option("--output", "-o", help=OUTPUT)] = None,
) -> None:
    """Write a compressed model for ONNX Runtime, treelite or scikit-learn.

    Each export is verified against the model before it is written.

    Example: sparsebag export small.sbag --to onnx
    """
    path = output or model.with_suffix(SUFFIXES[to])
    if output is None and path.exists():  # perhaps the original ensemble
        raise CommandError(f"'{path}' exists; name a file with -o.")
    suffixes = (SUFFIXES[to], *(PICKLES if to == "sklearn" else ()), "")
    models.check_can_be_written(path, unlike=(model,), suffixes=suffixes)
    compiled = models.read_model(model, trust)
    if not isinstance(compiled, CompiledEnsemble):
        calls = "sparsebag.to_onnx(model, X, path) and sparsebag.to_sklearn(model) export it"
        raise CommandError(f"'{model}' holds a {type(compiled).__name__}; in Python {calls}.")
    content, note = _exported(compiled, to, path)
    if compiled.categories:
        note = f"{note} {TEXT_AS_CODES.format(model=model)}".strip()
    write_whole(path, content)
    facts = {"output": str(path), "bytes": len(content), "to": to, "note": note}
    written = f"Written to {path} ({in_bytes(len(content))}), verified against {model}."
    screen.result(facts, f"{written}\n{note}".strip())


def _exported(compiled: CompiledEnsemble, to: str, path: Path) -> tuple[bytes, str]:
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
    if path.suffix.lower() not in PICKLES:
        import skops.io

        skops.io.dump(ensemble, file, compression=zipfile.ZIP_DEFLATED)  # a twentieth of stored
        content = file.getvalue()
        trusted = skops.io.get_untrusted_types(data=content)
        return content, f"Read it with skops.io.load({str(path)!r}, trusted={trusted})."
    import joblib

    joblib.dump(ensemble, file)
    return file.getvalue(), "A pickle: load it only if you trust the file."


def bench(
    model: Model,
    data: Data,
    written: tables.Written,
    screen: Screen,
    trust: Trust,
    against: Annotated[
        Path | None, Option(help="The original ensemble, timed too: a skops file or a pickle.")
    ] = None,
) -> None:
    """Time a model on your rows, one thread: a single row, and batches of 1,000.

    Example: sparsebag bench small.sbag data.csv --against forest.skops
    """
    timed = {model: models.read_model(model, trust)}
    if against is not None:
        timed[against] = models.read_ensemble_file(against, trust)
    X = tables.Table(data, written).read()
    X = X.iloc[np.resize(np.arange(len(X)), 1000)].reset_index(drop=True)
    found, lines = {}, []
    for path, each in timed.items():
        screen.step(f"timing {path}")
        one, many = map(_best, _calls(each, data, X))
        found[path.name] = {"one_row_us": 1e6 * one, "batch_ms": 1e3 * many}
        lines.append(f"{path.name}: one row {1e6 * one:,.1f} µs, 1000 rows {1e3 * many:,.2f} ms")
    screen.result(found, "\n".join(lines))


def _calls(model: Any, path: Path, X: pd.DataFrame) -> list[Callable[[], Any]]:
    """Predictions of one row, and of all."""
    names, width = models.columns_read(model)
    X = X[tables.columns_of(path, X.columns, names, width)]
    rows: Any = tables.as_read(X, names, width)
    predict = getattr(model, "predict_proba", model.predict)
    if isinstance(model, CompiledEnsemble):
        rows = tables.as_numbers(path, X, model.categories).to_numpy(dtype=np.float32)
        one = model.predict_one if model.classes is None else model.predict_proba_one
        return [lambda: one(rows[0]), lambda: predict(rows)]
    if hasattr(model, "n_jobs"):
        model.set_params(n_jobs=1)
    return [lambda: predict(rows[:1]), lambda: predict(rows)]


def _best(call: Callable[[], Any]) -> float:
    """Seconds of a call: the best mean of some samples, because load only ever adds."""
    timer = timeit.Timer(call)
    n_calls, _ = timer.autorange()  # that a clock can measure
    return min(timer.repeat(SAMPLES, n_calls)) / n_calls
