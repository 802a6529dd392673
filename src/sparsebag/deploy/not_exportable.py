"""What a file or another engine cannot hold."""

from __future__ import annotations

from typing import Any


class NotExportable(ValueError):
    """A model that a file or an export has no form for; the message is why, and what to do."""


def check_fixed_weights(gate: Any, engine: str) -> None:
    """One sentence for an engine whose ensembles cannot weigh members row by row.

    Parameters
    ----------
    gate : LinearGate or None
    engine : str

    Examples
    --------
    >>> check_fixed_weights(None, "treelite")
    """
    if gate is not None:
        raise NotExportable(
            f"{engine} has ensembles with fixed weights only, and this model's depend on the row; "
            "use save, or compress with local=None."
        )
