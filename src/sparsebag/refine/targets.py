"""What leaves are refitted to: the targets, and the ensemble's out-of-bag prediction of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence
from sparsebag.refine.routed_rows import RoutedRows
from sparsebag.refine.tree_nodes import TreeNodes


@dataclass(frozen=True)
class Targets:
    """Targets in columns: one for regression and for two classes (the second), else one a class.

    Attributes
    ----------
    observed : ndarray of shape (M, D)
        Regression targets with mean zero and variance one; 0 or 1 for classes.
    predicted : ndarray of shape (M, D)
        The whole ensemble's out-of-bag prediction, in the same unit; ``observed`` for rows that
        no member has out of bag.
    centre, scale : float
        Of regression targets; 0 and 1 for classes.
    n_classes : int or None
    """

    observed: np.ndarray
    predicted: np.ndarray
    centre: float
    scale: float
    n_classes: int | None

    @classmethod
    def of(cls, evidence: OOBEvidence) -> Targets:
        """From what the members said of the rows out of their bags.

        Parameters
        ----------
        evidence : OOBEvidence
            With ``class_votes`` where there are more than two classes.
        """
        target = on_host(evidence.target)
        centre, scale = 0.0, 1.0
        if evidence.n_classes is None:
            centre = float(target.mean())
            scale = float(target.std()) or 1.0
            observed = ((target - centre) / scale)[:, None]
        else:
            first = 1 if evidence.n_classes == 2 else 0
            columns = np.arange(first, evidence.n_classes)
            observed = (target[:, None] == columns).astype(np.float64)
        voters = on_host(evidence.oob_mask).sum(axis=1)[:, None]
        predicted = np.empty_like(observed)
        everyone = np.arange(evidence.n_members)
        for d in range(observed.shape[1]):
            said = plain_votes(evidence, everyone, d, centre, scale)
            predicted[:, d] = said.sum(axis=1, dtype=np.float64)
        predicted = np.where(voters > 0, predicted / np.maximum(voters, 1), observed)
        return cls(observed, predicted, centre, scale, evidence.n_classes)

    @cached_property
    def position(self) -> np.ndarray:
        """Of each row's class; classification only."""
        if self.n_classes == 2:
            return np.asarray(self.observed[:, 0].astype(np.intp))
        return np.asarray(self.observed.argmax(axis=1))

    def totals(self, nodes: TreeNodes, leaf: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Weighted sums of the targets at or below each node of a tree.

        Parameters
        ----------
        nodes : TreeNodes
        leaf, weight : ndarray of shape (M,)

        Returns
        -------
        ndarray of shape (K, D)
        """
        if self.n_classes is None or self.n_classes == 2:
            return nodes.totals(leaf, weight[:, None] * self.observed)
        return nodes.totals_of_classes(leaf, weight, self.position, self.n_classes)

    @property
    def n_columns(self) -> int:
        """D."""
        return int(self.observed.shape[1])

    @property
    def multiplicity(self) -> float:
        """How often a column's squared error counts, in the unit of the risk."""
        return 2.0 if self.n_classes == 2 else self.scale**2

    def sharpened(self, twicing: float) -> np.ndarray:
        """The targets, moved away from the ensemble's prediction (``a > 0``) or towards it."""
        return np.asarray(self.observed + twicing * (self.observed - self.predicted))

    def as_votes(self, values: np.ndarray) -> np.ndarray:
        """Columns as votes: class shares that sum to one, or numbers in the targets' own unit.

        Parameters
        ----------
        values : ndarray of shape (..., D)

        Returns
        -------
        ndarray of shape (..., C), or (..., 1) for regression
        """
        if self.n_classes is None:
            return np.asarray(self.centre + self.scale * values)
        if self.n_classes == 2:
            return np.concatenate([1.0 - values, values], axis=-1)
        return values

    def leaf_table(self, routed: RoutedRows, j: int, twicing: float, lam: float) -> np.ndarray:
        """Refitted values of every node of tree j, from all rows.

        Parameters
        ----------
        routed : RoutedRows
        j : int
        twicing, lam : float
            The strengths a and λ.

        Returns
        -------
        ndarray of shape (K, D)
        """
        nodes, leaf, weight = routed.nodes(j), routed.leaf(j), routed.weight(j)
        if twicing == 0.0:
            sums = self.totals(nodes, leaf, weight)
        else:
            sums = nodes.totals(leaf, weight[:, None] * self.sharpened(twicing))
        return nodes.smoothed(nodes.totals(leaf, weight), sums, lam)


def plain_votes(
    evidence: OOBEvidence, members: np.ndarray, column: int, centre: float = 0.0, scale: float = 1.0
) -> np.ndarray:
    """What members said of one column of `Targets`; 0 where a row was in the bag.

    Parameters
    ----------
    evidence : OOBEvidence
    members : ndarray of indices
    column : int
    centre, scale : float
        As in `Targets`.

    Returns
    -------
    ndarray of shape (M, len(members))
    """
    if evidence.n_classes is not None and evidence.n_classes > 2:
        assert isinstance(evidence.class_votes, tuple)  # trees' votes are stored
        plane = evidence.class_votes[column][:, members]
        return np.asarray(plane.toarray() if hasattr(plane, "toarray") else plane)
    votes, mask = on_host(evidence.votes)[:, members], on_host(evidence.oob_mask)[:, members]
    if evidence.n_classes is None:
        return np.asarray(np.where(mask, (votes - centre) / scale, 0.0))
    second = (on_host(evidence.target) == 1)[:, None]
    return np.asarray(np.where(mask, np.where(second, votes, 1.0 - votes), 0.0))
