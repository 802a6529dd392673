"""Gates of random numbers, for tests of what carries and evaluates them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeRegressor

from sparsebag.refine.directions import Directions
from sparsebag.refine.gate import LinearGate
from sparsebag.refine.region_gate import RegionGate


def linear_gate(
    k: int,
    d: int,
    seed: int = 0,
    *,
    activation: str = "softmax",
    temperature: bool = True,
    rank: int = 2,
    bounded: bool = False,
) -> LinearGate:
    """A smooth gate whose weights change much over the rows of a standard normal."""
    rng = np.random.default_rng(seed)
    own = rng.dirichlet(np.ones(k))
    return LinearGate(
        mean=rng.normal(size=d),
        scale=rng.uniform(0.5, 2.0, size=d),
        down=rng.normal(size=(rank, d)) / np.sqrt(d),
        up=rng.normal(size=(k, rank)) * (1.0 if activation == "softmax" else 0.3),
        base=np.log(own) if activation == "softmax" else own,
        activation=activation,
        log_temperature=0.3 * rng.normal(size=1 + rank) if temperature else None,
        offset=rng.normal(size=rank) if bounded else None,
    )


def region_gate(k: int, d: int, seed: int = 0, *, temperature: bool = True) -> RegionGate:
    """A gate of eight regions."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, d))
    X[rng.random(X.shape) < 0.1] = np.nan
    tree = DecisionTreeRegressor(max_depth=3, random_state=seed).fit(X, rng.normal(size=200))
    return region_gate_of(tree, k, seed, temperature=temperature)


def oblique_gate(k: int, d: int, seed: int = 0, *, temperature: bool = True) -> RegionGate:
    """A gate of eight regions, some of them parted by sums of features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(200, d))
    X[rng.random(X.shape) < 0.1] = np.nan
    along = Directions(
        mean=rng.normal(size=d),
        scale=rng.uniform(0.5, 2.0, size=d),
        down=rng.normal(size=(2, d)) / np.sqrt(d),
    )
    sums = along.of(X)
    target = np.sign(sums[:, 0]) + 0.5 * np.sign(sums[:, 1]) + 0.2 * np.sign(np.nan_to_num(X[:, 0]))
    tree = DecisionTreeRegressor(max_depth=3, random_state=seed).fit(np.hstack([X, sums]), target)
    assert set(range(d, d + 2)) <= set(tree.tree_.feature), "the tree reads both sums"
    return region_gate_of(tree, k, seed, temperature=temperature, directions=along)


def region_gate_of(
    fitted: DecisionTreeRegressor | None,
    k: int,
    seed: int = 0,
    *,
    temperature: bool = True,
    directions: Directions | None = None,
) -> RegionGate:
    """A gate of a tree's leaves; of one split of one feature without a tree."""
    rng = np.random.default_rng(seed)
    if fitted is None:
        nodes: dict[str, Any] = {
            "feature": [0, 0, 0],
            "threshold": [0.5, 0.0, 0.0],
            "left": [1, -1, -1],
            "right": [2, -1, -1],
            "missing_left": [1, 0, 0],
        }
        n_features = 1
    else:
        tree = fitted.tree_
        nodes = {
            "feature": np.maximum(tree.feature, 0),
            "threshold": tree.threshold,
            "left": tree.children_left,
            "right": tree.children_right,
            "missing_left": tree.missing_go_to_left,
        }
        n_features = tree.n_features - (0 if directions is None else len(directions.down))
    leaf = np.asarray(nodes["left"]) < 0
    region = np.where(leaf, np.cumsum(leaf) - 1, -1)
    n_regions = int(leaf.sum())
    return RegionGate(
        **nodes,
        region=region,
        region_weights=rng.dirichlet(np.ones(k), size=n_regions),
        n_features=n_features,
        temperature=rng.uniform(0.5, 2.0, size=n_regions) if temperature else None,
        directions=directions,
    )
