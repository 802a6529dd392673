"""What a fitted tree remembers of its training rows: its leaves' counts, weights and values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sparsebag.evidence.members import Member

ROUNDING = 1e-9
"""Sums of up to millions of doubles, taken in another order, agree to better than this."""
MEAN_CRITERIA = ("squared_error", "friedman_mse", "poisson")
"""Regression criteria whose leaf value is the mean target."""


@dataclass(frozen=True)
class RoutedBag:
    """The distinct rows of a bag, in the leaves of the tree that was trained on it.

    Attributes
    ----------
    leaf : ndarray of shape (n,)
        Position of each row's leaf in the arrays below.
    draws : ndarray of shape (n,)
        How often each row was drawn.
    target : ndarray of shape (n,)
        Class positions, or numbers.
    count : ndarray of shape (L,)
        Rows in each leaf, as the tree has it.
    weight : ndarray of shape (L,)
        Their total weight, as the tree has it.
    value : ndarray of shape (L, K)
        Class shares, or one number, as the tree has them.
    """

    leaf: np.ndarray
    draws: np.ndarray
    target: np.ndarray
    count: np.ndarray
    weight: np.ndarray
    value: np.ndarray

    def total(self, per_row: np.ndarray) -> np.ndarray:
        """Sum over the rows of each leaf."""
        return np.bincount(self.leaf, weights=per_row, minlength=len(self.weight))

    def weights_are_draws(self) -> bool:
        """Whether the leaves' weights are their numbers of draws, up to a constant."""
        drawn = self.total(self.draws)
        scaled = drawn * (self.weight.sum() / drawn.sum())
        return bool(np.all(np.abs(self.weight - scaled) <= ROUNDING * self.weight))


def route(member: Member, rows: Any, draws: np.ndarray, target: np.ndarray) -> RoutedBag:
    """Send a bag's distinct rows down the tree that is said to be trained on them.

    Parameters
    ----------
    member : Member
        One decision tree.
    rows : array-like of shape (n, n_features)
    draws : ndarray of shape (n,)
        How often each was drawn.
    target : ndarray of shape (n,)
        Class positions (classification) or numbers.

    Returns
    -------
    RoutedBag
    """
    return in_leaves(member, member.apply(rows), draws, target)


def in_leaves(
    member: Member, leaves: np.ndarray, draws: np.ndarray, target: np.ndarray
) -> RoutedBag:
    """A bag's distinct rows whose leaves are known.

    Parameters
    ----------
    member : Member
        One decision tree.
    leaves : ndarray of shape (n,)
        The node each row falls into.
    draws, target : ndarray of shape (n,)
        As in `route`.

    Returns
    -------
    RoutedBag
    """
    nodes = member.estimator.tree_
    ids = np.flatnonzero(nodes.children_left < 0)
    position = np.zeros(nodes.node_count, dtype=np.intp)
    position[ids] = np.arange(len(ids))
    return RoutedBag(
        leaf=position[leaves],
        draws=draws,
        target=target,
        count=nodes.n_node_samples[ids],
        weight=nodes.weighted_n_node_samples[ids],
        value=nodes.value[ids, 0, :],
    )


def disagreement(
    member: Member,
    bag: RoutedBag,
    *,
    classes_weighted: bool,
    rows_weighted: bool,
    rows_repeated: bool,
) -> str | None:
    """How a tree's leaves contradict the rows it is said to be trained on.

    Parameters
    ----------
    member : Member
        One decision tree.
    bag : RoutedBag
        Its rows.
    classes_weighted, rows_weighted : bool
        Whether the tree may have been fitted with weights a class, or a row, on top of the draws.
        The leaves prove less then.
    rows_repeated : bool
        Whether it may have been given repeated rows; else the draws were weights.

    Returns
    -------
    str or None
        What disagrees; None if nothing does.
    """
    if not _counts_agree(bag, rows_repeated):
        return "routing its bagged rows does not give its leaf counts"
    unweighted = not (classes_weighted or rows_weighted)
    if unweighted and not bag.weights_are_draws():
        return "routing its bagged rows does not give its leaf weights"
    if getattr(member.estimator, "monotonic_cst", None) is not None:
        # Leaf values are clipped to the constraint; the root's is as its rows give it.
        nodes = member.estimator.tree_
        weight, value = nodes.weighted_n_node_samples[:1], nodes.value[:1, 0, :]
        bag = replace(bag, leaf=np.zeros_like(bag.leaf), weight=weight, value=value)
    if member.class_columns is None:
        agrees = _values_agree(bag, member.estimator.criterion, unweighted)
    else:
        agrees = _shares_agree(bag, member.class_columns, unweighted, rows_weighted)
    return None if agrees else "the targets of its bagged rows do not give its leaf values"


def _counts_agree(bag: RoutedBag, rows_repeated: bool) -> bool:
    """Whether the leaves hold as many rows as the tree counted.

    A tree given draws as weights counts distinct rows; given repeated rows it counts them all.
    Rows of zero weight it does not count, so there may be more than it says.
    """
    distinct = np.bincount(bag.leaf, minlength=len(bag.count))
    if np.all(distinct >= bag.count):
        return True
    return rows_repeated and bool(np.all(bag.total(bag.draws) >= bag.count))


def _shares_agree(
    bag: RoutedBag, class_columns: np.ndarray, unweighted: bool, rows_weighted: bool
) -> bool:
    n_leaves, n_classes = len(bag.weight), int(max(bag.target.max(), class_columns.max())) + 1
    cell = bag.leaf * n_classes + bag.target
    drawn = np.bincount(cell, weights=bag.draws, minlength=n_leaves * n_classes)
    drawn = drawn.reshape(n_leaves, n_classes)
    weight = np.zeros((n_leaves, n_classes))
    weight[:, class_columns] = bag.value * bag.weight[:, None]
    slack = ROUNDING * bag.weight[:, None]
    if np.all(np.abs(weight - drawn * (weight.sum() / drawn.sum())) <= slack):
        return True
    if unweighted:
        return False
    # Weights a class: in every leaf a class weighs the same multiple of its draws.
    multiple = weight.sum(axis=0) / np.maximum(drawn.sum(axis=0), 1.0)
    if np.all(np.abs(weight - drawn * multiple) <= slack):
        return True
    # Weights a row: a class may be present and weigh nothing, never the reverse.
    return rows_weighted and not np.any((weight > slack) & (drawn == 0))


def _values_agree(bag: RoutedBag, criterion: Any, unweighted: bool) -> bool:
    value = bag.value[:, 0]
    slack = ROUNDING * float(np.abs(bag.target).max())
    drawn = bag.total(bag.draws)
    if isinstance(criterion, str) and criterion in MEAN_CRITERIA:
        exact = np.abs(bag.total(bag.draws * bag.target) / drawn - value) <= slack
    elif criterion == "absolute_error":
        below = bag.total(bag.draws * (bag.target < value[bag.leaf] - slack))
        above = bag.total(bag.draws * (bag.target > value[bag.leaf] + slack))
        exact = np.maximum(below, above) <= drawn / 2  # a median, whichever of them
    else:
        exact = np.zeros(len(value), dtype=np.bool_)
        unweighted = False
    if unweighted or np.all(exact):
        return bool(np.all(exact))
    low, high = np.full(len(value), np.inf), np.full(len(value), -np.inf)
    np.minimum.at(low, bag.leaf, bag.target)
    np.maximum.at(high, bag.leaf, bag.target)
    return bool(np.all((value >= low - slack) & (value <= high + slack)))
