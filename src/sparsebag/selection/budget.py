"""Budgets: what a member costs, and what the user will pay."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sparsebag.evidence.members import Member, MemberPool


@dataclass(frozen=True)
class Prices:
    """What each member adds to the deployed model.

    Attributes
    ----------
    nodes : ndarray of shape (N,)
        Nodes of a tree; 0 for other models.
    bytes : ndarray of shape (N,)
        Bytes of its arrays (trees) or of its pickle (other models).
    """

    nodes: np.ndarray
    bytes: np.ndarray

    def of(self, members: np.ndarray) -> tuple[int, int, int]:
        """Members, nodes and bytes of some of them."""
        return len(members), int(self.nodes[members].sum()), int(self.bytes[members].sum())


def member_prices(pool: MemberPool) -> Prices:
    """Price every member of a pool.

    Parameters
    ----------
    pool : MemberPool

    Returns
    -------
    Prices

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from sparsebag.evidence.from_ensemble import read_ensemble
    >>> forest = RandomForestClassifier(3, random_state=0).fit(*load_iris(return_X_y=True))
    >>> prices = member_prices(read_ensemble(forest))
    >>> bool(prices.nodes[0] == forest.estimators_[0].tree_.node_count)
    True
    """
    priced = [_price(member) for member in pool.members]
    return Prices(np.array([n for n, _ in priced]), np.array([b for _, b in priced]))


def _price(member: Member) -> tuple[int, int]:
    if member.is_tree:
        tree = member.estimator.tree_
        state = tree.__getstate__()
        return int(tree.node_count), int(state["nodes"].nbytes + state["values"].nbytes)
    return 0, len(pickle.dumps(member.estimator, protocol=5))


@dataclass(frozen=True)
class Budget:
    """The most the user will deploy; None: no limit.

    Attributes
    ----------
    max_estimators, max_nodes, max_bytes : int or None
    of_gate : int
        Bytes that were taken off ``max_bytes`` for a gate; ``print`` adds them again, for the user
        said how much both may take.
    """

    max_estimators: int | None = None
    max_nodes: int | None = None
    max_bytes: int | None = None
    of_gate: int = 0

    def __post_init__(self) -> None:
        for name, value in self.named():
            whole = isinstance(value, (int, float, np.integer, np.floating))
            if not whole or isinstance(value, bool) or not math.isfinite(value) or value < 1:
                raise ValueError(f"{name} must be a number, at least 1, or None; got {value!r}.")
            if name == "max_estimators" and value != int(value):
                raise ValueError(f"max_estimators must be a whole number, got {value!r}.")

    def __str__(self) -> str:
        said = dict(self.named())
        if self.of_gate and self.max_bytes is not None:
            said["max_bytes"] = self.max_bytes + self.of_gate
        told = " and ".join(f"{name}={value:g}" for name, value in said.items()) or "no budget"
        return f"{told} ({self.of_gate:,} of them kept for a gate)" if self.of_gate else told

    def named(self) -> list[tuple[str, Any]]:
        """The limits that are set, by name."""
        limits = ("max_estimators", "max_nodes", "max_bytes")
        return [(n, getattr(self, n)) for n in limits if getattr(self, n) is not None]

    def allows(self, cost: Sequence[int]) -> bool:
        """Whether members, nodes and bytes are all within the limits."""
        limits = (self.max_estimators, self.max_nodes, self.max_bytes)
        return all(most is None or c <= most for c, most in zip(cost, limits, strict=True))

    def price_for_search(self, prices: Prices) -> np.ndarray | None:
        """What the search divides a member's gain by; None where members all cost the same.

        Infinite for members that are beyond the limits alone.
        """
        if self.max_bytes is None and self.max_nodes is None:
            return None
        price = prices.nodes if self.max_bytes is None else prices.bytes
        return np.where(self._affordable(prices), price.astype(float), np.inf)

    def _affordable(self, prices: Prices) -> np.ndarray:
        """Members that are within the limits alone."""
        of_nodes = math.inf if self.max_nodes is None else self.max_nodes
        of_bytes = math.inf if self.max_bytes is None else self.max_bytes
        return np.asarray((prices.nodes <= of_nodes) & (prices.bytes <= of_bytes))

    def check(self, prices: Prices) -> None:
        """Raise one sentence if not even one member can be paid for.

        Parameters
        ----------
        prices : Prices
        """
        if self.max_nodes is not None and not np.all(prices.nodes):
            raise ValueError(
                "max_nodes counts the nodes of trees, but not every member is one; use "
                "max_estimators or max_bytes."
            )
        if self.max_nodes is not None and prices.nodes.min() > self.max_nodes:
            raise ValueError(
                f"max_nodes={self.max_nodes} is less than the smallest member has "
                f"({prices.nodes.min()}); allow more nodes."
            )
        if self.max_bytes is not None and prices.bytes.min() > self.max_bytes:
            raise ValueError(
                f"max_bytes={self.max_bytes} is less than the smallest member takes "
                f"({prices.bytes.min()}); allow more bytes."
            )
        if not self._affordable(prices).any():
            raise ValueError(f"no member is within {self}; allow more of one of them.")
