"""Row blocks that a fitted ensemble's members predict when they are asked for.

`PredictedRows` stores nothing and predicts again in every pass. `LeafRows`, for trees, stores the
leaf each row falls into: two bytes a row and tree whatever the number of classes, and a pass looks
its votes up.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from joblib import effective_n_jobs
from sklearn.utils.parallel import Parallel, delayed

from sparsebag.evidence.collect import encode_target, storage_of
from sparsebag.evidence.evidence import OOBEvidence, warn_unverified
from sparsebag.evidence.from_ensemble import read_ensemble
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import Member, MemberPool, take_rows, with_bags
from sparsebag.evidence.pass_report import PassReport
from sparsebag.evidence.readable import check_no_path
from sparsebag.evidence.row_stream import block_rows_for, in_words
from sparsebag.evidence.training_rows import check_columns, prove_training_rows

TASKS_A_JOB = 4
"""Stretches of members, so that slow ones hold up none of the others for long."""
LOOKED_UP = 1 << 17
"""Votes looked up at a time: their places, eight bytes each, stay in the second cache."""


def stream_members(
    ensemble: Any,
    X: Any,
    y: Any,
    *,
    evidence: Literal["oob", "holdout"] = "oob",
    store: Literal["auto", "leaves", "nothing"] = "auto",
    every_class: bool = False,
    sample_weight: Any = None,
    estimators_samples: Sequence[Any] | None = None,
    estimators_features: Sequence[Any] | None = None,
    block_rows: int | None = None,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> PredictedRows:
    """Evidence of a fitted ensemble that is predicted block by block, never held as a whole.

    Votes are float32; float64, as `sparsebag.compress` keeps them, of regression targets that are
    large beside their spread.

    Parameters
    ----------
    ensemble : fitted ensemble
        As `sparsebag.compress` takes it; thousands of members are fine.
    X : array-like, sparse matrix or DataFrame of shape (M, n_features)
        The training rows, or with ``evidence="holdout"`` rows no member has seen.
    y : array-like of shape (M,)
    evidence : {"oob", "holdout"}
    store : {"auto", "leaves", "nothing"}
        ``"leaves"`` (trees): two bytes a row and member, so that passes need not predict again;
        ``"nothing"``: predict in every pass. ``"auto"``: leaves where all members are trees.
    every_class : bool, default False
        Give every class's votes, as the Brier score of more than two classes needs.
    sample_weight : array-like of shape (M,), optional
    estimators_samples, estimators_features : sequence of index arrays, optional
        For a list of models: the rows and the columns of X each was trained on.
    block_rows : int, optional
        Rows a block; default: some 32 MiB of votes.
    n_jobs : int, optional
        Threads over members.
    verbose : int, default 0
        Progress of routing the rows down the trees, on standard error.

    Returns
    -------
    PredictedRows or LeafRows

    Examples
    --------
    >>> import sparsebag as sb
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(50, random_state=0).fit(X, y)
    >>> stream = sb.stream_members(forest, X, y)
    >>> bool(sb.fit_weights(stream).n_active < 50)
    True
    """
    check_no_path(X, "X")
    check_no_path(y, "y")
    if evidence not in ("oob", "holdout"):
        raise ValueError(f"evidence={evidence!r} is not known; use 'oob' or 'holdout'.")
    pool = read_ensemble(with_bags(ensemble, estimators_samples, estimators_features))
    trees = all(member.is_tree for member in pool.members)
    if store not in ("auto", "leaves", "nothing"):
        raise ValueError(f"store={store!r} is not known; use 'auto', 'leaves' or 'nothing'.")
    if store == "leaves" and not trees:
        raise ValueError("store='leaves' is for trees; use store='nothing' for other members.")
    kind = LeafRows if trees and store != "nothing" else PredictedRows
    stream = kind(
        pool,
        X,
        y,
        source=evidence,
        every_class=every_class,
        sample_weight=sample_weight,
        block_rows=block_rows,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    if evidence == "oob" and stream.verified_by is None:
        warn_unverified()
    return stream


class PredictedRows:
    """Row blocks predicted by the members of a pool.

    Parameters
    ----------
    pool : MemberPool
    X, y, sample_weight, every_class, block_rows, n_jobs, verbose
        As in `stream_members`.
    source : {"oob", "holdout"}
    """

    is_replayable = True

    def __init__(
        self,
        pool: MemberPool,
        X: Any,
        y: Any,
        *,
        source: Literal["oob", "holdout"] = "oob",
        every_class: bool = False,
        sample_weight: Any = None,
        block_rows: int | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self._pool, self._source, self._n_jobs = pool, source, n_jobs
        self._target = encode_target(pool, y)
        n_rows = len(self._target)
        check_columns(pool, X, n_rows, training=source == "oob")
        self._sample_weight = check_sample_weight(sample_weight, self._target)
        self._X = pool.prepare(X)
        if source == "oob" and pool.in_bag is None:
            raise ValueError(
                f"there are no out-of-bag rows to judge the members by: {pool.no_in_bag}. Use a "
                "bootstrapped ensemble, or pass rows it has never seen with evidence='holdout'."
            )
        self.verified_by = None
        if source == "oob":
            self.verified_by = prove_training_rows(pool, self._X, self._target)
        self.task, self.classes = pool.task, pool.classes
        self.n_members = len(pool.members)
        self.n_rows: int | None = n_rows
        self.has_mask = source == "oob"
        n_classes = 0 if self.classes is None else len(self.classes)
        self._every_class = every_class and n_classes > 2
        self._width = self.n_members * (n_classes if self._every_class else 1)
        self._dtype = np.dtype(storage_of(np.float32, pool, self._target))
        self.block_rows = block_rows or block_rows_for(self._width, self._dtype.itemsize)
        self.n_blocks: int | None = -(-n_rows // self.block_rows)
        self._unseen = self._unseen_bits() if source == "oob" else None
        self._store(verbose)

    @property
    def nbytes(self) -> int:
        """Memory held between blocks, beside X and the members."""
        return 0 if self._unseen is None else self._unseen.nbytes

    def __repr__(self) -> str:
        """What it is and how much of it there is."""
        return in_words(self)

    def block(self, number: int, members: np.ndarray | None = None) -> OOBEvidence:
        """One block, by its number; only the members named predict."""
        assert self.n_rows is not None
        assert self.n_blocks is not None
        if not 0 <= number < self.n_blocks:
            raise IndexError(f"there is no block {number}; the stream has {self.n_blocks}.")
        first = number * self.block_rows
        rows = np.arange(first, min(first + self.block_rows, self.n_rows))
        return self.take(rows, members)

    def blocks(self, members: np.ndarray | None = None) -> Iterator[OOBEvidence]:
        """All blocks, in order."""
        assert self.n_blocks is not None
        return (self.block(number, members) for number in range(self.n_blocks))

    def with_block_bytes(self, block_bytes: int) -> PredictedRows:
        """The same rows in blocks of at most so many bytes.

        Parameters
        ----------
        block_bytes : int

        Returns
        -------
        PredictedRows
        """
        assert self.n_rows is not None
        rows = block_rows_for(self._width, self._dtype.itemsize, block_bytes)
        if rows >= self.block_rows:
            return self
        other = copy.copy(self)
        other.block_rows, other.n_blocks = rows, -(-self.n_rows // rows)
        return other

    def take(self, rows: np.ndarray, members: np.ndarray | None = None) -> OOBEvidence:
        """Some rows, wherever they stand.

        Parameters
        ----------
        rows : ndarray of indices
        members : ndarray of indices, optional
            Only these predict.

        Returns
        -------
        OOBEvidence
        """
        columns = np.arange(self.n_members) if members is None else np.asarray(members)
        unseen = None if self._unseen is None else self._unseen_at(rows, columns)
        planes = self._planes(rows, columns, unseen)
        weight = self._sample_weight
        target = self._target[rows]
        true_class = planes[0]
        if self._every_class:
            true_class = np.zeros_like(planes[0])
            for c, plane in enumerate(planes):
                true_class[target == c] = plane[target == c]
        return OOBEvidence(
            votes=true_class,
            oob_mask=None if unseen is None else np.ascontiguousarray(unseen.T),
            target=target,
            task=self.task,
            sample_weight=None if weight is None else weight[rows],
            classes=self.classes,
            class_votes=tuple(planes) if self._every_class else None,
            source=self._source,
            verified_by=self.verified_by,
        )

    def _store(self, verbose: int) -> None:
        """What is kept from block to block; here nothing."""

    def _planes(
        self, rows: np.ndarray, columns: np.ndarray, unseen: np.ndarray | None
    ) -> list[np.ndarray]:
        """Votes (rows × members) of the true class or of each, zero where a row was in the bag."""
        n_planes = len(self.classes) if self._every_class and self.classes is not None else 1
        # Members first: each writes its own stretch, and one transposition makes rows of them.
        votes = np.zeros((n_planes, len(columns), len(rows)), dtype=self._dtype)

        def vote(column: int) -> None:
            where = slice(None) if unseen is None else np.flatnonzero(unseen[column])
            asked = rows[where]
            if len(asked):
                votes[:, column, where] = self._votes_of(int(columns[column]), asked)

        _for_each(vote, len(columns), self._n_jobs)
        return [np.ascontiguousarray(plane.T) for plane in votes]

    def _votes_of(self, j: int, rows: np.ndarray) -> np.ndarray:
        """Votes of one member: of the true class or its prediction, or of every class."""
        member, X = self._pool.members[j], take_rows(self._X, rows)
        if self.classes is None:
            return np.asarray(member.predict(X))
        proba = member.predict_proba(X, len(self.classes))
        if self._every_class:
            return np.asarray(proba.T)
        return np.asarray(proba[np.arange(len(rows)), self._target[rows]])

    def _unseen_bits(self) -> np.ndarray:
        """For every member one bit a row: whether it is out of the member's bag."""
        assert self.n_rows is not None
        assert self._pool.in_bag is not None
        bits = np.empty((self.n_members, -(-self.n_rows // 8)), dtype=np.uint8)
        for j in range(self.n_members):
            unseen = np.ones(self.n_rows, dtype=np.bool_)
            unseen[self._pool.in_bag[j]] = False
            bits[j] = np.packbits(unseen)
        return bits

    def _unseen_at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        assert self._unseen is not None
        if _follow(rows):
            octets = np.arange(rows[0] >> 3, (rows[-1] >> 3) + 1)
            bits = np.unpackbits(_crossing(self._unseen, columns, octets), axis=1)
            first = rows[0] & 7
            return np.asarray(bits[:, first : first + len(rows)].view(np.bool_))
        bits = self._unseen[np.ix_(columns, rows >> 3)]
        shift = (7 - (rows & 7)).astype(np.uint8)[None, :]
        return np.asarray((bits >> shift) & 1, dtype=np.bool_)


class LeafRows(PredictedRows):
    """Row blocks of trees, looked up from the leaf each row falls into.

    Memory is two bytes a row and tree (four where a tree has more than 65 536 nodes) and one bit
    for the mask, whatever the number of classes. Parameters are those of `PredictedRows`.
    """

    _leaves: np.ndarray
    _table: np.ndarray
    _firsts: np.ndarray

    @property
    def nbytes(self) -> int:
        """Memory held between blocks, beside X and the members."""
        return super().nbytes + self._leaves.nbytes + self._table.nbytes

    def _store(self, verbose: int) -> None:
        members = self._pool.members
        tables = [_leaf_table(member, self.classes, self._dtype) for member in members]
        self._firsts = np.cumsum([0, *map(len, tables)])
        self._table = np.concatenate(tables)
        most_nodes = max(map(len, tables))
        del tables
        narrow = most_nodes <= np.iinfo(np.uint16).max + 1
        dtype = np.uint16 if narrow else np.uint32
        assert self.n_rows is not None
        self._leaves = np.empty((len(members), self.n_rows), dtype=dtype)

        report = PassReport(len(members), 0, verbose, what="evidence", unit="member")
        done = itertools.count(1)  # threads finish in any order

        def route(j: int) -> None:
            self._leaves[j] = members[j].apply(self._X)
            report.block(next(done))

        _for_each(route, len(members), self._n_jobs)

    def _planes(
        self, rows: np.ndarray, columns: np.ndarray, unseen: np.ndarray | None
    ) -> list[np.ndarray]:
        if self._every_class:
            return super()._planes(rows, columns, unseen)
        # Many trees in one look-up: a block of few rows costs Python more by the tree than by vote.
        n_each = max(1, LOOKED_UP // max(1, len(rows)))
        votes = np.empty((len(rows), len(columns)), dtype=self._dtype)
        n_values = self._table.shape[1]
        value = 0 if self.classes is None else self._target[rows]
        table = self._table.reshape(-1)

        def look_up(stretch: int) -> None:
            some = slice(stretch * n_each, (stretch + 1) * n_each)
            trees = columns[some]
            places = np.multiply(_crossing(self._leaves, trees, rows), n_values, dtype=np.intp)
            places += n_values * self._firsts[trees, None]
            places += value
            found = table.take(places)
            if unseen is not None:
                found *= unseen[some]
            votes[:, some] = found.T

        _for_each(look_up, -(-len(columns) // n_each), self._n_jobs)
        return [votes]

    def _votes_of(self, j: int, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._table[self._firsts[j] + self._leaves[j, rows]].T)


def _crossing(matrix: np.ndarray, lines: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Entries where some lines and columns cross; a view where both follow one another."""
    if _follow(lines) and _follow(columns):
        return matrix[lines[0] : lines[-1] + 1, columns[0] : columns[-1] + 1]
    return np.asarray(matrix[np.ix_(lines, columns)])


def _follow(places: np.ndarray) -> bool:
    return len(places) > 0 and bool(np.all(np.diff(places) == 1))


def _for_each(work: Callable[[int], None], n_members: int, n_jobs: int | None) -> None:
    """Do it for every member's position, a stretch of them a task.

    A task sets scikit-learn's configuration and all warnings' filters, 0.2 ms; looking up a tree's
    leaves for a block takes a tenth of that.
    """
    n_tasks = max(1, min(n_members, TASKS_A_JOB * effective_n_jobs(n_jobs)))

    def do(stretch: np.ndarray) -> None:
        for j in stretch.tolist():
            work(j)

    Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(do)(stretch) for stretch in np.array_split(np.arange(n_members), n_tasks)
    )


def _leaf_table(member: Member, classes: np.ndarray | None, dtype: np.dtype[Any]) -> np.ndarray:
    """What each node of a tree says, in the ensemble's class order; one column for regression."""
    value = member.estimator.tree_.value[:, 0, :]
    if classes is None:
        return np.asarray(value, dtype=dtype)
    assert member.class_columns is not None
    table = np.zeros((len(value), len(classes)), dtype=dtype)
    table[:, member.class_columns] = value / value.sum(axis=1, keepdims=True)
    return table
