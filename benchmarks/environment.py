"""Versions and machine: what every result row carries."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def environment() -> dict[str, str]:
    """Column of the results file to version, and a word on the machine.

    Returns
    -------
    dict of str to str
    """
    return {
        "sparsebag": _version("sparsebag"),
        "sklearn": _version("scikit-learn"),
        "numpy": _version("numpy"),
        "scipy": _version("scipy"),
        "python": platform.python_version(),
        "xgboost": _version("xgboost-cpu", "xgboost"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {_cpu()}",
    }


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
