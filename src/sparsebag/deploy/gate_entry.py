"""A gate in the header of a ``.sbag`` file, read as strictly as the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sparsebag.deploy.container import ArtifactError, number, string, whole, with_keys
from sparsebag.deploy.gate import CompiledGate
from sparsebag.deploy.trees import FlatTrees
from sparsebag.local.gate import LinearGate

DTYPES = {name: "<f8" for name in (*LinearGate.ARRAYS, "global_weights")} | {"members": "<i4"}
"""Of a gate's arrays in a file."""


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
    beside = {"global_weights": gate.global_weights, "members": gate.members}
    return {
        "kind": LinearGate.kind,
        "settings": gate.source.settings(),
        "arrays": stored(gate.source.arrays() | beside),
    }


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
    if kind != LinearGate.kind:
        raise ArtifactError(f"it holds a gate of a kind, {kind[:20]!r}, that is not known")
    settings = with_keys(entry["settings"], ("clip",))
    places = with_keys(entry["arrays"], tuple(DTYPES))
    named = {name: arrays[whole(position)] for name, position in places.items()}
    for name, array in named.items():
        if array.dtype.str != DTYPES[name]:
            raise ArtifactError(f"its gate's {name!r} is of type {array.dtype.str}")
    source = LinearGate.rebuild(named, {"clip": number(settings["clip"])})
    return CompiledGate(source, named["global_weights"], named["members"])


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
