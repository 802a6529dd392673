"""Progress of what takes long block by block, or member by member."""

from __future__ import annotations

import sys
import time

PRINT_EVERY_SECONDS = 5.0


class PassReport:
    """Says now and then how far it is, on standard error.

    Parameters
    ----------
    n_blocks : int or None
        How many there are, where that is known.
    first : int
        The block the pass begins with; not 0 where it goes on after a kill.
    verbose : int
        0: silent.
    what, unit : str
        What is going on, and what it is counted in.
    begin : str, default ""
        Said at once, where it has a reason worth knowing.
    """

    def __init__(
        self,
        n_blocks: int | None,
        first: int,
        verbose: int,
        *,
        what: str = "stream",
        unit: str = "block",
        begin: str = "",
    ) -> None:
        self._n_blocks, self._verbose, self._what, self._unit = n_blocks, verbose, what, unit
        self._last = time.monotonic()
        if first and not begin:
            begin = f"going on from block {first}"
        if begin and verbose:
            print(f"[{what}] {begin}", file=sys.stderr, flush=True)

    def block(self, number: int) -> None:
        """One more is done.

        Parameters
        ----------
        number : int
        """
        now = time.monotonic()
        if self._verbose and now - self._last >= PRINT_EVERY_SECONDS:
            self._last = now
            of = f" of {self._n_blocks}" if self._n_blocks else ""
            print(f"[{self._what}] {self._unit} {number}{of}", file=sys.stderr, flush=True)
