"""The path as a table: what each size costs and what it is expected to lose."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

PRINTED_ROWS = 20
COLUMNS = ("k", "nodes", "bytes", "expected_risk", "standard_error", "random_risk", "chosen")


@dataclass(frozen=True)
class PathTable:
    """One row a size, ascending; the last row is the whole ensemble with equal weights.

    Attributes
    ----------
    k : ndarray of int
        Members.
    nodes, bytes : ndarray of int
        Their nodes (trees) and bytes.
    expected_risk : ndarray of float
        Expected Brier score, or squared error, on new rows.
    standard_error : ndarray of float
        Of the expected risk.
    random_risk : ndarray of float
        Expected risk of as many members drawn at random.
    chosen : ndarray of bool
        The row that was kept.
    notes : tuple of str
        What a reader must know of the figures; printed below them.

    Examples
    --------
    >>> one = np.array([1])
    >>> table = PathTable(one, 7 * one, 80 * one, 0.5 * one, 0.1 * one, 0.6 * one, one > 0)
    >>> print(table)
     k  nodes  bytes  expected risk  ± error  random-k
     1      7     80            0.5      0.1       0.6  <- kept
    """

    k: np.ndarray
    nodes: np.ndarray
    bytes: np.ndarray
    expected_risk: np.ndarray
    standard_error: np.ndarray
    random_risk: np.ndarray
    chosen: np.ndarray
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __len__(self) -> int:
        return len(self.k)

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame (needs pandas).

        Returns
        -------
        pandas.DataFrame
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError("to_frame needs pandas: pip install pandas.") from error
        return pd.DataFrame({name: getattr(self, name) for name in COLUMNS})

    def __str__(self) -> str:
        head = ("k", "nodes", "bytes", "expected risk", "± error", "random-k")
        shown = self._rows_to_print()
        cells = [
            (
                f"{self.k[i]}",
                f"{self.nodes[i]:,}",
                f"{self.bytes[i]:,}",
                f"{self.expected_risk[i]:.4g}",
                f"{self.standard_error[i]:.2g}",
                f"{self.random_risk[i]:.4g}",
            )
            for i in shown
        ]
        widths = [max(len(row[c]) for row in [head, *cells]) for c in range(len(head))]
        lines = [_line(head, widths)]
        for i, row in zip(shown, cells, strict=True):
            lines.append(_line(row, widths) + ("  <- kept" if self.chosen[i] else ""))
        return "\n".join([*lines, *self.notes])

    def _rows_to_print(self) -> list[int]:
        n = len(self)
        if n <= PRINTED_ROWS:
            return list(range(n))
        spaced = np.unique(np.geomspace(1, n, PRINTED_ROWS).astype(int)) - 1
        return sorted({*spaced.tolist(), *np.flatnonzero(self.chosen).tolist()})


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return " " + "  ".join(c.rjust(w) for c, w in zip(cells, widths, strict=True))
