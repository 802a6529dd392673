"""Trees that say other things in their leaves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sparsebag.evidence.members import Member, MemberPool
from sparsebag.student.trees import pruned_tree


def with_leaves(member: Member, values: np.ndarray, *, is_vote: bool) -> Member:
    """A copy of a tree whose nodes say ``values``: numbers, or shares of every class."""
    tree = member.estimator.tree_
    every, leaf = np.arange(tree.node_count), tree.children_left < 0
    n_features = tree.n_features if member.features is None else int(member.features.max()) + 1
    other = pruned_tree(member, every, leaf, values, is_vote, n_features)
    columns = np.arange(values.shape[1]) if is_vote else None
    return Member(other, None, columns)


def with_random_leaves(pool: MemberPool, seed: int = 0) -> MemberPool:
    """A pool of the same trees, with class shares drawn at random."""
    rng, n = np.random.default_rng(seed), len(pool.classes)
    members = [
        with_leaves(m, rng.dirichlet(np.ones(n), m.estimator.tree_.node_count), is_vote=True)
        for m in pool.members
    ]
    return replace(pool, members=tuple(members))
