"""Proof that X and y are the rows an ensemble was trained on, in the same order.

Out-of-bag rows are only out of bag if they are the training rows; given others, or the same ones
shuffled, every later figure would be quietly wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn.ensemble import BaggingClassifier, BaggingRegressor
from sklearn.metrics import r2_score

from sparsebag.evidence.members import Member, MemberPool, shown, take_rows

LEAVES_CHECKED = 100
"""Other rows, or another order, pass one leaf's count by chance, not a hundred of them."""
ROUNDING = 1e-9
"""Sums of up to millions of doubles, taken in another order, agree to better than this."""
LEAVES_TO_TELL = 8
"""In more leaves weights do not add up to the number of draws by chance."""
MEAN_CRITERIA = ("squared_error", "friedman_mse", "poisson")
"""Regression criteria whose leaf value is the mean target."""
TREES_MISPLACE_NAN = tuple(int(n) for n in sklearn.__version__.split(".")[:2]) < (1, 8)
"""Before 1.8 a tree grown on missing values may count a row in a leaf it does not route it to."""
CODED = ("lightgbm", "xgboost")
"""Libraries that read pandas' categories as their codes."""
OOB_ROWS_CHECKED = 200
OOB_ROWS_EXCUSED = 0.01
"""Share of those rows that may differ: a tie that rounding broke differently."""
OOB_TOLERANCE = 1e-4
"""Difference to the ensemble's own OOB prediction that rounding explains, X of float32 included."""


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
            f"X has {shape[0] if shape else 0} rows but y has {n_rows}; pass one target per row."
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
    library = type(pool.source).__module__.partition(".")[0]
    if library in CODED and any(str(kind) == "category" for kind in X.dtypes):
        raise ValueError(
            f"X has categorical columns, and {library} reads their codes; pass "
            "X.assign(**{c: X[c].cat.codes for c in X.select_dtypes('category')}) here and in "
            "predict."
        )
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
        if list(names) == [str(name).replace(" ", "_") for name in given]:
            continue  # as LightGBM writes them
        pairs = zip(given[columns], names, strict=False)
        others = (f"{shown(a)} in place of {shown(b)}" for a, b in pairs if a != b)
        first = next(others, "more or fewer")
        raise ValueError(
            f"X's column names differ from those the ensemble was fitted on ({first}); pass the "
            "same columns in the same order."
        )


def prove_training_rows(pool: MemberPool, X: Any, target: np.ndarray) -> str | None:
    """Prove that these are the training rows; raise one sentence if they are not.

    Trees: routing a member's bagged rows must give its leaves' counts, and their targets its
    leaves' values. Else: our out-of-bag prediction must be the ensemble's own, where it kept one.

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
    trees = [j for j, member in enumerate(pool.members) if member.is_tree]
    if not trees:
        return "out-of-bag predictions" if _prove_by_predictions(pool, X, target) else None
    # Three trees at least: the oldest and the newest, where an ensemble grown in two fits differs,
    # and one of the others.
    order = np.random.default_rng(0).permutation(trees).tolist()
    n_checked, n_leaves = 0, 0
    for j in dict.fromkeys([trees[0], trees[-1], *order]):
        if n_checked >= 3 and n_leaves >= LEAVES_CHECKED:
            break
        rows, draws = np.unique(pool.in_bag[j], return_counts=True)
        block = take_rows(X, rows)
        if not len(rows) or (TREES_MISPLACE_NAN and _has_nan(block)):
            continue
        member = pool.members[j]
        leaf, n_of_tree = _leaves(member, block)
        found = _contradiction(pool, member, leaf, draws, target[rows])
        if found is not None:
            raise _not_training(f"for member {j}, {found}")
        n_checked, n_leaves = n_checked + 1, n_leaves + n_of_tree
    return "leaf counts" if n_checked else None


def are_shuffled_training_rows(pool: MemberPool, X: Any) -> bool:
    """Whether as many rows as were trained on fill every leaf that holds a single one of those.

    Other rows miss one of five of these leaves.

    Parameters
    ----------
    pool : MemberPool
    X : array-like
        Prepared by ``pool.prepare``.

    Returns
    -------
    bool
        False where trees have too few such leaves to tell.
    """
    n_leaves = 0
    for member in pool.members if X.shape[0] == pool.n_rows else ():
        if member.is_tree and n_leaves < LEAVES_CHECKED:
            leaf, n_of_tree = _leaves(member, X)
            tree = member.estimator.tree_
            single = tree.n_node_samples[tree.children_left < 0] == 1
            if not np.all(np.bincount(leaf, minlength=n_of_tree)[single]):
                return False
            n_leaves += int(single.sum())
    return n_leaves >= LEAVES_CHECKED


def _leaves(member: Member, block: Any) -> tuple[np.ndarray, int]:
    """Number of each row's leaf among the leaves of a tree, and how many leaves it has."""
    ends = np.flatnonzero(member.estimator.tree_.children_left < 0)
    return np.searchsorted(ends, member.apply(block)), len(ends)


