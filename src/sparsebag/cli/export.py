"""``sparsebag export``: a compressed model in another library's form."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from sparsebag.cli import options
from sparsebag.cli.failures import CommandError, ExitCode, guarded
from sparsebag.cli.models import read_compiled
from sparsebag.cli.outputs import check_can_be_written, written_whole
from sparsebag.cli.terminal import print_json, print_text
from sparsebag.deploy.compiled import CompiledEnsemble


class Form(StrEnum):
    """What a model can be exported to."""

    ONNX = "onnx"
    TREELITE = "treelite"
    SKLEARN = "sklearn"


TEXT_AS_CODES = (
    "Columns of text must be passed as numbers: the position of each text in the lists that "
    "`sparsebag inspect {model} --json` shows under categories, and NaN for any other."
)


@guarded
def export(
    model: Annotated[Path, typer.Argument(help="A .sbag file.", metavar="MODEL")],
    to: Annotated[Form, typer.Option(help="The form to write.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Default: MODEL with the suffix .onnx, .treelite or .skops (.joblib for sklearn "
            "writes a pickle).",
        ),
    ] = None,
    trust_pickle: options.TrustPickle = False,
    as_json: options.AsJson = False,
) -> None:
    """Write a compressed model for ONNX Runtime, treelite or scikit-learn.

    Each export is compared with the model before it is written, on rows at the model's own
    thresholds.

    Example: sparsebag export small.sbag --to onnx
    """
    path = output or model.with_suffix(SUFFIXES[to])
    check_can_be_written(path, unlike=(model,))
    compiled = read_compiled(model, trust_pickle=trust_pickle)
    content, note = WRITERS[to](compiled, path)
    if compiled.categories:
        note = f"{note} {TEXT_AS_CODES.format(model=model)}".strip()
    with written_whole(path) as file:
        file.write(content)
    if as_json:
        print_json({"output": str(path), "bytes": path.stat().st_size, "to": to, "note": note})
        return
    written = f"Written to {path} ({path.stat().st_size:,} bytes), verified against {model}."
    print_text(f"{written}\n{note}" if note else written)


def _onnx(compiled: CompiledEnsemble, path: Path) -> tuple[bytes, str]:
    from sparsebag.deploy.export_onnx import export_onnx

    return bytes(export_onnx(compiled).graph.SerializeToString()), ""


def _treelite(compiled: CompiledEnsemble, path: Path) -> tuple[bytes, str]:
    from sparsebag.deploy.export_treelite import export_treelite

    exported = export_treelite(compiled)
    return bytes(exported.trees.serialize_bytes()), exported.note or ""


def _sklearn(compiled: CompiledEnsemble, path: Path) -> tuple[bytes, str]:
    from sparsebag.deploy.export_sklearn import export_sklearn
    from sparsebag.deploy.to_members import as_members

    ensemble = export_sklearn(compiled, *as_members(compiled))
    if path.suffix.lower() == ".skops":
        return _skops(ensemble), ""
    import joblib

    buffer = io.BytesIO()
    joblib.dump(ensemble, buffer)
    return buffer.getvalue(), "A pickle: only load it where you trust the file."


def _skops(ensemble: Any) -> bytes:
    try:
        import skops.io as sio
    except ImportError:
        raise CommandError(
            "a .skops file needs skops (pip install 'sparsebag[cli]'); or name a .joblib file: -o.",
            ExitCode.MISSING_EXTRA,
        ) from None
    file = io.BytesIO()
    sio.dump(ensemble, file, compression=zipfile.ZIP_DEFLATED)  # stored, it is twenty times larger
    return file.getvalue()


SUFFIXES = {Form.ONNX: ".onnx", Form.TREELITE: ".treelite", Form.SKLEARN: ".skops"}
WRITERS: dict[Form, Callable[[CompiledEnsemble, Path], tuple[bytes, str]]] = {
    Form.ONNX: _onnx,
    Form.TREELITE: _treelite,
    Form.SKLEARN: _sklearn,
}
