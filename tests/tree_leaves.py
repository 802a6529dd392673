"""Trees that say other things in their leaves."""

import numpy as np

from sparsebag.evidence.members import Member
from sparsebag.student.trees import pruned_tree


def with_leaves(member: Member, values: np.ndarray, *, is_vote: bool) -> Member:
    """A copy of a tree whose nodes say ``values``: numbers, or shares of every class."""
    tree = member.estimator.tree_
    every, leaf = np.arange(tree.node_count), tree.children_left < 0
    n_features = tree.n_features if member.features is None else int(member.features.max()) + 1
    other = pruned_tree(member, every, leaf, values, is_vote, n_features)
    columns = np.arange(values.shape[1]) if is_vote else None
    return Member(other, None, columns)
