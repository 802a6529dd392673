"""Gates of random numbers, for tests of what carries and evaluates them."""

import numpy as np

from sparsebag.local.gate import LinearGate


def linear_gate(k: int, d: int, seed: int = 0, *, rank: int = 2, spread: float = 1.0) -> LinearGate:
    """A gate whose weights change much over the rows of a standard normal."""
    rng = np.random.default_rng(seed)
    return LinearGate(
        mean=rng.normal(size=d),
        scale=rng.uniform(0.5, 2.0, size=d),
        down=rng.normal(size=(rank, d)) / np.sqrt(d),
        offset=rng.normal(size=rank),
        up=spread * rng.normal(size=(k, rank)),
        base=np.log(rng.dirichlet(np.ones(k))),
    )
