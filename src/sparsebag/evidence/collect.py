"""Collecting evidence: every member predicts the rows it has not seen, block by block."""

from __future__ import annotations

import sys
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed

from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import MemberPool, take_rows
from sparsebag.evidence.training_rows import check_columns, prove_training_rows

BLOCK_ROWS = 8192
"""Rows a member predicts at a time: bounds the copies of X and of its class probabilities."""


def collect_evidence(
    pool: MemberPool,
    X: Any,
    y: Any,
    *,
    source: Literal["oob", "holdout"] = "oob",
    sample_weight: Any = None,
    class_votes: bool = False,
    dtype: Any = np.float32,
    n_jobs: int | None = None,
    block_rows: int = BLOCK_ROWS,
    verify: bool = True,
    verbose: int = 0,
) -> OOBEvidence:
    """Let each member predict the rows it was not trained on.

    Parameters
    ----------
    pool : MemberPool
        See `sparsebag.evidence.from_ensemble.read_ensemble`.
    X : array-like, sparse matrix or DataFrame of shape (M, n_features)
        The training rows (``source="oob"``), or rows no member has seen (``"holdout"``).
    y : array-like of shape (M,)
        Their targets.
    source : {"oob", "holdout"}
        Which rows of X a member has not seen: those out of its bag, or all of them.
    sample_weight : array-like of shape (M,), optional
        Row weights.
    class_votes : bool, default False
        Keep every class's votes, for losses that read them (multiclass Brier).
    dtype : dtype, default float32
        Precision of the stored votes.
    n_jobs : int, optional
        Threads over members, as in joblib. The result does not depend on it.
    block_rows : int
        Rows predicted at a time. The result does not depend on it.
    verify : bool, default True
        Prove that X and y are the training rows, in order.
    verbose : int, default 0
        Progress on standard error.

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomForestClassifier(20, random_state=0).fit(X, y)
    >>> collect_evidence(read_ensemble(forest), X, y).votes.shape
    (150, 20)
    """
    target = encode_target(pool, y)
    n_rows = len(target)
    check_columns(pool, X, n_rows, training=source == "oob")
    members_X = pool.prepare(X)
    verified_by = None
    in_bag = None
    if source == "oob":
        in_bag = pool.in_bag
        if in_bag is None:
            raise ValueError(
                "the ensemble was not bootstrapped (or its in-bag rows are unknown), so no "
                "training row is unseen by any member; pass held-out rows with "
                "evidence='holdout' (a list of models: also estimators_samples=)."
            )
        if verify:
            verified_by = prove_training_rows(pool, members_X, target)

    n_members = len(pool.members)
    votes = np.zeros((n_rows, n_members), dtype=dtype)
    mask = None if in_bag is None else np.zeros((n_rows, n_members), dtype=np.bool_)
    n_classes = 0 if pool.classes is None else len(pool.classes)
    planes: list[list[Any]] = [[] for _ in range(n_members)]
    keep_planes = class_votes and n_classes > 2

    def predict_member(j: int) -> None:
        member = pool.members[j]
        if in_bag is None:
            rows = np.arange(n_rows)
        else:
            seen = np.zeros(n_rows, dtype=np.bool_)
            seen[in_bag[j]] = True
            rows = np.flatnonzero(~seen)
            assert mask is not None
            mask[rows, j] = True
        for start in range(0, len(rows), block_rows):
            block = rows[start : start + block_rows]
            X_block = take_rows(members_X, block)
            if pool.classes is None:
                votes[block, j] = member.predict(X_block)
                continue
            proba = member.predict_proba(X_block, n_classes)
            votes[block, j] = proba[np.arange(len(block)), target[block]]
            if keep_planes:
                planes[j].append((block, sp.csc_array(proba.astype(dtype))))

    Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(predict_member)(j) for j in _with_progress(n_members, verbose)
    )
    if not np.all(np.isfinite(votes.sum(axis=1, dtype=np.float64))):
        raise ValueError("a member predicts NaN or infinity on rows it has not seen.")
    return OOBEvidence(
        votes=votes,
        oob_mask=mask,
        target=target,
        task=pool.task,
        sample_weight=check_sample_weight(sample_weight, votes),
        classes=pool.classes,
        class_votes=_stack_planes(planes, n_rows, n_classes) if keep_planes else None,
        source=source,
        verified_by=verified_by,
    )


def encode_target(pool: MemberPool, y: Any) -> np.ndarray:
    """Targets as the votes need them: class positions, or floats.

    Parameters
    ----------
    pool : MemberPool
    y : array-like of shape (M,)

    Returns
    -------
    ndarray of shape (M,)
    """
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"y has shape {values.shape}; multi-output problems are not supported, pass one "
            "target a row."
        )
    if pool.classes is None:
        floats = values.astype(np.float64)
        if not np.all(np.isfinite(floats)):
            raise ValueError("y holds NaN or infinity.")
        return floats
    classes = np.asarray(pool.classes)
    if classes.dtype == object or values.dtype == object:
        values, classes = values.astype(object), classes.astype(object)
    known = np.isin(values, classes)
    if not known.all():
        raise ValueError(
            f"y holds a class the ensemble was not trained on ({values[~known][0]!r}); X and y "
            "must be the ensemble's own training rows."
        )
    return np.searchsorted(classes, values).astype(np.intp)


def _stack_planes(planes: list[list[Any]], n_rows: int, n_classes: int) -> tuple[sp.csr_array, ...]:
    """One sparse (rows × members) matrix a class from the members' sparse blocks."""
    stacked = []
    for c in range(n_classes):
        data, rows, columns = [], [], []
        for j, blocks in enumerate(planes):
            for block, proba in blocks:
                column = slice(proba.indptr[c], proba.indptr[c + 1])
                data.append(proba.data[column])
                rows.append(block[proba.indices[column]])
                columns.append(np.full(len(data[-1]), j))
        coordinates = (np.concatenate(rows), np.concatenate(columns))
        shape = (n_rows, len(planes))
        stacked.append(sp.csr_array((np.concatenate(data), coordinates), shape=shape))
    return tuple(stacked)


def _with_progress(n_members: int, verbose: int) -> Any:
    for j in range(n_members):
        if verbose and (j + 1) % max(1, n_members // 10) == 0:
            print(f"[evidence] member {j + 1} of {n_members}", file=sys.stderr, flush=True)
        yield j
