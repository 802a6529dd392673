"""What rows held out of a sample say of weights that were fitted to it, and how sure they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sparsebag.evidence.arrays import on_host
from sparsebag.evidence.evidence import OOBEvidence

MOST_ERRORS = 4.0
"""Standard errors the gap on held rows may be from zero; the largest of N slopes is off by some."""
MOST_UNSURE = 0.5
"""Share of the loss that those standard errors may make up: a judge that would not see a gap of
half the loss has not found that there is none."""
GROUPS = 16
"""Parts of the held rows whose spread gives standard errors."""
LEAST_EQUAL = 2 * GROUPS
"""Rows of equal weight that the held ones must be worth, two for each part: where a few of them
outweigh the rest, parts differ by which has those, and their spread is no standard error."""
LEAST_TRUSTED = 0.5
"""Share of the correction below which the sample speaks for itself alone: no success. It is 0.3 or
less where members' worth turns about half-way, above 0.8 where rows are alike."""


@dataclass(frozen=True)
class Verdict:
    """What held rows say of some weights.

    ``error`` is the gap's standard error, ``n_equal`` the rows of equal weight they are worth,
    ``penalty`` what it has in the value.
    """

    value: float
    gap: float
    error: float
    trusted_share: float
    n_equal: float
    penalty: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the gap may be none, a large one would show, and more than the sample says so."""
        most, loss = MOST_ERRORS * self.error, abs(self.value - self.penalty)
        is_sharp = most <= MOST_UNSURE * loss and self.n_equal >= LEAST_EQUAL
        return bool(is_sharp and self.trusted_share >= LEAST_TRUSTED and self.gap <= most)


def n_equal_rows(evidence: OOBEvidence) -> float:
    """Rows of equal weight that would say as much as these (Kish 1965).

    Parameters
    ----------
    evidence : OOBEvidence

    Returns
    -------
    float

    Examples
    --------
    >>> weight = np.array([1.0, 1.0, 1e-9])
    >>> round(n_equal_rows(OOBEvidence(np.ones((3, 2)), None, weight, "regression", weight)), 6)
    2.0
    """
    if evidence.sample_weight is None:
        return float(evidence.n_rows)
    weight = on_host(evidence.sample_weight)
    weight = weight / weight.max()
    return float(weight.sum() ** 2 / (weight @ weight))


def row_groups(n_rows: int) -> list[slice]:
    """Rows in `GROUPS` parts, every sixteenth together, so that drift is in all of them alike."""
    return [slice(group, None, GROUPS) for group in range(min(GROUPS, n_rows))]


def steadied(parts: np.ndarray) -> np.ndarray:
    """Estimates by parts of the rows, with the share of the correction that varies least.

    ``parts`` has shape (G, 2) or (G, 2, k): what the rows say, and the correction of it.
    """
    return np.asarray(parts[:, 0] + steadiest_share(parts) * parts[:, 1])


def steadiest_share(parts: np.ndarray) -> float:
    """β for which the spread of ``parts[:, 0] + β parts[:, 1]`` over the first axis is least."""
    centred = parts - parts.mean(axis=0)
    own, tilt = centred[:, 0], centred[:, 1]
    square = float(np.sum(tilt * tilt))
    # Parts that agree have nothing to tell: all rows together know best.
    return float(np.clip(-np.sum(own * tilt) / square, 0.0, 1.0)) if square > 0 else 1.0


def standard_error(values: np.ndarray) -> float:
    """Of the mean of such estimates; infinite of one."""
    if len(values) < 2:
        return float("inf")
    return float(np.std(values, ddof=1) / len(values) ** 0.5)
