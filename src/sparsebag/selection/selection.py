"""What a selection tells: weights, what they are expected to cost, and why."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.selection.table import PathTable


@dataclass(frozen=True)
class Selection:
    """What was kept, what it is expected to cost, and why. ``print`` it.

    Attributes
    ----------
    weights : ndarray of shape (N,)
        On the simplex; zero for members dropped.
    expected_risk, standard_error : float
        Expected Brier score (classification) or squared error (regression) on new rows, as
        deployed: calibrated, where the vote is. The optimism of having been chosen is in it.
    interval : tuple of float
        Where that risk is with 95 % confidence; see `selection.interval`. It is wider above than
        below, as risks are.
    full_risk : float
        That of the whole ensemble, calibrated too where the small one is.
    increase, bound : float
        Expected relative increase over ``full_risk``, and its upper 95 % confidence bound.
    tolerance : float
        The increase that was accepted.
    meets_tolerance : bool
        Whether the bound is within it.
    random_members : float
        How many members drawn at random would be expected to do as well; infinite where no
        number would.
    refitted_on : str or None
        The loss the weights were refitted on, where cross-fitting said it helps.
    table : PathTable
        Every size that was considered.
    explanation : str
        The choice in words.
    uncalibrated_risk : float
        Expected risk of the same members without their calibrator.
    """

    weights: np.ndarray
    expected_risk: float
    standard_error: float
    interval: tuple[float, float]
    full_risk: float
    increase: float
    bound: float
    tolerance: float
    meets_tolerance: bool
    random_members: float
    refitted_on: str | None
    table: PathTable
    explanation: str
    uncalibrated_risk: float

    def __str__(self) -> str:
        return self.explanation

    def __repr__(self) -> str:
        kept = int(np.count_nonzero(self.weights))
        return (
            f"Selection({kept} of {len(self.weights)} kept, expected risk "
            f"{self.expected_risk:.4g} ± {self.standard_error:.2g}, {self.increase:+.1%})"
        )
