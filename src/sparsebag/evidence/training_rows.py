"""Proof that X and y are the rows an ensemble was trained on, in the same order.

Out-of-bag rows are only out of bag if they are the training rows; given others, or the same ones
shuffled, every later figure would be quietly wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.metrics import r2_score

from sparsebag.evidence.leaves import RoutedBag, disagreement, in_leaves, route
from sparsebag.evidence.members import MemberPool, take_rows

TREES_CHECKED = 3
LEAVES_CHECKED = 100
"""Other rows, or another order, pass one leaf's count by chance, not a hundred of them."""
LEAVES_TO_TELL = 8
"""In so many leaves weights do not add up to the number of draws by chance."""
TREES_MISPLACE_NAN = tuple(int(n) for n in sklearn.__version__.split(".")[:2]) < (1, 8)
"""Before 1.8 a tree grown on missing values may count a row in a leaf it does not route it to."""
OOB_ROWS_CHECKED = 200
OOB_ROWS_EXCUSED = 0.01
"""Share of those rows that may differ: a tie that rounding broke differently."""
OOB_TOLERANCE = 1e-6
OOB_TOLERANCE_SINGLE = 1e-4
"""Difference to the ensemble's own OOB prediction that rounding explains, if X is float32."""


def check_columns(pool: MemberPool, X: Any, n_rows: int, *, training: bool) -> None:
    """Compare X's shape with y and with what the ensemble remembers.

    Models that take X as it is given (``input_kind="as_given"``) check its columns themselves:
    a pipeline may read text, or pick its columns by name from more than it needs.

    Parameters
    ----------
    pool : MemberPool
    X : array-like
    n_rows : int
        Length of y.
    training : bool
        Whether X should be the training rows.
    """
    shape = getattr(X, "shape", None)
    if shape is None:
        shape = np.shape(X)
    if len(shape) != 2 and pool.input_kind != "as_given":
        raise ValueError(f"X must have two axes (rows, columns), got shape {tuple(shape)}.")
    if not shape or shape[0] != n_rows:
        raise ValueError(
            f"X has {shape[0] if shape else 0} rows but y has {n_rows}; pass one target a row."
        )
    if pool.input_kind != "as_given":
        _check_width(pool, int(shape[1]))
        _check_names(pool, X)
    for j, member in enumerate(pool.members):
        if member.features is not None and np.max(member.features, initial=-1) >= shape[1]:
            raise ValueError(
                f"member {j} was trained on column {np.max(member.features)} and X has "
                f"{shape[1]} columns; pass the data it was trained on."
            )
    if training:
        check_row_count(pool, n_rows)


def check_row_count(pool: MemberPool, n_rows: int) -> None:
    """One sentence where so many rows cannot be the training rows.

    Parameters
    ----------
    pool : MemberPool
    n_rows : int
    """
    if pool.n_rows is not None and n_rows != pool.n_rows:
        raise _not_training(f"it has {n_rows} rows and the ensemble was fitted on {pool.n_rows}")
    if pool.n_rows is None and pool.in_bag is not None:
        highest = max(int(np.max(pool.in_bag[j], initial=-1)) for j in range(len(pool.in_bag)))
        if highest >= n_rows:
            raise _not_training(f"a member was trained on row {highest} and X has {n_rows} rows")


def _check_width(pool: MemberPool, width: int) -> None:
    if pool.n_features is not None and width != pool.n_features:
        raise ValueError(
            f"X has {width} columns but the ensemble was fitted on {pool.n_features}; pass "
            "the data it was trained on."
        )


def _check_names(pool: MemberPool, X: Any) -> None:
    """Compare column names, which members fed with bare arrays cannot do themselves."""
    if not hasattr(X, "columns"):
        return
    given = np.asarray(X.columns, dtype=object)
    fitted: list[tuple[Any, Any]] = [(pool.source, slice(None))]
    if pool.source is None:
        fitted = [
            (m.estimator, slice(None) if m.features is None else m.features) for m in pool.members
        ]
    for model, columns in fitted:
        names = getattr(model, "feature_names_in_", None)
        if names is None or list(names) == list(given[columns]):
            continue
        pairs = zip(given[columns], names, strict=False)
        first = next((f"{a!r} in place of {b!r}" for a, b in pairs if a != b), "more or fewer")
        raise ValueError(
            f"X's column names differ from those the ensemble was fitted on ({first}); pass the "
            "same columns in the same order."
        )


def prove_training_rows(pool: MemberPool, X: Any, target: np.ndarray) -> str | None:
    """Prove that these are the training rows; raise one sentence if they are not.

    Trees: routing a member's bagged rows must reproduce its leaves' counts, and their targets
    its leaves' values. Else: our uniform OOB prediction must equal the ensemble's own, where it
    kept one.

    Parameters
    ----------
    pool : MemberPool
        With in-bag rows.
    X : array-like
        Prepared by ``pool.prepare``.
    target : ndarray of shape (M,)
        Encoded targets.

    Returns
    -------
    str or None
        What proved it; None where the ensemble leaves nothing to check.
    """
    assert pool.in_bag is not None
    if any(member.is_tree for member in pool.members):
        return "leaf counts" if _check_leaves(pool, X, target) else None
    kept = kept_predictions(pool)
    if kept is None:
        return None
    rows = rows_to_check(len(kept))
    found = sum_of_votes(pool, take_rows(X, rows), unseen_by(pool, rows))
    prove_by_predictions(pool, kept, found, target)
    return "out-of-bag predictions"


