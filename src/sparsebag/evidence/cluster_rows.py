"""Row blocks of evidence that live on the workers of a Dask cluster.

A block is made where its rows are and stays there; what is asked of all of them is added up on the
way back, eight at a time, so that no machine sees more than a few results. Any Dask scheduler will
do. Where a worker of a distributed one is lost, the scheduler makes its blocks again from their
rows, and the members from what it was sent once; where too much is lost for that, everything is
made anew from the recipe and the question is asked again.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

FAN_IN = 8
"""Results added up by one task: a tree of a thousand blocks is four levels deep."""
MOST_ATTEMPTS = 4
WAIT_SECONDS = 2.0
"""Between attempts: a lost worker's successor takes about as long to start."""
LARGEST_SENT = "1TiB"
"""Dask warns of large arguments, which had better be loaded by the workers; members cannot be."""

Recipe = Callable[[], list[Any]]


class MissingDask(ImportError):
    """Dask is not installed."""

    def __init__(self) -> None:
        super().__init__("Dask is not installed; pip install 'sparsebag[dask]'.")


class ClusterBlocks:
    """Python objects, one a block of rows, on the workers.

    Parameters
    ----------
    recipe : function without arguments
        Makes the tasks (``dask.delayed`` objects) of all blocks, in the rows' order.
    verbose : int, default 0
        Progress and word of lost workers, on standard error.
    parent : ClusterBlocks, optional
        Whose blocks the recipe reads: lost ones are made again from its own.

    Examples
    --------
    >>> import pytest
    >>> dask = pytest.importorskip("dask")
    >>> blocks = ClusterBlocks(lambda: [dask.delayed(range)(n) for n in (3, 4)])
    >>> blocks.sum(len), blocks.each(max)
    (7, [2, 3])
    """

    def __init__(
        self, recipe: Recipe, verbose: int = 0, parent: ClusterBlocks | None = None
    ) -> None:
        self._recipe, self._verbose, self._parent = recipe, verbose, parent
        self._held: list[Any] | None = None
        self._insist(self._watched if verbose else self._blocks)

    def __len__(self) -> int:
        return len(self._blocks())

    def derived(self, function: Callable[..., Any], *args: Any) -> ClusterBlocks:
        """``function(block, *args)`` of every block, kept on the workers beside it.

        Parameters
        ----------
        function : function
        *args : object
            Sent to every worker once.

        Returns
        -------
        ClusterBlocks
        """
        return ClusterBlocks(
            lambda: _tasks(self._blocks(), function, args), self._verbose, parent=self
        )

    def let_go(self) -> None:
        """Hold the blocks no longer; they are made again where they are asked for again."""
        self._held = None

    def sum(
        self, function: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None
    ) -> Any:
        """The sum of ``function(block, *args)`` over all blocks, None left out.

        Parameters
        ----------
        function : function
            Its results can be added.
        *args : object
        own : sequence, optional
            One more argument a block, put first.

        Returns
        -------
        object
            None where no block has anything to add.
        """

        def ask() -> Any:
            level = _tasks(self._blocks(), function, args, own)
            while len(level) > 1:
                groups = [level[i : i + FAN_IN] for i in range(0, len(level), FAN_IN)]
                level = _tasks(groups, _added, ())
            return _computed(level)[0]

        return self._insist(ask)

    def each(
        self, function: Callable[..., Any], *args: Any, own: Sequence[Any] | None = None
    ) -> list[Any]:
        """``function(block, *args)`` of every block, brought here in the rows' order.

        Parameters
        ----------
        function : function
        *args : object
        own : sequence, optional
            One more argument a block, put first.

        Returns
        -------
        list
        """
        found: list[Any] = self._insist(
            lambda: _computed(_tasks(self._blocks(), function, args, own))
        )
        return found

    def _insist(self, ask: Callable[[], Any]) -> Any:
        """Ask again, of blocks made anew, where workers were lost beyond the scheduler's help."""
        for attempt in range(1, MOST_ATTEMPTS + 1):
            try:
                return ask()
            except lost_worker_errors() as error:
                if attempt == MOST_ATTEMPTS:
                    self._start_over()
                    raise
                if self._verbose:
                    print(f"[cluster] {error!r}; making the blocks again", file=sys.stderr)
                time.sleep(WAIT_SECONDS)
                self._start_over()
            except BaseException as error:
                # The client keeps the error of a task, that its traceback, and that the blocks.
                self._start_over()
                if current_client() is not None:
                    traceback.clear_frames(error.__traceback__)
                raise
        raise AssertionError("unreachable")

    def _blocks(self) -> list[Any]:
        """The tasks of all blocks, made again where they were let go."""
        if self._held is None:
            self._held = _persisted(self._recipe())
        return self._held

    def _watched(self) -> None:
        """Make the blocks and count them; whoever is tired of waiting leaves none behind."""
        _watch(self._blocks(), "" if self._parent is None else " (what is derived from it)")

    def _start_over(self) -> None:
        self.let_go()
        if self._parent is not None:
            self._parent._start_over()


