"""Progress within a pass over a stream that takes long."""

from __future__ import annotations

import sys
import time

PRINT_EVERY_SECONDS = 5.0


class PassReport:
    """Says now and then how far a pass is, on standard error.

    Parameters
    ----------
    n_blocks : int or None
        How many there are, where that is known.
    first : int
        The block the pass begins with; not 0 where it goes on after a kill.
    verbose : int
        0: silent.
    """

    def __init__(self, n_blocks: int | None, first: int, verbose: int) -> None:
        self._n_blocks, self._verbose = n_blocks, verbose
        self._last = time.monotonic()
        if first and verbose:
            print(f"[stream] going on from block {first}", file=sys.stderr, flush=True)

    def block(self, number: int) -> None:
        """One more block is read.

        Parameters
        ----------
        number : int
        """
        now = time.monotonic()
        if self._verbose and now - self._last >= PRINT_EVERY_SECONDS:
            self._last = now
            of = self._n_blocks or "unknown"
            print(f"[stream] block {number} of {of}", file=sys.stderr, flush=True)
