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
from sparsebag.cli.command import CommandError, Data, ExitCode, Model, Screen, Trust
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

LABELS = {"memory_bytes": "memory", "file_bytes": "file"}
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
    parts = [compiled_in(part.model) for part, _ in innermost(whole)]
    facts = _facts(parts[0]) | {"file_bytes": model.stat().st_size}
    if not isinstance(whole, CompiledEnsemble):
        facts["around"] = f"{type(whole).__name__} (ensemble 1 of {len(parts)})"
    facts["column_names"], facts["columns"] = models.columns_read(whole)
    shown = facts | {name: in_bytes(facts[name]) for name in LABELS}
    if (t := facts["calibrator"]) is not None:
        shown["calibrator"] = f"temperature {t['temperature']:.3g}, {t['share']:.1%} uniform"
    shown["floor"] = facts["floor"] or None
    lines = [f"{model} (checksum ok, format {VERSION})"]
    for name, value in shown.items():
        line = f"{LABELS.get(name, name.replace('_', ' ')):<22}{_in_words(value)}"
        lines += [textwrap.fill(line, 80, subsequent_indent=" " * 22)] * (value is not None)
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
        "gate": None if gate is None else f"rank {len(gate.offset)}",
    }


def _in_words(value: Any) -> str:
    """A fact for people: of many things the first."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_in_words(inner)}" for name, inner in value.items())
    if isinstance(value, (list, tuple, np.ndarray)):
        return f"{len(value)}: {tables.shown(list(value))}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def export(
    model: Model,
    to: Annotated[Literal["onnx", "treelite", "sklearn"], Option(help="Format to write.")],
    written: tables.Written,
    screen: Screen,
    trust: Trust,
    output: Annotated[Path | None, Option("--output", "-o", help=OUTPUT)] = None,
    data: Annotated[Path | None, Option(help="Table of a Pipeline's rows, for ONNX.")] = None,
) -> None:
    """Write a compressed model for ONNX Runtime, treelite or scikit-learn.

    Each export is verified against the model before it is written.

    Example: sparsebag export small.sbag --to onnx
    """
    path = output or model.with_suffix(SUFFIXES[to])
    suffixes = (SUFFIXES[to], *(PICKLES if to == "sklearn" else ()), "")
    named = output is not None  # where not, there may be the original ensemble
    models.check_can_be_written(path, unlike=(model, data), is_named=named, suffixes=suffixes)
    read, X = models.read_model(model, trust), None
    if not isinstance(read, CompiledEnsemble):
        held, columns = f"'{model}' holds a {type(read).__name__}", models.columns_read(read)
        if to == "treelite":
            raise CommandError(f"{held}, and treelite holds trees only; use --to onnx.")
        if to == "onnx" and data is None:
            raise CommandError(f"{held}; add --data with a table of its rows.", ExitCode.USAGE)
        if data is not None:
            X = tables.Table(data, written).read()
            X = tables.as_read(X[tables.columns_of(data, X.columns, *columns)], *columns)
    content, note = _exported(read, X, to, path)
    if getattr(read, "categories", None):
        note = f"{note} {TEXT_AS_CODES.format(model=model)}".strip()
    write_whole(path, content)
    facts = {"output": str(path), "bytes": len(content), "to": to, "note": note}
    told = f"Written to {path} ({in_bytes(len(content))}), verified against {model}."
    screen.result(facts, f"{told}\n{note}".strip())


def _exported(model: Any, X: Any, to: str, path: Path) -> tuple[bytes, str]:
    """The content of the file, and what to say about it."""
    from sparsebag.deploy.wrapped import to_onnx, to_sklearn

    if to == "onnx":
        return bytes(to_onnx(model, X).graph.SerializeToString()), ""
    if to == "treelite":
        from sparsebag.deploy.export_treelite import export_treelite

        exported = export_treelite(model)
        return bytes(exported.trees.serialize_bytes()), exported.note or ""
    ensemble, file = to_sklearn(model), io.BytesIO()
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
    columns = models.columns_read(model)
    X = X[tables.columns_of(path, X.columns, *columns)]
    rows: Any = tables.as_read(X, *columns)
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