@dataclass(frozen=True)
class _Bag:
    """The distinct rows of a bag in the leaves of its tree, and what the tree has of these."""

    leaf: np.ndarray
    draws: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    value: np.ndarray

    def total(self, per_row: np.ndarray) -> np.ndarray:
        """Sum over the rows of each leaf."""
        return np.bincount(self.leaf, per_row, minlength=len(self.weight))

    def weights_are_draws(self) -> bool:
        """Whether the leaves' weights are their numbers of draws, up to a constant."""
        drawn = self.total(self.draws)
        scaled = drawn * (self.weight.sum() / drawn.sum())
        return bool(np.all(np.abs(self.weight - scaled) <= ROUNDING * self.weight))


def _contradiction(
    pool: MemberPool, member: Member, leaf: np.ndarray, draws: np.ndarray, target: np.ndarray
) -> str | None:
    """How a tree's leaves contradict the rows it is said to be trained on; None if they do not."""
    tree = member.estimator.tree_
    ends = np.flatnonzero(tree.children_left < 0)
    # scikit-learn's draws are weights, and a tree counts distinct rows; others may repeat rows.
    # Rows of no weight are not counted, so there may be more than it says.
    repeated = type(pool.source).__module__.partition(".")[0] != "sklearn"
    counted = np.bincount(leaf, draws if repeated else None, minlength=len(ends))
    if np.any(counted < tree.n_node_samples[ends]):
        return "routing its bagged rows does not give its leaf counts"
    bag = _Bag(leaf, draws, target, tree.weighted_n_node_samples[ends], tree.value[ends, 0, :])
    models = (pool.source, member.estimator)
    classes_weighted = any(getattr(model, "class_weight", None) is not None for model in models)
    # scikit-learn that keeps ``_sample_weight`` draws rows by it; older versions, and whoever made
    # a list of trees, may have passed weights on. Then the leaves tell.
    rows_weighted = not hasattr(pool.source, "_sample_weight") and not (
        len(ends) > LEAVES_TO_TELL and bag.weights_are_draws()
    )
    if not (classes_weighted or rows_weighted or bag.weights_are_draws()):
        return "routing its bagged rows does not give its leaf weights"
    if getattr(member.estimator, "monotonic_cst", None) is not None:
        # Leaf values are clipped to the constraint; the root's is as its rows give it.
        weight, value = tree.weighted_n_node_samples[:1], tree.value[:1, 0, :]
        bag = replace(bag, leaf=np.zeros_like(leaf), weight=weight, value=value)
    if member.class_columns is None:
        agrees = _means_agree(bag, member.estimator.criterion, rows_weighted)
    else:
        agrees = _shares_agree(bag, member.class_columns, classes_weighted, rows_weighted)
    return None if agrees else "the targets of its bagged rows do not give its leaf values"


def _shares_agree(
    bag: _Bag, class_columns: np.ndarray, classes_weighted: bool, rows_weighted: bool
) -> bool:
    """Whether every class weighs the same multiple of its draws in all leaves."""
    n, n_classes = len(bag.weight), int(max(bag.target.max(), class_columns.max())) + 1
    drawn = np.bincount(bag.leaf * n_classes + bag.target, bag.draws, minlength=n * n_classes)
    drawn = drawn.reshape(n, n_classes)
    has = np.zeros((n, n_classes))
    has[:, class_columns] = bag.value * bag.weight[:, None]
    slack = ROUNDING * bag.weight[:, None]
    axis = 0 if classes_weighted or rows_weighted else None
    multiple = has.sum(axis=axis) / np.maximum(drawn.sum(axis=axis), 1.0)
    if np.all(np.abs(has - drawn * multiple) <= slack):
        return True
    # Weighted rows: a class may be there and weigh nothing, never the reverse.
    return rows_weighted and not np.any((has > slack) & (drawn == 0))


