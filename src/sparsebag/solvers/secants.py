"""What passes have shown of the curvature that a sample of rows lacks.

Between two points whose gradient over all rows is known, the whole's gradient changed by y, and
that of the sample's model by z. Along the step s between them the model is given the whole's
curvature by what BFGS adds to a Hessian::

    y yᵀ / (s·y) - z zᵀ / (s·z)

which leaves it positive where it was. The directions in which a sample misleads a solve are few,
and one is mended a pass.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace

Array = Any

MOST_BENDS = 16
"""Two a pass; those before were of points far away."""
LEAST_CURVATURE = 1e-12
"""Below it a step says nothing."""


class Secants:
    """Corrections of a sample's curvature from the passes made so far, of rank one each.

    Attributes
    ----------
    bends : tuple of (array of shape (N,), float)
        Vectors and signs, as `sparsebag.objective.penalties.Tilted` takes them.

    Examples
    --------
    >>> import numpy as np
    >>> secants = Secants()
    >>> secants.add(np.array([1.0, -1.0]), np.array([4.0, -4.0]), np.array([1.0, -1.0]))
    >>> round(float(sum(sign * (bend[0] - bend[1]) ** 2 for bend, sign in secants.bends)), 6)
    6.0
    """

    def __init__(self) -> None:
        self.bends: tuple[tuple[Array, float], ...] = ()

    def add(self, step: Array, has: Array, had: Array) -> None:
        """A step, and how the gradients changed along it.

        Parameters
        ----------
        step, has, had : array of shape (N,)
            The step, the change over all rows, and over the sample alone.
        """
        xp = array_namespace(step)
        for bend, sign in self.bends:
            had = had + sign * xp.sum(bend * step) * bend
        true, own = float(xp.sum(has * step)), float(xp.sum(had * step))
        least = LEAST_CURVATURE * float(xp.sum(step * step))
        if true <= least or own <= least:
            return
        added = (has / true**0.5, 1.0), (had / own**0.5, -1.0)
        self.bends = (*self.bends, *added)[-MOST_BENDS:]
