"""Collecting evidence: every member predicts the rows it has not seen, block by block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.parallel import Parallel, delayed

from sparsebag.evidence.evidence import PROBABILITY_TOLERANCE, OOBEvidence
from sparsebag.evidence.from_predictions import check_sample_weight
from sparsebag.evidence.members import (
    MemberPool,
    UnknownLabelError,
    class_positions,
    shown,
    take_rows,
)
from sparsebag.evidence.training_rows import (
    are_shuffled_training_rows,
    check_columns,
    check_row_count,
    prove_training_rows,
)

BLOCK_ROWS = 8192
"""Rows a member predicts at a time: bounds the copies of X and of its class probabilities."""
SPREAD_OF_TARGETS_KEPT = 1e-3
"""Votes must resolve the targets' standard deviation this finely, or they are kept in float64."""
FEWEST_ROWS = 30
"""Of a class that two members have out of bag: fewer say nothing for sure."""
LEAST_CHANGE, ERRORS = 0.05, 4.0
"""Balanced classes change a class's share by more; and so many standard errors of bootstraps."""


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
        Keep every class's votes, for what reads them (multiclass Brier, calibrators).
    dtype : dtype, default float32
        Precision of the stored votes. Regression votes that float32 would blur (targets such as
        seconds since 1970, large beside their spread) are kept in float64 all the same.
    n_jobs : int, optional
        Threads over members, as in joblib. The result does not depend on it.
    block_rows : int
        Rows predicted at a time. The result does not depend on it, but for the last bit of a
        double in members that multiply matrices.
    verify : bool, default True
        Prove that X and y are the training rows, in order.

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
    in_bag = pool.in_bag if source == "oob" else None
    if source == "oob" and in_bag is None:
        raise ValueError(
            f"there are no out-of-bag rows to judge the members by: {pool.no_in_bag}. Pass rows "
            "it has never seen: sparsebag.compress(model, X_new, y_new, evidence='holdout')."
        )
    given = read_training_rows(
        pool, X, y, source=source, sample_weight=sample_weight, verify=verify
    )
    members_X, target = given.X, given.target
    n_rows, n_members = len(target), len(pool.members)

    votes = np.zeros((n_rows, n_members), dtype=storage_of(dtype, pool, target))
    mask = None if in_bag is None else np.zeros((n_rows, n_members), dtype=np.bool_)
    n_classes = 0 if pool.classes is None else len(pool.classes)
    planes: list[list[Any]] = [[] for _ in range(n_members)]
    keep_planes = class_votes and n_classes > 2

    def predict_member(j: int) -> None:
        member = pool.members[j]
        unseen = np.ones(n_rows, dtype=np.bool_)
        if in_bag is not None and mask is not None:
            unseen[in_bag[j]] = False
            mask[:, j] = unseen
        rows = np.flatnonzero(unseen)
        for start in range(0, len(rows), block_rows):
            block = rows[start : start + block_rows]
            X_block = take_rows(members_X, block)
            if pool.classes is None:
                vote = member.predict(X_block)
            else:
                proba = member.predict_proba(X_block, n_classes)
                vote = proba[np.arange(len(block)), target[block]]
                if keep_planes:
                    _check_vote(proba, probability=True)
                    planes[j].append((block, sp.csc_array(proba.astype(votes.dtype))))
            _check_vote(vote, probability=pool.classes is not None)
            votes[block, j] = vote

    def predict_or_name(j: int) -> None:
        try:
            predict_member(j)
        except Exception as error:
            error.add_note(f"(raised by member {j}, a {type(pool.members[j].estimator).__name__})")
            raise

    Parallel(n_jobs=n_jobs, require="sharedmem")(
        delayed(predict_or_name)(j) for j in range(n_members)
    )
    return OOBEvidence(
        votes=votes,
        oob_mask=mask,
        target=target,
        task=pool.task,
        sample_weight=given.sample_weight,
        classes=pool.classes,
        class_votes=_stack_planes(planes, votes, n_classes) if keep_planes else None,
        source=source,
        verified_by=given.verified_by,
    )


@dataclass(frozen=True)
class GivenRows:
    """Rows as the members read them, checked.

    Attributes
    ----------
    X : array
        As `MemberPool.prepare` gives it.
    target : ndarray of shape (M,)
        Class positions, or floats.
    sample_weight : ndarray of shape (M,) or None
    verified_by : str or None
        What proved that these are the training rows, in order.
    """

    X: Any
    target: np.ndarray
    sample_weight: np.ndarray | None
    verified_by: str | None