def _means_agree(bag: _Bag, criterion: Any, rows_weighted: bool) -> bool:
    """Whether leaves say the mean or median of their targets; of weighted ones, a value between."""
    value, slack = bag.value[:, 0], ROUNDING * float(np.abs(bag.target).max())
    drawn, known = bag.total(bag.draws), isinstance(criterion, str)
    exact = np.zeros(len(value), dtype=np.bool_)
    if known and criterion in MEAN_CRITERIA:
        exact = np.abs(bag.total(bag.draws * bag.target) / drawn - value) <= slack
    elif known and criterion == "absolute_error":
        below = bag.total(bag.draws * (bag.target < value[bag.leaf] - slack))
        above = bag.total(bag.draws * (bag.target > value[bag.leaf] + slack))
        exact = np.maximum(below, above) <= drawn / 2  # a median, whichever of them
    else:
        rows_weighted = True
    if np.all(exact) or not rows_weighted:
        return bool(np.all(exact))
    low, high = np.full(len(value), np.inf), np.full(len(value), -np.inf)
    np.minimum.at(low, bag.leaf, bag.target)
    np.maximum.at(high, bag.leaf, bag.target)
    return bool(np.all((value >= low - slack) & (value <= high + slack)))


def _has_nan(block: Any) -> bool:
    return bool(np.isnan(block.data if sp.issparse(block) else np.asarray(block, float)).any())


def _prove_by_predictions(pool: MemberPool, X: Any, target: np.ndarray) -> bool:
    """Compare with the out-of-bag predictions and the score that a bag kept; whether it did."""
    bag, bags = pool.source, pool.in_bag
    assert bags is not None
    if not isinstance(bag, (BaggingClassifier, BaggingRegressor)) or not bag.oob_score:
        return False
    n_classes = 0 if pool.classes is None else len(pool.classes)
    if any(m.class_columns is not None and len(m.class_columns) < n_classes for m in pool.members):
        return False  # scikit-learn adds a one-class member's column to every class
    kept = np.asarray(bag.oob_prediction_ if pool.classes is None else bag.oob_decision_function_)
    rows = np.unique(np.linspace(0, len(kept) - 1, OOB_ROWS_CHECKED).astype(int))
    total, voters = np.zeros(kept[rows].shape), np.zeros(len(rows))
    some = take_rows(X, rows)
    for j, member in enumerate(pool.members):
        mine = np.flatnonzero(~np.isin(rows, bags[j]))
        if len(mine):
            block = take_rows(some, mine)
            votes = (
                member.predict(block)
                if pool.classes is None
                else member.predict_proba(block, n_classes)
            )
            total[mine] += votes
            voters[mine] += 1
    known = voters > 0
    # A bag of classifiers divides by the sum of the votes, a bag of regressors by their number.
    by = voters if pool.classes is None else total.sum(axis=1, keepdims=True)
    off = np.abs(total[known] / by[known] - kept[rows][known])
    scale = 1.0 if pool.classes is not None else float(np.abs(kept[rows]).max())
    differ = (off > OOB_TOLERANCE * scale).reshape(len(off), -1)
    if differ.any(axis=1).mean() > OOB_ROWS_EXCUSED:
        raise _not_training("the members' out-of-bag predictions differ from the stored ones")
    # The kept predictions do not know y; the score kept with them does.
    if pool.classes is None:
        score, slack = r2_score(target, kept), OOB_TOLERANCE
    else:  # ties may fall the other way
        ranked = np.sort(kept, axis=1)
        score = np.mean(kept.argmax(axis=1) == target)
        slack = np.mean(ranked[:, -1] - ranked[:, -2] <= OOB_TOLERANCE) + 0.5 / len(target)
    if not abs(score - bag.oob_score_) <= slack:
        raise _not_training("y does not reproduce the stored out-of-bag score")
    return True


def _not_training(found: str) -> ValueError:
    return ValueError(
        f"X, y are not the ensemble's training rows in their original order: {found}. Pass the "
        "arrays it was fitted on, or rows it has never seen with evidence='holdout'."
    )
