"""Gates of a deployed vote, known to files by their kind: how each is read back.

The gates themselves are in `sparsebag.refine`, where they are fitted, as calibrators are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sparsebag.refine.gate import Gate, LinearGate
from sparsebag.refine.region_gate import RegionGate

__all__ = ["GATES", "Gate", "LinearGate", "RegionGate", "rebuild_gate"]

GATES: dict[str, type[LinearGate] | type[RegionGate]] = {
    LinearGate.kind: LinearGate,
    RegionGate.kind: RegionGate,
}
"""Kind to class."""


def rebuild_gate(
    kind: str, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> LinearGate | RegionGate:
    """A gate from its kind and what a file holds of it.

    Parameters
    ----------
    kind : str
    arrays : mapping of str to ndarray
    settings : mapping of str to values

    Returns
    -------
    LinearGate or RegionGate

    Examples
    --------
    >>> gate = LinearGate(np.zeros(1), np.ones(1), np.ones((1, 1)), np.ones((2, 1)), np.zeros(2))
    >>> rebuild_gate(gate.kind, gate.arrays(), gate.settings()).n_members
    2
    """
    if kind not in GATES:
        known = ", ".join(sorted(GATES))
        raise ValueError(f"gate {kind[:20]!r} is not known to this version; it knows {known}.")
    return GATES[kind].rebuild(arrays, settings)
