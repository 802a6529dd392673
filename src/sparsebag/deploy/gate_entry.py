"""A gate in the header of a ``.sbag`` file, read as strictly as the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparsebag.deploy.container import ArtifactError, number, string, whole, with_keys
from sparsebag.deploy.gate import CompiledGate, LinearGate, RegionGate, rebuild_gate
from sparsebag.deploy.trees import FlatTrees

SETTINGS: dict[str, dict[str, Callable[[Any], Any]]] = {
    LinearGate.kind: {"activation": string, "clip": number},
    RegionGate.kind: {"n_features": whole, "clip": number},
}
"""What the settings of each kind of gate are, and how each is read."""


def gate_entry(
    gate: CompiledGate, stored: Callable[[Mapping[str, np.ndarray]], dict[str, int]]
) -> dict[str, Any]:
    """What the header says of a gate.

    Parameters
    ----------
    gate : CompiledGate
    stored : callable
        Takes arrays by name, and returns where in the file they are.

    Returns
    -------
    dict
    """
    source, named = gate.source, gate.source.arrays()
    if gate.global_weights is not None and gate.members is not None:
        named = named | {"global_weights": gate.global_weights, "members": gate.members}
    return {"kind": source.kind, "settings": source.settings(), "arrays": stored(named)}


def read_gate(entry: Any, arrays: list[np.ndarray]) -> CompiledGate | None:
    """The gate of a header's entry; `ArtifactError` or ValueError where it is none.

    Parameters
    ----------
    entry : object
        From the header; None for a model without a gate.
    arrays : list of ndarray
        Of the file.

    Returns
    -------
    CompiledGate or None
    """
    if entry is None:
        return None
    entry = with_keys(entry, ("kind", "settings", "arrays"))
    kind = string(entry["kind"])
    if kind not in SETTINGS:
        raise ArtifactError(f"it holds a gate of a kind, {kind[:20]!r}, that is not known")
    known = tuple(name for name in SETTINGS[kind] if _is_due(entry, kind, name))
    settings = with_keys(entry["settings"], known)
    named = {name: arrays[whole(position)] for name, position in entry["arrays"].items()}
    for name, array in named.items():
        whole_numbers = {"members": "<i4"} | (RegionGate.WHOLE if kind == RegionGate.kind else {})
        expected = whole_numbers.get(name, "<f8")
        if array.dtype.str != expected:
            raise ArtifactError(f"its gate's {name[:20]!r} is of type {array.dtype.str}")
    read = {name: SETTINGS[kind][name](value) for name, value in settings.items()}
    beside = {name: named.pop(name, None) for name in ("global_weights", "members")}
    source = rebuild_gate(kind, named, read)
    with_keys(named, tuple(source.arrays()))
    return CompiledGate(source, **beside)


def _is_due(entry: Mapping[str, Any], kind: str, name: str) -> bool:
    """Regions without directions have nothing to clip, and files of them have no word of it."""
    return kind != RegionGate.kind or name != "clip" or "down" in entry["arrays"]


def check_unweighted(groups: tuple[Any, ...]) -> None:
    """Under a gate members have no weights of their own: scores would be no probabilities.

    Parameters
    ----------
    groups : tuple of groups of members
    """
    for group in groups:
        if isinstance(group, FlatTrees):
            weighted = group.total != group.n_members
        else:
            weighted = bool(np.any(group.weights != 1.0))
        if weighted:
            raise ArtifactError("its members have weights besides those of its gate")