def read_training_rows(
    pool: MemberPool,
    X: Any,
    y: Any,
    *,
    source: Literal["oob", "holdout"] = "oob",
    sample_weight: Any = None,
    verify: bool = True,
) -> GivenRows:
    """Check the rows and prove that they are the training rows, or that they are not.

    Parameters
    ----------
    pool, X, y, source, sample_weight, verify
        As in `collect_evidence`.

    Returns
    -------
    GivenRows
    """
    target = encode_target(pool, y)
    check_columns(pool, X, len(target), training=source == "oob")
    weight = None if sample_weight is None else check_sample_weight(sample_weight, target)
    rows = pool.prepare(X)
    verified_by, bagged = None, pool
    if pool.in_bag is None and getattr(pool.source, "bootstrap", True) is False:
        # Each tree has seen all rows.
        bagged = replace(pool, in_bag=[np.arange(len(target))] * len(pool.members))
    if bagged.in_bag is not None and verify:
        if source == "holdout":
            _refuse_training_rows(bagged, rows, target)
        else:
            verified_by = prove_training_rows(bagged, rows, target)
    return GivenRows(rows, target, weight, verified_by)


def _refuse_training_rows(pool: MemberPool, rows: Any, target: np.ndarray) -> None:
    """Held-out evidence on the rows members were trained on would flatter them beyond measure."""
    try:
        check_row_count(pool, len(target))
        proof: Any = prove_training_rows(pool, rows, target)
    except ValueError:  # they are others, as they should be
        proof, order = are_shuffled_training_rows(pool, rows) or None, " in another order"
    else:
        order = ""
    if proof is not None:
        raise ValueError(
            "evidence='holdout' is for rows the ensemble has not seen, but these are its training "
            f"rows{order}; leave it out, with the rows as they were fitted, to judge each member "
            "on its out-of-bag rows."
        )


def encode_target(pool: MemberPool, y: Any) -> np.ndarray:
    """Targets as the votes need them: class positions, or floats.

    Parameters
    ----------
    pool : MemberPool
    y : array-like of shape (M,)
        Checked (`sparsebag.validation.check_targets`).

    Returns
    -------
    ndarray of shape (M,)
    """
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if pool.classes is None:
        return values.astype(np.float64)
    try:
        return class_positions(values, np.asarray(pool.classes))
    except UnknownLabelError as unknown:
        raise ValueError(
            f"y holds a class the ensemble was not trained on ({unknown}); pass the labels it "
            f"was fitted with, such as {', '.join(map(shown, pool.classes[:5]))}."
        ) from None


def storage_of(dtype: Any, pool: MemberPool, target: np.ndarray) -> Any:
    """The dtype that keeps the votes' differences: float64 where ``dtype`` would round them off.

    Parameters
    ----------
    dtype : dtype
        The one that is wanted.
    pool : MemberPool
    target : ndarray of shape (M,)

    Returns
    -------
    dtype
    """
    if pool.classes is not None:
        return dtype
    rounding = float(np.finfo(dtype).eps) * float(np.abs(target).max())
    return dtype if rounding <= SPREAD_OF_TARGETS_KEPT * float(np.std(target)) else np.float64


def _check_vote(vote: np.ndarray, *, probability: bool) -> None:
    if not np.all(np.isfinite(vote)):
        raise ValueError(
            "a member predicts NaN or infinity on rows it has not seen; leave it out, or refit "
            "the ensemble without it."
        )
    if probability and (np.any(vote < 0.0) or np.any(vote > 1.0 + PROBABILITY_TOLERANCE)):
        raise ValueError(
            f"a member's predict_proba goes from {vote.min():g} to {vote.max():g}; probabilities "
            "must lie between 0 and 1."
        )


def _stack_planes(
    planes: list[list[Any]], votes: np.ndarray, n_classes: int
) -> tuple[sp.csr_array, ...]:
    """One sparse (rows × members) matrix a class from the members' sparse blocks."""
    stacked = []
    for c in range(n_classes):
        data, rows, ends = [votes[:0, 0]], [np.zeros(0, dtype=np.intp)], [0]
        for blocks in planes:
            for block, proba in blocks:
                column = slice(proba.indptr[c], proba.indptr[c + 1])
                data.append(proba.data[column])
                rows.append(block[proba.indices[column]])
            ends.append(ends[-1] + sum(b.indptr[c + 1] - b.indptr[c] for _, b in blocks))
        columns = (np.concatenate(data), np.concatenate(rows), np.asarray(ends))
        stacked.append(sp.csc_array(columns, shape=votes.shape).tocsr())
    return tuple(stacked)


def check_weights_are_given(pool: MemberPool, y: Any) -> None:
    """Refuse to go on without the ``sample_weight`` that an ensemble was fitted with.

    Rows that it was told to overlook must not teach or judge its small version.

    Parameters
    ----------
    pool : MemberPool
    y : array-like of shape (M,)
    """
    known = getattr(pool.source, "_sample_weight", None)  # class weights are in it
    if known is None or len(known) != len(y):
        return
    of_class = encode_target(pool, y) if pool.classes is not None else np.zeros(len(y), dtype=int)
    if any(np.ptp(known[of_class == c]) > 0.0 for c in np.unique(of_class)):
        raise ValueError(
            "X, y are not in the original order, or the ensemble was fitted with sample_weight; "
            "pass the rows, and sample_weight=, as they were given to fit."
        )