def _watch(blocks: list[Any], what: str) -> None:
    """Count the blocks on standard error as they are made; a failed one is its reader's matter."""
    client = current_client()
    if client is None:
        return
    from distributed import as_completed

    futures = client.futures_of(blocks)
    with thread_lent():
        for made, _ in enumerate(as_completed(futures, loop=client.loop), start=1):
            if made % max(1, len(futures) // 10) == 0:
                told = f"[cluster] block {made} of {len(futures)}{what}"
                print(told, file=sys.stderr, flush=True)


@contextmanager
def thread_lent() -> Iterator[None]:
    """Inside a task, while it waits for others: let the worker run those on its thread."""
    from distributed import rejoin, secede

    is_lent = True
    try:
        secede()
    except (AttributeError, KeyError, ValueError):  # not in a task, or the thread is lent already
        is_lent = False
    try:
        yield
    finally:
        if is_lent:
            rejoin()


def lost_worker_errors() -> tuple[type[BaseException], ...]:
    """What a distributed scheduler raises where data is gone for good.

    Returns
    -------
    tuple of exception types
        Empty where no distributed scheduler is in use.
    """
    if "distributed" not in sys.modules:
        return ()
    from concurrent.futures import CancelledError

    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError
    from distributed.scheduler import KilledWorker

    return KilledWorker, FutureCancelledError, CancelledError, CommClosedError


def on_every_worker(thing: Any) -> Any:
    """Something large, sent to every worker once; itself where there are no workers.

    Parameters
    ----------
    thing : object

    Returns
    -------
    object
        To be passed to tasks in its place.
    """
    client = current_client()
    if client is None:
        return _dask().delayed(thing, pure=False, traverse=False)
    from distributed.protocol import pickle

    # Not client.scatter: with broadcast=True it copies until every worker there was has one, which
    # is never where one is lost meanwhile; without, it is gone with the one worker that has it.
    # As a task's argument the scheduler keeps it, for whoever is left.
    with _dask().config.set({"distributed.admin.large-graph-warning-threshold": LARGEST_SENT}):
        sent = client.submit(pickle.loads, pickle.dumps(thing), pure=False)
    # Copies on all workers, since tasks that read it are given to those alone who have it. Where
    # one of them is gone, another answers in its place.
    arrived = [
        client.submit(_arrived, sent, workers=[worker], allow_other_workers=True, pure=False)
        for worker in client.nthreads()
    ]
    with thread_lent():
        client.gather(arrived)
    return sent


def current_client() -> Any:
    """The distributed scheduler's client, or None where Dask would ask another scheduler now."""
    if "distributed" not in sys.modules:
        return None
    from distributed import Client

    # A Client may be alive beside dask.config.set(scheduler="threads"), which goes before it.
    asked = getattr(_dask().base.get_scheduler(), "__self__", None)
    return asked if isinstance(asked, Client) else None


def ask_one_scheduler(one: Any, other: Any) -> bool:
    """Whether two clients have the same scheduler, which then knows the futures of both.

    Parameters
    ----------
    one, other : distributed.Client or None
        A closed one has none.

    Returns
    -------
    bool
    """
    if one is other:
        return True
    if one is None or other is None or "closed" in (one.status, other.status):
        return False
    # By what it calls itself: it may have been reached at several addresses.
    return bool(one.scheduler_info()["id"] == other.scheduler_info()["id"])


def _dask() -> Any:
    try:
        import dask
        import dask.delayed
    except ImportError as error:
        raise MissingDask from error
    return dask


def _tasks(
    blocks: Sequence[Any],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    own: Sequence[Any] | None = None,
) -> list[Any]:
    delayed = _dask().delayed
    call = delayed(function, pure=False)
    # One task holds each argument, so a vector of weights travels once, not once a block.
    shared = [delayed(arg, pure=False, traverse=False) for arg in args]
    if own is None:
        return [call(block, *shared) for block in blocks]
    return [call(block, mine, *shared) for block, mine in zip(blocks, own, strict=True)]


def _arrived(thing: Any) -> bool:
    return thing is not None


def _added(parts: list[Any]) -> Any:
    found = [part for part in parts if part is not None]
    total = found[0] if found else None
    for part in found[1:]:
        total = total + part
    return total


def _persisted(tasks: list[Any]) -> list[Any]:
    return list(_dask().persist(*tasks, optimize_graph=False))


def _computed(tasks: list[Any]) -> list[Any]:
    return list(_dask().compute(*tasks, optimize_graph=False))
