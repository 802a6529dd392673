"""Folder n imports only from folders before it; nothing imports what stands on top."""

import ast
from pathlib import Path

import sparsebag

ROOT = Path(sparsebag.__file__).parent
ORDER = ["evidence", "sources", "objective", "solvers", "student", "calibration", "judge"]
ORDER += ["local", "deploy", "report"]
BELOW_ALL = "progress"
# Modules at the root stand on all folders; among themselves they have an order too.
TOP = ["settings", "fit_weights", "pipeline", "compress_dask", "validation", "estimators"]
TOP += ["compress", "__init__", "cli"]  # nothing imports the last


def layer(module: str) -> int:
    """Position of ``sparsebag.a.b`` in the one direction of flow."""
    part = module.split(".")[1] if "." in module else "__init__"
    if part == BELOW_ALL:
        return -1
    if part in ORDER:
        return ORDER.index(part)
    assert part in TOP, f"{module} has no place in the order; give it one in this test"
    return len(ORDER) + TOP.index(part)


def imports(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sparsebag"):
            assert node.level == 0
            found += [f"{node.module}.{name.name}" for name in node.names]
        elif isinstance(node, ast.Import):
            found += [a.name for a in node.names if a.name.startswith("sparsebag")]
    return found


def modules() -> dict[str, Path]:
    return {
        ".".join(["sparsebag", *path.relative_to(ROOT).with_suffix("").parts]): path
        for path in ROOT.rglob("*.py")
    }


def test_imports_go_one_way_modules_are_small_and_there_are_no_drawers():
    checked = 0
    for name, path in modules().items():
        assert len(path.read_text().splitlines()) <= 700, f"{name} is more than one concept"
        own = layer(name)  # every folder and root module has a place, whatever it imports
        for imported in imports(path):
            checked += 1
            assert layer(imported) <= own, f"{name} must not import {imported}"
    assert checked > 50
    names = {name.rsplit(".", 1)[-1] for name in modules()}
    assert not names & {"utils", "helpers", "misc", "common"}