def row_weights(
    pool: MemberPool,
    target: np.ndarray,
    sample_weight: np.ndarray | None,
    *,
    held_out: bool = False,
) -> np.ndarray:
    """Weights of mean one under which the classes have the shares that the members saw.

    ``class_weight``, balanced bags and weighted draws say what the probabilities are *for*.
    Calibrating or refitting to the raw class shares would undo them, so every step weighs rows as
    the ensemble did.

    Parameters
    ----------
    pool : MemberPool
    target : ndarray of shape (M,)
        Class positions, or numbers.
    sample_weight : ndarray of shape (M,) or None
    held_out : bool, default False
        Whether the members were trained on other rows, whose class shares differ by chance.

    Returns
    -------
    ndarray of shape (M,)

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> X, y = np.arange(40.0).reshape(40, 1), np.repeat([0, 1], [30, 10])
    >>> forest = RandomForestClassifier(50, class_weight="balanced", random_state=0).fit(X, y)
    >>> weight = row_weights(read_ensemble(forest), y, None)
    >>> float(round(weight[y == 1].sum() / weight.sum(), 1))
    0.5
    """
    weight = np.ones(len(target)) if sample_weight is None else np.array(sample_weight, dtype=float)
    if pool.classes is not None:
        given = np.bincount(target, weight, minlength=len(pool.classes)) / weight.sum()
        seen = _seen_shares(pool, target, given, held_out)
        factor = np.divide(seen, given, out=np.ones_like(given), where=given > 0.0)
        drawn = np.bincount(target, minlength=len(given)) * (1 if held_out else len(pool.members))
        least = np.maximum(LEAST_CHANGE, ERRORS / np.sqrt(np.maximum(drawn, 1)))
        if np.any(np.abs(factor - 1.0) > least):
            weight = weight * factor[target]
    return np.asarray(weight / weight.mean())


def evenly_out_of_bag(evidence: OOBEvidence) -> OOBEvidence:
    """Evidence in which every class is as often out of bag.

    Members are judged by the rows that they have out of bag. Bags that are drawn by class weight
    hold most of a rare class: members would be judged by the other classes alone. As many of
    these classes' votes, picked at random, are left out.

    Parameters
    ----------
    evidence : OOBEvidence

    Returns
    -------
    OOBEvidence

    Examples
    --------
    >>> mask = np.array([[True] * 8] * 600 + [[True, False] * 4] * 400)
    >>> target = np.repeat([0, 1], [600, 400])
    >>> known = {"classes": np.arange(2), "task": "classification"}
    >>> even = evenly_out_of_bag(OOBEvidence(np.ones(mask.shape), mask, target, **known))
    >>> bool(0.45 < even.oob_mask[:600].mean() < 0.55), float(even.oob_mask[600:].mean())
    (True, 0.5)
    """
    if evidence.classes is None or evidence.oob_mask is None:
        return evidence
    mask = np.array(evidence.oob_mask, dtype=bool)
    present, at, rows = np.unique(evidence.target, return_inverse=True, return_counts=True)
    share = np.bincount(at, mask.mean(axis=1)) / rows
    rare = int(np.argmin(share))
    slack = max(LEAST_CHANGE, ERRORS / np.sqrt(rows.min() * mask.shape[1]))
    if share[rare] >= (1.0 - slack) * share.max():
        return evidence
    if np.count_nonzero(mask[at == rare].sum(axis=1) >= 2) < FEWEST_ROWS:
        raise ValueError(
            f"rows of class {evidence.classes[int(present[rare])]} are almost never out of bag, "
            f"so unrefined members cannot be judged on them. Pass rows it has never seen: "
            "sparsebag.compress(model, X_new, y_new, evidence='holdout'), or use refine='auto' "
            "(trees only)."
        )
    rng, kept = np.random.default_rng(0), share[rare] / share[at]
    for column in mask.T:
        column &= rng.random(len(at)) < kept
    return replace(evidence, oob_mask=mask, is_zeroed=False)


def _seen_shares(
    pool: MemberPool, target: np.ndarray, given: np.ndarray, held_out: bool
) -> np.ndarray:
    """Mean share of each class among the rows a member was trained on, as it weighed them."""
    if pool.leaves_are_shares and all(member.is_tree for member in pool.members):
        shares = np.zeros((len(pool.members), len(given)))
        for share, member in zip(shares, pool.members, strict=True):
            root = np.asarray(member.estimator.tree_.value[0, 0], dtype=float)
            share[member.class_columns] = root / root.sum()
        return np.asarray(shares.mean(axis=0))
    if getattr(pool.in_bag, "are_resampled", False) and pool.in_bag is not None and not held_out:
        bags = [target[pool.in_bag[j]] for j in range(len(pool.members))]
        drawn = np.bincount(np.concatenate(bags), minlength=len(given))
        return np.asarray(drawn / drawn.sum())
    asked: Any = getattr(pool.members[0].estimator, "class_weight", None)
    if asked is None or pool.classes is None:
        return given
    present = np.unique(target)
    if isinstance(asked, dict):  # inside a bag the labels are positions
        known = {int(p): asked.get(p, asked.get(pool.classes[p], 1.0)) for p in present}
        asked = known
    per_class = np.ones(len(given))
    per_class[present] = compute_class_weight(asked, classes=present, y=target)
    return np.asarray(given * per_class / (given @ per_class))
