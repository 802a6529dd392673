"""``sparsebag inspect``: what is in a .sbag file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from sparsebag.cli import options
from sparsebag.cli.failures import guarded
from sparsebag.cli.models import read_compiled
from sparsebag.cli.tables import shown_names
from sparsebag.cli.terminal import print_json
from sparsebag.deploy.artifact import VERSION
from sparsebag.deploy.compiled import CompiledEnsemble
from sparsebag.deploy.trees import FlatTrees

SHOWN_CLASSES = 12


@guarded
def inspect(
    model: Annotated[Path, typer.Argument(help="A .sbag file.", metavar="MODEL")],
    trust_pickle: options.TrustPickle = False,
    as_json: options.AsJson = False,
) -> None:
    """Show what a compressed model holds; the file's checksum is verified on the way.

    Example: sparsebag inspect small.sbag
    """
    compiled = read_compiled(model, trust_pickle=trust_pickle)
    facts = describe(compiled)
    facts["file"], facts["file_bytes"], facts["format_version"] = (
        str(model),
        model.stat().st_size,
        VERSION,
    )
    if as_json:
        print_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in _rows(facts):
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(f"{model} (sound, format {VERSION})", markup=False, soft_wrap=True)
    console.print(table)


def describe(compiled: CompiledEnsemble) -> dict[str, Any]:
    """A compiled model's facts by name.

    Parameters
    ----------
    compiled : CompiledEnsemble

    Returns
    -------
    dict
    """
    flat = [group for group in compiled.groups if isinstance(group, FlatTrees)]
    calibrator = compiled.calibrator
    return {
        "task": "regression" if compiled.classes is None else "classification",
        "classes": None if compiled.classes is None else list(compiled.classes.tolist()),
        "members": len(compiled.paths),
        "models_evaluated": compiled.n_models,
        "paths": {path: compiled.paths.count(path) for path in dict.fromkeys(compiled.paths)},
        "inner_nodes": sum(len(group.threshold) for group in flat),
        "memory_bytes": compiled.nbytes,
        "columns": compiled.n_features,
        "column_names": None if compiled.feature_names is None else list(compiled.feature_names),
        "categories": compiled.categories,
        "takes_missing_values": compiled.allow_nan,
        "floor": compiled.floor,
        "calibrator": None
        if calibrator is None
        else {"kind": calibrator.kind, **{k: _plain(v) for k, v in calibrator.params.items()}},
        "gate": None if compiled.gate is None else str(compiled.gate).removeprefix("gate "),
    }


def _plain(value: Any) -> Any:
    array = np.asarray(value, dtype=float)
    return float(array.item()) if array.size == 1 else array.tolist()


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    kinds = ", ".join(f"{n} {path}" for path, n in facts["paths"].items())
    rows = [("task", facts["task"])]
    if facts["classes"] is not None:
        labels = [str(label) for label in facts["classes"]]
        rows.append(("classes", f"{len(labels)}: {_some(labels)}"))
    rows.append(("members", f"{facts['members']} ({kinds})"))
    if facts["inner_nodes"]:
        rows.append(("inner nodes", f"{facts['inner_nodes']:,}"))
    rows.append(("file", f"{facts['file_bytes']:,} bytes"))
    rows.append(("memory", f"{facts['memory_bytes']:,} bytes"))
    names = facts["column_names"]
    named = "" if names is None else f": {shown_names(names)}"
    rows.append(("columns", f"{facts['columns']}{named}"))
    if facts["categories"]:
        told = [f"{name} ({len(texts)} texts)" for name, texts in facts["categories"].items()]
        rows.append(("columns of text", _some(told)))
    rows.append(("missing values", "routed" if facts["takes_missing_values"] else "refused"))
    if facts["task"] == "classification":
        rows.append(("floor", f"{facts['floor']:g}"))
        rows.append(("calibrator", _calibrator(facts["calibrator"])))
    if facts["gate"] is not None:
        rows.append(("local weights", facts["gate"]))
    return rows


def _calibrator(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    small = [
        f"{name} {value:.4g}"
        for name, value in found.items()
        if name != "kind" and isinstance(value, float)
    ]
    return ", ".join([str(found["kind"]).replace("_", " "), *small])


def _some(labels: list[str]) -> str:
    more = f" and {len(labels) - SHOWN_CLASSES} more" if len(labels) > SHOWN_CLASSES else ""
    return ", ".join(labels[:SHOWN_CLASSES]) + more