def kept_predictions(pool: MemberPool) -> np.ndarray | None:
    """The ensemble's own out-of-bag predictions; None where it has none that could prove rows.

    Parameters
    ----------
    pool : MemberPool

    Returns
    -------
    ndarray of shape (M,) or (M, C), or None
    """
    if not isinstance(pool.source, (BaggingClassifier, BaggingRegressor)):
        return None
    if not pool.source.oob_score:  # what an earlier fit kept says nothing of this one
        return None
    if pool.classes is None:
        return np.asarray(pool.source.oob_prediction_)
    if any(
        m.class_columns is not None and len(m.class_columns) < len(pool.classes)
        for m in pool.members
    ):
        # scikit-learn adds a one-class member's column to every class, so what it kept is wrong.
        return None
    return np.asarray(pool.source.oob_decision_function_)


def _check_leaves(pool: MemberPool, X: Any, target: np.ndarray) -> bool:
    """Check a few trees, more of them if they are small; whether there were any to check."""
    bags = _route_some(pool, X, target)
    _check_bags(pool, bags)
    return bool(bags)


def trees_to_check(pool: MemberPool) -> list[int]:
    """Trees whose leaves would prove the training rows; empty where they cannot.

    Parameters
    ----------
    pool : MemberPool
        With in-bag rows.

    Returns
    -------
    list of int
    """
    trees = [j for j, member in enumerate(pool.members) if member.is_tree]
    chosen: list[int] = []
    if TREES_MISPLACE_NAN or not trees:
        return chosen
    n_leaves = 0
    for j in _first_last_then_any(trees):
        if len(chosen) >= TREES_CHECKED and n_leaves >= LEAVES_CHECKED:
            break
        chosen.append(j)
        n_leaves += int(pool.members[j].estimator.tree_.n_leaves)
    return chosen


def prove_by_leaves(pool: MemberPool, leaves: dict[int, np.ndarray], target: np.ndarray) -> bool:
    """As `prove_training_rows`, of trees in which every row's leaf is known.

    Parameters
    ----------
    pool : MemberPool
        With in-bag rows.
    leaves : dict of int to ndarray of shape (M,)
        By member, the node each row falls into.
    target : ndarray of shape (M,)
        Encoded targets.

    Returns
    -------
    bool
        Whether there was a bag to check.
    """
    assert pool.in_bag is not None
    bags = {}
    for j, nodes in leaves.items():
        rows, draws = np.unique(pool.in_bag[j], return_counts=True)
        if len(rows):
            bags[j] = in_leaves(pool.members[j], nodes[rows], draws, target[rows])
    _check_bags(pool, bags)
    return bool(bags)


def _check_bags(pool: MemberPool, bags: dict[int, RoutedBag]) -> None:
    rows_weighted = _rows_may_be_weighted(pool, list(bags.values()))
    for j, bag in bags.items():
        models = (pool.source, pool.members[j].estimator)
        found = disagreement(
            pool.members[j],
            bag,
            classes_weighted=any(getattr(m, "class_weight", None) is not None for m in models),
            rows_weighted=rows_weighted,
            rows_repeated=pool.source is None,
        )
        if found is not None:
            raise _not_training(f"for member {j}, {found}")


def _route_some(pool: MemberPool, X: Any, target: np.ndarray) -> dict[int, RoutedBag]:
    """The bagged rows of a few trees, in their leaves, by member."""
    assert pool.in_bag is not None
    trees = [j for j, member in enumerate(pool.members) if member.is_tree]
    bags: dict[int, RoutedBag] = {}
    for j in _first_last_then_any(trees):
        n_leaves = sum(len(bag.count) for bag in bags.values())
        if len(bags) >= TREES_CHECKED and n_leaves >= LEAVES_CHECKED:
            break
        rows, draws = np.unique(pool.in_bag[j], return_counts=True)
        block = take_rows(X, rows)
        if len(rows) and not (TREES_MISPLACE_NAN and _has_nan(block)):
            bags[j] = route(pool.members[j], block, draws, target[rows])
    return bags


def _rows_may_be_weighted(pool: MemberPool, bags: list[RoutedBag]) -> bool:
    """Whether the trees themselves may have been given weights a row.

    scikit-learn that keeps ``_sample_weight`` draws rows by it; older versions, and whoever made
    a list of trees, may have passed weights to the trees. Then the leaves tell.
    """
    if hasattr(pool.source, "_sample_weight"):
        return False
    told = sum(len(bag.count) - 1 for bag in bags)  # a constant factor is free in each tree
    return told < LEAVES_TO_TELL or not all(bag.weights_are_draws() for bag in bags)


