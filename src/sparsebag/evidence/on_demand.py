"""Every class's votes, predicted again block by block where storing them would take the tensor.

A tree's leaf votes for a class or two, so trees' class votes are stored sparse. Other members give
every class a probability: M×N×C numbers. What reads them (the full-vote risk, calibrators) takes
one block of rows at a time, and gets it from the members themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.parallel import Parallel, delayed

from sparsebag.evidence.members import MemberPool, take_rows

BLOCK_ROWS = 8192
"""Rows a member predicts at a time: bounds the copies of X and of its class probabilities."""


class OnDemandVotes:
    """Class votes of members on the rows each did not see, as one matrix a class.

    Parameters
    ----------
    pool : MemberPool
    X : array-like, sparse matrix or DataFrame
        Rows as ``pool.prepare`` gives them.
    mask : ndarray of booleans of shape (M, N) or None
        True where a row is out of bag; None: everywhere.
    dtype : dtype
    n_jobs : int, optional
        Threads over members.
    rows, members : ndarray of indices, optional
        Those that are looked at; default: all. ``mask`` has all of them.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import BaggingClassifier
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X, y = load_iris(return_X_y=True)
    >>> bag = BaggingClassifier(LogisticRegression(max_iter=500), 4, random_state=0).fit(X, y)
    >>> votes = OnDemandVotes(read_ensemble(bag), X, None, np.float64)
    >>> len(votes), votes[0].shape
    (3, (150, 4))
    >>> round(float(sum(plane[np.array([7])] for plane in votes).sum()), 6)
    4.0
    """

    def __init__(
        self,
        pool: MemberPool,
        X: Any,
        mask: np.ndarray | None,
        dtype: Any,
        n_jobs: int | None = None,
        rows: np.ndarray | None = None,
        members: np.ndarray | None = None,
    ) -> None:
        assert pool.classes is not None
        self._pool, self._X, self._mask = pool, X, mask
        self._n_jobs, self.dtype = n_jobs, np.dtype(dtype)
        self._rows = np.arange(X.shape[0]) if rows is None else rows
        self._members = np.arange(len(pool.members)) if members is None else members
        self._n_classes = len(pool.classes)
        self._last: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and members of each class's matrix."""
        return len(self._rows), len(self._members)

    def __len__(self) -> int:
        return self._n_classes

    def __getitem__(self, c: int) -> OnDemandPlane:
        if not 0 <= c < self._n_classes:
            raise IndexError(c)
        return OnDemandPlane(self, c)

    def __iter__(self) -> Iterator[OnDemandPlane]:
        return (OnDemandPlane(self, c) for c in range(self._n_classes))

    def take(self, rows: Any) -> OnDemandVotes:
        """The same of some rows; nothing is predicted yet.

        Parameters
        ----------
        rows : slice, index array or boolean array

        Returns
        -------
        OnDemandVotes
        """
        return self._of(self._rows[rows], self._members)

    def take_members(self, members: Any) -> OnDemandVotes:
        """The same of some members.

        Parameters
        ----------
        members : index array

        Returns
        -------
        OnDemandVotes
        """
        return self._of(self._rows, self._members[members])

    def block(self, rows: np.ndarray) -> np.ndarray:
        """Votes on some rows, zero where in bag; the last block asked for is remembered.

        Classes are asked for one after the other, and members predict all of them at once.

        Parameters
        ----------
        rows : ndarray of indices

        Returns
        -------
        ndarray of shape (C, rows, N)
        """
        if self._last is not None and np.array_equal(self._last[0], rows):
            return self._last[1]
        self._last = None  # before the next one is made: one block is in memory, not two
        votes = np.zeros((self._n_classes, len(rows), len(self._members)), dtype=self.dtype)
        of_all = self._rows[rows]

        def predict(column: int) -> None:
            j = int(self._members[column])
            unseen = np.arange(len(rows))
            if self._mask is not None:
                unseen = np.flatnonzero(self._mask[of_all, j])
            for start in range(0, len(unseen), BLOCK_ROWS):
                part = unseen[start : start + BLOCK_ROWS]
                X = take_rows(self._X, of_all[part])
                proba = self._pool.members[j].predict_proba(X, self._n_classes)
                votes[:, part, column] = proba.T

        Parallel(n_jobs=self._n_jobs, require="sharedmem")(
            delayed(predict)(column) for column in range(len(self._members))
        )
        self._last = rows, votes
        return votes

    def _of(self, rows: np.ndarray, members: np.ndarray) -> OnDemandVotes:
        return OnDemandVotes(
            self._pool, self._X, self._mask, self.dtype, self._n_jobs, rows, members
        )


class OnDemandPlane:
    """One class's matrix (rows × members), read by rows as a stored one would be.

    Parameters
    ----------
    votes : OnDemandVotes
    c : int
        Position of the class.
    """

    def __init__(self, votes: OnDemandVotes, c: int) -> None:
        self._votes, self._c = votes, c
        self.shape, self.dtype = votes.shape, votes.dtype

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(self._votes.block(rows)[self._c])

    def toarray(self) -> np.ndarray:
        """All rows; for evidence cut to a block.

        Returns
        -------
        ndarray of shape (rows, N)
        """
        return self[np.arange(self.shape[0])]
