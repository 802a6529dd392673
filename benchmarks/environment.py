"""Versions and machine: what every result row carries."""

import ast
import hashlib
import os
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import sparsebag

SOURCE_SUFFIXES = (".py", ".cpp", ".h")
SOURCE_DIGITS = 12


def environment() -> dict[str, str]:
    """Column of the results file to version, and a word on the machine."""
    return {
        "sparsebag": _version("sparsebag"),
        "source": source_hash(),
        "sklearn": _version("scikit-learn"),
        "numpy": _version("numpy"),
        "scipy": _version("scipy"),
        "python": platform.python_version(),
        "xgboost": _version("xgboost-cpu", "xgboost"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_cpu()}",
    }


def source_hash(folder: Path | None = None) -> str:
    """Which code this is: a hash of the files' names and code, without docstrings and comments.

    A version number stays the same from edit to edit; this changes with what is computed. The
    folder is that of the imported ``sparsebag``, unless another is given.
    """
    folder = Path(sparsebag.__file__).parent if folder is None else folder
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in SOURCE_SUFFIXES):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
        digest.update(_code(path).encode() + b"\0")
    return digest.hexdigest()[:SOURCE_DIGITS]


class _Undocumented(ast.NodeTransformer):
    """Drops strings that stand alone: docstrings of modules, classes, functions and constants."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.JoinedStr:
        """Python 3.12 ends some with an empty string."""
        self.generic_visit(node)
        node.values = [part for part in node.values if getattr(part, "value", None) != ""]
        return node


def _code(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        dumped = ast.dump(_Undocumented().visit(ast.parse(text)))
        return re.sub(r"\w+=\[\](, )?|, \w+=\[\]", "", dumped)  # Python 3.13 leaves them out
    text = re.sub(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', r"\1", text, flags=re.DOTALL)
    return " ".join(text.split())


def _version(*names: str) -> str:
    """Version of the first of these distributions that is installed; empty if none is."""
    for name in names:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return ""


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown processor"