def _first_last_then_any(trees: list[int]) -> list[int]:
    """The oldest and the newest member first: an ensemble grown in two fits differs there."""
    shuffled = np.random.default_rng(0).permutation(trees).tolist()
    return list(dict.fromkeys([trees[0], trees[-1], *shuffled]))


def _has_nan(block: Any) -> bool:
    return bool(np.isnan(block.data if sp.issparse(block) else np.asarray(block, float)).any())


def rows_to_check(n_rows: int) -> np.ndarray:
    """Rows whose out-of-bag predictions are compared with those an ensemble kept.

    Parameters
    ----------
    n_rows : int
        Rows there are.

    Returns
    -------
    ndarray of int, ascending
    """
    return np.unique(np.linspace(0, n_rows - 1, OOB_ROWS_CHECKED).astype(int))


def unseen_by(pool: MemberPool, rows: np.ndarray) -> np.ndarray:
    """Which of some rows are out of whose bag.

    Parameters
    ----------
    pool : MemberPool
        With in-bag rows.
    rows : ndarray of int

    Returns
    -------
    ndarray of bool, shape (rows, N)
    """
    assert pool.in_bag is not None
    return np.stack([~np.isin(rows, pool.in_bag[j]) for j in range(len(pool.members))], axis=1)


@dataclass(frozen=True)
class SummedVotes:
    """What members say of rows out of their bags, summed over the members.

    Attributes
    ----------
    total : ndarray of shape (rows,) or (rows, C)
    voters : ndarray of shape (rows,)
    is_single : bool
        Whether the members read numbers in less than double precision.
    """

    total: np.ndarray
    voters: np.ndarray
    is_single: bool


def sum_of_votes(pool: MemberPool, X: Any, unseen: np.ndarray) -> SummedVotes:
    """Let members predict the rows they have not seen, and add up what they say.

    Parameters
    ----------
    pool : MemberPool
    X : array-like of shape (rows, n_features)
        Prepared by ``pool.prepare``.
    unseen : ndarray of bool, shape (rows, N)

    Returns
    -------
    SummedVotes
    """
    total = np.zeros((len(unseen), *(() if pool.classes is None else (len(pool.classes),))))
    for j, member in enumerate(pool.members):
        rows = np.flatnonzero(unseen[:, j])
        if not len(rows):
            continue
        block = take_rows(X, rows)
        if pool.classes is None:
            total[rows] += member.predict(block)
        else:
            total[rows] += member.predict_proba(block, len(pool.classes))
    single = getattr(X, "dtype", None) in (np.float32, np.float16)
    return SummedVotes(total, unseen.sum(axis=1), single)


def prove_by_predictions(
    pool: MemberPool, kept: np.ndarray, found: SummedVotes, target: np.ndarray
) -> None:
    """As `prove_training_rows`, of members whose votes on `rows_to_check` are known.

    Parameters
    ----------
    pool : MemberPool
    kept : ndarray of shape (M,) or (M, C)
        See `kept_predictions`.
    found : SummedVotes
    target : ndarray of shape (M,)
        Encoded targets.
    """
    covered = found.voters > 0
    # A bag of classifiers divides by the sum of the votes, a bag of regressors by their number.
    by_number = pool.classes is None
    divisor = found.voters if by_number else found.total.sum(axis=1, keepdims=True)
    ours = found.total[covered] / divisor[covered]
    theirs = kept[rows_to_check(len(kept))][covered]
    tolerance = OOB_TOLERANCE_SINGLE if found.is_single else OOB_TOLERANCE
    scale = 1.0 if pool.classes is not None else float(np.max(np.abs(theirs), initial=0.0))
    near = np.abs(ours - theirs) <= tolerance * scale
    differ = np.count_nonzero(~near.reshape(len(near), -1).all(axis=1))
    if differ > OOB_ROWS_EXCUSED * len(near):
        raise _not_training("the members' out-of-bag predictions differ from those it kept")
    _check_oob_score(pool, kept, target)


def _check_oob_score(pool: MemberPool, kept: np.ndarray, target: np.ndarray) -> None:
    """The kept predictions do not know y; the score kept with them does."""
    score = float(pool.source.oob_score_)
    if pool.classes is None:
        agrees = np.isclose(r2_score(target, kept), score, rtol=OOB_TOLERANCE, atol=OOB_TOLERANCE)
    else:
        # scikit-learn takes the argmax before it divides by the number of votes, so a tie may
        # fall the other way.
        ranked = np.sort(kept, axis=1)
        ties = np.count_nonzero(ranked[:, -1] - ranked[:, -2] <= OOB_TOLERANCE)
        right = np.count_nonzero(np.argmax(kept, axis=1) == target)
        agrees = abs(right - score * len(target)) < ties + 0.5
    if not agrees:
        raise _not_training("y does not give the out-of-bag score it kept")


def _not_training(found: str) -> ValueError:
    return ValueError(
        f"X, y are not the ensemble's training rows in their original order: {found}. Pass the "
        "arrays it was fitted on, or rows it has never seen with evidence='holdout'."
    )
